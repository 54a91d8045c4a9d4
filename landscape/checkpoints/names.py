"""Names of checkpoints beside one another."""

from __future__ import annotations

from collections.abc import Sequence

from landscape.checkpoints.checkpoint import Checkpoint


def distinct_labels(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """The shortest names that tell them apart: algorithm (or file), then round or folder, then path."""
    names = [c.label for c in checkpoints]
    rounds = [name if c.foreign else f"{name}, round {c.round}" for name, c in zip(names, checkpoints, strict=True)]
    folders = [f"{name} ({c.path.parent.name})" for name, c in zip(names, checkpoints, strict=True) if c.path]
    for labels in (names, rounds, folders):
        if len(set(labels)) == len(checkpoints):
            return labels
    return [str(c.path) for c in checkpoints]
