"""Colours, markers and dashes that every picture of several things takes them from, in turn."""

from __future__ import annotations

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito's palette: told apart by colour-blind eyes; markers and dashes serve greyscale."""
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
