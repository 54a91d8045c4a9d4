"""What recorded runs must share to be comparable: objective, evaluated model, and the work of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainers.runs.earlier import recorded_weighting

Cell = str | float | None

PROTOCOL = ("client weights", "aggregation", "evaluated model", "batches", "local work", "gradients a step")
"""The names of what :func:`protocol` tells."""


def protocol(config: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, Cell]:
    """Objective, evaluated model and the work of a round of a recorded run, by the names of :data:`PROTOCOL`.

    Args:
        config: with ``algorithm`` and ``settings`` as ``config.json`` has them.
        metrics: one record a round, as in ``metrics.jsonl``.

    Example:
        >>> from trainers import FedSAM, Settings
        >>> from trainers.runs.protocol import protocol
        >>> config = {"algorithm": {"name": "fedsam"}, "settings": Settings(local_steps=7).recorded()}
        >>> told = protocol(config, [{"round": 1, "steps": 14, "gradients": 28}])
        >>> told["client weights"], told["batches"], told["local work"], told["gradients a step"]
        ('samples', '32, last one kept', '7 steps', 2.0)
    """
    settings = config["settings"]
    epochs, steps = settings.get("local_epochs"), settings.get("local_steps")
    work = None if epochs is None else f"{steps} steps" if steps is not None else f"{epochs} epochs"
    batch = settings.get("batch_size")
    whole = batch is None or batch == "full"
    last = {"keep": "kept", "drop": "dropped"}.get(settings.get("last_batch", "keep"))
    counted = [(r["gradients"], r["steps"]) for r in metrics if r.get("steps") and r.get("gradients") is not None]
    gradients = sum(taken for taken, _ in counted) / sum(steps for _, steps in counted) if counted else None
    cells: tuple[Cell, ...] = (
        recorded_weighting(dict(config)),
        settings.get("aggregation", "ratio") if "weighting" in settings else None,
        settings.get("evaluated_model"),
        batch if whole else f"{batch}, last one {last}",
        work,
        gradients,
    )
    return dict(zip(PROTOCOL, cells, strict=True))


def differences(told: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """A sentence for each thing in which runs differ, which keeps them from being compared as they are.

    Args:
        told: :func:`protocol` of each run, by the run's name; what is unknown (``None``) is left out.

    Example:
        >>> from trainers.runs.protocol import differences
        >>> ratio, unbiased = {"aggregation": "ratio"}, {"aggregation": "unbiased"}
        >>> differences({"a": ratio, "b": unbiased, "c": ratio})
        ['the runs differ in aggregation: ratio (a, c), unbiased (b)']
    """
    sentences = []
    for name in dict.fromkeys(key for one in told.values() for key in one):
        runs: dict[str, list[str]] = {}
        for run, one in told.items():
            if (cell := one.get(name)) is not None:
                runs.setdefault(f"{cell:g}" if isinstance(cell, float) else str(cell), []).append(run)
        if len(runs) > 1:
            each = ", ".join(f"{value} ({', '.join(names)})" for value, names in runs.items())
            sentences.append(f"the runs differ in {name}: {each}")
    return sentences
