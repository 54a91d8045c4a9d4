"""What the output layer refuses and what it lets pass, and that each kind of file is known again as ours."""

import gzip
import os
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from figures.labels.arrays import grown, tree
from figures.labels.files import write_tree
from landscape import FedscapeError
from landscape.storage.files import atomic_write, write_text
from landscape.storage.outputs import KINDS, Output, check_folder, check_outputs, pictures
from landscape.storage.pictures import save_figure

TABLE = ("run", "algorithm")


def csv(path):
    return Output("--csv", path, "csv", TABLE)


def refused(sentence, *outputs, inputs=(), force=False):
    with pytest.raises(FedscapeError, match=sentence) as error:
        check_outputs(outputs, inputs, force=force)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".pt", ".png", ".json", ".h5", ".npz", ".pkl", ".py"])
def test_a_name_of_another_kind_is_a_forgotten_name_even_with_force(tmp_path, suffix):
    refused(f"--csv .*a{re.escape(suffix)}: was a name forgotten", csv(tmp_path / f"a{suffix}"), force=True)


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a", "a.dat", "a.v2"])
def test_a_name_that_says_nothing_else_is_taken(tmp_path, name):
    check_outputs([csv(tmp_path / name)])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_an_input_is_never_written_under_any_of_its_names(tmp_path, link):
    (tmp_path / "read.csv").write_text("run,algorithm\n")
    other = tmp_path / "read.csv"
    if link is not None:
        other = tmp_path / "other.csv"
        link(tmp_path / "read.csv", other)
    refused("that file is read, and would be lost", csv(other), inputs=[tmp_path / "read.csv"], force=True)


def test_two_outputs_are_two_files_also_where_they_are_not_there_yet(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    outputs = [csv(tmp_path / "folder" / "a"), Output("--json", tmp_path / "link" / "a", "json", TABLE)]
    refused("--csv and --json are both to be written to", *outputs, force=True)


def test_what_is_no_regular_file_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "null.csv").symlink_to("/dev/null")
    for name, reason in (("pipe.csv", "no regular file"), ("folder.csv", "Is a directory"), ("null.csv", "no regular")):
        refused(reason, csv(tmp_path / name), force=True)
        with pytest.raises(FedscapeError, match=reason):
            write_text(tmp_path / name, "x")
    assert (tmp_path / "pipe.csv").is_fifo()
    assert os.readlink(tmp_path / "null.csv") == "/dev/null"
    assert sorted(os.listdir(tmp_path)) == ["folder.csv", "null.csv", "pipe.csv"]


def test_a_symbolic_link_is_written_through(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("before")
    (tmp_path / "link").symlink_to("there/file")
    (tmp_path / "new").symlink_to("there/new")
    for name in ("link", "new"):
        with atomic_write(tmp_path / name) as file:
            file.write(b"after")
            assert len(list((tmp_path / "there").glob(".*.tmp"))) == 1  # on the target's file system
        assert (tmp_path / name).is_symlink()
    assert sorted(os.listdir(tmp_path / "there")) == ["file", "new"]
    assert (tmp_path / "there" / "file").read_text() == "after"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FedscapeError, match="Too many levels of symbolic links"):
        write_text(tmp_path / "loop", "x")


def test_a_folder_that_cannot_be_written_is_found_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    refused("Not a directory", csv(tmp_path / "file" / "a.csv"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    refused("is not writable", csv(tmp_path / "new" / "a.csv"))
    monkeypatch.undo()
    check_outputs([csv(tmp_path / "new" / "deep" / "a.csv")])
    assert (tmp_path / "new" / "deep").is_dir()


def figure():
    made = Figure(figsize=(1, 1))
    made.subplots().plot([0, 1])
    return made


def ours(kind, path):
    """Write a file of the kind as the commands do, and the signs by which it is known."""
    texts = {
        "csv": ("run,algorithm,status\na,b,c\n", TABLE),
        "text": ("run    algorithm  status\n", TABLE),
        "json": ('{"runs": [{"run": 1, "algorithm": 2}], "more": 0}', TABLE),
        "lines": ('["key", 0.5, 0.25]\n', ()),
        "parts": ('["0123456789abcdef01234567", {"part": []}]\n', ()),
        "page": ('<html><meta name="generator" content="Fedscape">', ()),
        "latex": ("% Fedscape\n", ()),
        "markdown": ("<!-- Fedscape -->\n", ()),
        "vtk": ("# vtk DataFile Version 3.0\nFedscape: x\n", ()),
        "surface": ("fedscape-surface/2\nsha256 0\n", ()),
    }
    if kind in texts:
        path.write_text(texts[kind][0])
        return texts[kind][1]
    if kind == "trace":
        path.write_bytes(gzip.compress(b'{"producer": "Fedscape", "traceEvents": []}'))
        return ()
    if kind == "netcdf":
        write_tree(grown({"a": tree({"loss": ("x", np.zeros(2))}, {"x": [0, 1]}, {})}), path)
        return ()
    if kind == "npz":
        with open(path, "wb") as file:
            np.savez(file, first=np.zeros(1), second=np.zeros(1))
        return ("first",)
    raise AssertionError(f"no example of {kind}")


BY_FILES = sorted(set(KINDS) - {"picture", "caption", "state", "directions"})


@pytest.mark.parametrize("kind", BY_FILES)
def test_ours_are_replaced_and_others_only_with_force(tmp_path, kind):
    mine, other = (tmp_path / f"{name}{KINDS[kind].suffixes[0]}" for name in ("mine", "other"))
    signs = ours(kind, mine)
    other.write_text("step,my_loss\n1,0.5\n" if kind != "json" else '{"my": "notes"}')
    check_outputs([Output("--x", mine, kind, signs)])
    refused(r"there is a file that is not .* or --force to replace it", Output("--x", other, kind, signs))
    check_outputs([Output("--x", other, kind, signs)], force=True)
    continued = Output("--x", other, kind, signs, continued=True)
    refused("give another name$", continued, force=True)  # the work would go on from it


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg", "svgz", "eps", "ps"])
def test_a_picture_of_ours_is_known_by_its_maker(tmp_path, suffix):
    mine, other = tmp_path / f"mine.{suffix}", tmp_path / f"other.{suffix}"
    save_figure(figure(), mine)
    figure().savefig(other)  # with Matplotlib alone, as a user does
    check_outputs(pictures("--plot", mine, paper=False))
    refused("there is a file that is not a picture", *pictures("--plot", other, paper=False))
    mine.rename(tmp_path / f"swapped.{'png' if suffix != 'png' else 'pdf'}")
    swapped = next(tmp_path.glob("swapped.*"))
    refused("there is a file that is not a picture", *pictures("--plot", swapped, paper=False))


def test_a_picture_that_cannot_name_its_maker_is_replaced_with_force_only(tmp_path):
    save_figure(figure(), tmp_path / "mine.jpg")
    refused("is not a picture of this command", *pictures("--plot", tmp_path / "mine.jpg", paper=False))
    check_outputs(pictures("--plot", tmp_path / "mine.jpg", paper=False), force=True)


def test_a_caption_belongs_to_the_picture_beside_it(tmp_path):
    both = pictures("--plot", tmp_path / "a.png", paper=True)
    (tmp_path / "a.caption.txt").write_text("my own notes\n")
    refused("the caption of --plot .*is not a caption", *both)
    save_figure(figure(), tmp_path / "a.png", style="paper")
    check_outputs(both)


def test_damaged_files_are_nobodys_and_no_traceback(tmp_path):
    for kind, known in KINDS.items():
        path = tmp_path / f"x{known.suffixes[0]}"
        for content in (b"\xff\xfe\0", b"[" * 100_000, b"PK\x03\x04 broken", os.urandom(1000)):
            path.write_bytes(content)
            refused("there is a file that is not", Output("--x", path, kind, ("sign",)))


def test_a_folder_is_empty_or_ours(tmp_path):
    check_folder("--out", tmp_path, ["store"])
    check_folder("--out", tmp_path / "new", ["store"])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(FedscapeError, match=r"the folder holds notes.txt and nothing of ours: .* or --force"):
        check_folder("--out", tmp_path, ["store"])
    check_folder("--out", tmp_path, ["store"], force=True)
    (tmp_path / "store").mkdir()
    check_folder("--out", tmp_path, ["store"])
    with pytest.raises(FedscapeError, match="is no folder"):
        check_folder("--out", tmp_path / "notes.txt", ["store"], force=True)
