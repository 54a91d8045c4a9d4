"""In the form of repositories' code, clients at once are trained as one after the other, to rounding."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from landscape import FedscapeError, Partition
from tests.trainers.federation.test_batched import both, require_equal
from trainers import ALGORITHMS, MAN, FedAvg, FedDC, FedDyn, FedLESAM, Linear, Parts, Relaxed, Scaffold

FORMS = [
    {},
    {"variant": "official"},
    {"variant": "uncleared"},
    {"sizes": "relative", "proximal": "half"},
    {"sizes": "relative"},
    {"proximal": "half"},
]
"""Of algorithms in repositories' code; an algorithm has those whose options it has."""


def in_form(kind, form):
    """The algorithm in a form, ``None`` where it has none such."""
    if not form.keys() <= {each.name for each in fields(kind)}:
        return None
    try:
        return kind(**form)
    except FedscapeError:
        return None


REPOSITORY = {
    "clip": 0.05, "clip_at": "linear", "clip_eps": 0.01, "norm_eps": 0.01, "dual_steps": "first", "dual_lr": "first",
    "weight_decay": 1e-2,
}  # fmt: skip
NAMED_FORMS = [
    pytest.param(found, id=f"{name} {' '.join(form.values())}", marks=[] if form else pytest.mark.slow)
    for name, kind in ALGORITHMS.items()
    for form in FORMS
    if (found := in_form(kind, form)) is not None
]


@pytest.mark.parametrize("algorithm", NAMED_FORMS)
def test_every_algorithm_in_the_form_of_a_repository(algorithm):
    require_equal(*both(algorithm, **REPOSITORY))


@pytest.mark.parametrize("base", ["scaffold", "feddyn"])
def test_fedlesams_bases_in_the_form_of_a_repository(base):
    require_equal(*both(FedLESAM(base=base, variant="official"), **REPOSITORY))


def test_the_proximal_terms_of_a_repository_go_with_starts_and_a_falling_rate():
    parts = Parts(start=Relaxed(0.5), local_schedule=Linear(0.2))
    for algorithm in (FedDyn(sizes="relative"), FedDC(sizes="relative"), Scaffold(sizes="relative")):
        require_equal(*both(algorithm, parts, rounds=2, **{**REPOSITORY, "dual_steps": "mean"}))


def test_mans_variance():
    """Of batches of more than one sample, as a single one has none."""
    split = Partition(tuple(np.split(np.arange(64), [9 + 1, 21, 24, 44, 50])))
    first, second, _ = both(FedAvg(), Parts(man=MAN(0.15, variance=("0",))), split=split, clients=6)
    torch.testing.assert_close(second.server.w, first.server.w, rtol=1e-10, atol=1e-11)
    without, _, _ = both(FedAvg(), Parts(man=MAN(0.15)), split=split, clients=6)
    assert (without.server.w - first.server.w).abs().max() > 1e-4
