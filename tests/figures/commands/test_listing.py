"""``python -m figures list``, ``status``, ``show`` and ``make --dry-run``."""

import re

import pytest

import figures.commands.listing
import figures.commands.options
from figures.__main__ import main
from figures.graph import Store
from figures.graph.cost import Costs
from figures.recipes import PAPERS
from landscape import FedscapeError
from landscape.terminal.command import run
from tests.figures.graph.small import paper


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The only paper is the small one."""
    monkeypatch.setattr(figures.commands.options, "PAPERS", (paper(),))


def test_the_list_tells_what_each_needs_how_far_it_is_and_what_it_costs(tmp_path, capsys):
    assert main(["list", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "shows", "runs", "meas.", "state", "smoke", "small", "paper"]
    assert re.fullmatch(r"small/T1 +accuracies and curvatures +4 +6 +missing +0:01 +0:01 +0:01", lines[2])
    assert re.fullmatch(r"total +1 figures and tables +4 +6 +missing( +0:01){3}", lines[3])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_list_of_all_papers_fits_the_terminal(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(figures.commands.options, "PAPERS", PAPERS)
    assert main(["list", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert sum(len(made.recipes) for made in PAPERS) == len(lines[2:]) - sum(
        line.startswith(("total", "runs, meas", ">, ?")) for line in lines
    )


def test_the_list_of_some_is_theirs_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(figures.commands.options, "PAPERS", PAPERS)
    assert main(["list", "fedsmoo/F2", "man/F4", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["fedsmoo/F2", "man/F4a", "man/F4b", "total"]
    assert re.match(r"total +3 figures and tables +6 +8 ", lines[5])


def test_what_is_half_made_is_told_with_its_failures(tmp_path, capsys):
    store = Store(tmp_path / "store")
    (recipe,) = paper().recipes.values()
    first, second = recipe.content(figures.commands.listing.Asked()).nodes()[:2]
    store.runs.path(first).mkdir(parents=True)
    (store.runs.path(first) / "metrics.jsonl").touch()
    (store.runs.path(first) / "config.json").write_text('{"algorithm": {"name": "a"}, "settings": {}}')
    store.runs.path(second).mkdir(parents=True)
    (store.runs.path(second) / "failure.json").write_text('{"reason": "no space left"}')
    (store.runs.path(first) / "result.json").write_text('{"status": "finished"}')
    assert main(["list", "--out", str(tmp_path)]) == 0
    assert "1/10, 1 failed" in capsys.readouterr().out
    assert main(["status", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "1 of 10 done, 1 failed" in told
    assert f"failed: {second.name}: no space left" in told


def test_a_dry_run_tells_what_is_left_and_what_it_costs_and_makes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Costs, "text", lambda self, nodes: f"{len(list(nodes))} nodes")
    assert main(["make", "small", "--dry-run", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"small/T1 +4 +6 +10 nodes", lines[2])
    assert re.fullmatch(r"together +4 +6 +10 nodes", lines[3])
    assert not list(tmp_path.iterdir())


def test_show_tells_the_cost_of_each_scale(tmp_path, capsys):
    assert main(["show", "small/T1", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "paper: 4 runs, 6 measurements, 0:01 (h:min on one core)." in told


def test_an_unknown_id_is_refused():
    with pytest.raises(FedscapeError, match="T9"):
        main(["make", "small/T9", "--dry-run"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["show", "flatminima/F1"],
            "did you mean flat-minima/F1? give a paper (flat-minima, fedsam, man, fedsmoo), one",
        ),
        (["list", "F3"], "did you mean flat-minima/F3 or fedsam/F3 or man/F3 or fedsmoo/F3? give"),
        (
            ["status", "nothing"],
            "'nothing': give a paper (flat-minima, fedsam, man, fedsmoo), one of what `list` shows",
        ),
        (["make", "man/T3", "--choose", "sample=3"], "nothing called 'sample' is left open in man/T3: there are"),
        (
            ["make", "flat-minima/F1", "--choose", "points=a"],
            "--choose points: it cannot be 'a': give a value such as 17",
        ),
    ],
)
def test_what_is_not_there_is_one_short_sentence(words, sentence, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(figures.commands.options, "PAPERS", PAPERS)
    assert run(lambda: main([*words, "--out", str(tmp_path / "out")])) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert len(told) < 260
