"""Improving Generalization in Federated Learning by Seeking Flat Minima (Caldarola et al., ECCV 2022): its protocol.

Runs are named as the paper's rows are: ``FedASAM+SWA``, ``FedProx+ASAM``; equal names and settings are one run in all
items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from figures.recipes.form import FORM, in_form
from figures.recipes.recipe import Choice, Order, Paper, ScaleName
from trainers import (
    ASAM,
    SAM,
    SWA,
    AdaBest,
    Algorithm,
    Centralised,
    FedASAM,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedProx,
    FedSAM,
    Parts,
    Scaffold,
    Settings,
)
from trainers.runs.planned import PlannedRun

Cifar = Literal["CIFAR10", "CIFAR100"]
Augmented = Literal["", "mixup", "cutout"]

FLAT_MINIMA = Paper(
    "flat-minima",
    "Caldarola et al., ECCV 2022",
    stand_ins={
        "smoke": "The embedded digits stand in for all pictures, generated scenes of 12x12 pixels for street scenes, "
        "digits_mlp for lenet_fed, ResNet-18 and MobileNet; 1, 2 and 4 of 20 clients a round for 5, 10 and 20. CIFAR10 "
        "and CIFAR100 differ in α and in the radii of SAM and ASAM only.",
        "small": "CIFAR-10 with its α of 0, 0.05 and 100 stands in for CIFAR-100 with 0, 0.5 and 1000, and for "
        "CIFAR100-PAM and Landmarks; lenet_fed for ResNet-18 and MobileNet; generated scenes for street scenes; 40 or "
        "fewer rounds at a larger rate.",
    },
)

METHODS = ("FedAvg", "FedSAM", "FedASAM", "FedAvg+SWA", "FedSAM+SWA", "FedASAM+SWA")
"""The paper's own, and the baseline."""
ALPHAS: dict[Cifar, tuple[float, float, float]] = {"CIFAR10": (0, 0.05, 100), "CIFAR100": (0, 0.5, 1000)}
"""Total concentrations, the most heterogeneous first [P]."""
_CLIENTS: dict[ScaleName, dict[int, int]] = {
    "smoke": {5: 1, 10: 2, 20: 4},
    "small": {5: 5, 10: 10, 20: 20},
    "paper": {5: 5, 10: 10, 20: 20},
}
_PAPER = Settings(
    data="cifar10", model="lenet_fed", clients=100, rounds=10_000, local_epochs=1, batch_size=64, lr=0.01,
    weight_decay=4e-4, augment="flip-crop", save_every=0,
)  # fmt: skip
_SMALL = replace(_PAPER, rounds=100)
_SMOKE = Settings(
    data="digits", model="digits_mlp", clients=20, rounds=40, local_epochs=1, batch_size=32, save_every=0,
)  # fmt: skip

CHOICES: dict[str, Choice] = {
    **FORM,
    "eval_every": Choice(
        10,
        "rounds between evaluations; the authors' code tests in each of the last 100 rounds, whose mean is reported: 1 "
        "does so, 10 takes ten of them",
        {"smoke": 5},
    ),
    "lr100": Choice(
        0.01,
        "the rate on CIFAR-100 is that of CIFAR-10 in the code; the smaller scales have one rate for all",
        {"smoke": 0.1, "small": 0.05},
    ),
    "rho100": Choice(0.05, "ρ of SAM on CIFAR-100 is not printed; half of CIFAR-10's 0.1"),
    "asam_rho100": Choice(0.5, "ρ of ASAM on CIFAR-100 is not printed; a little less than CIFAR-10's 0.7"),
    "asam_eta100": Choice(0.2, "η of ASAM on CIFAR-100 is not printed; CIFAR-10's"),
    "cycle100": Choice(10, "rounds of SWA's cycle on CIFAR-100 are not printed; CIFAR-10's", {"smoke": 5}),
}
"""What the paper and its code leave open in the protocol on CIFAR-10 and CIFAR-100."""
HOLES = (
    "SWA's models are those after the round with the highest rate of each cycle in the code; with form=paper, as the "
    "paper's text has it, after that with the lowest",
    "the code's split, whose last clients get what is left of the classes, with one training image twice and 1,006 "
    "test images of CIFAR-10 among the training ones; here Hsu's Dirichlet is drawn anew on the original images",
    "the code's clients of round t, drawn with the seed t",
)
"""Of the protocol on CIFAR-10 and CIFAR-100."""


def target(order: Order) -> Cifar:
    """The data set of what the paper measures on CIFAR-100."""
    return "CIFAR10" if order.scale == "small" else "CIFAR100"


def cifars(order: Order) -> tuple[Cifar, ...]:
    """The data sets of what the paper has on both."""
    return ("CIFAR10",) if order.scale == "small" else ("CIFAR100", "CIFAR10")


def alphas(order: Order) -> tuple[float, float, float]:
    """α of what the paper measures on CIFAR-100."""
    return ALPHAS[target(order)]


def cifar_run(
    order: Order,
    method: str,
    cifar: Cifar,
    alpha: float,
    clients: int = 5,
    *,
    epochs: int = 1,
    augmented: Augmented = "",
) -> tuple[PlannedRun, ...]:
    """The runs of a method, one a seed (the paper does not say how many it had).

    Those of FedAvg and FedASAM whose clients F2, F3 and F4 look at keep their models, and are shared by all items.

    Args:
        order: scale, seeds, choices.
        method: as in the tables: ``FedAvg``, ``FedSAM+SWA``, ``FedProx+ASAM+SWA``.
        cifar: the data set.
        alpha: total concentration of the Dirichlet distribution.
        clients: 5, 10 or 20 of 100 a round.
        epochs: E.
        augmented: mixup, or cutout with a square of half the image's side.
    """
    settings = replace(
        cifar_settings(order, cifar),
        partition=f"dirichlet-hsu:{alpha:g}",
        per_round=_CLIENTS[order.scale][clients],
        local_epochs=epochs,
    )
    if method.startswith("FedDyn") and cifar == "CIFAR100":
        settings = replace(settings, clip=order.choice("feddyn_clip"))
    kept = cifar == target(order) and clients == 5 and epochs == 1 and not augmented
    if kept and method in ("FedAvg", "FedASAM"):
        settings = replace(settings, save_every=kept_every(settings.rounds), save_clients=True)
    algorithm, parts = method_parts(order, method, cifar, augmented)
    return order.over_seeds(in_form(order, PlannedRun(algorithm, settings, parts), "fedsam"), (0,))


def cifar_settings(order: Order, cifar: Cifar) -> Settings:
    """Of the scale, but for what differs between runs."""
    base = {"smoke": _SMOKE, "small": _SMALL, "paper": _PAPER}[order.scale]
    if order.scale != "paper":
        base = replace(base, lr=order.choice("lr100"))
    elif cifar == "CIFAR100":
        base = replace(base, data="cifar100", rounds=20_000, lr=order.choice("lr100"))
    return order.asked.settings(replace(base, eval_every=order.choice("eval_every")))


def kept_every(rounds: int) -> int:
    """Rounds between the models that F2, F3 and F4 look at: a hundred of the paper's, ten of the smaller scales'."""
    return max(1, rounds // (100 if rounds >= 1000 else 10))


def centralised_run(order: Order, method: str, augmented: Augmented = "") -> tuple[PlannedRun, ...]:
    """Centralised training on the data that stand for CIFAR-100, with the parts in a name such as
    ``Centralised+ASAM+SWA``; a round is an epoch."""
    cifar = target(order)
    settings = replace(
        cifar_settings(order, cifar),
        rounds=order.choice("epochs"), lr=order.choice("centralised_lr"), partition="iid", clients=1, per_round=1,
    )  # fmt: skip
    algorithm, parts = method_parts(order, method, cifar, augmented)
    return order.over_seeds(PlannedRun(algorithm, settings, parts), (0,))


def method_parts(order: Order, method: str, cifar: Cifar, augmented: Augmented = "") -> tuple[Algorithm, Parts]:
    """The algorithm and the parts that a name such as ``FedDyn+ASAM+SWA`` stands for."""
    base, *added = method.split("+")
    other = cifar == "CIFAR100"
    rho = order.choice("rho100") if other else 0.1
    asam = (order.choice("asam_rho100"), order.choice("asam_eta100")) if other else (0.7, 0.2)
    algorithms: dict[str, Callable[[], Algorithm]] = {
        "FedAvg": FedAvg,
        "FedSAM": lambda: FedSAM(rho),
        "FedASAM": lambda: FedASAM(*asam),
        "Centralised": Centralised,
        "FedAvgM": lambda: FedAvgM(beta=order.choice("beta")),
        "FedProx": lambda: FedProx(order.choice("prox_mu")),
        "SCAFFOLD": Scaffold,
        "FedDyn": lambda: FedDyn(order.choice("feddyn_alpha")),
        "AdaBest": lambda: AdaBest(order.choice("adabest_mu"), order.choice("adabest_beta")),
    }
    ascents = {"SAM": SAM(rho), "ASAM": ASAM(*asam)}
    cycle = order.choice("cycle100") if other or order.scale == "smoke" else 10
    parts = Parts(
        ascent=next((ascents[name] for name in added if name in ascents), None),
        swa=SWA(cycle=cycle) if "SWA" in added else None,
        mixup=augmented == "mixup",
        cutout={"smoke": 4}.get(order.scale, 16) if augmented == "cutout" else 0,
    )
    return algorithms[base](), parts
