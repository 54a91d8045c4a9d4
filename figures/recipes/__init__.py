"""Every figure and table of the papers: a module for each paper, a declaration for each item."""

from figures.recipes import flat_minima_figures, flat_minima_tables, flat_minima_tasks  # noqa: F401 - they declare
from figures.recipes.flat_minima import FLAT_MINIMA
from figures.recipes.recipe import Asked, Choice, Order, Paper, Recipe, chosen

PAPERS = (FLAT_MINIMA,)
"""The papers, in the order in which they are listed."""

__all__ = ["PAPERS", "Asked", "Choice", "Order", "Paper", "Recipe", "chosen"]
