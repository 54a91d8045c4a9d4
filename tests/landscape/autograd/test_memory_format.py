"""Models that need contiguous images, on a CPU that likes the channels last."""

import pytest
import torch
from torch import nn

from analysis import Hessian
from analysis.hessian.layers import activation_norms
from landscape import Landscape, Samples
from landscape.autograd.flat import FlatModule


class Views(nn.Module):
    """What users write: ``view`` behind a convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.dense = nn.Conv2d(3, 4, 3), nn.Linear(4 * 9, 2)
        self.seen = []

    def forward(self, x):
        self.seen.append(x.is_contiguous())
        return self.dense(torch.relu(self.conv(x)).view(len(x), -1))


class Reshapes(Views):
    def forward(self, x):
        self.seen.append(x.is_contiguous())
        return self.dense(torch.relu(self.conv(x)).reshape(len(x), -1))


def samples():
    draw = torch.Generator().manual_seed(0)
    return Samples(torch.randn(10, 3, 5, 5, generator=draw), torch.arange(10) % 2)


@pytest.mark.parametrize("first", ["value", "activations"])
def test_a_model_that_calls_view_is_measured_like_one_that_reshapes(first):
    views, reshapes = Views(), Reshapes()
    reshapes.load_state_dict(views.state_dict())
    plain, fast = (Landscape(net, samples(), device="cpu", batch_size=4, dtype="float64") for net in (views, reshapes))
    if first == "activations":  # under hooks that hold tensors
        assert activation_norms(plain).outputs == pytest.approx(activation_norms(fast).outputs, rel=1e-12)
    assert plain.value() == pytest.approx(fast.value(), rel=1e-12)
    v = torch.ones(plain.dimension, dtype=torch.float64)
    torch.testing.assert_close(Hessian(plain) @ v, Hessian(fast) @ v, rtol=1e-10, atol=1e-12)
    assert not any(fast._flat.module.seen)
    assert all(plain._flat.module.seen)
    assert views.seen == []


def test_other_errors_are_the_models_own():
    flat = FlatModule(nn.Sequential(nn.Conv2d(1, 2, 3)), torch.device("cpu"), torch.float32)
    images = torch.zeros(2, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="to have 1 channels"):
        flat.module(images)
