"""The figures of FedSMOO (Sun et al., ICML 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from figures.contents.curves import Curves, SweepOf, Sweeps
from figures.contents.partitions import HeatMaps, Histograms
from figures.contents.surfaces import Superimposed
from figures.graph import Measure, RunModel
from figures.plots.sweeps import Spacing
from figures.recipes.fedsmoo import (
    ALGORITHMS,
    BATCH_OF_200,
    CHOICES,
    FEDSMOO,
    HOLES,
    SPLITS,
    STATISTIC,
    Data,
    Share,
    fedsmoo,
    final_accuracy,
    run,
    runs,
)
from figures.recipes.recipe import Choice, Order, ScaleName
from landscape.errors import FedscapeError
from landscape.partitions.spec import read_spec
from trainers.runs.planned import PlannedRun

_SURFACE: dict[ScaleName, dict[str, Any]] = {
    "paper": {"points": 51},
    "small": {"points": 31, "samples": 5000},
    "smoke": {"points": 21, "samples": 500},
}


_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def _histograms(order: Order, data: Data) -> Histograms:
    drawn = run(order, "FedAvg", data, "Dir0.1", rounds=0)
    without = drawn.settings.partition.removesuffix("+replacement")
    title = f"{_DATA.get(drawn.settings.data, drawn.settings.data)}, Dirichlet 0.1"
    return Histograms({title: (drawn, run(order, "FedAvg", data, "Dir0.1", rounds=0, partition=without))})


@FEDSMOO.recipe(
    "F2",
    "samples of each class of CIFAR-10 over 100 clients, drawn with replacement against without; Dirichlet 0.1",
    slips=(
        "the standard deviation is given as 829.14, of one partition; over seeds it is 1010 ± 237 with FedDyn's "
        "parameter for each class, as in the code and here, and 1372 ± 327 with the total concentration of Hsu et al., "
        "whom the text cites",
    ),
)
def f2(order: Order) -> Histograms:
    """Figure 2."""
    return _histograms(order, "C10")


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


def _checked(order: Order, name: str, allowed: Sequence[str]) -> str:
    """A choice among words.

    Raises:
        FedscapeError: another word.
    """
    given: str = order.choice(name)
    if given not in allowed:
        raise FedscapeError(f"{name} is '{given}': give {' or '.join(allowed)}")
    return given


@FEDSMOO.recipe(
    "F4",
    "FedSMOO's sensitivity to the local interval, the decay of the rate, β and r; CIFAR-10",
    choices={
        **CHOICES,
        **STATISTIC,
        "split": Choice("Dir0.1", "not told; one of Table 1's of CIFAR-10, with 10 % of 100 clients"),
        "epochs": Choice((1, 2, 5, 10), "the intervals are not told", {"smoke": (1, 2, 4, 8), "small": (1, 2, 4)}),
        "decays": Choice((0.998, 0.9995, 0.99995), "not told; the grid of Table 5 for the proxies"),
        "betas": Choice((1.0, 10.0, 100.0), "not told; the grid of Table 5"),
        "radii": Choice((0.01, 0.1, 1.0), "not told; the grid of Table 5 for the proxies"),
    },
    holes=HOLES,
)
def f4(order: Order) -> Sweeps:
    """Figure 4."""
    split = _checked(order, "split", SPLITS["C10"])
    base = run(order, "FedSMOO", "C10", split)

    def sweep(
        choice: str, label: str, spacing: Spacing, default: float, changed: Callable[[Any], dict[str, Any]]
    ) -> SweepOf:
        values = {
            value: final_accuracy(order, runs(order, "FedSMOO", "C10", split, **changed(value)))
            for value in order.choice(choice)
        }
        return SweepOf(label, {"FedSMOO": values}, spacing, default)

    return Sweeps(
        {
            "local interval": sweep(
                "epochs", "local epochs", "log", base.settings.local_epochs, lambda v: {"local_epochs": v}
            ),
            "decay of the rate": sweep("decays", "factor a round", "even", 0.9995, lambda v: {"lr_decay": v}),
            "penalised coefficient": sweep("betas", "β", "log", 10, lambda v: {"other": fedsmoo(order, beta=v)}),
            "radius of the perturbation": sweep("radii", "r", "log", 0.1, lambda v: {"other": fedsmoo(order, r=v)}),
        }
    )


@FEDSMOO.recipe(
    "F5",
    "samples by client and class of CIFAR-100: Dirichlet 0.6 and Pathological 30",
    slips=("no experiment has Pathological-30",),
)
def f5(order: Order) -> HeatMaps:
    """Figure 5."""
    dirichlet, pathological = (run(order, "FedAvg", "C100", split, rounds=0) for split in ("Dir0.6", "Path30"))
    classes = read_spec(pathological.settings.partition).parameters[0]
    return HeatMaps({"(a) Dirichlet 0.6": dirichlet, f"(b) Pathological {classes:g}": pathological})


@FEDSMOO.recipe(
    "F6",
    "samples of each class of CIFAR-100 over 100 clients, drawn with replacement against without; Dirichlet 0.1",
)
def f6(order: Order) -> Histograms:
    """Figure 6."""
    return _histograms(order, "C100")


_PENALTY = (
    "its code's loss holds (c/2)‖w‖² by the number of batches, with the weight decay c; here the loss has no penalty"
)
_WINDOW = {"window": Choice(21, "the length of the Hann window is not told; in evaluations", {"small": 3, "smoke": 3})}
_LOSS = {"loss": Choice("test", "of which data is not told: test, or train, the mean over the round's local steps")}


def _curves(order: Order, share: Share, ylabel: str, metric: str) -> Curves:
    """A panel a split of CIFAR-10, a curve an algorithm."""
    words = {"Dir": "Dirichlet ", "Path": "Pathological "}
    panels: dict[str, dict[str, tuple[PlannedRun, ...]]] = {}
    for split in SPLITS["C10"]:
        kind = split.rstrip("0123456789.")
        panels[words[kind] + split.removeprefix(kind)] = {
            name: runs(order, name, "C10", split, share) for name in ALGORITHMS
        }
    loss = "loss" in metric
    return Curves(panels, ylabel, metric, "nat" if loss else "1", percent=not loss, smoothing=order.choice("window"))


def _losses(order: Order, share: Share) -> Curves:
    which = _checked(order, "loss", ("test", "train"))
    return _curves(order, share, {"test": "test loss (nats)", "train": "training loss (nats)"}[which], f"{which}_loss")


_HALVES: dict[Share, str] = {"10%-100": "10 % of 100 clients a round", "5%-200": "5 % of 200 clients a round"}


@FEDSMOO.recipe(
    "F7",
    f"test accuracy of eight algorithms over the rounds on four splits of CIFAR-10, {_HALVES['10%-100']}",
    choices={**CHOICES, **_WINDOW},
    holes=HOLES,
)
def f7(order: Order) -> Curves:
    """Figure 7."""
    return _curves(order, "10%-100", "test accuracy (%)", "test_accuracy")


@FEDSMOO.recipe(
    "F8",
    f"loss of eight algorithms over the rounds on four splits of CIFAR-10, {_HALVES['10%-100']}",
    choices={**CHOICES, **_WINDOW, **_LOSS},
    slips=(_PENALTY,),
    holes=HOLES,
)
def f8(order: Order) -> Curves:
    """Figure 8."""
    return _losses(order, "10%-100")


@FEDSMOO.recipe(
    "F9",
    f"test accuracy of eight algorithms over the rounds on four splits of CIFAR-10, {_HALVES['5%-200']}",
    choices={**CHOICES, **BATCH_OF_200, **_WINDOW},
    holes=HOLES,
)
def f9(order: Order) -> Curves:
    """Figure 9."""
    return _curves(order, "5%-200", "test accuracy (%)", "test_accuracy")


@FEDSMOO.recipe(
    "F10",
    f"loss of eight algorithms over the rounds on four splits of CIFAR-10, {_HALVES['5%-200']}",
    choices={**CHOICES, **BATCH_OF_200, **_WINDOW, **_LOSS},
    slips=(_PENALTY,),
    holes=HOLES,
)
def f10(order: Order) -> Curves:
    """Figure 10."""
    return _losses(order, "5%-200")
