"""The sheet that compares checkpoints, on a page's width: training, spectra, and maps of loss and accuracy in rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from analysis import HessianReport, Surface
from analysis.hessian.plots.spectrum import density_caption, draw_densities, draw_eigenvalues
from analysis.style import COLOURS, DASHES, MARKERS, crossed, in_percent, log_axis, percent_axis
from analysis.surface.plots.captions import label_of, values_of, wrapped
from analysis.surface.plots.panels import COLOUR_MAPS, Quantity, draw_colour_bar, draw_panel, signs, smoothed
from analysis.surface.plots.scales import Scale
from landscape import Checkpoint, Evaluation
from landscape.storage.canvas import across, elided, new_figure, pt, stroke
from landscape.storage.display import Shown
from landscape.storage.style import current_style

_SCREEN, _MOST_ACROSS = 10.8, 4
"""Inches of a page's width on the screen; maps in a row at most."""
_LETTERS, _SHORT = 22, 16
"""Names have so many letters at most, and the caption has them whole; a shorter one fits beside another word."""


_OF_WHAT = " of the Hessian"


@dataclass(frozen=True, repr=False)
class Subject(Shown):
    """One checkpoint and its measurements.

    ``metrics`` are the records of its run up to its round; empty where the checkpoint lies in no run directory.
    """

    label: str
    checkpoint: Checkpoint
    metrics: list[dict[str, Any]]
    test: Evaluation
    report: HessianReport
    surface: Surface

    def _heading(self) -> str:
        return self.label

    def _facts(self) -> dict[str, str]:
        accuracy = {} if self.test.accuracy is None else {"test accuracy": f"{self.test.accuracy:.2%}"}
        return {**accuracy, "λ1": f"{self.report.eigen.values[0]:.4g} ± {self.report.eigen.bounds[0]:.1g}"}


class _Group(NamedTuple):
    """The maps that share a scale."""

    title: str
    quantity: Quantity
    values: list[np.ndarray]


def draw_sheet(subjects: Sequence[Subject]) -> Figure:
    """Training curves (where a run is known), eigenvalues and densities in the first row; maps of the loss below, and
    those of the accuracy, on one scale each; one legend for all."""
    paper = current_style().paper
    with rc_context({} if paper else {"font.size": 9, "axes.titlesize": 10}):
        upper_panels = 4 if any(s.metrics for s in subjects) else 2
        beside = across(upper_panels, 1.6)
        groups = _groups(subjects)
        layout = _Layout.of(len(subjects), len(groups), upper_panels // beside)
        names = short_names([s.label for s in subjects], layout.letters)
        caption = wrapped(_caption(subjects, names), layout.width)
        margin = 0.0 if paper else 0.5 + 0.16 * (caption.count("\n") + 1)
        height = layout.upper + layout.lower + margin
        figure = new_figure((layout.width, height), panel_height=height, wide=True, layout="constrained")
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[layout.upper, layout.lower])[:, 0]
        axes = upper.subplots(upper_panels // beside, beside, squeeze=False).ravel()
        _draw_upper(axes, subjects, names)
        most = max(1, int(layout.width * 72 / (pt(9) * (0.55 * max(map(len, names)) + 4.5))))
        upper.legend(
            [Line2D([], [], **_look(i)) for i in range(len(names))],
            names,
            loc="outside upper center",
            ncols=min(len(names), most),
            fontsize=pt(9),
        )
        if layout.together:
            places = np.split(lower.subplots(1, len(groups) * len(names), squeeze=False).ravel(), len(groups))
            for group, axes in zip(groups, places, strict=True):
                titles = [f"{group.title},{' ' if len(name) < _SHORT else chr(10)}{name}" for name in names]
                _draw_maps(lower, axes, group, subjects, titles)
        else:
            for part, group in zip(lower.subfigures(len(groups), 1, squeeze=False).ravel(), groups, strict=True):
                _draw_maps(part, part.subplots(*layout.maps, squeeze=False).ravel(), group, subjects, names)
                part.suptitle(f"{group.title} around each model", fontsize=pt(11))
        first = subjects[0].checkpoint
        which = ", ".join(names) if len(names) <= 3 else f"{len(names)} checkpoints"
        title = f"{which}: {first.model['name']} on {first.data['name']}"
        figure.suptitle(title, fontsize=pt(13), parse_math=False)
        figure.supxlabel(caption, fontsize=pt(8), color="0.3", parse_math=False)
    return figure


@dataclass(frozen=True)
class _Layout:
    """Inches, rows and columns of the maps of a group, whether the groups are together in one row, and the letters of a
    name that fit a map."""

    width: float
    upper: float
    lower: float
    maps: tuple[int, int]
    together: bool
    letters: int

    @classmethod
    def of(cls, maps: int, groups: int, upper_rows: int) -> _Layout:
        """For so many maps in each of so many groups, and so many rows of panels above them."""
        style = current_style()
        width = style.width(several=True) if style.paper else _SCREEN
        most = min(_MOST_ACROSS, int(width / 1.05)) if style.paper else _MOST_ACROSS
        rows = -(-maps // most)
        columns = -(-maps // rows)
        together = maps * groups <= most  # all in one row, a group beside the other
        below, beside = (1, groups) if together else (groups, 1)
        labels, bar, around, gap = (0.5, 0.65, 0.45, 0.15) if style.paper else (0.6, 0.9, 0.6, 0.25)
        if maps % columns:  # ticks and labels below the last panels of the row before it too
            labels += 0.3
        largest = 1.5 if style.paper else 2.5 if rows * below <= 2 else 1.95
        side = min(largest, (width / beside - bar - around) / columns - gap)
        lower = below * (rows * (side + 0.3) + labels)
        upper = upper_rows * (1.75 if style.paper else 2.7) + 0.25
        return cls(width, upper, lower, (rows, columns), together, max(9, min(_LETTERS, int(8 * side / pt(0.6)))))


def short_names(labels: Sequence[str], letters: int = _LETTERS) -> list[str]:
    """The labels, long ones without their middles; numbered where that makes two of them the same.

    Example:
        >>> short_names(["fedavg", "fedasam_dirichlet0.1_rho0.7, round 200"])
        ['fedavg', 'fedasam_dir… round 200']
    """
    names = [elided(label, letters) for label in labels]
    if len(set(names)) == len(names):
        return names
    return [f"{i}: {elided(label, letters - 3)}" for i, label in enumerate(labels, 1)]


def _draw_upper(axes: np.ndarray, subjects: Sequence[Subject], names: Sequence[str]) -> None:
    reports = [s.report for s in subjects]
    if len(axes) > 2:
        _draw_curves(axes[0], subjects, names, "train_loss")
        axes[0].set(ylabel="loss (nats)", title="Training loss")
        log_axis(axes[0])
        _draw_curves(axes[1], subjects, names, "test_accuracy")
        axes[1].set(ylabel=in_percent("accuracy"), title="Test accuracy")
        percent_axis(axes[1].yaxis)
    draw_eigenvalues(axes[-2], reports, names, legend=False)
    draw_densities(axes[-1], reports, names, legend=False)
    axes[-2].xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    for line in axes[-2].get_lines():
        line.set_markersize(pt(4))
    for ax in axes[-2:]:  # on narrow panels; the caption says the rest
        ax.set_ylabel(ax.get_ylabel().replace(_OF_WHAT, "").replace("unit of eigenvalue", "unit"))
        ax.set_xlabel(ax.get_xlabel().replace(_OF_WHAT, ""))


def _look(i: int) -> dict[str, Any]:
    """Colour, marker and dashes of the i-th checkpoint's lines."""
    style: dict[str, Any] = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": DASHES[i]}
    return {**style, "markersize": pt(4), "linewidth": stroke(1.2)}


def _draw_curves(ax: Axes, subjects: Sequence[Subject], names: Sequence[str], key: str) -> None:
    for i, (s, name) in enumerate(zip(subjects, names, strict=True)):
        known = [(m["round"], m[key]) for m in s.metrics if m.get(key) is not None]
        if known:
            rounds, values = zip(*known, strict=True)
            ax.plot(rounds, values, **_look(i), markevery=max(1, len(rounds) // 10), label=name)
    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    ax.grid(alpha=0.3)


def _groups(subjects: Sequence[Subject]) -> list[_Group]:
    """Maps of the loss; of the accuracy too where all have one."""
    quantities: list[tuple[str, Quantity]] = [("Loss", "loss")]
    if all(s.surface.accuracy is not None for s in subjects):
        quantities.append(("Accuracy", "accuracy"))
    return [_Group(title, q, [values_of(s.surface, q) for s in subjects]) for title, q in quantities]


def _draw_maps(
    part: SubFigure, places: np.ndarray, group: _Group, subjects: Sequence[Subject], titles: Sequence[str]
) -> None:
    """The maps of one group on common axes and one scale, with its colour bar; empty places vanish."""
    every = np.concatenate([values.ravel() for values in group.values])
    scale = Scale.of(every, "linear" if group.quantity == "accuracy" else "auto")
    for ax in places[len(subjects) :]:
        ax.remove()
    axes, drawn, small = list(places[: len(subjects)]), None, current_style().paper
    columns = axes[0].get_subplotspec().get_gridspec().ncols
    for k, (ax, subject, title, values) in enumerate(zip(axes, subjects, titles, group.values, strict=True)):
        drawn = draw_panel(ax, subject.surface, values, scale, COLOUR_MAPS[group.quantity]) or drawn
        ax.set_title(title, parse_math=False)
        lowest, first = k + columns >= len(subjects), k % columns == 0
        ax.set(xlabel="direction 1" if lowest else "", ylabel="direction 2" if first else "")
        ax.tick_params(labelbottom=lowest, labelleft=first)
        ax.locator_params(nbins=2 if small else 4)
        ax.set_xlim(subject.surface.x[[0, -1]])
        ax.set_ylim(subject.surface.y[[0, -1]])
    if drawn is not None and scale is not None:
        whole = label_of([s.surface for s in subjects], group.quantity)
        label = f"{subjects[0].surface.split_word} loss" if group.quantity == "loss" else whole
        draw_colour_bar(part, axes, drawn, scale, label)


def _caption(subjects: Sequence[Subject], names: Sequence[str]) -> str:
    surfaces, reports = [s.surface for s in subjects], [s.report for s in subjects]
    first = surfaces[0]
    spectra = (
        f"spectra of the Hessian and maps over {reports[0].samples:,} {first.split_word} samples; "
        f"error bars: error bounds"
        f"{crossed([report.eigen.converged for report in reports])}; {density_caption(reports)}"
    )
    maps = "; ".join([f"maps: {label_of(surfaces, 'loss')}; {first.recipe}", *smoothed(surfaces), *signs(surfaces)])
    whole = [f"{name}: {s.label}" for name, s in zip(names, subjects, strict=True) if name != s.label]
    curves = ["training loss: of the local steps of a round"] * any(s.metrics for s in subjects)
    return "\n".join(["; ".join([*curves, spectra]), maps, *(["; ".join(whole)] if whole else [])])
