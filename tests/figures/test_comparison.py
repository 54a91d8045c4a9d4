"""``python -m figures compare``: the sheet, the table, the cache."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.sparse.linalg import LinearOperator, eigsh

import figures.graph.kinds
import landscape.version
from analysis import measure_hessian
from analysis.source import Source
from figures.__main__ import main
from figures.comparison import compare
from figures.graph import Store
from landscape import FedscapeError, Landscape
from landscape.storage.pictures import draw_picture
from landscape.storage.style import PictureStyle
from landscape.terminal.command import run
from landscape.terminal.table import Table
from tests.figures.legible import faults
from trainers import FedASAM, FedAvg, Settings, train

CHEAP = ["--top", "5", "--points", "5", "--samples", "60", "--probes", "2", "--steps", "8", "--quiet"]
CHEAP_HERE = {"top": 5, "points": 5, "probes": 2, "steps": 8}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two short runs of the same seed."""
    folder = tmp_path_factory.mktemp("runs")
    settings = Settings(rounds=4, clients=5, per_round=2, device="cpu", save_every=2)
    return [train(a, settings, out=folder / n) for n, a in (("a", FedAvg()), ("b", FedASAM()))]


@pytest.fixture(scope="module")
def measured(runs, tmp_path_factory):
    """Both measured in a folder, and that folder."""
    folder = tmp_path_factory.mktemp("compared")
    return compare([r.checkpoint for r in runs], folder, source=source(), **CHEAP_HERE), folder


def test_writes_a_sheet_and_a_table_whose_numbers_are_the_checkpoints_own(runs, tmp_path, capsys):
    line = ["compare", *(str(r.checkpoint) for r in runs), "--out", str(tmp_path), *CHEAP]
    assert run(lambda: main(line)) == 0
    for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        assert (tmp_path / f"compare.{kind}").read_bytes().startswith(magic)
    printed = capsys.readouterr().out
    assert (tmp_path / "compare.txt").read_text().strip() in printed
    rows = list(csv.DictReader((tmp_path / "compare.csv").open(encoding="utf-8")))
    assert [row["model"] for row in rows] == ["fedavg", "fedasam"]
    for row, one in zip(rows, runs, strict=True):
        test = Landscape.from_checkpoint(one.checkpoint, "test", device="cpu")
        subset = Landscape.from_checkpoint(one.checkpoint, samples=60, device="cpu", dtype="float64")
        exact = scipy_eigenvalues(subset)
        assert float(row["test accuracy"]) == test.accuracy()
        assert f"{100 * test.accuracy():.2f}%" in printed, "percent where it is read"
        assert float(row["test loss"]) == pytest.approx(test.value(), rel=1e-6)
        assert float(row["train loss"]) == pytest.approx(subset.value(), rel=1e-5)
        assert float(row["λ1"]) == pytest.approx(exact[0], rel=2e-3)
        assert float(row["λ1/λ5"]) == pytest.approx(exact[0] / exact[4], rel=4e-3)
        trace = measure_hessian(one.checkpoint, 5, samples=60, device="cpu").trace
        assert abs(float(row["λ1"]) - exact[0]) <= float(row["λ1 error bound"])
        assert abs(float(row["λ1/λ5"]) - exact[0] / exact[4]) <= float(row["λ1/λ5 error bound"])
        assert f"trace {trace.shortfall}; " in row["remarks"]
        assert "; λ1 of all 1,442 samples " in row["remarks"]
        assert (float(row["trace"]), float(row["trace stderr"])) == (trace.value, trace.stderr)


def scipy_eigenvalues(landscape):
    """The five largest, by ARPACK in float64."""
    d = landscape.dimension
    product = LinearOperator((d, d), lambda v: landscape.hvp(None, torch.from_numpy(v.ravel().copy())).numpy())
    return eigsh(product, k=5, which="LA", return_eigenvectors=False)[::-1]


def test_runs_of_other_budgets_or_objectives_are_told(measured):
    result, _ = measured
    (sentence,) = (note for note in result.notes() if note.startswith("warning: "))
    assert sentence == "warning: the runs differ in gradients a step: 1 (fedavg), 2 (fedasam)"
    settings = result.subjects[1].checkpoint.algorithm["training"]
    settings["weighting"] = "uniform"
    assert "warning: the runs differ in client weights: samples (fedavg), uniform (fedasam)" in result.notes()
    settings["weighting"] = "samples"


def test_surfaces_share_axes_and_colours(measured):
    result, _ = measured
    axes = result.sheet().axes
    panels = [ax for ax in axes if ax.get_title().startswith("Loss, ")]
    assert [ax.get_title() for ax in panels] == ["Loss, fedavg", "Loss, fedasam"]
    filled = [ax.collections[0] for ax in panels]
    assert (filled[0].levels == filled[1].levels).all()
    assert (filled[0].norm.vmin, filled[0].norm.vmax) == (filled[1].norm.vmin, filled[1].norm.vmax)
    assert panels[0].get_xlim() == panels[1].get_xlim() == (-1, 1)
    low = min(s.surface.loss.min() for s in result.subjects)
    high = max(s.surface.loss.max() for s in result.subjects)
    assert filled[0].levels[0] == pytest.approx(low, rel=0.05)
    assert filled[0].levels[-1] == pytest.approx(high, rel=0.05)


def test_accuracy_maps_are_in_percent_on_one_linear_scale(measured):
    result, _ = measured
    panels = [ax for ax in result.sheet().axes if ax.get_title().startswith("Accuracy, ")]
    assert [ax.get_title() for ax in panels] == ["Accuracy, fedavg", "Accuracy, fedasam"]
    accuracies = 100 * np.concatenate([s.surface.accuracy.ravel() for s in result.subjects])
    for ax in panels:
        norm = ax.collections[0].norm
        assert (norm.vmin, norm.vmax) == (accuracies.min(), accuracies.max())


def many(result, count):
    """So many checkpoints, from two that were measured."""
    names = (
        "fedavg",
        "fedasam",
        "fedsam",
        "scaffold_dirichlet_0.1_local_epochs",
        "feddyn",
        "scaffold_dirichlet_0.5_local_epochs",
        "g",
    )
    pairs = [result.subjects[k % 2] for k in range(count)]
    return replace(result, subjects=[replace(s, label=name) for s, name in zip(pairs, names, strict=False)])


SHEETS = [
    pytest.param(count, style, marks=[] if count == place == 2 else pytest.mark.slow)
    for count in range(2, 8)
    for place, style in enumerate([PictureStyle(), PictureStyle("paper"), PictureStyle("paper", columns=1)])
]
"""The fewest are fast, at one width."""


@pytest.mark.parametrize(("count", "style"), SHEETS)
def test_up_to_seven_fit_a_page_with_maps_of_loss_and_accuracy(measured, count, style, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: seen.append((faults(figure), figure)))
    draw_picture(many(measured[0], count).sheet, tmp_path / "a.png", style)
    ((wrong, figure),) = seen
    assert wrong == []
    assert figure.get_figwidth() == (style.width(several=True) if style.paper else 10.8)
    assert figure.get_figheight() <= (11.0 if style.paper else 2**0.5 * 10.8), "it fits a page"
    maps = [ax for ax in figure.axes if ax.get_aspect() == 1.0]
    bars = [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]
    assert len(maps) == 2 * count
    assert [bar.get_ylabel().split(",")[0].replace("\n", " ") for bar in bars] == [
        "training loss", "training accuracy (%)",
    ]  # fmt: skip
    tops = [round(ax.get_window_extent().y1) for ax in maps]
    assert max(tops.count(top) for top in tops) <= 4, "four in a row at most"


def test_long_names_lose_their_middles_and_the_caption_has_them_whole(measured):
    figure = many(measured[0], 6).sheet()
    titles = [ax.get_title() for ax in figure.axes]
    assert {"4: scaffold_…al_epochs", "6: scaffold_…al_epochs"} <= set(titles), "numbered, to tell them apart"
    caption = figure.get_supxlabel().replace("\n", " ")
    assert "4: scaffold_…al_epochs: scaffold_dirichlet_0.1_local_epochs" in caption


def test_curves_are_those_of_the_runs(runs, measured):
    result, _ = measured
    accuracy = next(ax for ax in result.sheet().axes if ax.get_title() == "Test accuracy")
    for line, one in zip(accuracy.get_lines(), runs, strict=True):
        assert list(line.get_xdata()) == [1, 2, 3, 4]
        assert list(line.get_ydata()) == [record["test_accuracy"] for record in one.metrics]


def test_a_round_of_a_run_is_compared_with_the_curve_up_to_it(runs, tmp_path):
    files = [runs[0].path / "rounds" / "00002.pt", runs[0].checkpoint]
    result = compare(files, tmp_path, source=source(), **CHEAP_HERE)
    assert [s.label for s in result.subjects] == ["fedavg, round 2", "fedavg, round 4"]
    assert [len(s.metrics) for s in result.subjects] == [2, 4]


@pytest.mark.slow
def test_a_checkpoint_alone_has_no_curve_but_all_else(runs, tmp_path):
    alone = []
    for name, one in zip("ab", runs, strict=True):
        (tmp_path / name / "deep").mkdir(parents=True)
        alone.append(tmp_path / name / "deep" / "model.pt")
        alone[-1].write_bytes(one.checkpoint.read_bytes())
    result = compare(alone, tmp_path / "out", source=source(), **CHEAP_HERE)
    titles = {ax.get_title() for ax in result.sheet().axes}
    assert "Test accuracy" not in titles
    assert {"Largest eigenvalues", "Spectral density", "Loss, fedavg", "Loss, fedasam"} <= titles
    assert sorted(file.name for file in (tmp_path / "out").glob("compare.*")) == [
        f"compare.{kind}" for kind in ("csv", "pdf", "png", "svg", "txt")
    ]


def test_measurements_are_read_again_not_made_again(runs, measured, monkeypatch):
    files = [r.checkpoint for r in runs]
    first, folder = measured
    monkeypatch.setattr(figures.graph.kinds, "measure_hessian", None)  # would fail if they were called
    monkeypatch.setattr(figures.graph.kinds, "measure_surface", None)
    monkeypatch.setattr(Landscape, "evaluate", None)
    again = compare(files, folder, source=source(), **CHEAP_HERE)
    assert str(again.table()) == str(first.table())
    with pytest.raises(TypeError):  # other settings are another measurement
        compare(files, folder, source=source(), **{**CHEAP_HERE, "top": 6})


def test_neither_versions_nor_speed_nor_the_files_place_measure_again(runs, measured, tmp_path, monkeypatch):
    first, folder = measured
    copies = [tmp_path / f"{name}.pt" for name in "ab"]
    for copy, one in zip(copies, runs, strict=True):
        copy.write_bytes(one.checkpoint.read_bytes())
    monkeypatch.setattr(landscape.version, "__version__", "99")
    monkeypatch.setattr(Store, "_measure", None)  # would fail if it were called
    elsewhere = replace(source(), batch_size=16, stream=True)
    again = compare(copies, folder, source=elsewhere, **CHEAP_HERE)
    assert [s.report.eigen.values.tolist() for s in again.subjects] == [
        s.report.eigen.values.tolist() for s in first.subjects
    ]
    with pytest.raises(TypeError):  # other samples are another measurement
        compare(copies, folder, source=replace(source(), samples=50), **CHEAP_HERE)


def test_table_aligns_rounds_and_quotes():
    table = Table(("model", "λ1"), (("a", 1.23456789), ("long, name", None)))
    assert str(table).splitlines() == [
        "model          λ1",
        "----------  -----",
        "a           1.235",
        "long, name      -",
    ]
    assert table.csv() == 'model,λ1\na,1.23456789\n"long, name",\n'


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{a}"], "1 checkpoints are given: compare 2 to 7"),
        (["{a}", "no/such.pt"], "there is no file no/such.pt"),
        (["{a}", "{b}", "--out", "{a}/below"], "compare.png: Not a directory"),
        (["{a}", "{b}", "--points", "1"], "1 points along an axis"),
        (["{a}", "{b}", "--samples", "0"], "0 samples are asked for"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(runs, words, sentence, tmp_path, capsys):
    names = {name: str(one.checkpoint) for name, one in zip("ab", runs, strict=True)}
    out = [] if "--out" in words else ["--out", str(tmp_path)]
    line = ["compare", *(word.format(**names) for word in words), *out]
    line += [] if "--samples" in words else ["--samples", "20"]
    assert run(lambda: main([*line, "--top", "1", "--probes", "2", "--steps", "2", "--quiet"])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1


def source():
    return Source(samples=60, device="cpu")


@pytest.mark.parametrize("columns", [pytest.param(None, marks=pytest.mark.slow), 1])
def test_every_text_of_the_sheet_can_be_read_in_a_paper(measured, columns, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: seen.append(faults(figure)))
    draw_picture(measured[0].sheet, tmp_path / "a.png", PictureStyle("paper", columns=columns))
    assert seen == [[]]
    assert "error bars: error bounds" in (tmp_path / "a.caption.txt").read_text(encoding="utf-8")


def test_a_path_in_place_of_the_list_is_told(tmp_path):
    with pytest.raises(FedscapeError, match=r"^compare takes a list .*: compare\(\['runs/a', \.\.\.\], out\)$"):
        compare("runs/a", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
