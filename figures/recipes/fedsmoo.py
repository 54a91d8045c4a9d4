"""FedSMOO (Sun et al., ICML 2023: dynamic regularised sharpness-aware minimisation): the protocol of its experiments.

Figures and tables are declared in :mod:`figures.recipes.fedsmoo_figures` and :mod:`figures.recipes.fedsmoo_tables`; all
of them take their runs from :func:`run`, so that equal settings are one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from figures.contents.table import Entry
from figures.contents.values import accuracy, best_accuracy, collapsed
from figures.recipes.form import FORM, in_form
from figures.recipes.recipe import Choice, Order, Paper, ScaleName
from landscape.errors import FedscapeError
from trainers import (
    Algorithm,
    FedAdam,
    FedAvg,
    FedCM,
    FedDyn,
    FedSAM,
    FedSMOO,
    MoFedSAM,
    Parts,
    Scaffold,
    Settings,
)
from trainers.runs.planned import PlannedRun

Data = Literal["C10", "C100"]
Share = Literal["10%-100", "5%-200"]
"""Clients a round, and of how many."""

FEDSMOO = Paper(
    "fedsmoo",
    "Sun et al., ICML 2023",
    stand_ins={
        "smoke": "digits stand in for CIFAR-10 and CIFAR-100, which then differ by their settings only (local batches, "
        "β of FedSMOO, α of FedDyn, 10, 20 and 30 of 100 classes a client becoming 1, 2 and 3 of 10); digits_mlp for "
        "ResNet-18; 2 of 20 clients a round for 10 % of 100, 2 of 40 for 5 % of 200; targets of rounds are lower.",
        "small": "lenet_fed stands in for ResNet-18; 1 local epoch in batches of 20 (25 steps of one of 100 clients) "
        "for 5 epochs in batches of 50, and for 2 of CIFAR-100; fewer rounds for 800; targets of rounds are lower.",
    },
)
ALGORITHMS = ("FedAvg", "FedAdam", "SCAFFOLD", "FedCM", "FedDyn", "FedSAM", "MoFedSAM", "FedSMOO")
"""In the order of the paper's tables."""
SPLITS: Mapping[Data, tuple[str, ...]] = MappingProxyType(
    {"C10": ("Dir0.6", "Dir0.1", "Path6", "Path3"), "C100": ("Dir0.6", "Dir0.1", "Path20", "Path10")}
)
SHARES: tuple[Share, ...] = ("10%-100", "5%-200")

CHOICES: Mapping[str, Choice] = MappingProxyType(
    {
        **FORM,
        "clip": Choice(10.0, "the paper does not mention it; its code clips the direction of a step to the norm 10"),
        "sampling": Choice(
            "exact", "Algorithm 1 draws a subset of n clients; the code draws each with a probability: bernoulli"
        ),
        "variant": Choice(
            "paper", "FedSMOO as Algorithm 1; official: the code's, whose server drops ŝ from the common perturbation"
        ),
    }
)
"""What the paper leaves open in every run."""
BATCH_OF_200: Mapping[str, Choice] = MappingProxyType(
    {
        "batch_size_of_200": Choice(
            50,
            "of CIFAR-10 with 200 clients, as the paper has it; the code's README has 25",
            {"smoke": 16, "small": 20},
        )
    }
)
"""And in those of 200 clients."""
HOLES = (
    "images are cropped with probability 1/2 only, from a padding added after normalisation; with form=paper always, "
    "before it",
    "the half of FedDyn's and FedSMOO's proximal term that holds w is added like a weight decay, after the clipping; "
    "with form=paper all of the direction but the weight decay is clipped",
    "FedAdam's second moment starts at 0; here at τ², as in its own paper",
    "SCAFFOLD, FedCM and MoFedSAM divide by epochs · n/batch, 25 on CIFAR-100 with 200 clients; here by the 26 steps "
    "that are taken",
)

_PAPER = Settings(
    data="cifar10", model="resnet18_gn", rounds=800, lr=0.1, weight_decay=1e-3, augment="flip-crop", eval_every=1,
    save_every=0,
)  # fmt: skip
_BASE: Mapping[ScaleName, Settings] = {
    "paper": _PAPER,
    "small": replace(_PAPER, model="lenet_fed", rounds=60, eval_every=5),
    "smoke": replace(
        _PAPER, data="digits", model="digits_mlp", augment="none", rounds=40, eval_every=2, weight_decay=1e-4
    ),
}
_LOCAL: Mapping[ScaleName, Mapping[Data, tuple[int, int]]] = {
    "paper": {"C10": (5, 50), "C100": (2, 20)},
    "small": {"C10": (1, 20), "C100": (1, 20)},
    "smoke": {"C10": (1, 16), "C100": (1, 12)},
}
"""Local epochs and batch size."""
_CLIENTS: Mapping[ScaleName, Mapping[Share, tuple[int, int]]] = {
    "paper": {"10%-100": (100, 10), "5%-200": (200, 10)},
    "small": {"10%-100": (100, 10), "5%-200": (200, 10)},
    "smoke": {"10%-100": (20, 2), "5%-200": (40, 2)},
}
"""How many there are, and how many of them a round samples."""
_BETA: Mapping[Data, float] = {"C10": 10.0, "C100": 100.0}
"""β of FedSMOO, and 1/α of FedDyn."""
Targets = Mapping[Share, Mapping[tuple[Data, str], tuple[int, int]]]
TARGETS: dict[ScaleName, Targets] = {
    "paper": {
        "10%-100": {
            ("C10", "Dir0.1"): (68, 74), ("C10", "Path3"): (68, 74),
            ("C100", "Dir0.1"): (38, 43), ("C100", "Path10"): (35, 40),
        },
        "5%-200": {
            ("C10", "Dir0.1"): (68, 74), ("C10", "Path3"): (68, 74),
            ("C100", "Dir0.1"): (35, 40), ("C100", "Path10"): (33, 38),
        },
    },
    "small": {
        share: {
            ("C10", "Dir0.1"): (30, 40), ("C10", "Path3"): (30, 40),
            ("C100", "Dir0.1"): (5, 10), ("C100", "Path10"): (5, 10),
        } for share in SHARES
    },
    "smoke": {
        share: {
            ("C10", "Dir0.1"): (45, 60), ("C10", "Path3"): (45, 60),
            ("C100", "Dir0.1"): (45, 60), ("C100", "Path10"): (30, 40),
        } for share in SHARES
    },
}  # fmt: skip
"""Accuracies to reach, in percent."""
STATISTIC = {
    "statistic": Choice(
        "last", "'after 800 rounds' may be the last round or a mean of the last; the code prints the best over rounds. "
        "last, last10 (mean over the last 10 rounds) or best"
    )
}  # fmt: skip


def algorithm(order: Order, name: str, data: Data) -> tuple[Algorithm, float]:
    """An algorithm with the paper's hyper-parameters (sections 5.1 and B.4), and the decay of its local rate."""
    made: dict[str, Algorithm] = {
        "FedAvg": FedAvg(),
        "FedAdam": FedAdam(server_lr=0.1, beta1=0.9, beta2=0.99, tau=0.01),
        "SCAFFOLD": Scaffold(),
        "FedCM": FedCM(alpha=0.1),
        "FedDyn": FedDyn(alpha=1 / _BETA[data]),
        "FedSAM": FedSAM(rho=0.01),
        "MoFedSAM": MoFedSAM(rho=0.01, beta=0.1),
        "FedSMOO": fedsmoo(order, data),
    }
    return made[name], 0.9995 if name in ("FedDyn", "FedSMOO") else 0.998


def fedsmoo(order: Order, data: Data = "C10", *, r: float = 0.1, beta: float | None = None) -> FedSMOO:
    """FedSMOO with the paper's hyper-parameters, unless others are given."""
    return FedSMOO(r=r, beta=beta or _BETA[data], variant=_open(order, "variant"))


def partition(order: Order, split: str) -> str:
    """``Dir0.1`` or ``Path3``, with replacement, as training takes it.

    At smoke scale 10, 20 and 30 of 100 classes become 1, 2 and 3 of 10.
    """
    kind, number = ("dirichlet", split[3:]) if split.startswith("Dir") else ("pathological", split[4:])
    if kind == "pathological" and int(number) >= 10 and order.scale == "smoke":
        number = str(int(number) // 10)
    return f"{kind}:{number}+replacement"


def _open(order: Order, name: str) -> Any:
    """What is chosen in every run; the default where a recipe has runs of no rounds only, and leaves nothing open."""
    return order.choice(name) if name in order.recipe.choices else CHOICES[name].default


def settings(order: Order, data: Data = "C10", split: str = "Dir0.1", share: Share = "10%-100") -> Settings:
    """The settings that all algorithms have in common."""
    base = _BASE[order.scale]
    epochs, batch = _LOCAL[order.scale][data]
    if share == "5%-200" and data == "C10" and "batch_size_of_200" in order.recipe.choices:
        batch = order.choice("batch_size_of_200")
    clients, per_round = _CLIENTS[order.scale][share]
    name = base.data if order.scale == "smoke" or data == "C10" else "cifar100"
    return order.asked.settings(
        replace(
            base, data=name, partition=partition(order, split), clients=clients, per_round=per_round,
            local_epochs=epochs, batch_size=batch, clip=_open(order, "clip"), sampling=_open(order, "sampling"),
        )
    )  # fmt: skip


def run(
    order: Order,
    name: str,
    data: Data = "C10",
    split: str = "Dir0.1",
    share: Share = "10%-100",
    *,
    other: Algorithm | None = None,
    **changed: Any,
) -> PlannedRun:
    """The run of an algorithm with the first of the seeds.

    Args:
        order: scale and choices.
        name: one of :data:`ALGORITHMS`, whose rate's decay it has.
        data, split, share: as in Table 1.
        other: the algorithm with other hyper-parameters.
        changed: fields of the settings.
    """
    made, decay = algorithm(order, name, data)
    common = replace(settings(order, data, split, share), lr_decay=decay, seed=order.seeds((0, 1), (0, 1))[0])
    planned = PlannedRun(other or made, replace(common, **changed), Parts())
    return in_form(order, planned, "fl-simulator", ("clip", "sampling", *(("variant",) if name == "FedSMOO" else ())))


def runs(order: Order, name: str, *place: Any, **changed: Any) -> tuple[PlannedRun, ...]:
    """The runs of all seeds; arguments as those of :func:`run`."""
    return order.over_seeds(run(order, name, *place, **changed), (0, 1), (0, 1))


def final_accuracy(order: Order, nodes: tuple[PlannedRun, ...]) -> Entry:
    """The accuracy after the last round, as chosen, with the remark that a run collapsed.

    Raises:
        FedscapeError: another statistic than those there are.
    """
    statistics = {"last": accuracy(), "last10": accuracy(last=10), "best": best_accuracy()}
    chosen = order.choice("statistic")
    if chosen not in statistics:
        raise FedscapeError(f"the statistic of an accuracy is '{chosen}': give {', '.join(statistics)}")
    return Entry(nodes, statistics[chosen], remark=collapsed)
