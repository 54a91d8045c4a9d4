"""Improving Generalization in Federated Learning by Seeking Flat Minima (Caldarola et al., ECCV 2022)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from figures.contents.table import Entry, TableOf
from figures.recipes.recipe import Order, Paper, ScaleName
from trainers import SWA, Algorithm, FedASAM, FedAvg, FedSAM, Parts, Settings
from trainers.runs.planned import PlannedRun
from trainers.runs.records import RecordedRun

FLAT_MINIMA = Paper(
    "flat-minima",
    "Caldarola et al., ECCV 2022",
    stand_ins={
        "smoke": "digits stand in for CIFAR-10 and CIFAR-100, digits_mlp for lenet_fed; 1, 2 and 4 of 20 clients a "
        "round for 5, 10 and 20 of 100.",
        "small": "CIFAR-10 stands in for CIFAR-100.",
    },
)

_SMOKE = Settings(
    data="digits", model="digits_mlp", clients=20, rounds=60, local_epochs=1, batch_size=32, lr=0.1, save_every=0,
    eval_every=5,
)  # fmt: skip
_PAPER = Settings(
    data="cifar100", model="lenet_fed", clients=100, rounds=20_000, local_epochs=1, batch_size=64, lr=0.01,
    weight_decay=4e-4, augment="flip-crop", eval_every=100, save_every=0,
)  # fmt: skip
_BASE = {
    "smoke": _SMOKE,
    "small": replace(_PAPER, data="cifar10", rounds=200, eval_every=10),
    "paper": _PAPER,
}
_CLIENTS: dict[ScaleName, dict[int, int]] = {
    "smoke": {5: 1, 10: 2, 20: 4},
    "small": {5: 5, 10: 10, 20: 20},
    "paper": {5: 5, 10: 10, 20: 20},
}


def _run(order: Order, algorithm: Algorithm, alpha: float, clients: int = 5, *, swa: bool = False) -> PlannedRun:
    settings = replace(
        _BASE[order.scale], partition=f"dirichlet-hsu:{alpha:g}", per_round=_CLIENTS[order.scale][clients]
    )
    return PlannedRun(algorithm, order.asked.settings(settings), Parts(swa=SWA(cycle=10) if swa else None))


def _accuracy(run: RecordedRun, *, swa: bool = False) -> float | None:
    last = run.last("swa_test_accuracy" if swa else "test_accuracy")
    return None if last is None else 100 * last


@FLAT_MINIMA.recipe("T2", "accuracy of FedAvg, FedSAM and FedASAM with and without SWA, by α and clients a round")
def t2(order: Order) -> TableOf:
    """Table 2."""
    rows = {"FedAvg E=1": FedAvg(), "FedSAM": FedSAM(0.1), "FedASAM": FedASAM(0.7)}
    entries = {
        (f"{row}{' + SWA' if swa else ''}", f"alpha={alpha:g} {clients}cl"): Entry(
            (_run(order, algorithm, alpha, clients, swa=swa),),
            partial(_accuracy, swa=swa),
        )
        for swa in (False, True)
        for row, algorithm in rows.items()
        for alpha in (0, 1000)
        for clients in (5, 10)
    }
    return TableOf(entries, "test accuracy, %", 2)
