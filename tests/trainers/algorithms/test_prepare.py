"""What a client computes from all of its data before its first step of a round."""

import pytest
import torch
from torch import nn

from landscape import Samples
from landscape.autograd.flat import FlatModule
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.test_contract import ROUND
from tests.trainers.federations import SIZES, dropout_net, net, partition, samples
from trainers import FedAvg, State
from trainers.algorithms.mimelite import MimeLite
from trainers.federation.client_store import ClientStore
from trainers.federation.execution import SequentialExecutor
from trainers.federation.local import LocalWork


def everything(size=None, **changes):
    """MimeLite's uploads of all clients after one round, and the initial model."""
    model = FlatModule(net(), torch.device("cpu"), torch.float64)
    work = LocalWork(**{"epochs": 2, "batch_size": size, "weight_decay": 0.0, "augment": "none", "seed": 4, **changes})
    executor = SequentialExecutor(model, samples(), partition(), MimeLite(), work)
    received = State(w=model.buffer.clone(), momentum=torch.zeros_like(model.buffer))
    return list(executor.work(range(len(SIZES)), received, ClientStore(dict, torch.device("cpu")), ROUND))


@pytest.mark.parametrize("micro_batch", [256, 7, 1])
@pytest.mark.parametrize("size", [None, 4])
def test_a_client_prepares_with_the_gradient_over_all_of_its_data(size, micro_batch, monkeypatch):
    """Whatever the batches and micro-batches; weight decay stays out of it."""
    monkeypatch.setattr("trainers.federation.local._MICRO_BATCH", micro_batch)
    clients = naive.Clients()
    for result in everything(size, weight_decay=0.1):
        expected = torch.cat([t.reshape(-1) for t in clients.gradient(result.client, clients.start())])
        torch.testing.assert_close(result.upload["gradient"], expected, rtol=1e-12, atol=1e-14)


def test_preparing_leaves_the_draws_of_dropout_and_batches_as_they_were():
    def result(algorithm):
        model = FlatModule(dropout_net(), torch.device("cpu"), torch.float64)
        executor = SequentialExecutor(model, samples(), partition(), algorithm, LocalWork(2, 4, 0.0, "none", 0))
        received = State(w=model.buffer.clone(), momentum=torch.zeros_like(model.buffer))
        return next(iter(executor.work([5], received, ClientStore(dict, torch.device("cpu")), ROUND)))

    assert torch.equal(result(MimeLite(0.0)).model, result(FedAvg()).model)
    first, again = result(MimeLite(0.0)).upload["gradient"], result(MimeLite(0.0)).upload["gradient"]
    assert torch.equal(first, again)


def test_preparing_sees_images_without_augmentation():
    draw = torch.Generator().manual_seed(1)
    images = Samples(torch.randn(sum(SIZES), 1, 8, 8, generator=draw), torch.arange(sum(SIZES)) % 3)

    def result(augment):
        torch.manual_seed(2)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        model = FlatModule(module, torch.device("cpu"), torch.float32)
        executor = SequentialExecutor(model, images, partition(), MimeLite(), LocalWork(1, None, 0.0, augment, 0))
        received = State(w=model.buffer.clone(), momentum=torch.zeros_like(model.buffer))
        return next(iter(executor.work([3], received, ClientStore(dict, torch.device("cpu")), ROUND)))

    plain, augmented = result("none"), result("flip-crop")
    assert torch.equal(plain.upload["gradient"], augmented.upload["gradient"])
    assert not torch.equal(plain.model, augmented.model)
