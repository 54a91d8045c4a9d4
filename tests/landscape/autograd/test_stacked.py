"""Several models at once: their outputs and gradients are those of each alone."""

import pytest
import torch
from torch import nn

from landscape.activations import MAN
from landscape.autograd.dense_chain import DenseChain
from landscape.autograd.flat import FlatModule
from landscape.autograd.grouped import GroupedConvolutions
from landscape.autograd.stacked import StackedModule
from landscape.space import ParameterSpace

S, N = 3, 5


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 3), nn.LayerNorm(4)

    def forward(self, x):
        return self.second(self.norm(x + torch.relu(self.first(x))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def frozen() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    net[0].weight.requires_grad_(False)
    return net


CHAINS = {
    "dense": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)), (2, 2, 2)),
    "one layer": (lambda: nn.Linear(4, 3), (4,)),
    "nested, no bias": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 6, bias=False), nn.Sigmoid()), nn.Linear(6, 3)), (4,)
    ),
    "ends and begins with a non-linearity": (
        lambda: nn.Sequential(nn.Tanh(), nn.Linear(4, 6), nn.ReLU(), nn.Tanh(), nn.Linear(6, 3), nn.Sigmoid()), (4,)
    ),
}  # fmt: skip
CONVOLUTIONS = {
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
        (1, 4, 4),
    ),
    "stride, groups, dilation": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=(2, 1), groups=2), nn.GELU(),
            nn.Conv2d(4, 6, 2, dilation=2, bias=False, groups=2), nn.Flatten(), nn.Linear(36, 3, bias=False), nn.Tanh(),
        ),
        (2, 7, 7),
    ),
    "pools": (
        lambda: nn.Sequential(
            nn.MaxPool2d(2), nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.ReLU(inplace=True)),
            nn.MaxPool2d(3, 2), nn.AvgPool2d(2, 1), nn.GroupNorm(4, 4, affine=False), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3),
        ),
        (3, 12, 10),
    ),
}  # fmt: skip
OTHERS = {
    "instance normalisation": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2), nn.Flatten(), nn.Linear(8, 3)), (1, 4, 4)
    ),
    "mirrored edges": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(32, 3)),
        (1, 4, 4),
    ),
    "residual": (Residual, (4,)),
    "shared weights": (Tied, (4,)),
    "frozen weights": (frozen, (4,)),
    "a used-twice layer": (lambda: nn.Sequential(*[nn.Linear(4, 4)] * 2), (4,)),
    "GELU": (lambda: nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3)), (4,)),
}  # fmt: skip
EVERY = {**CHAINS, **CONVOLUTIONS, **OTHERS}


def case(make, shape):
    torch.manual_seed(0)
    flat = FlatModule(make(), torch.device("cpu"), torch.float64)
    w = flat.buffer + 0.3 * torch.randn(S, flat.space.dimension, dtype=torch.float64)
    return flat, w, torch.randn(S, N, *shape, dtype=torch.float64)


@pytest.mark.parametrize(("make", "shape"), EVERY.values(), ids=EVERY)
def test_outputs_and_gradients_are_those_of_each_model_alone(make, shape):
    flat, w, inputs = case(make, shape)
    found = StackedModule(flat).run(w, inputs)
    slopes = found.gradient(2 * found.outputs)
    for k in range(S):
        flat.load(w[k])
        outputs = flat.module(inputs[k])
        torch.testing.assert_close(found.outputs[k].mT, outputs, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(slopes[k], flat.gradient(outputs.square().sum()), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("make", "shape"), CHAINS.values(), ids=CHAINS)
def test_chains_of_dense_layers_are_recognised(make, shape):
    module = make()
    assert DenseChain.of(module, ParameterSpace.of(module)) is not None


@pytest.mark.parametrize("name", ["dense", "nested, no bias", "pools"])
@pytest.mark.parametrize(
    "rows", [lambda w: w[:2], lambda w: w[1:], lambda w: w[:1].expand(S, -1), lambda w: w.mT.contiguous().mT]
)
def test_parameters_may_lie_anyhow_in_memory(name, rows):
    flat, w, inputs = case(*EVERY[name])
    stack, some = StackedModule(flat), rows(w)
    inputs = inputs[: len(some)]
    expected, found = stack.run(some.clone().contiguous(), inputs), stack.run(some, inputs)
    torch.testing.assert_close(found.outputs, expected.outputs, rtol=1e-12, atol=1e-13)
    slopes = [each.gradient(expected.outputs) for each in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-13)


def test_a_pass_changes_neither_inputs_nor_parameters():
    for name in (*CHAINS, *CONVOLUTIONS):
        flat, w, inputs = case(*EVERY[name])
        before = w.clone(), inputs.clone()
        found = StackedModule(flat).run(w, inputs)
        found.gradient(torch.ones_like(found.outputs))
        assert torch.equal(w, before[0])
        assert torch.equal(inputs, before[1])


@pytest.mark.parametrize(("make", "shape"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_chains_of_convolutions_are_recognised(make, shape):
    module = make()
    assert GroupedConvolutions.of(module, ParameterSpace.of(module)) is not None


@pytest.mark.parametrize("make", [make for make, _ in (CHAINS | OTHERS).values()], ids=[*CHAINS, *OTHERS])
def test_what_has_no_convolutions_or_other_layers_is_not_taken_for_one(make):
    module = make()
    assert GroupedConvolutions.of(module, ParameterSpace.of(module)) is None


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 3))
    net[0].register_forward_hook(lambda layer, args, output: 2 * output)
    return net


NO_DENSE = {**CONVOLUTIONS, **OTHERS, "hook": (hooked, (4,))}


@pytest.mark.parametrize("make", [make for make, _ in NO_DENSE.values()], ids=NO_DENSE)
def test_what_is_no_chain_is_not_taken_for_one(make):
    module = make()
    assert DenseChain.of(module, ParameterSpace.of(module)) is None


def test_the_penalty_on_activations_is_that_of_each_model_alone():
    flat, w, inputs = case(*CHAINS["dense"])
    man = MAN(0.3)
    found = StackedModule(flat).run(w, inputs, man=man)
    slopes = found.gradient(torch.ones_like(found.outputs))
    for k in range(S):
        flat.load(w[k])
        with man.watching(flat.module) as penalty:
            outputs = flat.module(inputs[k])
        torch.testing.assert_close(found.penalty[k], penalty(), rtol=1e-12, atol=0)
        torch.testing.assert_close(slopes[k], flat.gradient(outputs.sum() + penalty()), rtol=1e-11, atol=1e-12)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else 2 * self.layer(x)


def doubling() -> nn.Module:
    net = nn.Sequential(nn.Conv1d(1, 2, 1), nn.Flatten())
    net.register_forward_hook(lambda layer, args, output: 2 * output)
    return net


@pytest.mark.parametrize(
    ("make", "shape", "told"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), (4,), "random numbers"),
        (Branching, (4,), "vmap cannot run it"),
        (doubling, (1, 4), "something else"),
    ],
)
def test_what_cannot_be_stacked_is_refused_with_the_reason(make, shape, told):
    flat, _, inputs = case(make, shape)
    assert told in StackedModule(flat).refusal(inputs[0])


@pytest.mark.parametrize("name", ["dense", "convolution", "pools", "residual"])
def test_what_can_be_stacked_is_not_refused(name):
    flat, _, inputs = case(*EVERY[name])
    assert StackedModule(flat).refusal(inputs[0]) is None


def test_a_trial_leaves_running_statistics_as_they_are():
    flat = FlatModule(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), torch.device("cpu"), torch.float64)
    stack = StackedModule(flat)
    assert stack.refusal(torch.randn(N, 4, dtype=torch.float64)) is None
    for module in (flat.module, stack._module):
        assert torch.equal(module[1].running_mean, torch.zeros(3, dtype=torch.float64))
        assert module[1].num_batches_tracked == 0
