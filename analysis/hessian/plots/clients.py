"""Pictures of clients: the largest eigenvalue on each client's own data, at one checkpoint or over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.hessian.clients import ClientCurves, ClientEigenvalues
from analysis.style import COLOURS, DASHES, MARKERS


def plot_clients(measured: Sequence[ClientEigenvalues]) -> Figure:
    """λ_max of each client with its error bound, the mean and a band of one deviation; several on common axes.

    Args:
        measured: of one checkpoint or several.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    clients = np.unique(np.concatenate([found.clients for found in measured]))
    for i, found in enumerate(measured):
        places = np.searchsorted(clients, found.clients) + 0.12 * (i - (len(measured) - 1) / 2)
        style: dict[str, Any] = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "linestyle": ""}
        label = f"{found.title if len(measured) > 1 else 'clients'}: {found.mean:.3g} ± {found.deviation:.2g}"
        ax.errorbar(places, found.largest, found.bounds[:, 0], **style, capsize=3, markersize=5, label=label)
        ax.axhline(found.mean, color=COLOURS[i % 7], linestyle=DASHES[i % 7], linewidth=1.2)
        low, high = found.mean - found.deviation, found.mean + found.deviation
        ax.axhspan(low, high, color=COLOURS[i % 7], alpha=0.12, lw=0)
    if len(clients) <= 20:
        ax.set_xticks(range(len(clients)), [str(client) for client in clients])
        ax.set_xlabel("client")
    else:
        ax.set_xlabel("client, in the order of their ids")
    titles = [found.title for found in measured[:1] if len(measured) == 1]
    ax.set(ylabel="λ_max on the client's own data", title=": ".join([*titles, measured[0].model]))
    ax.title.set_fontsize(10)
    ax.grid(alpha=0.3)
    figure.legend(loc="outside upper center", fontsize=8)
    caption = "error bars: error bounds; lines and bands: mean and standard deviation over the clients"
    figure.supxlabel(caption, fontsize=8, color="0.3")
    return figure


def plot_client_curves(curves: ClientCurves) -> Figure:
    """λ_max over the rounds: a line for each client, and their mean."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    rounds = curves.rounds
    for i, column in enumerate(curves.table().T):
        seen = ~np.isnan(column)
        label = "a client" if i == 0 else None
        ax.plot(rounds[seen], column[seen], ".-", color="0.6", linewidth=0.7, markersize=4, label=label)
    means = [found.mean for found in curves.measured]
    ax.plot(rounds, means, "o-", color=COLOURS[1], linewidth=1.8, label="mean over the clients")
    ax.set(xlabel="round", ylabel="λ_max on the client's own data", title=curves.measured[0].model)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)
    ax.legend()
    return figure
