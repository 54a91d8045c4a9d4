"""Each algorithm against its pseudo-code written out naively, in float64, with partial participation."""

import pytest
import torch

from tests.trainers.algorithms import naive
from tests.trainers.federations import SETTINGS, federation
from trainers import FedASAM, FedAvg, FedProx, FedSAM, Scaffold

ROUNDS = 6
WEIGHTINGS = ("samples", "uniform")


def relative_error(algorithm, naive_round, **changes):
    ours, clients = federation(algorithm, **changes), naive.Clients(changes.get("weighting", "samples"))
    w = clients.start()
    assert torch.equal(torch.cat([t.reshape(-1) for t in w]), ours.server.w)
    worst, seen = 0.0, set()
    for number in range(ROUNDS):
        record = ours.step()
        lr = SETTINGS["lr"] * SETTINGS["lr_decay"] ** number
        w = naive_round(clients, w, record.clients, lr)
        flat = torch.cat([t.reshape(-1) for t in w])
        worst = max(worst, ((ours.server.w - flat).norm() / flat.norm()).item())
        seen.update(record.clients)
    assert len(seen) > SETTINGS["per_round"], "the rounds must differ in who takes part"
    return worst


@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_fedavg_is_the_sample_weighted_mean_of_local_sgd(server_lr):
    error = relative_error(FedAvg(server_lr), lambda c, w, s, lr: naive.fedavg_round(c, w, s, lr, server_lr))
    assert error < 1e-12


def test_uniform_weighting_is_the_plain_mean():
    def plain(c, w, s, lr):
        return naive.fedavg_round(naive.Clients("uniform"), w, s, lr)

    assert relative_error(FedAvg(), plain, weighting="uniform") < 1e-12
    assert relative_error(FedAvg(), plain, weighting="samples") > 1e-3  # so the weighting matters here


def test_weight_decay_is_added_to_the_direction():
    error = relative_error(
        FedAvg(), lambda c, w, s, lr: naive.fedavg_round(c, w, s, lr, weight_decay=0.1), weight_decay=0.1
    )
    assert error < 1e-12


def test_fedprox_pulls_towards_the_server_model():
    error = relative_error(FedProx(0.5), lambda c, w, s, lr: naive.fedprox_round(c, w, s, lr, 0.5))
    assert error < 1e-12


def test_fedsam_descends_along_the_gradient_at_the_perturbed_point():
    error = relative_error(FedSAM(0.4), lambda c, w, s, lr: naive.fedsam_round(c, w, s, lr, 0.4))
    assert error < 1e-11


def test_fedsam_ascends_without_weight_decay():
    error = relative_error(
        FedSAM(0.4), lambda c, w, s, lr: naive.fedsam_round(c, w, s, lr, 0.4, weight_decay=0.1), weight_decay=0.1
    )
    assert error < 1e-11


def test_fedasam_scales_weights_and_norm_scales_but_not_biases():
    error = relative_error(FedASAM(0.7, 0.2), lambda c, w, s, lr: naive.fedasam_round(c, w, s, lr, 0.7, 0.2))
    assert error < 1e-11


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("server_lr", [1.0, 0.8])
def test_scaffold_option_two(server_lr, weighting):
    reference = naive.NaiveScaffold(naive.Clients().start(), server_lr)
    assert relative_error(Scaffold(server_lr), reference.round, weighting=weighting) < 1e-11


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_scaffold_control_variate_of_the_server_is_the_weighted_mean_of_all_clients(weighting):
    ours = federation(Scaffold(), weighting=weighting)
    for _ in range(ROUNDS):
        ours.step()
    mean = sum(p * ours.store.fetch(i).c for i, p in enumerate(naive.Clients(weighting).p))
    torch.testing.assert_close(ours.server.c, mean, rtol=1e-12, atol=1e-14)
    assert ours.server.c.norm() > 1e-3
