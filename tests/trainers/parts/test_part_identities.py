"""Parts and algorithms that are one another: named algorithms as FedAvg with parts, and one step on pooled data."""

from functools import cache

import numpy as np
import pytest
import torch

from landscape import Landscape, Partition, Samples
from landscape.activations import MAN
from tests.trainers.federations import SIZES, federation, net, samples
from trainers import (
    ASAM,
    GSAM,
    LESAM,
    SAM,
    Adagrad,
    Adam,
    Affine,
    Centralised,
    FedAdagrad,
    FedAdam,
    FedASAM,
    FedAvg,
    FedAvgM,
    FedCM,
    FedDyn,
    FedGAMMA,
    FedGloSS,
    FedGSAM,
    FedLESAM,
    FedProx,
    FedRobust,
    FedSAM,
    FedSMOO,
    FedSpeed,
    FedYogi,
    MimeLite,
    MoFedSAM,
    Momentum,
    Parts,
    Scaffold,
    Yogi,
)

N = len(SIZES)
BATCHES = [{}, {"batch_size": 4, "weight_decay": 0.05}]


def after(algorithm, parts=None, rounds=4, **changes):
    """The server's model after some rounds; what several tests ask for is trained once, if no partition is given."""
    train = _after.__wrapped__ if "split" in changes else _after
    return train(algorithm, parts, rounds, tuple(sorted(changes.items())))


@cache
def _after(algorithm, parts, rounds, changes):
    ours = federation(algorithm, parts, **{"weighting": "uniform", **dict(changes)})
    for _ in range(rounds):
        ours.step()
    return ours.server.w


def name(value):
    return type(value).__name__ if not isinstance(value, Parts) else " + ".join(value.chosen())


@pytest.mark.parametrize(
    "changes", [pytest.param(BATCHES[0], marks=pytest.mark.slow, id="full"), pytest.param(BATCHES[1], id="batches")]
)
@pytest.mark.parametrize(
    ("algorithm", "base", "parts"),
    [
        (FedSAM(0.4), FedAvg(), Parts(ascent=SAM(0.4))),
        (FedASAM(0.6, 0.3), FedAvg(), Parts(ascent=ASAM(0.6, 0.3))),
        (FedGSAM(0.4, 0.3), FedAvg(), Parts(ascent=GSAM(0.4, 0.3))),
        (FedGAMMA(0.4), Scaffold(), Parts(ascent=SAM(0.4))),
        (MoFedSAM(0.4, 0.3), FedCM(0.3), Parts(ascent=SAM(0.4))),
        (FedGloSS(0.0, 0.4, 5.0), FedDyn(0.2), Parts(ascent=SAM(0.4))),
        (FedAvgM(0.9, 0.5), FedAvg(), Parts(server_optimizer=Momentum(beta=0.5, lr=0.9))),
        (FedAvgM(0.9, 0.5), FedAvg(0.9), Parts(server_optimizer=Momentum(beta=0.5))),
        (FedAdam(0.05, 0.8, 0.9, 0.02), FedAvg(), Parts(server_optimizer=Adam(0.8, 0.9, 0.02, lr=0.05))),
        (FedAdagrad(0.05, 0.3, 0.02), FedAvg(), Parts(server_optimizer=Adagrad(0.3, 0.02, lr=0.05))),
        (FedYogi(0.05, 0.8, 0.9, 0.02), FedAvg(), Parts(server_optimizer=Yogi(0.8, 0.9, 0.02, lr=0.05))),
        (FedSAM(0.4, 0.7), FedAvg(0.7), Parts(ascent=SAM(0.4))),
        (FedASAM(0.6, 0.3, 0.7), FedAvg(0.7), Parts(ascent=ASAM(0.6, 0.3))),
        (FedGAMMA(0.4, 0.7), Scaffold(0.7), Parts(ascent=SAM(0.4))),
        (FedLESAM(0.4, server_lr=0.7), FedAvg(0.7), Parts(ascent=LESAM(0.4))),
        (FedLESAM(0.4, "scaffold", server_lr=0.7), Scaffold(0.7), Parts(ascent=LESAM(0.4))),
        (FedLESAM(0.4, "feddyn", 0.3), FedDyn(0.3), Parts(ascent=LESAM(0.4))),
        (FedRobust(0.3, 0.5, "channel", 0.7), FedAvg(0.7), Parts(adversary=Affine(0.3, 0.5, "channel"))),
    ],
    ids=name,
)
def test_a_named_algorithm_is_its_base_with_a_part(algorithm, base, parts, changes):
    ours, theirs = after(algorithm, **changes), after(base, parts, **changes)
    if isinstance(algorithm, FedGloSS) or base == FedAvg(0.9):  # the same numbers in another order
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    else:
        assert torch.equal(ours, theirs)
    assert (theirs - after(base, **changes)).norm() > 1e-4


EVERY_BASE = [FedAvg(), FedProx(0.3), Scaffold(), FedDyn(0.3), FedCM(0.3), MimeLite(0.3), FedAvgM(1.0, 0.4)]


@pytest.mark.parametrize("base", EVERY_BASE, ids=name)
@pytest.mark.parametrize(
    "off",
    [Parts(ascent=SAM(0.0)), Parts(ascent=ASAM(0.0, 0.2)), Parts(ascent=GSAM(0.0, 0.5)), Parts(man=MAN(0.0))],
    ids=name,
)
def test_a_part_that_does_nothing_leaves_every_base_as_it_is(base, off):
    changes = {"batch_size": 4, "weight_decay": 0.05}
    torch.testing.assert_close(after(base, off, **changes), after(base, **changes), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("base", EVERY_BASE, ids=name)
@pytest.mark.parametrize(
    "on",
    [Parts(ascent=SAM(0.4)), Parts(ascent=ASAM(0.6, 0.2)), Parts(ascent=GSAM(0.4, 0.5)), Parts(man=MAN(0.5))],
    ids=name,
)
def test_a_part_that_does_something_moves_every_base(base, on):
    assert (after(base, on) - after(base)).norm() > 1e-3


FIRST_ROUND = [
    (Scaffold(), None, 1),
    (Scaffold(), SAM(0.4), 1),
    (FedDyn(0.3), None, 2),
    (FedDyn(0.3), SAM(0.4), 2),
    (FedSMOO(0.0, 1 / 0.3), None, 2),
    (FedSpeed(0.1, 0.0, 1 / 0.3), None, 2),
]


@pytest.mark.parametrize(("algorithm", "ascent", "times"), FIRST_ROUND)
def test_one_client_with_all_data_and_one_step_is_its_base_in_the_first_round(algorithm, ascent, times):
    """No variates, no duals yet and w = w^t: the local step is plain.  The FedDyn family draws it out by h/α: twice."""
    whole = Partition((np.arange(sum(SIZES)),))
    changes = {"clients": 1, "per_round": 1, "local_epochs": 1, "split": whole, "rounds": 1}
    plain, start = after(FedAvg(), Parts(ascent=ascent), **changes), federation(FedAvg()).server.w
    ours = after(algorithm, Parts(ascent=ascent), **changes)
    torch.testing.assert_close(ours, start + times * (plain - start), rtol=1e-11, atol=1e-13)


def pooled_gradient():
    return Landscape(net(), samples(), device="cpu").gradient


@pytest.mark.parametrize("algorithm", [FedAvg(), Centralised(), Scaffold()], ids=name)
def test_full_participation_and_one_full_step_is_gradient_descent_on_all_data(algorithm):
    """Five rounds; SCAFFOLD's control variates cancel in the mean."""
    ours = federation(algorithm, per_round=N, local_epochs=1, weighting="samples", lr_decay=1.0)
    w, gradient = ours.server.w.clone(), pooled_gradient()
    if isinstance(algorithm, Scaffold):
        equal = Partition(tuple(np.split(np.arange(63), 9)))
        ours = federation(algorithm, per_round=9, clients=9, local_epochs=1, split=equal, lr_decay=1.0)
        first = Samples(samples().inputs[:63], samples().targets[:63])
        gradient = Landscape(net(), first, device="cpu").gradient
    for _ in range(5):
        ours.step()
        w = w - 0.3 * gradient(w)
        torch.testing.assert_close(ours.server.w, w, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("ascent", [SAM(0.4), ASAM(0.6, 0.2), GSAM(0.4, 0.3)], ids=name)
def test_clients_that_hold_the_same_data_are_one_that_holds_it(ascent):
    """Full batches: FedAvg with an ascent is then centralised SAM, ASAM or GSAM, with any number of steps."""
    twins = Partition(tuple(np.arange(20, 40) for _ in range(N)))
    alone = Partition((np.arange(20, 40),))
    many = after(FedAvg(), Parts(ascent=ascent), split=twins)
    one = after(Centralised(), Parts(ascent=ascent), split=alone, clients=1, per_round=1)
    torch.testing.assert_close(many, one, rtol=1e-11, atol=1e-13)


def test_sam_with_one_client_of_all_data_and_one_step_is_sam_on_all_data():
    whole = Partition((np.arange(sum(SIZES)),))
    changes = {"clients": 1, "per_round": 1, "local_epochs": 1, "split": whole, "lr_decay": 1.0}
    w, gradient = federation(FedAvg()).server.w, pooled_gradient()
    for _ in range(4):
        g = gradient(w)
        w = w - 0.3 * gradient(w + 0.4 * g / g.norm())
    torch.testing.assert_close(after(FedSAM(0.4), **changes), w, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(after(Centralised(), Parts(ascent=SAM(0.4)), **changes), w, rtol=1e-10, atol=1e-12)


def test_the_mean_of_clients_sam_steps_is_not_sam_on_all_data():
    """Perturbations are of each client's own loss: what the test above says of one client is false of several."""
    w, gradient = federation(FedAvg()).server.w, pooled_gradient()
    g = gradient(w)
    pooled = w - 0.3 * gradient(w + 0.4 * g / g.norm())
    changes = {"per_round": N, "local_epochs": 1, "weighting": "samples", "rounds": 1}
    assert (after(FedSAM(0.4), **changes) - pooled).norm() > 1e-3


@pytest.mark.parametrize("rounds", [1, 2])
def test_scaffolds_first_round_is_its_bases_with_every_ascent(rounds):
    for ascent in (None, SAM(0.4), ASAM(0.6, 0.2)):
        parts, changes = Parts(ascent=ascent), {"per_round": N, "local_epochs": 3}
        apart = (after(Scaffold(), parts, rounds, **changes) - after(FedAvg(), parts, rounds, **changes)).norm()
        assert apart < 1e-12 if rounds == 1 else apart > 1e-4
