"""Every figure and table of the papers: a module for each paper, a declaration for each item."""

from figures.recipes.flat_minima import FLAT_MINIMA
from figures.recipes.recipe import Asked, Choice, Order, Paper, Recipe, chosen

PAPERS = (FLAT_MINIMA,)
"""The papers, in the order in which they are listed."""

__all__ = ["PAPERS", "Asked", "Choice", "Order", "Paper", "Recipe", "chosen"]
