"""Minimizing Layerwise Activation Norm Improves Generalization in Federated Learning (Yashwanth et al., WACV 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from figures.contents.content import CURVATURE, Together
from figures.contents.curves import Curves
from figures.contents.operations import Network, OperationCounts
from figures.contents.spectra import Densities, Spectra
from figures.contents.surfaces import Surfaces
from figures.contents.table import Entry, TableOf
from figures.contents.values import accuracy, eigenvalue, rounds_to, trace
from figures.graph.nodes import Measure, RunModel
from figures.recipes.form import FORM, in_form
from figures.recipes.recipe import Choice, Order, Paper, ScaleName
from landscape.errors import FedscapeError
from trainers import MAN, Algorithm, FedASAM, FedAvg, FedDC, FedDyn, FedSAM, FedSpeed, Parts, Settings
from trainers.runs.planned import PlannedRun

MAN_PAPER = Paper(
    "man",
    "Yashwanth et al., WACV 2024",
    stand_ins={
        "smoke": "digits stand in for CIFAR-100 (with digits_mlp for lenet_fed) and for Tiny-ImageNet (with digits_cnn "
        "for convnet_tiny); 20 clients, 4 of them a round on average, for 100 and 10; 40 rounds of 1 "
        "local epoch for 500 of 5; targets of 80 and 70 % for 50 and 28 %.",
        "small": "CIFAR-10 with lenet_fed stands in for CIFAR-100 and for Tiny-ImageNet, whose columns differ in their "
        "hyper-parameters only; fewer rounds, of 1 local epoch, for 500 of 5; a target of 50 % for 28 %.",
    },
)

SEEDS = (23217, 43217, 83217)
"""The initialisations of the authors' code; the paper says that there are three."""
SPLITS = {"delta=0.3": "dirichlet:0.3", "delta=0.6": "dirichlet:0.6", "iid": "iid"}
"""Partitions by name; δ is FedDyn's parameter for each class."""
TITLES = {"delta=0.3": "δ = 0.3", "delta=0.6": "δ = 0.6", "iid": "iid"}
"""How panels are called."""

DYN_HOLE = (
    "FedDyn's and FedSpeed's α w lies in the weight decay, outside of the clipping; with form=paper all of the "
    "direction is clipped"
)
_CROP_HOLE = "the crop is applied to an image with probability 1/2; with form=paper every image is"
_SAMPLING_HOLE = (
    "the seed of each round's clients is the round's number, so that it does not change with the run's seed"
)
DC_HOLE = "FedDC's c_i is scaled by the undecayed rate; with form=paper by the round's"
TINY_HOLE = (
    "on Tiny-ImageNet the code of FedAvg, FedDyn, FedDC and FedSpeed penalises, by a slip, conv1, conv2, fc1, fc2 and "
    "fc2's variance; with form=paper the five layers with a non-linearity, each before any pooling"
)
SPEED_HOLE = (
    "FedSpeed's gradient is not cleared after a step, so that its ascent contains the step before; with form=paper it "
    "is cleared"
)
IID_HOLE = "iid clients of CIFAR-100 have exactly 5 images of each class; here they are drawn at random"
HOLES = (_CROP_HOLE, _SAMPLING_HOLE)
"""What of the authors' code no run here has."""
SAMPLING_SLIP = (
    "10 % of the clients are said to be selected each round; the code takes each with probability 0.1, as here"
)
HALF = Choice(
    False,
    "eq. 15 has ζ; the authors' code multiplies by ζ/2, and its scripts give ζ of 0.2 on Tiny-ImageNet, of which the "
    "half is the paper's",
)
"""Choice ``zeta-half``."""


@dataclass(frozen=True)
class Setting:
    """What is trained, and MAN's hyper-parameters there.

    Attributes:
        settings: at each scale; partition and seed are set by the experiment.
        zeta: ζ of MAN.
        target: the accuracy to reach, a share.
    """

    settings: Mapping[ScaleName, Settings]
    zeta: float
    target: Mapping[ScaleName, float]


_PAPER = Settings(
    data="cifar100", model="lenet_fed", clients=100, per_round=10, sampling="bernoulli", rounds=500, local_epochs=5,
    batch_size=50, lr=0.1, lr_decay=0.998, weight_decay=1e-3, clip=10.0, augment="flip-crop",
    evaluated_model="all-clients-mean", save_every=0,
)  # fmt: skip
_SMALL = replace(_PAPER, data="cifar10", rounds=60, local_epochs=1, eval_every=5)
_SMOKE = replace(
    _PAPER, data="digits", model="digits_mlp", clients=20, per_round=4, rounds=40, local_epochs=1, batch_size=16,
    augment="none", eval_every=2,
)  # fmt: skip
CIFAR_100 = Setting(
    {"smoke": _SMOKE, "small": _SMALL, "paper": _PAPER}, 0.15, {"smoke": 0.8, "small": 0.5, "paper": 0.5}
)
TINY = Setting(
    {
        "smoke": replace(_SMOKE, model="digits_cnn"),
        "small": _SMALL,
        "paper": replace(_PAPER, data="tiny_imagenet", model="convnet_tiny"),
    },
    0.1,
    {"smoke": 0.7, "small": 0.5, "paper": 0.28},
)
SETTINGS = {"CIFAR-100": CIFAR_100, "Tiny-ImageNet": TINY}
"""By the paper's data set."""


_SPEED = FedSpeed(rho=0.01, lam=100.0, variant="official")


def algorithms(data: str, split: str) -> dict[str, tuple[Algorithm, bool]]:
    """The algorithms, and whether MAN is added, in the order of Table 1.

    Args:
        data: a key of :data:`SETTINGS`.
        split: a key of :data:`SPLITS`.
    """
    iid = split == "iid"
    tiny_iid = iid and data == "Tiny-ImageNet"
    # Radii without MAN and with it: the exceptions are those of the authors' code.
    sam = (0.03, 0.01) if tiny_iid else (0.05, 0.05)
    asam = (0.1 if tiny_iid else 0.5, 0.1 if iid else 0.5)
    pairs: dict[str, tuple[Algorithm, Algorithm]] = {
        "FedAvg": (FedAvg(), FedAvg()),
        "FedSAM": (FedSAM(sam[0]), FedSAM(sam[1])),
        "FedASAM": (FedASAM(asam[0], eta=0.2), FedASAM(asam[1], eta=0.2)),
        "FedDyn": (FedDyn(alpha=0.01), FedDyn(alpha=0.01)),
        "FedDC": (FedDC(alpha=0.01), FedDC(alpha=0.01)),
        "FedSpeed": (_SPEED, _SPEED),
    }
    found: dict[str, tuple[Algorithm, bool]] = {}
    for name, (plain, with_man) in pairs.items():
        found |= {name: (plain, False), f"{name}+MAN": (with_man, True)}
    return found


def run(order: Order, name: str, split: str, data: str = "CIFAR-100", seed: int = SEEDS[0]) -> PlannedRun:
    """The run of an algorithm, named as in Table 1, on a split of a data set."""
    algorithm, man = algorithms(data, split)[name]
    setting = SETTINGS[data]
    settings = replace(setting.settings[order.scale], partition=SPLITS[split], seed=seed)
    half = bool(order.choice("zeta-half"))
    made = PlannedRun(
        algorithm, order.asked.settings(settings), Parts(man=MAN(setting.zeta, half=half) if man else None)
    )
    return in_form(order, made, "fedman")


def one_seed(order: Order) -> int:
    """The seed of what is shown for one: the first."""
    return order.seeds(SEEDS, SEEDS[:1])[0]


SAMPLES = Choice(
    0,
    "training images that are measured on, of which the paper does not say how many; 0: all",
    {"small": 500},
)
"""Choice ``samples``."""
DELTA = Choice("delta=0.3", "the paper does not say which δ; 0.3 is the first of its tables' blocks")
"""Choice ``split``."""
_SPECTRA = ("FedAvg", "FedAvg+MAN", "FedSAM", "FedSAM+MAN")
HESSIAN = Choice(
    "loss",
    "of the mean training loss, or of the objective, with the terms of MAN and weight decay; the paper does not say, "
    "nor at which model: here the mean of all clients' models, which is the one evaluated, without augmentation",
)
"""Choice ``hessian``."""


def hessian(order: Order, name: str, split: str, **options: object) -> Measure:
    """A measurement of the Hessian of a CIFAR-100 run's last model.

    Raises:
        FedscapeError: the choice ``hessian`` is neither loss nor objective.
    """
    made, of = run(order, name, split, seed=one_seed(order)), order.choice("hessian")
    if of not in ("loss", "objective"):
        raise FedscapeError(f"the Hessian of '{of}' is none here: choose hessian=loss or hessian=objective")
    if samples := order.choice("samples"):
        options["samples"] = samples
    if of == "objective":
        options["weight_decay"] = made.settings.weight_decay
        if made.parts.man is not None:
            options["man"] = made.parts.man.weight
    return Measure("hessian", (RunModel(made),), options)


@MAN_PAPER.recipe(
    "F1",
    "loss surfaces on CIFAR-100 of FedAvg (panel a) and FedAvg+MAN (c); panel b is a drawing that shows no data",
    choices={
        "split": DELTA,
        "points": Choice(51, "the paper does not say how many points", {"smoke": 21, "small": 21}),
        "span": Choice(
            1.0,
            "the paper says neither range nor directions; here one pair of Gaussian directions, each "
            "filter as long as the model's own (Li et al., NeurIPS 2018)",
        ),
        "samples": SAMPLES,
        "zeta-half": HALF,
        **FORM,
    },
    slips=(SAMPLING_SLIP,),
    holes=HOLES,
)
def f1(order: Order) -> Surfaces:
    """Figure 1, panels a and c."""
    samples = order.choice("samples") or None
    options = {"points": order.choice("points"), "span": order.choice("span"), "samples": samples}
    split, seed = order.choice("split"), one_seed(order)
    return Surfaces(
        {
            f"{name}, {TITLES[split]}": Measure("surface", (RunModel(run(order, name, split, seed=seed)),), options)
            for name in ("FedAvg", "FedAvg+MAN")
        }
    )


def _curves(order: Order, data: str) -> Curves:
    names = [f"{name}{man}" for name in ("FedAvg", "FedDyn", "FedDC") for man in ("", "+MAN")]
    seed = one_seed(order)
    return Curves({TITLES[split]: {name: (run(order, name, split, data, seed),) for name in names} for split in SPLITS})


@MAN_PAPER.recipe(
    "F2",
    "test accuracy over the rounds on CIFAR-100 of FedAvg, FedDyn and FedDC with and without MAN, one seed",
    choices={"zeta-half": HALF, **FORM},
    slips=(SAMPLING_SLIP,),
    holes=(*HOLES, DYN_HOLE, DC_HOLE),
)
def f2(order: Order) -> Curves:
    """Figure 2."""
    return _curves(order, "CIFAR-100")


@MAN_PAPER.recipe(
    "F3",
    "test accuracy over the rounds on Tiny-ImageNet of FedAvg, FedDyn and FedDC with and without MAN, one seed",
    choices={"zeta-half": HALF, **FORM},
    slips=(SAMPLING_SLIP,),
    holes=(*HOLES, DYN_HOLE, DC_HOLE, TINY_HOLE),
)
def f3(order: Order) -> Curves:
    """Figure 3."""
    return _curves(order, "Tiny-ImageNet")


@MAN_PAPER.recipe(
    "F4a",
    "top 200 eigenvalues of the Hessian on CIFAR-100 of FedAvg, FedAvg+MAN, FedSAM and FedSAM+MAN",
    choices={"split": DELTA, "samples": SAMPLES, "hessian": HESSIAN, "zeta-half": HALF, **FORM},
    slips=(
        "Section 5.1 compares FedAvg+MAN's trace and smaller eigenvalues with FedAvg+MAN's own: the second name should "
        "be FedSAM",
        SAMPLING_SLIP,
    ),
    holes=HOLES,
)
def f4a(order: Order) -> Spectra:
    """Figure 4a."""
    split = order.choice("split")
    options = {"top": 200, "trace": False, "max_basis": 500}  # 2 GB of lenet_fed: without restarts
    return Spectra({TITLES[split]: {name: hessian(order, name, split, **options) for name in _SPECTRA}})


@MAN_PAPER.recipe(
    "F4b",
    "eigenvalue density of the Hessian on CIFAR-100 of FedAvg, FedAvg+MAN, FedSAM and FedSAM+MAN",
    choices={
        "split": DELTA,
        "samples": SAMPLES,
        "hessian": HESSIAN,
        "probes": Choice(16, "the paper cites PyHessian, and does not say how many probes", {"small": 4}),
        "steps": Choice(100, "the paper does not say how many Lanczos steps; 100 are PyHessian's", {"small": 60}),
        "zeta-half": HALF,
        **FORM,
    },
    slips=(SAMPLING_SLIP,),
    holes=HOLES,
)
def f4b(order: Order) -> Densities:
    """Figure 4b."""
    split = order.choice("split")
    options = {"density": True, "density_probes": order.choice("probes"), "density_steps": order.choice("steps")}
    return Densities(
        {
            f"{base}, {TITLES[split]}": {
                name: hessian(order, name, split, top=5, trace=False, **options) for name in (base, f"{base}+MAN")
            }
            for base in ("FedAvg", "FedSAM")
        }
    )


@MAN_PAPER.recipe(
    "T1",
    "accuracy and rounds to 50 % on CIFAR-100 and to 28 % on Tiny-ImageNet of six algorithms with and without MAN",
    choices={"zeta-half": HALF, **FORM},
    slips=(
        "FedDyn on CIFAR-100 has 50.04 % (iid) but is said not to reach 50 %, and 49.91 % (δ = 0.6) but to reach it in "
        "round 486: the rounds are not those of the printed means; here they are counted for each seed",
        "FedDC's accuracy at δ = 0.3 is 52.02 in the text and 52.03 in the caption",
        "FedDC+MAN gains 4.2, 4.5 and 5.1 on Tiny-ImageNet in the text, and 4.26, 4.65 and 5.32 in the table",
        "FedAvg and FedSAM are worse on iid data than at δ = 0.3, which the paper does not discuss",
        "MAN is said to halve SAM's cost, but the rows of FedSAM+MAN still have it",
        SAMPLING_SLIP,
    ),
    holes=(*HOLES, DYN_HOLE, DC_HOLE, TINY_HOLE, SPEED_HOLE, IID_HOLE),
)
def t1(order: Order) -> Together:
    """Table 1."""
    seeds = order.seeds(SEEDS, SEEDS[: 2 if order.scale == "smoke" else 1])
    parts: dict[str, TableOf] = {}
    for data, setting in SETTINGS.items():
        target = setting.target[order.scale]
        gained: dict[tuple[str, str], Entry] = {}
        reached: dict[tuple[str, str], Entry] = {}
        for name in algorithms(data, "iid"):
            for split in SPLITS:
                runs = tuple(run(order, name, split, data, seed) for seed in seeds)
                gained[name, f"{data} {split} accuracy"] = Entry(runs, accuracy())
                reached[name, f"{data} {split} rounds to {100 * target:g} %"] = Entry(runs, rounds_to(target))
        parts[f"{data}-accuracy"] = TableOf(gained, "test accuracy, %", 2, units="%")
        parts[f"{data}-rounds"] = TableOf(reached, "communication rounds", 0, units="round")
    return Together(parts)


@MAN_PAPER.recipe(
    "T2",
    "largest eigenvalue and trace of the Hessian on CIFAR-100 of four algorithms with and without MAN",
    choices={"samples": SAMPLES, "hessian": HESSIAN, "zeta-half": HALF, **FORM},
    slips=(
        "FedDC and FedDC+MAN have the same numbers at both δ (35.13, 3578; 32.99, 2974): one block is a copy",
        SAMPLING_SLIP,
    ),
    holes=(*HOLES, DYN_HOLE, DC_HOLE),
)
def t2(order: Order) -> TableOf:
    """Table 2."""
    entries: dict[tuple[str, str], Entry] = {}
    for base in ("FedAvg", "FedSAM", "FedDyn", "FedDC"):
        for name in (base, f"{base}+MAN"):
            for split in ("delta=0.3", "delta=0.6"):
                measured = (hessian(order, name, split, top=1),)
                entries[name, f"CIFAR-100 {split} top eigenvalue"] = Entry(measured, eigenvalue())
                entries[name, f"CIFAR-100 {split} trace"] = Entry(measured, trace())
    return TableOf(entries, "of the Hessian of the mean training loss", 2, units=CURVATURE)


@MAN_PAPER.recipe(
    "T3",
    "multiplications of a forward pass and of MAN's penalty by layer, and the time of a round with MAN and with SAM",
    choices={"split": DELTA, "zeta-half": HALF, **FORM},
    slips=("Table 3 has symbols only, and its text no seconds: the time of a round is measured here",),
    holes=HOLES,
)
def t3(order: Order) -> Together:
    """Table 3."""
    networks = {
        "CIFAR-100": Network("lenet_fed", (3, 32, 32), 100),
        "Tiny-ImageNet": Network("convnet_tiny", (3, 64, 64), 200),
    }
    seconds = {
        (name, "seconds of local work a round"): Entry(
            (run(order, name, order.choice("split"), seed=one_seed(order)),), lambda run: run.mean("seconds_local")
        )
        for name in _SPECTRA
    }
    note = "All four train the same clients on the same batches; on the machine on which each was trained."
    return Together(
        {
            "multiplications": OperationCounts(networks),
            "seconds": TableOf(seconds, "seconds", 3, footnotes=(note,), units="s"),
        }
    )
