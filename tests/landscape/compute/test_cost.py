"""What a sample costs, against closed forms and PyTorch's own counter; the CPU threads that follow from it."""

import os
from typing import ClassVar

import pytest
import torch
from torch import nn

from landscape import Landscape, build_model
from landscape.compute import cost
from landscape.compute.cost import SampleCost, sample_cost, threads_for
from landscape.compute.devices import cpu_threads


class Twice(nn.Module):
    """One layer that is used two times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(self.layer(x).relu())


class Recurrent(nn.Module):
    """Tokens, a two-layer LSTM and a head on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body = nn.Embedding(50, 3), nn.LSTM(3, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 7)

    def forward(self, x):
        return self.head(self.body(self.table(x))[0][:, -1])


class OfAllNodes(nn.Module):
    """A layer of a graph: all eight nodes or none."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return torch.eye(8) @ self.layer(x)


CLOSED = {
    "dense": (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), (6,), 2 * (6 * 5 + 5 * 2)),
    "dense at 9 tokens": (nn.Linear(6, 5), (9, 6), 9 * 2 * 6 * 5),
    "convolution": (nn.Conv2d(3, 8, 5, padding=2), (3, 10, 12), 10 * 12 * 2 * 8 * 3 * 25),
    "strided, in groups": (nn.Conv2d(4, 8, 3, stride=2, groups=2), (4, 9, 9), 4 * 4 * 2 * 8 * 2 * 9),
    "transposed": (nn.ConvTranspose2d(4, 6, 2, stride=2), (4, 5, 5), 5 * 5 * 2 * 4 * 6 * 4),
    "one layer twice": (Twice(), (4,), 2 * 2 * 16),
    "normalisation": (nn.Sequential(nn.Conv2d(2, 4, 1), nn.GroupNorm(2, 4)), (2, 3, 3), 9 * 2 * 2 * 4),
}


@pytest.mark.parametrize(("net", "shape", "flops"), CLOSED.values(), ids=CLOSED)
def test_operations_are_those_of_the_closed_form(net, shape, flops):
    assert sample_cost(net, torch.randn(2, *shape)).flops == flops
    assert sample_cost(net, torch.randn(5, *shape)).flops == flops


def test_tokens_are_looked_up_and_gates_multiplied():
    found = sample_cost(Recurrent(), torch.randint(50, (2, 6)))
    assert found.flops == 6 * 2 * (4 * 5) * (3 + 5 + 5 + 5) + 2 * 5 * 7


def test_bytes_are_those_that_the_backward_pass_needs():
    """Of a dense layer its input, of a tanh its output, which is the next layer's input."""
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    assert sample_cost(net, torch.randn(4, 6, dtype=torch.float64)).saved == 8 * (6 + 5)
    frozen = nn.Linear(6, 5).requires_grad_(False)
    assert sample_cost(frozen, torch.randn(4, 6)).saved == 0


@pytest.mark.slow  # PyTorch's counter takes a second to import
@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn", "lenet_fed", "resnet20_gn", "mobilenet_v2_bn"])
def test_operations_of_the_papers_networks_are_those_that_pytorch_counts(name):
    from torch.utils.flop_counter import FlopCounterMode

    shape = (1, 8, 8) if name.startswith("digits") else (3, 32, 32)
    net, x = build_model(name, seed=0, input_shape=shape, classes=10).eval(), torch.randn(2, *shape)
    with FlopCounterMode(display=False) as counter:
        net(x)
    assert sample_cost(net, x).flops == counter.get_total_flops() / 2


def test_a_model_that_does_not_take_a_few_samples_has_no_known_cost_and_works_as_before():
    assert sample_cost(OfAllNodes(), torch.randn(2, 4)) is None
    data = torch.randn(8, 4), torch.arange(8) % 2
    around = Landscape(OfAllNodes(), data, device="cpu", batch_size=8)
    assert around.micro_batches.flops == float("inf")
    assert around.value() > 0


def test_nothing_is_changed_by_the_pass():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    state, before = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    draws = nn.Sequential(net, nn.RReLU())
    sample_cost(draws, torch.randn(2, 3, generator=torch.Generator().manual_seed(1)))
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert net.training
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def three_threads(monkeypatch):
    """A process with three threads that nobody has asked for."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
class TestThreads:
    def test_small_work_has_one_and_large_work_what_there_is(self):
        for flops, inside in ((0, 1), (cost.THREADED_FLOPS - 1, 1), (cost.THREADED_FLOPS, 3), (float("inf"), 3)):
            with threads_for(flops):
                assert torch.get_num_threads() == inside
            assert torch.get_num_threads() == 3

    def test_the_number_comes_back_after_an_error(self):
        with pytest.raises(ZeroDivisionError), threads_for(1):
            _ = 1 / 0
        assert torch.get_num_threads() == 3

    def test_large_work_inside_small_work_has_one_too(self):
        with threads_for(1), threads_for(float("inf")):
            assert torch.get_num_threads() == 1
        with threads_for(float("inf")), threads_for(1):
            assert torch.get_num_threads() == 1

    def test_a_number_that_was_asked_for_stays(self):
        with cpu_threads(2):
            with threads_for(1):
                assert torch.get_num_threads() == 2
            with cpu_threads(None), threads_for(1):
                assert torch.get_num_threads() == 2
        with threads_for(1):
            assert torch.get_num_threads() == 1
        with cpu_threads(None), threads_for(1):
            assert torch.get_num_threads() == 1

    @pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
    def test_the_environments_number_stays(self, name, monkeypatch):
        monkeypatch.setitem(os.environ, name, "3")
        with threads_for(1):
            assert torch.get_num_threads() == 3

    @pytest.mark.parametrize(("limit", "inside"), [(2 * 4 * 2 * 5, 3), (2 * 4 * 2 * 5 + 1, 1)])
    def test_a_landscape_has_those_of_a_micro_batch(self, limit, inside, monkeypatch):
        """Micro-batches of five samples of 2 · 4 · 2 operations."""
        monkeypatch.setattr(cost, "THREADED_FLOPS", limit)
        around, seen = Landscape(Noting(), (torch.randn(7, 4), torch.arange(7) % 2), device="cpu", batch_size=5), set()
        Noting.seen = seen
        for ask in (around.evaluate, around.gradient, lambda: around.hvp(None, around.weights)):
            ask()
            assert torch.get_num_threads() == 3
        around.gauss_newton()(around.weights)
        assert seen == {inside}

    def test_unknown_costs_leave_the_threads(self):
        around = Landscape(Noting(), (torch.randn(7, 4), torch.arange(7) % 2), device="cpu")
        around.micro_batches.cost = None
        Noting.seen = set()
        around.evaluate()
        assert Noting.seen == {3}


class Noting(nn.Module):
    """Notes the number of threads it is computed with."""

    seen: ClassVar[set[int]]

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        self.seen.add(torch.get_num_threads())
        return self.layer(x)


def test_a_cost_is_a_value():
    assert sample_cost(nn.Linear(3, 2), torch.ones(2, 3)) == SampleCost(flops=12.0, saved=12.0)


def test_samples_that_are_a_view_of_a_data_set_cost_what_they_cost_alone():
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    assert sample_cost(net, torch.ones(1000, 3)[:2]) == sample_cost(net, torch.ones(2, 3))
