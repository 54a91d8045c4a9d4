"""One hostile file of a kind, drawn from a seed."""

from __future__ import annotations

import random

from tests.hostile.kinds import KINDS, dump, load, sealed
from tests.hostile.mutations import damaged, rezipped, spoilt


def hostile(kind: str, valid: bytes, seed: int) -> bytes:
    """A file like a valid one: damaged in its bytes (a fifth), within its archive (a fifth), or in what it holds."""
    form, draw = KINDS[kind].form, random.Random(f"{kind} {seed}")
    how = draw.random()
    if form == "bytes" or how < 0.2:
        raw = damaged(valid, draw)
        return sealed(raw) if form == "surface" and draw.random() < 0.7 and len(raw) > 512 else raw
    if form in ("torch", "npz") and how < 0.4:
        return rezipped(valid, draw)
    tree = load(form, valid)
    for _ in range(20):
        try:
            return dump(form, spoilt(tree, draw, form == "torch", form in ("npz", "surface")))
        except Exception:  # a value that this form of file cannot hold: another one is drawn
            continue
    return damaged(valid, draw)
