"""The whole Hessian from ``Landscape.hvp`` against two independent ones: double backward and finite differences."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape import FedscapeError, Landscape
from tests.landscape.nets import NETS, Case, case


@pytest.fixture(scope="module", params=NETS)
def net(request) -> Case:
    """Each network in turn."""
    return case(request.param)


@pytest.fixture(scope="module")
def landscape(net) -> Landscape:
    return Landscape(net.model, (net.x, net.y), batch_size=4, device="cpu")


@pytest.fixture(scope="module")
def hessian(net, landscape) -> Tensor:
    return landscape.hvp(net.w, torch.eye(len(net.w), dtype=torch.float64))


def objective(net: Case) -> Callable[[Tensor], Tensor]:
    """The mean loss of all samples at once as a function of the flat vector, written without ``landscape``."""
    model = copy.deepcopy(net.model).eval()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def loss(w: Tensor) -> Tensor:
        parts = w.split([p.numel() for p in named.values()])
        point = {name: part.view_as(p) for (name, p), part in zip(named.items(), parts, strict=True)}
        return torch.nn.functional.cross_entropy(functional_call(model, point, (net.x,)), net.y)

    return loss


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    """Equal to ``tolerance`` of the largest entry, which must not be 0."""
    scale = expected.abs().max().item()
    assert scale > 1e-2
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * scale)


def test_value_and_gradient_are_those_of_all_samples_at_once(net, landscape):
    w = net.w.clone().requires_grad_()
    value = objective(net)(w)
    assert landscape.value(net.w) == pytest.approx(value.item(), rel=1e-12)
    close(landscape.gradient(net.w), torch.autograd.grad(value, w)[0], 1e-12)


def test_hessian_is_the_dense_double_backward(net, hessian):
    w = net.w.clone().requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        (gradient,) = torch.autograd.grad(objective(net)(w), w, create_graph=True)
        rows = [torch.autograd.grad(component, w, retain_graph=True)[0] for component in gradient]
    close(hessian, torch.stack(rows), 1e-12)


def test_hessian_is_the_central_difference_of_the_gradient(net, landscape, hessian):
    step = 1e-5 * torch.eye(len(net.w), dtype=torch.float64)
    rows = [(landscape.gradient(net.w + e) - landscape.gradient(net.w - e)) / 2e-5 for e in step]
    close(hessian, torch.stack(rows), 1e-7)


def test_hessian_is_symmetric(hessian):
    close(hessian, hessian.T, 1e-12)


def test_one_vector_and_stacked_ones_give_the_same_products(net, landscape, hessian):
    v = torch.randn(3, 2, len(net.w), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    close(landscape.hvp(net.w, v), v @ hessian, 1e-12)
    close(landscape.hvp(net.w, v[0]), v[0] @ hessian, 1e-12)
    close(landscape.hvp(net.w, v[0, 0]), v[0, 0] @ hessian, 1e-12)
    assert landscape.hvp(net.w, v[0, :0]).shape == (0, len(net.w))


def test_derivatives_exist_where_the_caller_switched_gradients_off(net, landscape, hessian):
    with torch.no_grad():
        gradient, products = landscape.gradient(net.w), landscape.hvp(net.w, torch.ones_like(net.w))
    assert torch.equal(gradient, landscape.gradient(net.w))
    assert not gradient.requires_grad
    assert not products.requires_grad
    close(products, hessian.sum(0), 1e-12)


@pytest.mark.parametrize("net", ["LayerNorm"], indirect=True)
class TestShapes:
    def test_a_vector_of_another_space_is_refused(self, net, landscape):
        with pytest.raises(FedscapeError, match=r"\(7,\) is not in this space of 69 parameters"):
            landscape.hvp(None, torch.ones(7))

    @pytest.mark.parametrize("shape", [(7,), (1, 69), (2, 69), ()])
    def test_a_point_is_one_vector(self, net, landscape, shape):
        for method in (landscape.value, landscape.gradient, lambda w: landscape.hvp(w, torch.ones(69))):
            with pytest.raises(FedscapeError, match="a point is one vector of 69 parameters"):
                method(torch.zeros(shape))
