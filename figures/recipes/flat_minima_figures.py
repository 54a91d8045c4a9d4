"""The figures of Caldarola et al., ECCV 2022."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from analysis.surface.plots.captions import Quantity
from figures.contents.clients import ClientAccuracy, ClientEigenvalues
from figures.contents.content import CURVATURE, Content, Together
from figures.contents.corruptions import Corruptions
from figures.contents.curves import Curves
from figures.contents.spectra import Spectra
from figures.contents.surfaces import Planes, Surfaces
from figures.contents.table import Entry, TableOf
from figures.contents.values import eigenvalue
from figures.graph import Measure, RunModel
from figures.recipes.flat_minima import ALPHAS, CHOICES, FLAT_MINIMA, HOLES, METHODS, alphas, cifar_run, cifars, target
from figures.recipes.recipe import Choice, Order
from landscape import FedscapeError
from trainers.federation import sampled_clients
from trainers.runs.planned import PlannedRun

SPECTRUM: dict[str, Choice] = {
    "hessian_samples": Choice(
        0, "training images of the Hessian, without crops and flips; 0: all (the paper says nothing)", {"small": 2000}
    ),
    "hessian_tolerance": Choice(
        1e-3, "relative error of each eigenvalue; the paper's power iterations are of unknown length", {"small": 1e-2}
    ),
}
"""What the paper leaves open in its spectra: those of F5, and λ_max in T1 and F4."""


def global_hessian(order: Order, method: str, alpha: float, top: int = 50) -> Measure:
    """The largest eigenvalues of a method's global model, of all clients' training data."""
    (run, *_) = cifar_run(order, method, target(order), alpha)
    return _hessian(order, RunModel(run, "swa" if "SWA" in method else "last"), top)


def _hessian(order: Order, model: RunModel, top: int) -> Measure:
    options = {"top": top, "trace": False, "tolerance": order.choice("hessian_tolerance")}
    samples = order.choice("hessian_samples")
    return Measure("hessian", (model,), options | ({"samples": samples} if samples else {}))


def _surface_options(order: Order) -> dict[str, object]:
    options: dict[str, object] = {"points": order.choice("points"), "span": order.choice("span")}
    if samples := order.choice("surface_samples"):
        options["samples"] = samples
    tolerance = order.choice("surface_tolerance")
    return options | ({"tolerance": tolerance} if tolerance else {"exact": True})


SURFACE: dict[str, Choice] = {
    "surface_samples": Choice(0, "images of these data; 0: all", {"small": 1000}),
    "surface_tolerance": Choice(0.005, "relative error of interpolated losses; 0: measure every point"),
}
"""What the paper leaves open in its surfaces and planes."""


@FLAT_MINIMA.recipe(
    "F1",
    "loss surfaces of the global model: FedAvg and FedASAM, the most and the least heterogeneous clients",
    choices=CHOICES
    | SURFACE
    | {
        "points": Choice(51, "points along each axis; Li et al.'s (2018) default", {"smoke": 17, "small": 31}),
        "span": Choice(1.0, "farthest step along a direction, in lengths of the filters; Li et al.'s default"),
        "split": Choice("test", "which data: the minima in the picture, up to 2.9, are too high for training data"),
        "caps": Choice((10.0, 10.0, 10.0, 20.0), "losses above which each panel is flat; read off the colour bars"),
    },
    slips=("each panel has a colour bar of its own, so heights cannot be compared: see the joint scale here",),
    holes=HOLES,
)
def f1(order: Order) -> Content:
    """Figure 1."""
    low, _, high = alphas(order)
    options = _surface_options(order) | {"split": order.choice("split"), "normalisation": "filter", "biases": False}
    panels = {
        f"{method}, α = {alpha:g}": Measure(
            "surface", (RunModel(cifar_run(order, method, target(order), alpha)[0]),), options
        )
        for alpha in (low, high)
        for method in ("FedAvg", "FedASAM")
    }
    return Surfaces(panels, dict(zip(panels, order.choice("caps"), strict=True)))


@FLAT_MINIMA.recipe(
    "F2",
    "planes through the global models of three α, and through three clients' local models",
    choices=CHOICES
    | SURFACE
    | {
        "points": Choice(41, "points along each axis", {"smoke": 17, "small": 21}),
        "span": Choice(0.2, "how far the planes reach beyond the models, as a share of their extent"),
        "clients": Choice(
            (0, 1, 2), "which of the clients of the last round, or of the last kept ones where it has fewer than three"
        ),
    },
    holes=HOLES,
)
def f2(order: Order) -> Content:
    """Figure 2: FedAvg; all models have the same initial one."""
    runs = {alpha: cifar_run(order, "FedAvg", target(order), alpha)[0] for alpha in alphas(order)}
    options = _surface_options(order) | {"plane": "three"}
    together = Measure("surface", tuple(RunModel(run) for run in runs.values()), options | {"test": True})
    panels: dict[str, tuple[Measure, Quantity, Literal["train", "test"]]] = {
        "(a) the global models": (together, "loss", "train"),
        "(b) the global models": (together, "error", "test"),
    }
    low, _, high = alphas(order)
    for letter, alpha in (("c", low), ("d", high)):
        local = Measure("surface", _local_models(order, runs[alpha]), options | {"split": "test"})
        panels[f"({letter}) three clients' models, α = {alpha:g}"] = (local, "error", "test")
    first, middle, last = (f"α = {alpha:g}" for alpha in alphas(order))
    return Planes(panels, dict.fromkeys(list(panels)[:2], (first, middle, last)))


def _local_models(order: Order, run: PlannedRun) -> tuple[RunModel, ...]:
    """Of three clients, as their work of the last round ended.

    A round of one or two clients gives no three: the smoke scale's last rounds are looked through for others.
    """
    found: dict[int, RunModel] = {}
    for number in range(run.settings.rounds, 0, -run.settings.save_every):
        for client in sampled_clients(run.settings, number):
            found.setdefault(client, RunModel(run, number, client))
        if len(found) >= 3:
            break
    ordered, places = list(found.values()), order.choice("clients")
    if max(places) >= len(ordered):
        raise FedscapeError(
            f"{run.settings.rounds} rounds train {len(ordered)} clients, of which clients={','.join(map(str, places))} "
            "takes more: give more --rounds, or other --choose clients=..."
        )
    return tuple(ordered[place] for place in places)


@FLAT_MINIMA.recipe(
    "F3",
    "accuracy of FedAvg's global model on each client's data and on the test data, and until convergence",
    choices=CHOICES
    | {
        "budget": Choice(
            10, "times the rounds of (a) and (b) at α = 0 in (c), as the text says", {"smoke": 4, "small": 3}
        ),
    },
    slips=("the text tells of the trend of centralised training in this figure, its caption does not",),
    holes=HOLES,
)
def f3(order: Order) -> Content:
    """Figure 3."""
    cifar, (low, _, high) = target(order), alphas(order)
    kept = {alpha: cifar_run(order, "FedAvg", cifar, alpha)[0] for alpha in (low, high)}
    clients = {
        f"({letter}) α = {alpha:g}": Measure("client-accuracy", (RunModel(kept[alpha], "rounds"),))
        for letter, alpha in (("a", low), ("b", high))
    }
    trends = {f"α = {alpha:g}": cifar_run(order, "FedAvg", cifar, alpha) for alpha in alphas(order)}
    longer = [
        replace(run, settings=replace(run.settings, rounds=order.choice("budget") * run.settings.rounds))
        for run in trends[f"α = {low:g}"]
    ]
    trends[f"α = {low:g}"] = tuple(longer)
    return Together({"ab": ClientAccuracy(clients), "c": Curves({"(c) until convergence": trends})})


@FLAT_MINIMA.recipe(
    "F4",
    "λ_max of each sampled client at its own updated model over the rounds, FedAvg and FedASAM, by α",
    choices=CHOICES
    | SPECTRUM
    | {"global_points": Choice(5, "rounds after which λ_max of the global model is drawn for comparison")},
    holes=HOLES,
    told=("text-3.2",),
)
def f4(order: Order) -> Content:
    """Figure 4, with the numbers of Section 3.2."""
    panels, beside = {}, {}
    first: tuple[Measure, Measure] | None = None
    for method in ("FedAvg", "FedASAM"):
        for alpha in alphas(order):
            (run, *_) = cifar_run(order, method, target(order), alpha)
            tolerance = {"tolerance": order.choice("hessian_tolerance")}
            own = Measure("client-eigenvalues", (RunModel(run, "rounds"),), {"local": True, **tolerance})
            points = order.choice("global_points")
            rounds = sorted({_kept(run, run.settings.rounds * i / points) for i in range(1, points + 1)})
            panels[f"{method}, α = {alpha:g}"] = {"clients, own data": own}
            beside[f"{method}, α = {alpha:g}"] = {n: _hessian(order, RunModel(run, n), 1) for n in rounds}
            first = first or (own, beside[f"{method}, α = {alpha:g}"][rounds[-1]])
    assert first is not None
    text = TableOf(
        {
            ("FedAvg client-side", "alpha=0 lambda_max^k upper bound"): Entry((first[0],), _largest),
            ("FedAvg global", "alpha=0 lambda_max (rounded)"): Entry((first[1],), eigenvalue()),
        },
        "eigenvalues; at the clients' models the largest of all rounds",
        1,
        units=CURVATURE,
    )
    return Together({"": ClientEigenvalues(panels, beside), "text": text})


def _kept(run: PlannedRun, number: float) -> int:
    """The round nearest to a number after which the run keeps its model, 0 apart."""
    every = run.settings.save_every
    return max(every, every * round(number / every))


def _largest(curves: dict[str, list[dict[str, list[list[float]]]]]) -> float:
    return max(values[0] for each in curves["measured"] for values in each["values"])


@FLAT_MINIMA.recipe(
    "F5",
    "the 50 largest eigenvalues of the global model, the most and the least heterogeneous clients",
    choices=CHOICES | SPECTRUM,
    holes=HOLES,
)
def f5(order: Order) -> Content:
    """Figure 5."""
    low, _, high = alphas(order)
    return Spectra(
        {
            f"α = {alpha:g}": {method: global_hessian(order, method, alpha) for method in METHODS}
            for alpha in (low, high)
        }
    )


@FLAT_MINIMA.recipe(
    "F6",
    "accuracy under 19 corruptions at severity 5, α = 0, 20 clients a round",
    choices=CHOICES
    | {
        "generate": Choice(
            False,
            "corrupt the images here, as far as that can be done, instead of reading CIFAR-10-C and CIFAR-100-C",
            {"smoke": True, "small": True},
        ),
        "corruption_samples": Choice(0, "test images; 0: all", {"small": 2000}),
    },
    holes=HOLES,
)
def f6(order: Order) -> Content:
    """Figure 6: Table 2's rows with E = 1, of whatever sets and bars the paper leaves open."""
    options: dict[str, object] = {"severities": (5,)}
    if order.choice("generate"):
        options["generate"] = True
    if samples := order.choice("corruption_samples"):
        options["samples"] = samples
    return Together(
        {
            cifar: Corruptions(
                {
                    method: Measure(
                        "corruptions",
                        (
                            RunModel(
                                cifar_run(order, method, cifar, ALPHAS[cifar][0], 20)[0],
                                "swa" if "SWA" in method else "last",
                            ),
                        ),
                        options,
                    )
                    for method in METHODS
                },
                5,
                f"{cifar}, α = 0",
            )
            for cifar in cifars(order)
        }
    )
