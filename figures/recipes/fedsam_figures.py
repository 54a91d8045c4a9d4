"""The figures of FedSAM (Qu et al., ICML 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from figures.contents.curves import Curves, SweepOf, Sweeps
from figures.contents.surfaces import Surfaces
from figures.contents.table import Entry
from figures.contents.values import accuracy
from figures.graph.nodes import Measure, RunModel
from figures.recipes.fedsam import (
    BERNOULLI_SLIP,
    CURVES,
    DATA,
    FEDSAM,
    PROTOCOL,
    SETTINGS,
    TABLED,
    TRAIN,
    VALIDATION,
    run,
)
from figures.recipes.recipe import Choice, Order
from trainers.runs.planned import PlannedRun


def _over_rounds(order: Order, names: Iterable[str], metric: str, ylabel: str) -> Curves:
    panels = {data: {name: (run(order, name, data),) for name in names} for data in DATA}
    return Curves(panels, ylabel, metric, until=800)


@FEDSAM.recipe(
    "F1",
    "test accuracy over the rounds of eight algorithms on EMNIST, CIFAR-10 and CIFAR-100",
    choices=PROTOCOL,
    slips=(
        "the legend of panel b has MoFedCM for MoFedSAM, that of panel c SCAFFOLD twice, the second for FedCM",
        "its axes end at 800 rounds, and Table 1 has rounds 847 and 893",
        BERNOULLI_SLIP,
    ),
)
def f1(order: Order) -> Curves:
    """Figure 1."""
    return _over_rounds(order, CURVES, "test_accuracy", "test accuracy (%)")


@FEDSAM.recipe(
    "F2",
    "loss surfaces on CIFAR-10 of FedAvg, FedSAM and MoFedSAM, along two random orthogonal directions",
    choices={
        **PROTOCOL,
        "points": Choice(51, "the paper does not say how many points", {"smoke": 21, "small": 21}),
        "samples": Choice(
            0, "training images, as the paper does not say on which the loss is; 0: all", {"small": 1000}
        ),
    },
    slips=("Section 5.2 calls it Figure 3", BERNOULLI_SLIP),
)
def f2(order: Order) -> Surfaces:
    """Figure 2."""
    options = {"points": order.choice("points"), "span": 1.0, "samples": order.choice("samples") or None}
    return Surfaces(
        {name: Measure("surface", (RunModel(run(order, name)),), options) for name in ("FedAvg", "FedSAM", "MoFedSAM")}
    )


SWEPT: Mapping[str, Choice] = {
    "shares": Choice((0.2, 0.4, 0.6, 0.8, 1.0), "the axis ends at 0.2 and 1; its points are not printed"),
    "epochs": Choice(
        (1, 5, 10, 15, 20), "the axis ends at 2.5 and 20, and Section 5.2 has 1; its points are not printed",
        {"smoke": (1, 2, 5), "small": (1, 2, 5)},
    ),
    "radii": Choice(
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        "the axis ends at 0.2 and 1; its points are not printed",
        {"smoke": (0.02, 0.05, 0.1, 0.15, 0.2), "small": (0.02, 0.05, 0.1, 0.2, 0.5)},
    ),
    "betas": Choice((0.01, 0.1, 0.2, 0.5, 1.0), "those on which β was tuned; the axis ends at 0 and 1"),
}  # fmt: skip
"""Values of Figures 3, 5 and 6 that are not printed."""


def _sweeps(order: Order, data: str, names: tuple[str, ...], metric: str, ylabel: str) -> Sweeps:
    def curves(
        among: Iterable[str], values: Iterable[float], replaced: Callable[[str, Any], PlannedRun]
    ) -> dict[str, dict[float, Entry]]:
        return {name: {value: Entry((replaced(name, value),), accuracy(metric)) for value in values} for name in among}

    base = SETTINGS[order.scale][data]
    perturbed = tuple(name for name in names if name.endswith("SAM"))
    momentum = ("FedCM", "MimeLite", "MoFedSAM")
    shares, epochs, radii, betas = (order.choice(name) for name in SWEPT)
    return Sweeps(
        {
            "clients a round": SweepOf(
                "share of the clients",
                curves(names, shares, lambda name, value: run(order, name, data, share=value)),
                default=0.2,
            ),
            "local epochs": SweepOf(
                "local epochs K",
                curves(names, epochs, lambda name, value: run(order, name, data, epochs=value)),
                default=base.local_epochs,
            ),
            "radius": SweepOf(
                "radius ρ of the ascent",
                curves(perturbed, radii, lambda name, value: run(order, name, data, rho=value)),
                default=order.choice("rho")[DATA.index(data)],
            ),
            "momentum": SweepOf(
                "share β of the own gradient",
                curves(momentum, betas, lambda name, value: run(order, name, data, beta=value)),
                spacing="even",
                default=0.1,
            ),
        },
        ylabel,
    )


@FEDSAM.recipe(
    "F3",
    "final test accuracy on CIFAR-10 by clients a round, local epochs K, radius ρ and momentum β",
    choices={**PROTOCOL, **SWEPT},
    slips=("the axis of panel d says validation accuracy", BERNOULLI_SLIP),
)
def f3(order: Order) -> Sweeps:
    """Figure 3."""
    return _sweeps(order, "CIFAR-10", CURVES, "test_accuracy", "test accuracy (%)")


@FEDSAM.recipe(
    "F4",
    "training accuracy, mean of the clients, over the rounds of seven algorithms on EMNIST, CIFAR-10 and CIFAR-100",
    choices=PROTOCOL,
    slips=("its axis says validation accuracy", "the legend of panel b has MoFedCM for MoFedSAM", BERNOULLI_SLIP),
)
def f4(order: Order) -> Curves:
    """Figure 4."""
    return _over_rounds(order, TABLED, TRAIN, "training accuracy (%)")


@FEDSAM.recipe(
    "F5",
    "final validation accuracy (mean of the clients) on EMNIST by clients a round, epochs K, radius ρ, momentum β",
    choices={**PROTOCOL, **SWEPT},
    slips=(BERNOULLI_SLIP,),
)
def f5(order: Order) -> Sweeps:
    """Figure 5."""
    return _sweeps(order, "EMNIST", TABLED, VALIDATION, "validation accuracy (%)")


@FEDSAM.recipe(
    "F6",
    "final validation accuracy (mean of the clients) on CIFAR-100 by clients a round, epochs K, radius ρ, momentum β",
    choices={**PROTOCOL, **SWEPT},
    slips=("panel d, of β, has the axis and the legend of panel c; here it is of β", BERNOULLI_SLIP),
)
def f6(order: Order) -> Sweeps:
    """Figure 6."""
    return _sweeps(order, "CIFAR-100", TABLED, VALIDATION, "validation accuracy (%)")
