"""``figures numbers`` and ``figures.numbers``: one tree, in every kind of file, and what cannot be given is told."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import figures
from figures.__main__ import main
from figures.commands.options import Selection
from figures.labels.files import lines
from figures.recipes import PAPERS, chosen
from landscape import FedscapeError
from landscape.terminal.command import run
from tests.conftest import REPOSITORY

xarray = pytest.importorskip("xarray")
ITEM = "fedsmoo/F5"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def tree(out):
    return figures.numbers(ITEM, out=out)


def test_the_numbers_are_those_of_the_runs_in_the_store(tree, out):
    (recipe,) = chosen(PAPERS, (ITEM,))
    selection = Selection(out=out)
    for title, node in recipe.content(selection.asked).panels.items():
        partition = np.load(selection.store.runs.path(node) / "partition.npz")
        sizes = [len(partition[name]) for name in sorted(partition)]
        assert tree[title]["samples"].sum("class").values.tolist() == sizes
        assert node.name in tree.attrs["runs"]
    assert tree.attrs["command"] == f"fedscape figures numbers {ITEM} --scale smoke --out {out}"


def test_every_kind_of_file_has_the_same_numbers(tree, out, tmp_path, capsys):
    files = [tmp_path / f"n.{kind}" for kind in ("nc", "json", "csv")]
    for file in files:
        for _ in range(2):  # our own file is replaced
            assert main(["numbers", ITEM, "--out", str(out), "--to", str(file), "--quiet"]) == 0
    with xarray.open_datatree(files[0], engine="h5netcdf") as found:
        assert found[ITEM].identical(tree) or found[ITEM].equals(tree)
        assert found[ITEM].attrs == tree.attrs
    told = json.loads(files[1].read_text())["children"]["fedsmoo"]["children"]["F5"]["children"]
    for title, node in tree.children.items():
        assert told[title]["data_vars"]["samples"]["data"] == node["samples"].values.tolist()
        assert told[title]["data_vars"]["samples"]["attrs"]["units"] == "sample"
    rows = list(csv.DictReader(files[2].open(encoding="utf-8")))
    assert len(rows) == sum(node["samples"].size for node in tree.children.values())
    for row in rows[::17]:
        here = tree[row["node"].removeprefix(f"{ITEM}/")]["samples"]
        assert float(row["value"]) == here.sel({"client": int(row["client"]), "class": int(row["class"])})
    capsys.readouterr()
    assert main(["numbers", ITEM, "--out", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out == files[2].read_text(encoding="utf-8")


def test_lines_of_two_coordinates_and_units_of_columns():
    data = xarray.Dataset(
        {"value": (("row", "column"), [[1.0, np.nan], [3.0, 4.0]], {"units": "as the coordinate unit"}),
         "cell": (("column", "row"), [["1", "3"], ["", "4"]])},
        {"row": ["a", "b"], "column": ["x", "y"], "unit": ("column", ["s", "%"])},
    )  # fmt: skip
    table = lines(xarray.DataTree.from_dict({"t": data}))
    assert table.columns == ("node", "quantity", "unit", "row", "column", "value")
    assert table.rows == (
        ("t", "value", "s", "a", "x", 1.0),
        ("t", "value", "s", "b", "x", 3.0),
        ("t", "value", "%", "b", "y", 4.0),
        ("t", "cell", "", "a", "x", "1"),
        ("t", "cell", "", "b", "x", "3"),
        ("t", "cell", "", "b", "y", "4"),
    )


def test_what_is_not_ours_or_no_file_of_numbers_is_refused(tmp_path, capsys):
    mine = tmp_path / "mine.nc"
    xarray.Dataset({"a": ("x", [1.0])}).to_netcdf(mine, engine="h5netcdf")
    before = mine.read_bytes()
    for file, reason in ((mine, "not a netCDF file of this command's"), (tmp_path / "a.xlsx", "no name of a file of")):
        assert run(lambda file=file: main(["numbers", ITEM, "--out", str(tmp_path / "out"), "--to", str(file)])) == 2
        assert reason in capsys.readouterr().err
    assert mine.read_bytes() == before
    assert not (tmp_path / "out").exists(), "no work was begun"


def test_names_of_several_and_what_cannot_be_made_are_told(tmp_path, capsys):
    with pytest.raises(FedscapeError, match="'man/F4' is several figures and tables: give one of man/F4a, man/F4b"):
        figures.numbers("man/F4", out=tmp_path)
    with pytest.raises(FedscapeError, match="no result"):
        figures.numbers("fedsmoo/F2", out=tmp_path, data="no-such-file.npz")
    words = ["numbers", "fedsmoo/F2", "fedsmoo/F5", "--data", "no-such-file.npz", "--out", str(tmp_path), "--quiet"]
    assert main([*words, "--to", str(tmp_path / "n.json")]) == 1
    said = capsys.readouterr()
    assert "failed: fedsmoo/F2: " in said.err
    assert "no-such-file.npz" in said.err


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [False, True])
def test_a_script_that_asks_for_processes_is_told_to_do_so_below_its_guard(guarded, tmp_path):
    """Each process reads the script again: outside of the guard it would ask for processes of its own."""
    call = f"print(dict(numbers({ITEM!r}, jobs=2)).keys())"
    guard = 'if __name__ == "__main__":\n    ' if guarded else ""
    (tmp_path / "script.py").write_text(f"from figures import numbers\n{guard}{call}\n")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    if guarded:
        assert (ended.returncode, ended.stderr) == (0, "")
        return
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1  # the processes themselves say nothing
    assert ended.stderr.endswith(
        "FedscapeError: the worker processes could not start: each reads the script that asks for them again, so that "
        "what it does must stand below `if __name__ == '__main__':`; put it there, or leave out jobs\n"
    )


def test_choices_are_told_as_the_command_takes_them(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("figures.commands.numbers.made", lambda recipes, selection, work: asked.append(selection) or 1)
    with pytest.raises(TypeError):
        figures.numbers("fedsmoo/F4", choices={"epochs": (1, 2), "split": "Path3"}, seeds=(3, 4), out=tmp_path)
    assert asked[0].choose == ("epochs=1,2", "split=Path3")
    assert asked[0].asked.seeds == (3, 4)
