"""What is told and drawn of a run's metrics, by runs just trained and by recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from landscape.errors import FedscapeError
from landscape.storage.display import told
from landscape.storage.style import PictureStyle, StyleName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOLD = ("test_accuracy", "test_miou", "test_loss", "train_loss")


def facts_of(metrics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The rounds, and the last values of accuracy and loss, as text by name.

    Args:
        metrics: one record a round, as in ``metrics.jsonl``.

    Example:
        >>> from trainers.runs.showing import facts_of
        >>> facts_of([{"round": 1, "test_accuracy": 0.5}, {"round": 2, "train_loss": 0.25}])
        {'rounds': '2', 'test accuracy': '50.00%', 'train loss': '0.25'}
    """
    facts = {"rounds": f"{metrics[-1]['round']:,}" if metrics else "none"}
    for name in _TOLD:
        values = [record[name] for record in metrics if record.get(name) is not None]
        if values:
            share = name in ("test_accuracy", "test_miou")
            facts[name.replace("_", " ")] = f"{values[-1]:.2%}" if share else told(float(values[-1]))
    if (epsilon := metrics[-1].get("dp_epsilon") if metrics else None) is not None:
        facts["ε (client-level privacy)"] = told(float(epsilon))
    return facts


def plot_training(
    metrics: Sequence[Mapping[str, Any]],
    title: str,
    path: str | Path | None = None,
    style: PictureStyle | StyleName = "screen",
    round: int | None = None,
) -> Figure:
    """Draw loss and accuracy over the rounds (:func:`trainers.plots.plot_metrics`), and write it where asked for.

    Raises:
        FedscapeError: no round was recorded; the file cannot be written or has a format that Matplotlib does not write.
    """
    from landscape.storage.pictures import draw_picture
    from trainers.plots import plot_metrics

    if not metrics:
        raise FedscapeError(f"{title}: no round was recorded, so there is no curve to draw")
    return draw_picture(lambda: plot_metrics(metrics, title, round), path, style)
