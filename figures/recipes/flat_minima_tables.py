"""The tables of Caldarola et al., ECCV 2022, on CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from figures.contents.content import CURVATURE, Content, Together
from figures.contents.table import Entry, Joint, TableOf, Value
from figures.contents.values import OfRun, accuracy, collapsed, eigenvalue, eigenvalue_ratio
from figures.recipes.flat_minima import (
    ALPHAS,
    CHOICES,
    FLAT_MINIMA,
    HOLES,
    METHODS,
    Augmented,
    Cifar,
    centralised_run,
    cifar_run,
    cifars,
    method_parts,
    target,
)
from figures.recipes.flat_minima_figures import SPECTRUM, global_hessian
from figures.recipes.recipe import Choice, Order
from trainers import Settings
from trainers.runs.planned import PlannedRun
from trainers.runs.records import RecordedRun

_ONE_RUN = "One run a cell unless seeds are given: the paper does not say how many it had."


AUGMENTED: tuple[Augmented, ...] = ("", "mixup", "cutout")


def mean_accuracy(method: str, rounds: int) -> OfRun:
    """Percent: the mean over the last 100 rounds, or over the last tenth of a run of fewer than 1000; of SWA's model
    where the method has one."""
    metric = "swa_test_accuracy" if "SWA" in method else "test_accuracy"
    return accuracy(metric, last=100 if rounds >= 1000 else max(1, rounds // 10))


def cell(method: str, runs: tuple[PlannedRun, ...]) -> Entry:
    """The accuracy of runs of a method."""
    remark = _collapsed_mean if "SWA" in method else collapsed
    return Entry(runs, mean_accuracy(method, runs[0].settings.rounds), remark=remark)


def _collapsed_mean(run: RecordedRun) -> str | None:
    """As :func:`collapsed`, of SWA's model."""
    found = [{**record, "test_accuracy": record.get("swa_test_accuracy")} for record in run.metrics]
    return collapsed(replace(run, metrics=found))


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
    units = {column: "1" if column.endswith("lambda_5") else CURVATURE for _, column in entries}
    return TableOf(entries, "eigenvalues of the Hessian of the mean loss, and their ratio", 2, units=units)


@FLAT_MINIMA.recipe(
    "T2",
    "accuracy of FedAvg, FedSAM and FedASAM with and without SWA, by α and clients a round",
    choices=CHOICES,
    slips=("E = 2 is said to suffer more from heterogeneity; on CIFAR-10 with α = 0.05 and 20 clients it is better",),
    holes=HOLES,
)
def t2(order: Order) -> Content:
    """Table 2."""
    rows = {"FedAvg E=1": ("FedAvg", 1), "FedAvg E=2": ("FedAvg", 2)} | {name: (name, 1) for name in METHODS[1:]}
    entries = {
        (row, f"{cifar} alpha={alpha:g} {clients}cl"): cell(
            method, cifar_run(order, method, cifar, alpha, clients, epochs=epochs)
        )
        for row, (method, epochs) in rows.items()
        for cifar in cifars(order)
        for alpha in ALPHAS[cifar]
        for clients in (5, 10, 20)
    }
    return TableOf(entries, "test accuracy, %", 2, footnotes=(_ONE_RUN,), units="%")


@FLAT_MINIMA.recipe(
    "T3",
    "accuracy on CIFAR100-PAM with ResNet-18: rounds, SWA, mixup and cutout",
    choices=CHOICES
    | {
        "model": Choice(
            "resnet18_gn", "which ResNet-18, and its normalisation", {"smoke": "digits_mlp", "small": "lenet_fed"}
        ),
        "lr_pam": Choice(0.01, "the rate on this set; that of the code on CIFAR-10", {"smoke": 0.1, "small": 0.05}),
    },
    slips=(
        "SAM is said to help more than ASAM on this set; yet with E = 2, mixup and 10 clients FedASAM+SWA has 58.31, "
        "FedSAM+SWA 56.54",
        "mixup and cutout are said to worsen all algorithms; here FedAvg @10k has 47.03 without, 49.25 and "
        "48.59 with them",
    ),
)
def t3(order: Order) -> Content:
    """Table 3."""
    entries = {}
    for augmented in AUGMENTED:
        for method in METHODS[:3]:
            for epochs in (1, 2):
                for clients in (10, 20):
                    row, column = f"{method} {augmented}".strip(), f"E={epochs} {clients}cl"
                    plain = _pam_run(order, method, augmented, epochs, clients)
                    half = plain[0].settings.rounds // 2
                    whole = mean_accuracy(method, 2 * half)
                    entries[row, f"{column} @5k"] = Entry(plain, _until(half, whole))
                    entries[row, f"{column} @10k"] = Entry(plain, whole)
                    averaged = _pam_run(order, f"{method}+SWA", augmented, epochs, clients)
                    entries[row, f"{column} w/ SWA"] = cell("SWA", averaged)
    notes = (_ONE_RUN, "@5k, @10k: after half and all of the rounds; w/ SWA: of as many rounds, from 75 % of them on.")
    return TableOf(entries, "test accuracy, %", 2, footnotes=notes, units="%")


def _until(number: int, value: OfRun) -> OfRun:
    """A value of the first rounds of a run."""
    return lambda run: value(replace(run, metrics=[record for record in run.metrics if record["round"] <= number]))


def _pam_run(order: Order, method: str, augmented: Augmented, epochs: int, clients: int) -> tuple[PlannedRun, ...]:
    paper = Settings(
        data="cifar100_pam", partition="natural", clients=500, rounds=10_000, batch_size=64, weight_decay=4e-4,
        augment="flip-crop", save_every=0,
    )  # fmt: skip
    base = {
        "paper": paper,
        "small": replace(paper, data="cifar10", partition="dirichlet-hsu:0.5", clients=100, rounds=40),
        "smoke": Settings(data="digits", partition="dirichlet-hsu:0.5", rounds=40, save_every=0),
    }[order.scale]
    settings = replace(
        order.asked.settings(replace(base, model=order.choice("model"))),
        lr=order.choice("lr_pam"),
        eval_every=order.choice("eval_every"),
        local_epochs=epochs,
        per_round=clients // (5 if order.scale == "smoke" else 1),
    )
    algorithm, parts = method_parts(order, method, "CIFAR100", augmented)
    return order.over_seeds(PlannedRun(algorithm, settings, parts), (0,))


@FLAT_MINIMA.recipe(
    "T4",
    "accuracy with mixup and with cutout, by α and clients a round",
    choices=CHOICES,
    slips=(
        "mixup and cutout are said to worsen all algorithms; at α = 1000 with 5 clients FedAvg has 49.92 without, "
        "55.34 and 53.48 with them",
        "the half of CIFAR-10 is in a supplement that is lost",
    ),
    holes=HOLES,
)
def t4(order: Order) -> Content:
    """Table 4."""
    cifar = target(order)
    entries = {
        (f"{method} {augmented}", f"{cifar} alpha={alpha:g} {clients}cl"): cell(
            method, cifar_run(order, method, cifar, alpha, clients, augmented=augmented)
        )
        for augmented in AUGMENTED[1:]
        for method in METHODS
        for alpha in ALPHAS[cifar]
        for clients in (5, 10, 20)
    }
    return TableOf(entries, "test accuracy, %", 2, footnotes=(_ONE_RUN,), units="%")


@FLAT_MINIMA.recipe(
    "T5",
    "what SAM, ASAM, SWA, mixup and cutout bring in centralised and in heterogeneous federated training",
    choices=CHOICES
    | {
        "epochs": Choice(300, "of centralised training", {"smoke": 20, "small": 10}),
        "centralised_lr": Choice(0.01, "rate of centralised training; that of the federation", {"smoke": 0.1}),
    },
    slips=(
        "SAM+SWA, centralised: the gains printed, +0.55 and +1.06, are not those of 55.75 over 52.20, +3.55 and +6.80",
    ),
    holes=HOLES,
)
def t5(order: Order) -> Content:
    """Table 5."""
    cifar, alpha = target(order), 0
    rows = ("SAM", "ASAM", "SWA", "SAM+SWA", "ASAM+SWA", "Mixup", "Cutout", "reference")
    federated = {"SWA": "FedAvg+SWA", "Mixup": "FedAvg", "Cutout": "FedAvg", "reference": "FedAvg"}
    entries: dict[tuple[str, str], Entry | Joint] = {}
    runs: dict[tuple[str, str], tuple[str, tuple[PlannedRun, ...]]] = {}
    for row in rows:
        augmented: Augmented = {"Mixup": AUGMENTED[1], "Cutout": AUGMENTED[2]}.get(row, "")
        parts = "" if augmented or row == "reference" else f"+{row}"
        method = federated.get(row, f"Fed{row}")
        runs[row, "centralised"] = f"Centralised{parts}", centralised_run(order, f"Centralised{parts}", augmented)
        runs[row, "federated"] = method, cifar_run(order, method, cifar, alpha, augmented=augmented)
    for row in rows:
        for where, column in (("centralised", "centralised"), ("federated", "federated alpha=0 5cl")):
            method, mine = runs[row, where]
            entries[row, f"{column} accuracy"] = cell(method, mine)
            if row != "reference":
                plain, reference = runs["reference", where]
                gain = _Gain(
                    mean_accuracy(method, mine[0].settings.rounds),
                    len(mine),
                    mean_accuracy(plain, reference[0].settings.rounds),
                )
                entries[row, f"{where} absolute gain"] = Joint((*mine, *reference), gain.absolute)
                entries[row, f"{where} relative gain"] = Joint((*mine, *reference), gain.relative)
    notes = (_ONE_RUN, "Relative gain: in % of the reference's accuracy.")
    return TableOf(entries, "test accuracy in %, gains in points and in %", 2, footnotes=notes, units="%")


class _Gain:
    """Of the mean accuracy of the first runs over that of the others."""

    def __init__(self, mine: OfRun, count: int, reference: OfRun) -> None:
        self._mine, self._count, self._reference = mine, count, reference

    def absolute(self, runs: Sequence[RecordedRun]) -> Value:
        """In points; ``diverged`` where a run did."""
        both = self._means(runs)
        return "diverged" if both is None else both[0] - both[1]

    def relative(self, runs: Sequence[RecordedRun]) -> Value:
        """In percent of the reference's; ``diverged`` where a run did."""
        both = self._means(runs)
        return "diverged" if both is None else 100 * (both[0] - both[1]) / both[1]

    def _means(self, runs: Sequence[RecordedRun]) -> tuple[float, float] | None:
        mine = [self._mine(run) for run in runs[: self._count]]
        others = [self._reference(run) for run in runs[self._count :]]
        numbers = [[value for value in values if isinstance(value, float)] for values in (mine, others)]
        if len(numbers[0]) < len(mine) or len(numbers[1]) < len(others):
            return None
        return statistics.fmean(numbers[0]), statistics.fmean(numbers[1])


_RIVALS = (
    *METHODS[:3], "FedAvgM", "FedProx", "SCAFFOLD", "FedDyn", "AdaBest", "FedAvgM+ASAM", "FedProx+ASAM",
    "SCAFFOLD+ASAM", "FedDyn+SAM", "FedDyn+ASAM", "AdaBest+ASAM",
)  # fmt: skip
_ONLY: dict[str, Cifar] = {"FedDyn+SAM": "CIFAR10", "FedDyn+ASAM": "CIFAR100"}


@FLAT_MINIMA.recipe(
    "T6",
    "every algorithm with and without ASAM, with and without SWA, by α and clients a round",
    choices=CHOICES
    | {
        "beta": Choice(0.9, "momentum of FedAvgM's server"),
        "prox_mu": Choice(0.01, "μ of FedProx"),
        "feddyn_alpha": Choice(0.1, "α of FedDyn", {"smoke": 0.01}),
        "feddyn_clip": Choice(1.0, "norm to which FedDyn's steps on CIFAR-100 are clipped; the paper: heavily"),
        "adabest_mu": Choice(0.02, "μ of AdaBest; in its authors' code"),
        "adabest_beta": Choice(0.96, "β of AdaBest; in its authors' code for CIFAR-100", {"smoke": 0.8}),
    },
    slips=(
        "the second row, printed FedASAM, is FedSAM; it is FedDyn+SAM on CIFAR-10 and FedDyn+ASAM on CIFAR-100",
        "about 6 points over the best rival are claimed on both sets; on CIFAR-100 they are 4.84 (α = 0, 5 clients)",
        "SCAFFOLD+ASAM loses by SWA in all columns",
        "FedProx at 20 clients on CIFAR-100 without SWA equals FedAvg to the digit",
        "cells at 10.00, 1.00, 1.40 and 4.60 are collapsed runs; red marks what reaches centralised training",
    ),
    holes=HOLES,
    told=("text-5.1",),
)
def t6(order: Order) -> Content:
    """Table 6, with the homogeneous results of SCAFFOLD that Section 5.1 tells."""
    entries, told = {}, {}
    for row, cifar in ((row, cifar) for row in _RIVALS for cifar in cifars(order)):
        if _ONLY.get(row, cifar) != cifar:
            continue
        for swa in (False, True):
            method = f"{row}+SWA" if swa else row
            for alpha in ALPHAS[cifar][:2]:
                for clients in (5, 20):
                    column = f"{cifar} {'w/' if swa else 'w/o'} SWA alpha={alpha:g} {clients}cl"
                    entries[row, column] = cell(method, cifar_run(order, method, cifar, alpha, clients))
    for cifar in cifars(order):
        homogeneous = cifar_run(order, "SCAFFOLD", cifar, ALPHAS[cifar][-1], 20)
        told["SCAFFOLD", f"{cifar} homogeneous"] = cell("SCAFFOLD", homogeneous)
    note = "20 clients a round: the paper does not say how many."
    return Together(
        {
            "": TableOf(entries, "test accuracy, %", 2, footnotes=(_ONE_RUN,), units="%"),
            "text": TableOf(told, "test accuracy, %", 2, footnotes=(note,), units="%"),
        }
    )
