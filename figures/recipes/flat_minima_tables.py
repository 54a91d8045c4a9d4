"""The tables of Caldarola et al., ECCV 2022."""

from __future__ import annotations

from figures.contents.content import Content
from figures.contents.table import Entry, TableOf
from figures.contents.values import eigenvalue, eigenvalue_ratio
from figures.recipes.flat_minima import ALPHAS, CHOICES, FLAT_MINIMA, HOLES, METHODS, target
from figures.recipes.flat_minima_figures import SPECTRUM, global_hessian
from figures.recipes.recipe import Order


@FLAT_MINIMA.recipe(
    "T1",
    "λ_max and λ_max/λ_5 of the global model, by algorithm and α, 5 clients a round",
    choices=CHOICES | SPECTRUM,
    holes=HOLES,
)
def t1(order: Order) -> Content:
    """Table 1."""
    cifar = target(order)
    # At the small scale without the middle α, so that the runs are those of F1 and F5.
    shown = ALPHAS[cifar][::2] if order.scale == "small" else ALPHAS[cifar]
    entries = {}
    for alpha in shown:
        for method in METHODS:
            node = (global_hessian(order, method, alpha),)
            column = f"{cifar} alpha={alpha:g} lambda_max"
            entries[method, column] = Entry(node, eigenvalue())
            entries[method, f"{column}/lambda_5"] = Entry(node, eigenvalue_ratio())
    return TableOf(entries, "eigenvalues of the Hessian of the mean loss, and their ratio", 2)
