"""The default constants of algorithms and parts, and where each comes from."""

import dataclasses

import pytest

from trainers import (
    ALGORITHMS,
    ASAM,
    GSAM,
    LESAM,
    SAM,
    SOL,
    Adagrad,
    Adam,
    Affine,
    Extrapolation,
    FedLESAM,
    Linear,
    Momentum,
    Nesterov,
    Normalised,
    Relaxed,
    Yogi,
)
from trainers.runs.later import LATER

SMALL = 0.05
"""ρ for the small nets of the examples; it is MAN's authors' too.  The papers' own are of the help."""
ADAPTIVE = {"server_lr": 0.1, "tau": 1e-3}
"""Reddi et al.: τ = 10⁻³, and η_g is tuned for each task."""

DEFAULTS = {
    "fedavg": {"server_lr": 1.0},  # McMahan et al.: the mean
    "fedprox": {"mu": 0.01},  # Li et al., their grid 0.001 ... 1
    "fedavgm": {"server_lr": 1.0, "beta": 0.9},  # Hsu et al., section 4; Caldarola et al.: 0.9
    "fedadam": {**ADAPTIVE, "beta1": 0.9, "beta2": 0.99},  # Reddi et al., section 5.2
    "fedadagrad": {**ADAPTIVE, "beta1": 0.0},  # Reddi et al.: no momentum
    "fedyogi": {**ADAPTIVE, "beta1": 0.9, "beta2": 0.99},
    "scaffold": {"server_lr": 1.0},
    "feddyn": {"alpha": 0.1},  # FedSMOO's comparison; MAN's has 0.01
    "feddc": {"alpha": 0.01, "server_correction": "all"},  # the authors' for CIFAR
    "fedspeed": {"rho": 0.1, "alpha": 1.0, "lam": 10.0, "variant": "paper", "server_correction": "all"},  # FL-Simulator
    "fedcm": {"alpha": 0.1, "server_lr": 1.0},  # Xu et al.; FedSMOO's client momentum 0.1
    "mimelite": {"beta": 0.9, "server_lr": 1.0},
    "fedrobust": {"lam": 0.1, "ascent_lr": 0.01, "structure": "full", "server_lr": 1.0},
    "fedsam": {"rho": SMALL, "server_lr": 1.0},
    "fedgsam": {"rho": SMALL, "alpha": 0.2, "server_lr": 1.0},  # Zhuang et al.: 0.2 for CIFAR-10
    "fedasam": {"rho": 0.7, "eta": 0.2, "server_lr": 1.0},  # Caldarola et al., CIFAR-10
    "mofedsam": {"rho": SMALL, "beta": 0.1, "server_lr": 1.0},  # Qu et al.: β = 0.1
    "fedsmoo": {"r": 0.1, "beta": 10.0, "variant": "paper"},  # Sun et al., CIFAR-10
    "adabest": {"mu": 0.02, "beta": 0.96},  # the authors' fedsim
    "fedgamma": {"rho": SMALL, "server_lr": 1.0},
    "fedlesam": {"rho": SMALL, "base": "fedavg", "server_lr": 1.0},
    "fedgloss": {"rho": SMALL, "rho_l": SMALL, "beta": 10.0, "warmup": 0, "rho0": 0.001},  # β: their CIFAR-10
    "centralised": {},
    "fedinit": {"beta": 0.1, "average": "changes", "server_lr": 1.0},  # FL-Simulator
    "fedacg": {"lam": 0.85, "mu": 0.002},  # its code, 0.001 on the square
    "fednsam": {"gamma": 0.85, "rho": 0.05, "server_lr": 1.0},  # its code, fixed in the clients
    "fednova": {"mu": 0.0, "beta": 0.0},  # its code
    "fedexp": {"eps": 1e-3, "eps_decay": 1.0, "server_lr": 1.0},  # its code, all but EMNIST
    "fedvarp": {"server_lr": 1.0},
    "fedgf": {"rho": SMALL, "rho_g": SMALL, "t_d": 0.5, "window": 30},  # W: its code
    "fedwmsam": {"rho": 0.01, "lam": 0.01, "alpha": 0.1, "server_lr": 1.0},  # Li et al.
    "fedswa": {"rho": 0.1, "alpha": 1.5},  # a summary of the paper
    "mime": {"beta": 0.9, "server_lr": 1.0},
    "ghbm": {"beta": 0.9, "tau": 4},  # the authors' configurations; τ is to be given there
    "localghbm": {"beta": 0.9},
    "fedhbm": {"beta": 1.0},
    "fedsol": {"rho": 1.0, "temperature": 3.0, "strength": "fixed", "server_lr": 1.0},  # the authors' for CIFAR-10
}
"""By name on the command line; papers' tables where nothing else is said.  The options of repositories' code are left
out: they are neutral (:data:`LATER`)."""


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_an_algorithm_has_the_constants_of_its_source(name):
    assert ALGORITHMS.get(name)().hyper_parameters() == {**LATER.get(name, {}), **DEFAULTS[name]}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (SAM(), {"rho": SMALL}),
        (ASAM(), {"rho": 0.7, "eta": 0.2}),
        (GSAM(), {"rho": SMALL, "alpha": 0.2}),
        (LESAM(), {"rho": SMALL}),
        (SOL(), {"rho": 1.0, "temperature": 3.0, "strength": "fixed"}),
        (Momentum(), {"beta": 0.9, "lr": 1.0}),
        (Adam(), {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "lr": 0.1}),
        (Yogi(), {"beta1": 0.9, "beta2": 0.99, "tau": 1e-3, "lr": 0.1}),
        (Adagrad(), {"beta1": 0.0, "tau": 1e-3, "lr": 0.1}),
        (Nesterov(), {"beta": 0.85}),
        (Extrapolation(), {"eps": 1e-3, "eps_decay": 1.0}),
        (Normalised(), {"beta": 0.0}),
        (Relaxed(), {"beta": 0.1, "average": "changes"}),
        (Linear(), {"end": 0.1}),
        (Affine(), {"lam": 0.1, "ascent_lr": 0.01, "structure": "full"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_part_has_the_constants_of_its_source(part, expected):
    assert dataclasses.asdict(part) == {**LATER.get(type(part).__name__.lower(), {}), **expected}


@pytest.mark.parametrize(
    ("base", "own"), [("fedavg", {"server_lr": 1.0}), ("scaffold", {"server_lr": 1.0}), ("feddyn", {"alpha": 0.1})]
)
def test_fedlesam_has_its_bases_constants(base, own):
    assert FedLESAM(base=base).hyper_parameters() == {"rho": SMALL, "base": base, **own, "variant": "paper"}
    assert ALGORITHMS.get(base)().hyper_parameters() == {**LATER.get(base, {}), **own}
