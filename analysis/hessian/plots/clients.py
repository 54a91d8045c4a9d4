"""Pictures of clients: the largest eigenvalue on each client's own data, at one checkpoint or over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.hessian.client_results import ClientCurves, ClientEigenvalues, on_own_data
from analysis.style import COLOURS, DASHES, MARKERS, cross_out, crossed, log_axis
from landscape.storage.canvas import new_figure, pt, stroke
from landscape.storage.style import current_style


def plot_clients(measured: Sequence[ClientEigenvalues]) -> Figure:
    """λ_max of each client with its error bound, the mean and a band of one deviation; several on common axes.

    Args:
        measured: of one checkpoint or several.
    """
    # The legend has a line for each.
    figure = new_figure((6.4, 4.0 + 0.2 * len(measured)), room=0.14 * len(measured), layout="constrained")
    ax = figure.subplots()
    clients = np.unique(np.concatenate([found.clients for found in measured]))
    for i, found in enumerate(measured):
        places = np.searchsorted(clients, found.clients) + 0.12 * (i - (len(measured) - 1) / 2)
        style: dict[str, Any] = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "linestyle": ""}
        label = f"{found.title if len(measured) > 1 else 'clients'}: {_with_deviation(found.mean, found.deviation)}"
        ax.errorbar(places, found.largest, found.bounds[:, 0], **style, capsize=pt(3), markersize=pt(5), label=label)
        cross_out(ax, places, found.largest, found.converged[:, 0])
        ax.axhline(found.mean, color=COLOURS[i % 7], linestyle=DASHES[i % 7], linewidth=stroke(1.2))
        low, high = found.mean - found.deviation, found.mean + found.deviation
        ax.axhspan(low, high, color=COLOURS[i % 7], alpha=0.12, lw=0)
    if len(clients) <= 20:
        every = 2 if len(clients) > 10 and current_style().paper else 1  # so many labels do not fit a column
        ax.set_xticks(range(0, len(clients), every), [str(client) for client in clients[::every]])
        ax.set_xlabel("client")
    else:
        ax.set_xlabel("client, in the order of their ids")
    titles = [found.title for found in measured[:1] if len(measured) == 1]
    ax.set(ylabel="λ_max on the client's own data", title=": ".join([*titles, _model(measured)]))
    ax.title.set_fontsize(pt(10))
    ax.grid(alpha=0.3)
    figure.legend(loc="outside upper center", fontsize=pt(8))
    caption = (
        "error bars: error bounds; lines and bands: mean and standard deviation of the clients, each counted the same"
    ) + crossed([found.converged[:, 0] for found in measured])
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure


def _with_deviation(mean: float, deviation: float) -> str:
    """The deviation with two digits, and the mean as far as the deviation goes; ``5.4 ± 1.9``."""
    if not (np.isfinite([mean, deviation]).all() and deviation > 0):
        return f"{mean:.3g} ± {deviation:.2g}"
    decimals = max(0, 1 - int(f"{deviation:.1e}".partition("e")[2]))
    return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"


def plot_client_curves(runs: Sequence[ClientCurves]) -> Figure:
    """λ_max over the rounds, for each run the mean over the clients with a band from the smallest to the largest.

    Beside it, where it was measured, λ_max of the global model on the data of all of them together.
    """
    figure = new_figure((6.4, 4.0 + 0.2 * len(runs)), room=0.14 * len(runs), layout="constrained")
    ax = figure.subplots()
    for i, curves in enumerate(runs):
        colour, dashes, marker = COLOURS[i % 7], DASHES[i % 7], MARKERS[(i + i // 7) % 7]
        name = f"{curves.name}: " if curves.name else ""
        low, high = ([of(found.largest) for found in curves.measured] for of in (np.min, np.max))
        ax.fill_between(curves.rounds, low, high, color=colour, alpha=0.15, lw=0)
        for edge in (low, high):  # without them overlapping bands are hard to tell apart in grey
            ax.plot(curves.rounds, edge, color=colour, linestyle=dashes, linewidth=stroke(0.6))
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": pt(5)}
        means = [found.mean for found in curves.measured]
        what = f"{name}mean over {_counted([len(found.clients) for found in curves.measured])}"
        ax.plot(curves.rounds, means, linestyle=dashes, linewidth=stroke(1.8), **style, label=what)
        if curves.together:
            rounds, values = zip(*((round, value) for round, (value, _) in curves.together.items()), strict=True)
            bounds = [bound for _, bound in curves.together.values()]
            hollow: dict[str, Any] = {"markerfacecolor": "white", "linestyle": (0, (1, 3)), "linewidth": stroke(1.2)}
            ax.errorbar(rounds, values, bounds, **style, **hollow, capsize=pt(3), label=f"{name}{curves.beside}")
    model = _model([found for curves in runs for found in curves.measured])
    ax.set(xlabel="communication round", ylabel="λ_max", title=on_own_data(model))
    ax.title.set_fontsize(pt(10))
    heights = np.concatenate([found.largest for curves in runs for found in curves.measured])
    if heights.min() > 0 and heights.max() > 30 * heights.min():
        log_axis(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    figure.legend(loc="outside upper center", fontsize=pt(8), ncols=2 if any(curves.together for curves in runs) else 1)
    caption = "line: mean over the clients, each counted the same; band: from the smallest to the largest client"
    if any(curves.together for curves in runs):
        caption += "\nerror bars of the global model: error bounds"
    doubtful = sum(int((~found.converged[:, 0]).sum()) for curves in runs for found in curves.measured)
    caption += f"\n{doubtful} of {heights.size} values have NOT CONVERGED" if doubtful else ""
    figure.supxlabel(caption, fontsize=pt(8), color="0.3")
    return figure


def _counted(numbers: Sequence[int]) -> str:
    """How many clients there are in the rounds."""
    few, many = min(numbers), max(numbers)
    if few == many:
        return f"{many} client{'s' * (many > 1)}"
    return f"{few} to {many} clients"


def _model(measured: Sequence[ClientEigenvalues]) -> str:
    """Which model was measured; of several, what they have in common."""
    models = {found.model for found in measured}
    return models.pop() if len(models) == 1 else "one model"
