"""What was found broken by hostile and damaged files once, a test each."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from analysis.hessian.__main__ import main as hessian
from analysis.surface.values import Surface
from landscape import FedscapeError
from landscape.storage.pictures import draw_picture
from landscape.terminal import Table
from landscape.terminal.command import run
from tests.hostile import runs
from tests.hostile.kinds import dump, load, sealed
from tests.hostile.mutations import ESCAPES
from tests.hostile.runs import STORED
from trainers.runs.records import read_runs


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    return runs.begin(tmp_path_factory.mktemp("run") / "run", parts=False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"round": -4}, r"round is damaged: it holds -4, not a whole number from 0"),
        ({"round": 10**9}, r"is of round 1000000000, which metrics\.jsonl does not have"),
        ({"round": None}, "not a whole number from 0"),
        ({"server": {}}, "state.pt is damaged: server is an object of 0 entries, not one with w"),
        ({"server": {"w": torch.zeros(3), "c": torch.zeros(3)}}, r"server\.w is a Tensor .*, not a tensor of float32"),
        ({"clients": {10**9: {}}}, r"clients\.its key is 1000000000, not a whole number from 0 up to 3"),
        ({"clients": {0: {"c": torch.ones(1).expand(10**9)}}}, "not a plain tensor"),
        ({"latest": None}, "latest is None, not an object"),
        ({"averaged": {"count": 2, "value": torch.zeros(0)}}, r"averaged\.value is a Tensor"),
    ],
)
def test_a_state_that_does_not_fit_the_run_is_refused(begun, tmp_path, change, reason):
    run_ = Path(shutil.copytree(begun, tmp_path / "run"))
    torch.save({**torch.load(run_ / "state.pt"), **change}, run_ / "state.pt")
    with pytest.raises(FedscapeError, match=reason):
        runs.go_on(run_, parts=False)


def test_the_unspoilt_state_is_resumed(begun, tmp_path):
    runs.go_on(Path(shutil.copytree(begun, tmp_path / "run")), parts=False)


def test_a_negative_round_in_the_metrics_is_refused(tmp_path):
    run_ = Path(shutil.copytree(STORED / "mixed", tmp_path / "mixed"))
    (run_ / "metrics.jsonl").write_text('{"round": -4, "train_loss": 1.0}\n')
    with pytest.raises(FedscapeError, match=r"metrics\.jsonl is damaged: round is -4"):
        read_runs([run_])


@pytest.mark.parametrize("kind", ["virtual", "external", "soft"])
def test_a_surface_that_names_other_files_is_refused(tmp_path, kind):
    """A virtual data set crashed the reader, an external one read any file of this machine."""
    secret, path = tmp_path / "secret", tmp_path / "surface.h5"
    secret.write_bytes(np.arange(25.0).tobytes())
    raw = (STORED / "random.h5").read_bytes()
    path.write_bytes(raw)
    with h5py.File(path, "r+") as file:
        del file["train_loss"]
        if kind == "virtual":
            layout = h5py.VirtualLayout((5, 5), "f8")
            layout[:] = h5py.VirtualSource(secret, "x", shape=(5, 5))
            file.create_virtual_dataset("train_loss", layout)
        elif kind == "external":
            file.create_dataset("train_loss", (5, 5), "f8", external=[(str(secret), 0, 200)])
        else:
            file["train_loss"] = h5py.ExternalLink(secret, "/x")
    path.write_bytes(sealed(path.read_bytes()))
    with pytest.raises(FedscapeError, match="is damaged or was changed"):
        Surface.load(path)


def test_a_surface_with_names_that_a_terminal_obeys_prints_them(tmp_path):
    tree = load("surface", (STORED / "random.h5").read_bytes())
    tree["attributes"]["model"] = ESCAPES
    (tmp_path / "s.h5").write_bytes(dump("surface", tree))
    text = str(Surface.load(tmp_path / "s.h5"))
    assert "\x1b" not in text
    assert r"\x1b]0;owned\x07" in text


@pytest.mark.parametrize("name", ["a$b$.pt", r"$\frac{$.pt", "a_{b^c$_$.pt", "50%$.pt"])
def test_names_are_drawn_as_they_are(tmp_path, name):
    def draw() -> Figure:
        figure = Figure()
        ax = figure.subplots()
        ax.bar([0, 1], [1, 2], tick_label=[name, "b"], label=name)
        ax.set_title(name), ax.set_xlabel(name), ax.legend(title=name), ax.annotate(name, (0, 1)), ax.set_yscale("log")
        figure.suptitle(name), figure.text(0.5, 0.5, name)
        return figure

    for style in ("screen", "paper"):
        draw_picture(draw, tmp_path / "a.png", style)
    draw_picture(draw, tmp_path / "b.svg")
    assert name in (tmp_path / "b.svg").read_text()


def test_a_report_named_with_dollars_is_drawn(tmp_path, capsys):
    entry = json.loads((STORED / "hessian.json").read_text())
    (tmp_path / "h.json").write_text(json.dumps({**entry, "title": r"$\frac{$ \x1b[2J" + "\x1b[2J"}))
    assert hessian(["--replot", str(tmp_path / "h.json"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert (tmp_path / "out" / "hessian.png").stat().st_size > 1000


def test_what_a_terminal_obeys_is_spelt_out_in_tables_and_errors(capsys):
    table = Table(("name\x1b[2J", "x"), (("a\x1b]0;b\x07", 1.0),))
    for text in (str(table), table.markdown(), table.html(), table.latex()):
        assert "\x1b" not in text
    assert r"a\x1b]0;b\x07" in str(table)

    def fail() -> None:
        raise FedscapeError("the file \x1b[2J is damaged\nand this is a second line")

    assert run(fail) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert r"the file \x1b[2J is damaged" + "\nand" in said


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1"])
def test_cells_that_a_spreadsheet_would_compute_are_text(text):
    rows = Table(("name", "x"), ((text, -1.5),)).csv()
    assert f"'{text}" in rows
    assert rows.rstrip().endswith("-1.5")


@pytest.mark.parametrize("text", ["-0.5", "+3", "-1e-3", "-inf"])
def test_numbers_as_text_stay_numbers(text):
    assert Table(("x", "y"), ((text, "b"),)).csv() == f"x,y\n{text},b\n"


def test_intervals_without_an_end_come_back_from_json_as_they_were(tmp_path):
    """JSON has no infinity: null stood there, and the table failed on it."""
    from analysis.hessian.report import HessianReport
    from analysis.hessian.writing import read_numbers

    entry = json.loads((STORED / "hessian.json").read_text())
    k = len(entry["eigenvalues"])
    entry["sampling"] = {
        "samples": 2, "population": 9, "held_out": 1, "low": [None] * k, "high": [None] * k, "trace": [None, 3.0],
        "loss_stderr": None, "evenness": [1.0] * k, "products": 3, "sizes": [],
    }  # fmt: skip
    entry["error_bounds"][0] = None
    (tmp_path / "h.json").write_text(json.dumps(entry))
    report = HessianReport.from_dict(read_numbers(tmp_path / "h.json")[0])
    assert report.sampling is not None
    assert "-inf to inf" in str(report)
    assert report.sampling.trace == (-np.inf, 3.0)
    assert np.isnan(report.eigen.bounds[0])


def test_bytes_on_which_hdf5_does_not_end_or_crashes_are_refused(tmp_path, monkeypatch):
    """Of forged bytes with the right digest, HDF5 took 4.3 GB, or looped; here its reader does the worst itself."""
    import os
    import signal
    import time

    monkeypatch.setattr("landscape.storage.hdf5.SECONDS", 1)
    shutil.copy(STORED / "random.h5", tmp_path / "s.h5")
    worst = (lambda: time.sleep(60), lambda: os.kill(os.getpid(), signal.SIGSEGV), lambda: bytearray(3 << 30))
    for do in worst:
        monkeypatch.setattr("landscape.storage.hdf5.read_plain", lambda *_, do=do, **__: do())
        start = time.monotonic()
        with pytest.raises(FedscapeError, match=r"s\.h5 is damaged or was changed"):
            Surface.load(tmp_path / "s.h5")
        assert time.monotonic() - start < 30
    monkeypatch.undo()
    assert Surface.load(tmp_path / "s.h5").loss.shape == (5, 5)
