"""The tables of Caldarola et al., ECCV 2022, on Landmarks-User-160k, Cityscapes and IDDA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from figures.contents.content import Content
from figures.contents.table import Entry, TableOf
from figures.contents.values import OfRun, accuracy, recorded
from figures.graph import Measure, RunModel
from figures.recipes.flat_minima import FLAT_MINIMA, METHODS
from figures.recipes.recipe import Choice, Order
from trainers import ASAM, SAM, SWA, Algorithm, Centralised, FedASAM, FedAvg, FedSAM, Parts, Settings
from trainers.parts.ascent import Ascent
from trainers.runs.planned import PlannedRun

_RADII = {
    "rho": Choice(0.05, "ρ of SAM on these data is not printed"),
    "asam_rho": Choice(0.5, "ρ of ASAM on these data is not printed"),
    "asam_eta": Choice(0.2, "η of ASAM on these data is not printed; CIFAR-10's"),
    "cycle": Choice(10, "rounds of SWA's cycle on these data are not printed; CIFAR-10's", {"smoke": 5}),
}


def _algorithm(order: Order, method: str) -> tuple[Algorithm, Ascent | None]:
    sam, asam = SAM(order.choice("rho")), ASAM(order.choice("asam_rho"), order.choice("asam_eta"))
    base, _, ascent = method.removesuffix("+SWA").partition("+")
    algorithms: dict[str, Algorithm] = {
        "FedSAM": FedSAM(sam.rho),
        "FedASAM": FedASAM(asam.rho, asam.eta),
        "Centralized": Centralised(),
    }
    ascents: dict[str, Ascent] = {"SAM": sam, "ASAM": asam}
    return algorithms.get(base, FedAvg()), ascents.get(ascent)


@FLAT_MINIMA.recipe(
    "T7",
    "accuracy on Landmarks-User-160k, with SWA from 75 % of the rounds and after all of them",
    choices=_RADII
    | {
        "model": Choice(
            "mobilenet_v2_gn", "the network; that of Hsu et al. (2020)", {"smoke": "digits_mlp", "small": "lenet_fed"}
        ),
        "per_round": Choice(10, "clients a round; Hsu et al.'s (2020)", {"smoke": 2}),
        "epochs": Choice(5, "of local work; Hsu et al.'s (2020)", {"smoke": 1, "small": 1}),
        "lr": Choice(0.1, "the rate", {"small": 0.05}),
        "centralised_epochs": Choice(100, "of centralised training", {"smoke": 20, "small": 10}),
        "longer": Choice(
            0.25, "by which share of the rounds `SWA 100` goes on after them; as long as `SWA 75` averages"
        ),
    },
    slips=(
        "up to 7 points are claimed; the legible cells give 6.41 at most",
        "of `SWA 100` one value, 68.32, is legible for FedSAM and FedASAM",
    ),
    holes=("weights pretrained on ImageNet, from which Hsu et al. (2020) start",),
)
def t7(order: Order) -> Content:
    """Table 7."""
    entries: dict[tuple[str, str], Entry] = {}
    base = _landmarks(order)
    extra = max(order.choice("cycle"), round(order.choice("longer") * base.rounds))
    longer = replace(base, rounds=base.rounds + extra)
    late = SWA(start=base.rounds / longer.rounds, cycle=order.choice("cycle"))
    for method in METHODS[:3]:
        entries[method, "@5k rounds"] = Entry(_runs(order, method, base), accuracy())
        averaged = _runs(order, method, base, SWA(cycle=order.choice("cycle")))
        entries[method, "w/ SWA 75"] = Entry(averaged, accuracy("swa_test_accuracy"))
        entries[method, "w/ SWA 100"] = Entry(_runs(order, method, longer, late), accuracy("swa_test_accuracy"))
    pooled = replace(
        base, rounds=order.choice("centralised_epochs"), local_epochs=1, partition="iid", clients=1, per_round=1
    )
    entries["Centralized", "centralised"] = Entry(_runs(order, "Centralized", pooled), accuracy())
    return TableOf(entries, "test accuracy after the last round, %", 2, units="%")


def _landmarks(order: Order) -> Settings:
    base = {
        "paper": Settings(data="landmarks", partition="natural", clients=1262, rounds=5000, batch_size=64),
        "small": Settings(
            data="cifar10", partition="dirichlet-hsu:0.5+sizes:0.5", clients=100, rounds=100, batch_size=64
        ),
        "smoke": Settings(partition="dirichlet-hsu:0.5+sizes:0.5", clients=20, rounds=60),
    }[order.scale]
    given = replace(base, model=order.choice("model"), save_every=0, eval_every=max(1, base.rounds // 20))
    return replace(
        order.asked.settings(given),
        per_round=order.choice("per_round"),
        local_epochs=order.choice("epochs"),
        lr=order.choice("lr"),
    )


def _runs(order: Order, method: str, settings: Settings, swa: SWA | None = None) -> tuple[PlannedRun, ...]:
    algorithm, ascent = _algorithm(order, method)
    return order.over_seeds(PlannedRun(algorithm, settings, Parts(ascent=ascent, swa=swa)), (0,))


_GENERATED = "figures.generated"
_PLACES = {
    "paper": {"IDDA country": "idda_country", "IDDA rainy": "idda_rainy", "Cityscapes": "cityscapes"},
    "smaller": {
        "IDDA country": f"{_GENERATED}:country",
        "IDDA rainy": f"{_GENERATED}:rainy",
        "Cityscapes": f"{_GENERATED}:city",
    },
}
_SILO = ("SiloBN", "SiloBN+SAM", "SiloBN+ASAM")


@FLAT_MINIMA.recipe(
    "T8",
    "mIoU of segmentation on IDDA, in seen and unseen domains, and on Cityscapes; uniform and heterogeneous clients",
    choices=_RADII
    | {
        "model": Choice(
            "bisenet_v2",
            "the network; FedDrive's (Fantauzzo et al., 2022)",
            {"smoke": f"{_GENERATED}:segmenter", "small": f"{_GENERATED}:segmenter"},
        ),
        "clients_idda": Choice(90, "clients that hold IDDA; FedDrive's", {"smoke": 8, "small": 8}),
        "clients_cityscapes": Choice(144, "clients that hold Cityscapes; FedDrive's", {"smoke": 8, "small": 8}),
        "per_round": Choice(5, "clients a round; FedDrive's", {"smoke": 2, "small": 2}),
        "epochs": Choice(2, "of local work; FedDrive's", {"smoke": 1}),
        "batch_size": Choice(16, "samples of a step; FedDrive's", {"smoke": 5, "small": 5}),
        "lr": Choice(0.05, "the rate", {"smoke": 0.3, "small": 0.3}),
    },
    slips=(
        "the best is said to be ASAM + SWA with SiloBN, and no row with SiloBN names SWA",
        "one value of Cityscapes, 45.64, is legible for FedASAM and FedAvg+SWA; FedASAM+SWA, heterogeneous, is lost",
    ),
    holes=("BiSeNet V2's auxiliary heads and FedDrive's augmentation",),
)
def t8(order: Order) -> Content:
    """Table 8."""
    entries: dict[tuple[str, str], Entry] = {}
    blocks = {"uniform": METHODS, "heterogeneous": (*METHODS, *_SILO)}
    for block, methods in blocks.items():
        for method in methods:
            for place, data in _PLACES["paper" if order.scale == "paper" else "smaller"].items():
                runs = _segmentation(order, method, data, uniform=block == "uniform")
                row, swa = f"{method} [{block}]", "SWA" in method
                unseen = Entry(runs, _percent("swa_test_miou" if swa else "test_miou"))
                if place == "Cityscapes":
                    entries[row, place] = unseen
                    continue
                model = order.asked.model or order.choice("model")
                named = {"data": f"{data}_seen", "split": "test"} | ({"model": model} if ":" in model else {})
                tested = tuple(Measure("evaluation", (RunModel(run, "swa" if swa else "last"),), named) for run in runs)
                entries[row, f"{place} seen"] = Entry(tested, _mean_iou)
                entries[row, f"{place} unseen"] = unseen
    generated = "Generated scenes of 12x12 pixels stand in for IDDA and Cityscapes, a net of two convolutions for "
    notes = () if order.scale == "paper" else (f"{generated}BiSeNet V2.",)
    return TableOf(entries, "mIoU after the last round, %", 2, footnotes=notes, units="%")


def _segmentation(order: Order, method: str, data: str, *, uniform: bool) -> tuple[PlannedRun, ...]:
    held = "clients_cityscapes" if data in (f"{_GENERATED}:city", "cityscapes") else "clients_idda"
    base = Settings(
        data=data, model=order.choice("model"), partition="iid" if uniform else "natural", clients=order.choice(held),
        per_round=order.choice("per_round"), rounds=1500 if order.scale == "paper" else 40, save_every=0, eval_every=0,
        local_epochs=order.choice("epochs"), batch_size=order.choice("batch_size"), lr=order.choice("lr"),
        batchnorm="silo" if method in _SILO else "average",
    )  # fmt: skip
    swa = SWA(cycle=order.choice("cycle")) if "SWA" in method else None
    return _runs(order, method, replace(order.asked.settings(base), data=data), swa)


def _percent(metric: str) -> OfRun:
    def value(run: Any) -> float | str | None:
        found = recorded(metric)(run)
        return "diverged" if run.status == "diverged" else None if not isinstance(found, float) else 100 * found

    return value


def _mean_iou(measured: dict[str, float]) -> float:
    return 100 * measured["mean_iou"]
