"""Every figure and table of the papers: a module for each paper, a declaration for each item."""

from figures.recipes import (  # noqa: F401 - they declare the items
    fedsam_figures,
    fedsam_tables,
    fedsmoo_figures,
    fedsmoo_tables,
    flat_minima_figures,
    flat_minima_tables,
    flat_minima_tasks,
)
from figures.recipes.fedsam import FEDSAM
from figures.recipes.fedsmoo import FEDSMOO
from figures.recipes.flat_minima import FLAT_MINIMA
from figures.recipes.man import MAN_PAPER
from figures.recipes.recipe import Asked, Choice, Order, Paper, Recipe, chosen

PAPERS = (FLAT_MINIMA, FEDSAM, MAN_PAPER, FEDSMOO)
"""The papers, in the order in which they are listed."""

__all__ = ["PAPERS", "Asked", "Choice", "Order", "Paper", "Recipe", "chosen"]
