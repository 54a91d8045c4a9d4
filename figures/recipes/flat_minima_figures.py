"""The figures of Caldarola et al., ECCV 2022."""

from __future__ import annotations

from figures.contents.content import Content
from figures.contents.spectra import Spectra
from figures.contents.surfaces import Surfaces
from figures.graph import Measure, RunModel
from figures.recipes.flat_minima import CHOICES, FLAT_MINIMA, HOLES, alphas, cifar_run, target
from figures.recipes.recipe import Choice, Order

_SHARED = ("FedAvg", "FedSAM", "FedASAM", "FedAvg+SWA", "FedSAM+SWA", "FedASAM+SWA")
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
    samples = order.choice("hessian_samples")
    options = {"top": top, "trace": False, "tolerance": order.choice("hessian_tolerance")}
    return Measure(
        "hessian",
        (RunModel(run, "swa" if "SWA" in method else "last"),),
        options | ({"samples": samples} if samples else {}),
    )


@FLAT_MINIMA.recipe(
    "F1",
    "loss surfaces of the global model: FedAvg and FedASAM, the most and the least heterogeneous clients",
    choices=CHOICES
    | {
        "points": Choice(51, "points along each axis; Li et al.'s (2018) default", {"smoke": 17, "small": 31}),
        "span": Choice(1.0, "farthest step along a direction, in lengths of the filters; Li et al.'s default"),
        "split": Choice("test", "which data: the minima in the picture, up to 2.9, are too high for training data"),
        "surface_samples": Choice(0, "images of these data; 0: all", {"small": 1000}),
        "surface_tolerance": Choice(0.005, "relative error of interpolated losses; 0: measure every point"),
        "caps": Choice((10.0, 10.0, 10.0, 20.0), "losses above which each panel is flat; read off the colour bars"),
    },
    slips=("each panel has a colour bar of its own, so heights cannot be compared: see the joint scale here",),
    holes=HOLES,
)
def f1(order: Order) -> Content:
    """Figure 1."""
    low, _, high = alphas(order)
    options = {
        "points": order.choice("points"),
        "span": order.choice("span"),
        "split": order.choice("split"),
        "normalisation": "filter",
        "biases": False,
    }
    if samples := order.choice("surface_samples"):
        options["samples"] = samples
    tolerance = order.choice("surface_tolerance")
    options |= {"tolerance": tolerance} if tolerance else {"exact": True}
    panels = {
        f"{method}, α = {alpha:g}": Measure(
            "surface", (RunModel(cifar_run(order, method, target(order), alpha)[0]),), options
        )
        for alpha in (low, high)
        for method in ("FedAvg", "FedASAM")
    }
    return Surfaces(panels, dict(zip(panels, order.choice("caps"), strict=True)))


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
            f"α = {alpha:g}": {method: global_hessian(order, method, alpha) for method in _SHARED}
            for alpha in (low, high)
        }
    )
