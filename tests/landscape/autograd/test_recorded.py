"""Recorded products are the plain ones; a tape of a pass's operations stands in for its CUDA graph."""

import gc
import weakref

import pytest
import torch
from torch import nn

from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from landscape.autograd.recorded import RecordedProducts
from landscape.compute.graphs import Again
from landscape.compute.randomness import torch_generator
from tests.tape import Alive, Tape


def net(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), *more,
        nn.Linear(16, 3),
    ).double()  # fmt: skip


def around(module: nn.Module | None = None, **options) -> Landscape:
    draw = torch_generator(0, "recorded")
    x, y = torch.randn(11, 1, 4, 4, generator=draw, dtype=torch.float64), torch.arange(11) % 3
    return Landscape(module or net(), (x, y), device="cpu", **{"batch_size": 4, **options})


def recorded(here: Landscape, record=Tape) -> RecordedProducts:
    return RecordedProducts(here._flat, here.loss, here._batches, here.weights, record)


def vectors(here: Landscape, k: int) -> torch.Tensor:
    return torch.randn(k, here.dimension, generator=torch_generator(1, "vectors"), dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"penalty": MAN(0.1)}, {"batch_size": 11}])
def test_they_are_the_plain_products_in_every_call(options):
    here = around(**options)
    ours = recorded(here)
    for v in (*vectors(here, 2), vectors(here, 3), -vectors(here, 3)):
        torch.testing.assert_close(ours(v), here.hvp(None, v), rtol=1e-10, atol=1e-12)


def test_a_pass_is_recorded_for_each_shape_and_number_of_vectors():
    here, made = around(), []
    ours = recorded(here, lambda work, warm: made.append(None) or Tape(work, warm))
    for _ in range(3):
        ours(vectors(here, 1)[0])
    assert len(made) == 2  # of 4 samples and of the last 3
    ours(vectors(here, 2))
    assert len(made) == 4


def test_recordings_are_freed_with_their_products_without_pythons_collector():
    """A CUDA graph holds the memory of a whole pass, and may not be destroyed by chance while another is recorded."""
    here, made = around(), []

    def record(work, warm):
        made.append(weakref.ref(found := Again.record(work, warm)))
        return found

    ours = recorded(here, record)
    ours(vectors(here, 1)[0])
    assert len(made) == 2
    gc.disable()
    try:
        del ours
        assert [found() for found in made] == [None, None]
    finally:
        gc.enable()


def test_no_graph_of_autograd_is_left_where_a_pass_is_recorded():
    here, left = around(penalty=MAN(0.1)), []

    def record(work, warm):
        gc.collect()  # as before a capture
        left.append(bool(alive))
        return Again.record(work, warm)

    ours = recorded(here, record)
    alive = Alive(ours._flat.module)
    ours(vectors(here, 2))
    assert left == [False, False]
    held = ours._slope(*here.data.batch(slice(0, 2), here.dtype))
    assert alive  # the test would see one
    del held


def test_other_micro_batches_have_recordings_of_their_own():
    here = around()
    ours, v = recorded(here), vectors(here, 1)[0]
    ours(v)
    here._batches.size = 2
    torch.testing.assert_close(ours(v), here.hvp(None, v), rtol=1e-10, atol=1e-12)
    assert {x[0] for x, _, _ in ours._passes} == {2, 1}


class Decides(nn.Module):
    """Its forward pass looks at values, as an early exit does."""

    def forward(self, x):
        return x if x.mean() > 0 else 2 * x


def test_a_model_that_looks_at_values_is_refused():
    here = around(net(Decides()))
    with pytest.raises(FedscapeError, match="cannot be recorded: Python waits for the value of a tensor"):
        recorded(here)(here.weights)


def test_batches_with_an_objective_and_other_devices_are_refused():
    line = nn.Linear(1, 1)
    here = Landscape.of(line, [torch.ones(2, 1)], lambda net, x: net(x).square().mean(), device="cpu")
    with pytest.raises(FedscapeError, match="micro-batches of a fixed shape"):
        recorded(here)
    with pytest.raises(FedscapeError, match="CUDA graphs, and this landscape is on cpu"):
        around().hessian(recorded=True)
