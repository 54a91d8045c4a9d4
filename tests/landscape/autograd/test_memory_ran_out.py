"""What tries a user's model tells a lack of memory from the model's own errors, and passes it on."""

import pytest
import torch
from torch import nn

from landscape import Samples
from landscape.autograd.flat import FlatModule
from landscape.autograd.folding import fold_batchnorm
from landscape.autograd.stacked import StackedModule
from landscape.models.outputs import require_outputs

IMAGES = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
LACKS = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("GET was unable to find an engine to execute this computation"),
]
calls = []


class Fails(nn.Module):
    """Raises an error in one of its calls."""

    def __init__(self, error, call):
        super().__init__()
        calls.clear()
        self.convolution, self.norm, self.dense = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(16, 2)
        self.error, self.call = error, call

    def forward(self, x):
        calls.append(x)
        if len(calls) == self.call:
            raise self.error
        return self.dense(self.norm(self.convolution(x)).flatten(1))


def flat(error):
    return FlatModule(Fails(error, 1), torch.device("cpu"), torch.float32)


def outputs(error):
    require_outputs(Fails(error, 1), "classification", 2, Samples(IMAGES, torch.tensor([0, 1])))


def formats(error):
    flat(error).module(IMAGES.contiguous(memory_format=torch.channels_last))


def several(error):
    StackedModule(flat(error)).refusal(IMAGES)


def folded(error):
    fold_batchnorm(Fails(error, 3).eval(), IMAGES)  # after the trace, and the module's own outputs


@pytest.mark.parametrize("error", LACKS)
@pytest.mark.parametrize("trial", [outputs, formats, several, folded])
def test_a_lack_of_memory_is_passed_on(trial, error):
    with pytest.raises(type(error), match=str(error)):
        trial(error)
