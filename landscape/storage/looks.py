"""Colours, markers and dashes of things that are told apart in a picture, in the order in which they are used."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe & Ito's palette, which colour-blind readers can tell apart; markers and dashes are for greyscale."""
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
