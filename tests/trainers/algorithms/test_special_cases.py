"""FedGAMMA, FedLESAM, FedGloSS, FedRobust and centralised training: special cases, and the contract."""

import pytest
import torch

from landscape import FedscapeError
from tests.trainers.algorithms.test_contract import test_stacked_clients_advance_as_they_would_alone as advances_stacked
from tests.trainers.algorithms.test_identities import after
from tests.trainers.federations import federation
from trainers import FedAvg, FedSAM, Scaffold
from trainers.algorithms.centralised import Centralised
from trainers.algorithms.combinations import FedGAMMA, FedRobust
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.fedgloss import FedGloSS
from trainers.algorithms.fedlesam import FedLESAM

EVERY = [
    FedGAMMA(0.4),
    FedLESAM(0.4),
    FedLESAM(0.4, "scaffold"),
    FedLESAM(0.4, "feddyn"),
    FedGloSS(0.3, 0.2, 4.0),
    FedGloSS(0.3, 0.2, 4.0, warmup=3),
    FedRobust(),
    FedRobust(structure="channel"),
    Centralised(),
]


def same(one, other, rounds=4, **changes):
    torch.testing.assert_close(after(one, rounds, **changes), after(other, rounds, **changes), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("special", "base"),
    [
        (FedGAMMA(0.0, server_lr=0.8), Scaffold(0.8)),
        (FedLESAM(0.0), FedAvg()),
        (FedLESAM(0.0, "scaffold"), Scaffold()),
        (FedLESAM(0.0, "feddyn", 0.3), FedDyn(0.3)),
        (FedGloSS(0.0, 0.0, 4.0), FedDyn(0.25)),
        (FedRobust(ascent_lr=0.0), FedAvg()),
        (FedRobust(ascent_lr=0.0, structure="channel"), FedAvg()),
        (Centralised(), FedAvg()),
    ],
    ids=lambda a: type(a).__name__,
)
@pytest.mark.parametrize("size", ["full", 4])
def test_is_its_base_when_its_own_part_is_off(special, base, size):
    same(special, base, batch_size=size)


@pytest.mark.parametrize(
    ("active", "base"),
    [
        (FedGAMMA(0.4), Scaffold()),
        (FedLESAM(0.4), FedAvg()),
        (FedLESAM(0.4, "scaffold"), Scaffold()),
        (FedLESAM(0.4, "feddyn"), FedDyn(0.1)),
        (FedGloSS(0.3, 0.0, 4.0), FedDyn(0.25)),
        (FedGloSS(0.0, 0.3, 4.0), FedDyn(0.25)),
        (FedGloSS(0.3, 0.3, 4.0), FedGloSS(0.3, 0.3, 4.0, warmup=2)),
        (FedRobust(), FedAvg()),
        (FedRobust(structure="channel"), FedAvg()),
        (FedRobust(), FedRobust(structure="channel")),
    ],
    ids=lambda a: type(a).__name__,
)
def test_is_not_its_base_when_its_own_part_is_on(active, base):
    assert (after(active) - after(base)).norm() > 1e-5


def test_fedgamma_is_fedsam_in_its_first_round_only():
    same(FedGAMMA(0.4), FedSAM(0.4), 1)
    assert (after(FedGAMMA(0.4), 6) - after(FedSAM(0.4), 6)).norm() > 1e-4


def test_fedgloss_without_its_servers_ascent_is_feddyn_on_the_sam_gradient():
    class FedDynSAM(FedDyn):
        ascent = FedSAM(0.3).ascent

    same(FedGloSS(0.0, 0.3, 4.0), FedDynSAM(0.25))
    same(FedGloSS(0.5, 0.3, 4.0), FedDynSAM(0.25), 1)  # its first round has no pseudo-gradient


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_stacked_clients_advance_as_they_would_alone(algorithm):
    advances_stacked(algorithm)


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_traffic_is_what_the_docstring_says(algorithm):
    ours = federation(algorithm)
    record = ours.step()
    models = 0 if algorithm.pooled else 2 if "c" in algorithm.server_state(ours.server.w) else 1
    assert (record.bytes_down, record.bytes_up) == (3 * models * ours.server.w.nbytes,) * 2
    assert "Traffic" in type(algorithm).__doc__


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_resuming_changes_nothing(algorithm):
    whole, first, second = federation(algorithm), federation(algorithm), federation(algorithm)
    for _ in range(4):
        whole.step()
    first.step()
    first.step()
    second.restore(first.export())
    second.step()
    second.step()
    assert torch.equal(second.server.w, whole.server.w)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: FedGAMMA(-0.1),
        lambda: FedGAMMA(0.1, server_lr=0.0),
        lambda: FedLESAM(-0.1),
        lambda: FedLESAM(0.1, "fedprox"),
        lambda: FedLESAM(0.1, "feddyn", 0.0),
        lambda: FedLESAM(0.1, "fedavg", server_lr=0.0),
        lambda: FedGloSS(rho=-0.1),
        lambda: FedGloSS(rho_l=-0.1),
        lambda: FedGloSS(beta=0.0),
        lambda: FedGloSS(warmup=-1),
        lambda: FedGloSS(rho0=-0.1),
        lambda: FedGloSS(rho0=0.01),
        lambda: FedRobust(-0.1),
        lambda: FedRobust(0.1, -0.1),
        lambda: FedRobust(2.0, 0.6),
        lambda: FedRobust(structure="rows"),
    ],
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()
