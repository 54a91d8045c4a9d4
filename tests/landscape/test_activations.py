"""MAN's penalty and what flows through a model, against activations that are collected by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from landscape import FedscapeError, Landscape, build_model
from landscape.activations import MAN, Recorder, mean_square, weight_layers

N = 7


class ByFunctions(nn.Module):
    """Convolutions, a shortcut, a layer that runs twice; all non-linearities are functions, before the pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2 = nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.Conv2d(2, 2, 1)
        self.shortcut, self.again, self.head = nn.Conv2d(1, 2, 1), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.by_hand(x)[0]

    def by_hand(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = torch.sin(x)  # no layer has run: what acts on the input does not count, and sin is no activation
        first = functional.silu(self.norm(self.conv1(functional.elu(x))))
        second = torch.tanh(self.conv2(first) + self.shortcut(x))
        third = functional.gelu(self.again(functional.avg_pool2d(second, 2).flatten(1)))
        fourth = self.again(third).sigmoid()
        return self.head(fourth), [first, second, third, fourth]


class ByModules(nn.Sequential):
    """Non-linearities that are modules; the logits have none."""

    def __init__(self) -> None:
        below = nn.Conv2d(1, 2, 3), nn.Softplus(), nn.MaxPool2d(2), nn.Flatten()
        super().__init__(*below, nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3))

    def by_hand(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        first = functional.softplus(self[0](x))
        second = torch.tanh(self[4](functional.max_pool2d(first, 2).flatten(1)))
        return self[6](second), [first, second]


@dataclass(frozen=True)
class ByHand:
    """The objective as MAN's eq. 15 to 18 have it, over all samples at once."""

    net: ByFunctions | ByModules
    x: Tensor
    y: Tensor
    weights: list[float]

    def __call__(self, w: Tensor) -> Tensor:
        sizes = [p.numel() for p in self.net.parameters()]
        parts = zip(self.net.named_parameters(), w.split(sizes), strict=True)
        named = {f"net.{name}": part.view(p.shape) for (name, p), part in parts}
        logits, activations = functional_call(_Collecting(self.net), named, (self.x,))
        penalty = sum(c * (a**2).sum() / a.numel() for c, a in zip(self.weights, activations, strict=True))
        return functional.cross_entropy(logits, self.y) + penalty


class _Collecting(nn.Module):
    def __init__(self, net: ByFunctions | ByModules) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return self.net.by_hand(x)


def made(kind: Callable[[], ByFunctions | ByModules], weights: list[float]) -> ByHand:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net, x = kind().double(), torch.randn(N, 1, 4, 4, dtype=torch.float64)
        return ByHand(net, x, torch.randint(3, (N,)), weights)


CASES = {
    "functions": (ByFunctions, MAN(0.3), [0.3] * 4),
    "modules": (ByModules, MAN(0.3), [0.3] * 2),
    "halved as in the published code": (ByModules, MAN(0.3, half=True), [0.15] * 2),
    "some layers": (ByFunctions, MAN(2.0, layers=("conv*", "shortcut")), [2.0, 2.0, 0.0, 0.0]),
    "a layer that runs twice": (ByFunctions, MAN(2.0, layers=("again",)), [0.0, 0.0, 2.0, 2.0]),
    "of weight 0": (ByModules, MAN(0.0), [0.0] * 2),
}


@cache
def by_hand(name: str, at: float) -> tuple[float, Tensor, Tensor, Tensor]:
    """Value, gradient and Hessian of the objective, and its Hessian without the penalty, off the network by ``at``."""
    kind, _, weights = CASES[name]
    exact = made(kind, weights)
    w = torch.cat([p.detach().flatten() for p in exact.net.parameters()]) + at
    dense = torch.autograd.functional.hessian(exact, w)
    return exact(w).item(), torch.func.grad(exact)(w), dense, without_penalty(kind, len(weights), at)


@cache
def without_penalty(kind: type[nn.Module], activations: int, at: float) -> Tensor:
    exact = made(kind, [0.0] * activations)
    return torch.autograd.functional.hessian(
        exact, torch.cat([p.detach().flatten() for p in exact.net.parameters()]) + at
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("graph_memory", [0, "1GB"])
def test_value_gradient_and_hessian_are_those_of_the_objective_written_by_hand(name, graph_memory):
    kind, penalty, weights = CASES[name]
    exact = made(kind, weights)
    there = Landscape(exact.net, (exact.x, exact.y), device="cpu", batch_size=3, penalty=penalty)
    w, (value, gradient, dense, plain) = there.weights + 0.05, by_hand(name, 0.05)
    assert there.value(w) == pytest.approx(value, rel=1e-13)
    torch.testing.assert_close(there.gradient(w), gradient)
    products = there.hessian(w, graph_memory=graph_memory)(torch.eye(len(w), dtype=torch.float64))
    torch.testing.assert_close(products, dense, rtol=1e-10, atol=1e-12)
    if any(weights):
        assert (dense - plain).norm() > 0.1 * plain.norm(), "the penalty must matter for this to prove anything"


def test_of_arbitrary_batches_with_an_objective_it_is_added_alike():
    exact = made(ByModules, [0.3] * 2)
    batches = [(exact.x[:5], exact.y[:5]), (exact.x[5:], exact.y[5:])]
    there = Landscape.of(
        exact.net, batches, lambda net, b: functional.cross_entropy(net(b[0]), b[1]), device="cpu", penalty=MAN(0.3)
    )
    w = there.weights
    assert there.value() == pytest.approx(exact(w).item(), rel=1e-13)
    dense = torch.autograd.functional.hessian(exact, w)
    torch.testing.assert_close(there.hvp(None, torch.eye(len(w), dtype=torch.float64)), dense)


def test_a_non_linearity_of_the_loss_acts_on_logits_and_does_not_count():
    exact = made(ByModules, [0.3] * 2)

    def loss(logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional.relu(logits) - functional.relu(-logits), y)

    there = Landscape(exact.net, (exact.x, exact.y), loss, device="cpu", penalty=MAN(0.3))
    assert there.value() == pytest.approx(exact(there.weights).item(), rel=1e-13)


def test_accuracy_is_that_without_it_and_other_landscapes_of_the_same_function_keep_it():
    exact = made(ByModules, [0.3] * 2)
    plain = Landscape(exact.net, (exact.x, exact.y), device="cpu")
    there = Landscape(exact.net, (exact.x, exact.y), device="cpu", penalty=MAN(0.3))
    assert there.accuracy() == plain.accuracy()
    assert there.value() > plain.value()
    for other in (there.to("float64"), there.over(there.data), there.along(["0.weight"])):
        assert other.value() == pytest.approx(there.value(), rel=1e-13)
    there.data = there.data.subset(range(4))
    assert there.penalty == MAN(0.3)
    assert there.digest() != plain.digest()


def test_nothing_of_it_stays_on_the_model():
    net = ByModules().double()
    with pytest.raises(ZeroDivisionError), Recorder(net, mean_square):
        1 / 0  # noqa: B018
    with Recorder(net, mean_square) as seen:
        net(torch.randn(2, 1, 4, 4, dtype=torch.float64))
    assert list(seen.outputs) == ["0", "4"]
    before = dict(seen.outputs)
    net(torch.randn(2, 1, 4, 4, dtype=torch.float64))
    assert seen.outputs == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_of_a_residual_network_a_shortcut_belongs_to_the_activation_it_joins():
    net = build_model("resnet18_gn", seed=0, input_shape=[3, 8, 8], classes=10)
    with Recorder(net, mean_square) as seen:
        net(torch.randn(2, 3, 8, 8))
    assert len(seen.outputs) == 17
    assert "layer2.0.conv2 + layer2.0.downsample.0" in seen.outputs
    assert all(value.requires_grad for value in seen.outputs.values())
    assert "fc" in weight_layers(net)
    assert not any("bn" in name for name in weight_layers(net))


@pytest.mark.parametrize("zeta", [-0.1, float("nan"), float("inf")])
def test_zeta_that_is_no_weight_is_refused(zeta):
    with pytest.raises(FedscapeError, match=r"MAN's ζ is .*: it must be 0 or more"):
        MAN(zeta)


def test_where_there_is_nothing_to_penalise_it_is_told():
    data = torch.randn(3, 2), torch.tensor([0, 1, 0])
    linear = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(FedscapeError, match="the model has no activation that MAN could penalise"):
        Landscape(linear, data, device="cpu", penalty=MAN(0.1)).value()
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with pytest.raises(FedscapeError, match="no layer with an activation matches '2': there are 0"):
        Landscape(net, data, device="cpu", penalty=MAN(0.1, layers=("2",))).gradient()
    with pytest.raises(FedscapeError, match="take the Hessian, or leave out the penalty"):
        Landscape(net, data, device="cpu", penalty=MAN(0.1)).gauss_newton()


def test_it_says_what_it_is():
    assert str(MAN(0.1)) == "0.1 MAN"
    assert str(MAN(0.1, ("conv*", "fc"), half=True)) == "0.1/2 MAN of conv* fc"
