"""Algorithms that become one another at special hyper-parameters."""

import pytest
import torch

from tests.trainers.federations import federation
from trainers import FedASAM, FedAvg, FedProx, FedSAM, Scaffold


def after(algorithm, rounds=4, **changes):
    ours = federation(algorithm, weighting="uniform", **changes)
    for _ in range(rounds):
        ours.step()
    return ours.server.w


@pytest.mark.parametrize("special", [FedProx(0.0), FedSAM(0.0), FedASAM(0.0, 0.2)], ids=lambda a: type(a).__name__)
def test_is_fedavg_when_its_own_part_is_off(special):
    torch.testing.assert_close(after(special), after(FedAvg()), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("active", [FedProx(1.0), FedSAM(0.5), FedASAM(0.7, 0.2)], ids=lambda a: type(a).__name__)
def test_is_not_fedavg_when_its_own_part_is_on(active):
    assert (after(active) - after(FedAvg())).norm() > 1e-3


def test_scaffold_is_fedavg_in_its_first_round_only():
    torch.testing.assert_close(after(Scaffold(), 1), after(FedAvg(), 1), rtol=1e-12, atol=1e-14)
    assert (after(Scaffold(), 6) - after(FedAvg(), 6)).norm() > 1e-4


def test_server_rate_scales_the_first_step():
    start = federation(FedAvg()).server.w
    torch.testing.assert_close(
        after(FedAvg(0.5), 1) - start, 0.5 * (after(FedAvg(), 1) - start), rtol=1e-12, atol=1e-14
    )


def test_one_full_batch_epoch_is_one_gradient_step_on_the_pooled_loss():
    ours = federation(FedAvg(), per_round=7, local_epochs=1)  # every client, weighted by samples
    start = ours.server.w.clone()
    from landscape import Landscape
    from tests.trainers.federations import net, samples

    gradient = Landscape(net(), samples(), device="cpu").gradient()
    ours.step()
    torch.testing.assert_close(ours.server.w, start - ours.settings.lr * gradient, rtol=1e-12, atol=1e-14)
