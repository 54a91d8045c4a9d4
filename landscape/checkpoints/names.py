"""Distinct names for several checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from landscape.checkpoints.checkpoint import Checkpoint


def distinct_labels(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """The shortest names that are all different: algorithm (or file), then with the round or folder, then the path."""
    names = [c.label for c in checkpoints]
    rounds = [name if c.foreign else f"{name}, round {c.round}" for name, c in zip(names, checkpoints, strict=True)]
    folders = [f"{name} ({c.path.parent.name})" for name, c in zip(names, checkpoints, strict=True) if c.path]
    for labels in (names, rounds, folders):
        if len(set(labels)) == len(checkpoints):
            return labels
    return [str(c.path) for c in checkpoints]
