"""The hand-written double backward of convolutions against PyTorch's own and finite differences."""

import copy

import pytest
import torch
from torch import nn

from landscape.autograd.convolution import TwiceDifferentiableConv2d
from landscape.autograd.double_backward import use_fast_double_backward
from tests.landscape.autograd.test_groupnorm import second_derivatives

SHAPES = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "stride": 2, "bias": False},
    {"kernel_size": (3, 2), "padding": (2, 0), "dilation": 2},
    {"kernel_size": 1, "groups": 2},
    {"kernel_size": 3, "groups": 4, "stride": (1, 2), "padding": 1},
]


def pair(**options):
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 8, **options).double()
    ours = copy.deepcopy(plain)
    use_fast_double_backward(ours)
    assert type(ours) is TwiceDifferentiableConv2d
    return plain, ours


@pytest.mark.parametrize("options", SHAPES, ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_value_gradient_and_double_backward_are_pytorchs(options, layout):
    plain, ours = pair(**options)
    x = torch.randn(3, 4, 7, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.contiguous(memory_format=layout)
    for wanted, found in zip(second_derivatives(plain, x.contiguous()), second_derivatives(ours, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("options", SHAPES[:3], ids=str)
def test_double_backward_is_the_finite_difference_of_the_gradient(options):
    _, ours = pair(**options)
    x = torch.randn(1, 4, 4, 4, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in ours.named_parameters()]
    assert torch.autograd.gradgradcheck(
        lambda x, *p: torch.func.functional_call(ours, dict(zip(names, p, strict=True)), (x,)), (x, *ours.parameters())
    )


@pytest.mark.parametrize("frozen", ["weight", "bias", "input"])
def test_what_needs_no_gradient_gets_none_and_changes_no_other(frozen):
    found = []
    for layer in pair(kernel_size=3):
        x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        x.requires_grad_(frozen != "input")
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name != frozen)
        variables = [t for t in (x, *layer.parameters()) if t.requires_grad]
        gradients = torch.autograd.grad((layer(x) ** 3).sum(), variables, create_graph=True)
        products = torch.autograd.grad(sum((g**2).sum() for g in gradients), variables)
        found.append([*gradients, *products])
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{"padding": "same"}, {"padding": 1, "padding_mode": "circular"}], ids=str)
def test_other_paddings_are_pytorchs(options):
    plain, ours = pair(kernel_size=3, **options)
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    for wanted, found in zip(second_derivatives(plain, x), second_derivatives(ours, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


def test_other_layers_and_subclasses_are_left_alone():
    class Own(nn.Conv2d):
        pass

    net = nn.Sequential(nn.Conv1d(2, 2, 1), Own(2, 2, 1), nn.ConvTranspose2d(2, 2, 1))
    before = [type(layer) for layer in net]
    use_fast_double_backward(net)
    assert [type(layer) for layer in net] == before
