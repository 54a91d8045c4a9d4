"""Training curves of one run: losses, and accuracies or what else a task is scored by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from landscape.storage.canvas import across, new_figure, pt
from landscape.storage.looks import COLOURS, DASHES, MARKERS

_LOSSES = {"train_loss": "training, in the local steps", "test_loss": "test"}
_SCORES = {
    "test_accuracy": "test accuracy",
    "test_miou": "test mIoU",
    "swa_test_accuracy": "test accuracy, averaged model",
    "client_train_accuracy": "mean of the clients, training",
    "client_test_accuracy": "mean of the clients, test",
}
_SPAN = 10.0
"""Losses are on a logarithmic axis where the largest is so many times the smallest."""


def plot_metrics(metrics: Sequence[Mapping[str, Any]], title: str, round: int | None = None) -> Figure:
    """Losses on the left, shares in percent on the right; a panel that would be empty is left out.

    Args:
        metrics: one record a round, as in ``metrics.jsonl``; values that are missing or not finite are not drawn.
        title: of the figure.
        round: a round to mark by a vertical line, such as that of a checkpoint.
    """
    recorded = {name for record in metrics for name, value in record.items() if value is not None}
    panels = [names for names in (_LOSSES, _SCORES) if recorded & names.keys()]
    columns = across(len(panels), 2.6)
    rows = -(-len(panels) // columns)
    figure = new_figure((5.2 * len(panels), 3.8), rows, columns, layout="constrained")
    for ax, names in zip(figure.subplots(rows, columns, squeeze=False).ravel(), panels, strict=True):
        values = _lines(ax, metrics, names)
        if names is _SCORES:
            drawn = [str(line.get_label()) for line in ax.get_lines()]
            one = len(drawn) == 1
            ax.set(ylabel=drawn[0] if one else "share", title=drawn[0].capitalize() if one else "Scores")
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            ax.set(ylabel="mean loss", title="Loss")
            if values and 0 < _SPAN * min(values) < max(values):
                ax.set_yscale("log")
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.yaxis.set_major_formatter("{x:g}")
                ax.yaxis.set_minor_formatter(NullFormatter())
        if round is not None:
            ax.axvline(round, color="0.4", linewidth=1, linestyle=(0, (1, 2)), label=f"the model, round {round}")
        ax.set_xlabel("communication round")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(alpha=0.3)
        if len(ax.get_lines()) > 1:
            ax.legend(fontsize=pt(8))
    figure.suptitle(title, fontsize=pt(11), parse_math=False)
    return figure


def _lines(ax: Axes, metrics: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> list[float]:
    """Draw the metrics that there are; all their values."""
    drawn: list[float] = []
    for i, (name, label) in enumerate(names.items()):
        known = [(record["round"], record[name]) for record in metrics if record.get(name) is not None]
        if known:
            rounds, values = zip(*known, strict=True)
            (line,) = ax.plot(rounds, values, color=COLOURS[i], marker=MARKERS[i], linestyle=DASHES[i], label=label)
            line.set(markersize=pt(4), markevery=max(1, len(rounds) // 10), linewidth=1.4)
            drawn += values
    return drawn
