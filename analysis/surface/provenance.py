"""Provenance of a surface: the fields by which a stored surface is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Provenance:
    """Which function was measured, on which grid: surfaces with equal provenance are the same surface.

    Attributes:
        model, data, algorithm: names; ``round`` of training (``None``: unknown).
        checkpoint, samples_digest, plane: digests of the model, of the samples, of origin and directions.
        normalisation, seed: of the directions; ``span`` and ``points`` of the grid.
        split, samples, clients: the data measured on; ``clients`` as in ``0-9, 12``, or ``all``.
        loss, dtype: the loss function, and the type it was computed in.
        kind: of the plane (:class:`analysis.surface.planes.Plane`).
        others: digests of the other models that the plane goes through, in order.
        regulariser: what is added to the loss, as text; empty where nothing is.
        batchnorm: which statistics BatchNorm has at a point (:class:`analysis.surface.points.Points`), or ``none``.
        test: whether the test data are measured too, beside ``split``.
        lambda_max: whether the Hessian's largest eigenvalue is measured.
    """

    model: str
    data: str
    algorithm: str
    round: int | None
    checkpoint: str
    plane: str
    normalisation: str
    seed: int
    span: float
    points: int
    split: str
    samples: int
    clients: str
    samples_digest: str
    loss: str
    dtype: str
    kind: str = "random"
    others: str = ""
    regulariser: str = ""
    batchnorm: str = "none"
    test: bool = False
    lambda_max: bool = False

    def differences(self, other: Provenance) -> list[str]:
        """The fields that differ, as ``seed (0 there, 1 here)``; without those that follow from other differences."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]
        if {"checkpoint", "normalisation", "seed", "dtype", "kind", "others"} & set(names):
            names = [name for name in names if name != "plane"]
        if {"data", "split", "samples", "clients"} & set(names):
            names = [name for name in names if name != "samples_digest"]
        return [
            f"{name.replace('_', ' ')} ({_short(getattr(self, name))} there, {_short(getattr(other, name))} here)"
            for name in names
        ]


def client_ranges(clients: Sequence[int] | None) -> str:
    """Client ids as text: ``0-9, 12``; ``all`` for ``None``."""
    if clients is None:
        return "all"
    runs: list[list[int]] = []
    for client in clients:
        if runs and client == runs[-1][1] + 1:
            runs[-1][1] = client
        else:
            runs.append([client, client])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _short(value: object) -> str:
    text = str(value)
    text = text if text.isprintable() else ascii(text)
    return text[:12] + "…" if len(text) == 64 else text[:80]
