"""Notices: what must be on the screen whether or not progress is shown, once a process."""

from __future__ import annotations

import sys

from landscape.compute.distributed import first_rank

_told: set[str] = set()


def notice(sentence: str) -> None:
    """Print a sentence to stderr, once a process and by the first rank alone.

    Characters that a terminal would obey are left out: a name may come from anywhere.
    """
    plain = "".join(c for c in sentence if c.isprintable())
    if plain not in _told and first_rank():
        print(plain, file=sys.stderr)
    _told.add(plain)
