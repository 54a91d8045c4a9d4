"""The hand-written double backward of GroupNorm against PyTorch's own and finite differences."""

import copy

import pytest
import torch
from torch import nn

from landscape.autograd.double_backward import use_fast_double_backward
from landscape.autograd.groupnorm import SafeGroupNorm, TwiceDifferentiableGroupNorm
from tests.processes import python, run_process


def pair(groups, channels):
    plain = nn.GroupNorm(groups, channels).double()
    draw = torch.Generator().manual_seed(groups)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.copy_(torch.randn(channels, generator=draw, dtype=torch.float64))
    ours = copy.deepcopy(plain)
    use_fast_double_backward(ours)
    assert isinstance(ours, TwiceDifferentiableGroupNorm)
    return plain, ours


def layouts(shape):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return [x, x.contiguous(memory_format=torch.channels_last)] if len(shape) == 4 else [x]


def second_derivatives(layer, x):
    """Value, gradient, and the gradient of a random combination of the gradients, for a curved loss."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    loss = (layer(x).sin() ** 2).sum() + (layer(x) ** 3).mean()
    variables = [x, *layer.parameters()]
    gradients = torch.autograd.grad(loss, variables, create_graph=True)
    draw = torch.Generator().manual_seed(1)
    vectors = [torch.randn(g.shape, generator=draw, dtype=g.dtype) for g in gradients]
    products = torch.autograd.grad(gradients, variables, vectors)
    return [loss, *gradients, *products]


@pytest.mark.parametrize("shape", [(3, 6, 5, 4), (2, 4, 1, 1), (1, 4, 7, 7), (4, 6), (2, 6, 9)])
@pytest.mark.parametrize("groups", [1, 2])
def test_value_gradient_and_double_backward_are_pytorchs(shape, groups):
    plain, ours = pair(groups, shape[1])
    for x in layouts(shape):
        for wanted, found in zip(second_derivatives(plain, x.contiguous()), second_derivatives(ours, x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def test_double_backward_is_the_finite_difference_of_the_gradient():
    _, ours = pair(2, 4)
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda x, w, b: torch.func.functional_call(ours, {"weight": w, "bias": b}, (x,)), (x, *ours.parameters())
    )


def test_only_the_cpus_kernel_gets_images_with_the_channels_last():
    """Another device's raises: here that of PyTorch's device without memory."""
    ours = pair(2, 4)[1].to("meta")
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64, device="meta").contiguous(memory_format=torch.channels_last)
    found = ours(x.requires_grad_())
    (slope,) = torch.autograd.grad(found.sin().sum(), x, create_graph=True)
    assert found.is_contiguous()
    assert torch.autograd.grad(slope.sum(), x)[0].shape == x.shape


def test_layers_that_are_not_plain_group_norms_are_left_alone():
    net = nn.Sequential(nn.GroupNorm(2, 4, affine=False), nn.LayerNorm(4), nn.BatchNorm2d(4))
    before = [type(layer) for layer in net]
    use_fast_double_backward(net)
    assert [type(layer) for layer in net] == before


UNASKED = """
import torch
from tests.landscape.autograd.test_groupnorm import unasked
unasked("{kind}")
print("alive")
"""


def unasked(kind):
    """Slopes by a layer's own parameters alone, behind an input that depends on others."""
    plain = nn.GroupNorm(2, 4).double()
    safe = copy.deepcopy(plain)
    safe.__class__ = SafeGroupNorm
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(5, 4, *{"pixel": (1, 1), "images": (6, 6)}[kind], generator=draw, dtype=torch.float64)
    scale = torch.randn(4, 1, 1, generator=draw, dtype=torch.float64).requires_grad_()
    wanted = torch.autograd.grad((plain(x * scale) ** 3).sum(), [*plain.parameters(), scale])
    last = x.contiguous(memory_format=torch.channels_last)
    if kind == "pixel":
        last = x.as_strided(x.shape, (4, 1, 4, 4))
    for asked in (slice(0, 2), slice(0, 1), slice(1, 2), slice(0, 3), slice(2, 3)):
        loss = (safe(last * scale) ** 3).sum()
        found = torch.autograd.grad(loss, [*safe.parameters(), scale][asked])
        torch.testing.assert_close(found, wanted[asked], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["images", "pixel"])
def test_slopes_by_the_parameters_alone_do_not_end_the_process(kind):
    assert run_process(python, UNASKED.format(kind=kind)) == (0, "alive\n")
