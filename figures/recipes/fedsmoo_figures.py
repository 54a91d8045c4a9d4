"""The figures of FedSMOO (Sun et al., ICML 2023)."""

from __future__ import annotations

from typing import Any

from figures.contents.surfaces import Superimposed
from figures.graph import Measure, RunModel
from figures.recipes.fedsmoo import CHOICES, FEDSMOO, HOLES, run
from figures.recipes.recipe import Choice, Order, ScaleName

_SURFACE: dict[ScaleName, dict[str, Any]] = {
    "paper": {"points": 51},
    "small": {"points": 31, "samples": 5000},
    "smoke": {"points": 21, "samples": 500},
}


@FEDSMOO.recipe(
    "F3",
    "loss surfaces: FedSMOO's as a grid over those of FedAvg, SCAFFOLD and MoFedSAM; CIFAR-10, Dirichlet 0.1",
    choices={
        **CHOICES,
        "span": Choice(1.0, "the range is not given; 1: a filter has moved by its own length"),
        "directions_seed": Choice(
            0, "directions are not given; the same random numbers for all models, each filter as long as the model's"
        ),
        "split": Choice("train", "the data are not given"),
    },
    holes=HOLES,
)
def f3(order: Order) -> Superimposed:
    """Figure 3."""

    def surface(name: str) -> Measure:
        chosen = {"span": order.choice("span"), "seed": order.choice("directions_seed"), "split": order.choice("split")}
        return Measure("surface", (RunModel(run(order, name)),), {**_SURFACE[order.scale], **chosen})

    return Superimposed(
        ("FedSMOO", surface("FedSMOO")), {name: surface(name) for name in ("FedAvg", "SCAFFOLD", "MoFedSAM")}
    )
