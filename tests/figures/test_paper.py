"""Every kind of picture in the style of a paper: each text can be read, at the width of a column and of the page."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from PIL import Image

from analysis import measure_hessian
from analysis.corruptions.__main__ import main as corrupted
from analysis.corruptions.plots import plot_corruptions
from analysis.hessian.__main__ import main as hessian
from analysis.hessian.client_results import ClientCurves, ClientEigenvalues
from analysis.hessian.plots.clients import plot_client_curves, plot_clients
from analysis.hessian.plots.layers import plot_layers
from analysis.hessian.plots.spectrum import plot_rounds, plot_spectra
from analysis.style import log_axis
from analysis.surface.__main__ import main as surface
from analysis.surface.marked_points import Mark
from analysis.surface.plots import draw
from analysis.surface.plots.panels import plot_three
from figures.__main__ import main as figures_
from figures.images import contact_sheet
from landscape import load_dataset
from landscape.storage.pictures import draw_picture
from landscape.storage.style import PictureStyle
from tests.analysis.corruptions.test_corruptions import made_up as corruptions
from tests.analysis.hessian.plots.test_layer_plots import made_up as layers
from tests.analysis.hessian.spectrum.spectra import small_landscape
from tests.analysis.surface.plots.test_surface_plots import X, Y, line, made, with_test
from tests.figures.legible import faults
from trainers import FedAvg, Settings, train
from trainers.commands.partition import main as partitioned
from trainers.plots.partitions import plot_partitions

STYLES = [PictureStyle("paper"), PictureStyle("paper", columns=1), PictureStyle("paper", "neurips2024")]
"""A page of two columns, one of its columns, a page of one."""


@pytest.fixture(scope="module")
def report():
    return measure_hessian(small_landscape(), 3, density=True, density_probes=2, density_steps=5)


def surfaces():
    """Of two algorithms, with test data and λ_max."""
    loss = 1 + X[None] ** 2 + 0.1 * Y[:, None]
    both = [with_test(made(k * loss), k * loss + 0.1) for k in (1, 2)]
    return [
        replace(s, provenance=replace(s.provenance, algorithm=name), lambda_max=10 * s.loss)
        for s, name in zip(both, ("fedavg", "fedasam"), strict=True)
    ]


def square():
    """A surface whose axes are to scale, in a bowl of three decades."""
    return made(1e-2 + 5 * (X[None] ** 2 + X[:, None] ** 2), x=X, y=X)


def three():
    marks = (Mark("fedavg, round 60", 0.0, 0.1), Mark("fedasam, round 60", 1.8, 0.1), Mark("centralised", 0.1, 0.9))
    surface = replace(surfaces()[0], kind="three", marks=marks, lambda_max=None)
    return plot_three(replace(surface, test=None), replace(surface.test, kind="three", marks=marks))


def clients(scale: float = 1.0, round: int = 60, name: str = "fedasam") -> ClientEigenvalues:
    numbers = scale * np.arange(1.0, 21.0)[:, None]
    return ClientEigenvalues(
        title=f"{name}, round {round}, digits_mlp on digits",
        round=round,
        local=False,
        clients=np.arange(20),
        values=numbers,
        bounds=0.1 * numbers,
        converged=np.ones((20, 1), bool),
        losses=np.zeros(20),
        accuracies=None,
        samples=np.full(20, 72),
        consistency=None,
        hvps=0,
        label=name,
    )


def curves(name: str) -> ClientCurves:
    measured = tuple(clients(k, round, name) for k, round in ((0.1, 0), (1.0, 30), (2.0, 60)))
    return ClientCurves(measured, name=name, together={0: (1.0, 0.1), 60: (5.0, 0.1)}, samples=1442)


def layered(name: str, count: int):
    """Blocks of so many layers."""
    return f"{name}, round 60", *layers([f"layer{i}.0.conv" for i in range(count)], list(range(1, count + 1)))


def partitions() -> Figure:
    counts = [np.random.default_rng(0).integers(0, 30, (20, 10)) for _ in range(2)]
    titles = [f"{spec}: digits, 20 clients" for spec in ("dirichlet:0.1", "dirichlet:0.1+replacement")]
    return plot_partitions(titles, counts, counts[0].sum(0))


def barrier_line() -> Figure:
    one = line(np.array([1.0, 1.5, 1.2, 1.1, 0.9]), marks=(Mark("fedavg", 0, 0), Mark("fedasam", 1, 0)))
    return draw([with_test(one, one.loss + 0.1)])


KINDS = {
    "spectra": lambda report: plot_spectra([report, report], ["fedavg, round 60", "fedasam, round 60"]),
    "spectrum": lambda report: plot_spectra([report]),
    "rounds": lambda report: plot_rounds({name: [(0, report), (60, report)] for name in ("fedavg", "b")}),
    "layers": lambda report: plot_layers([layered("fedavg", 9), layered("fedasam", 9)]),
    "many layers": lambda report: plot_layers([layered("fedavg", 40)]),
    "clients": lambda report: plot_clients([clients(), clients(2.0, name="fedavg")]),
    "client curves": lambda report: plot_client_curves([curves("fedavg"), curves("fedasam")]),
    "corruptions": lambda report: plot_corruptions(corruptions(np.linspace(0.2, 0.8, 140).reshape(2, 14, 5))),
    "partitions": lambda report: partitions(),
    "contact sheet": lambda report: contact_sheet(load_dataset("digits")),
    "surface": lambda report: draw(surfaces()[:1]),
    "surfaces": lambda report: draw(surfaces()),
    "to scale": lambda report: draw([square()]),
    "heat maps": lambda report: draw(surfaces()[:1], kind="heatmap", quantity="lambda_max"),
    "three models": lambda report: three(),
    "reliefs": lambda report: draw(surfaces(), kind="relief"),
    "superimposed": lambda report: draw(surfaces(), kind="superimposed"),
    "line": lambda report: barrier_line(),
}


PICTURES = [
    pytest.param(kind, style, id=f"{kind}-{name}", marks=[] if name == "column" and k % 2 else pytest.mark.slow)
    for k, kind in enumerate(KINDS)
    for name, style in zip(["page", "column", "single"], STYLES, strict=True)
]
"""A column is the narrowest: what can be read there is mostly fine elsewhere.  Every second kind is fast."""


@pytest.mark.parametrize(("kind", "style"), PICTURES)
def test_every_text_can_be_read(kind, style, report, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *_, **__: seen.append((faults(figure), figure.get_figheight()))
    )
    draw_picture(lambda: KINDS[kind](report), tmp_path / "a.png", style)
    ((wrong, height),) = seen
    assert wrong == []
    assert height <= 11.5, "it fits a page"
    assert (tmp_path / "a.caption.txt").read_text(encoding="utf-8").strip() or kind == "partitions"


def test_a_fault_would_be_seen():
    figure = Figure(figsize=(3, 2))
    figure.text(0.5, 0.5, "one text")
    figure.text(0.52, 0.5, "on another")
    figure.text(0.9, 0.1, "too long for this place")
    figure.text(0.1, 0.9, "tiny", fontsize=4)
    assert [fault.split(":")[0] for fault in faults(figure)] == ["small", "cut off", "overlap"]


def test_crowded_ticks_and_logarithmic_axes_without_two_labels_would_be_seen():
    figure = Figure(figsize=(3, 2), layout="constrained")
    ax = figure.subplots()
    ax.set_xticks(range(5), ["a long label"] * 5)
    ax.set_yscale("log")
    ax.set_ylim(2, 8)
    ax.yaxis.set_minor_formatter(NullFormatter())
    assert {"crowded", "bare"} <= {fault.split(":")[0] for fault in faults(figure)}
    ax.set_xticks([0, 4], ["a", "b"])
    log_axis(ax)
    assert faults(figure) == []


def flat_checkpoint(folder):
    """A checkpoint of an untrained run."""
    return train(FedAvg(), Settings(rounds=1, clients=4, per_round=1), out=folder / "run").checkpoint


@pytest.mark.parametrize(
    ("program", "words", "pictures"),
    [
        (surface, ["CKPT", "--points", "3", "--samples", "20", "--plot", "OUT/s.pdf", "--quiet"], ["s"]),
        (hessian, ["CKPT", "--top", "1", "--layers", "--samples", "20", "--out", "OUT", "--quiet"],
         ["hessian", "layers"]),
        (corrupted, ["CKPT", "--generate", "--corruptions", "fog", "--samples", "20", "--out", "OUT", "--quiet"],
         ["corruptions"]),
        (partitioned, ["--clients", "4", "--out", "OUT/p.svg"], ["p"]),
        (figures_, ["contact-sheet", "digits", "--out", "OUT/c.png"], ["c"]),
    ],
)  # fmt: skip
def test_commands_draw_for_a_paper(program, words, pictures, tmp_path):
    checkpoint = str(flat_checkpoint(tmp_path)) if "CKPT" in words else ""
    line = [word.replace("CKPT", checkpoint).replace("OUT", str(tmp_path)) for word in words]
    program([*line, "--style", "paper", "--venue", "neurips2024"])
    captions = {file.name.removesuffix(".caption.txt"): file.read_text() for file in tmp_path.glob("*.caption.txt")}
    assert sorted(captions) == sorted(pictures)
    assert all("digits" in text for text in captions.values())
    assert all(Image.open(file).width == 5.5 * 300 for file in tmp_path.glob("*.png"))
