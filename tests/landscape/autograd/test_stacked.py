"""Several models at once: their outputs and gradients are those of each alone."""

import pytest
import torch
from torch import nn

from landscape.activations import MAN
from landscape.autograd.dense_chain import DenseChain
from landscape.autograd.dropout import alike, drawn
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


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        x = self.drop(self.first(x))
        return self.second(torch.nn.functional.dropout(self.drop(self.norm(x)), 0.5, self.training, inplace=True))


DROPPING = {
    "dense": (
        lambda: nn.Sequential(nn.Dropout(0.2), nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.ReLU(),
                              nn.Dropout(0.0), nn.Linear(6, 3), nn.Dropout(0.3)),
        (2, 2), DenseChain,
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Dropout(0.3), nn.Tanh(), nn.Dropout2d(0.5), nn.Dropout(0.0),
                              nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3), nn.Dropout(0.2)),
        (2, 4, 4), GroupedConvolutions,
    ),
    "all dropped on the way": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5, inplace=True), nn.Dropout(1.0), nn.Linear(6, 3)), (4,),
        DenseChain,
    ),
    "functional": (Functional, (4,), None),
    "alpha": (lambda: nn.Sequential(nn.Linear(4, 6), nn.SELU(), nn.AlphaDropout(0.4), nn.Linear(6, 3)), (4,), None),
}  # fmt: skip


@pytest.mark.parametrize(("make", "shape", "kind"), DROPPING.values(), ids=DROPPING)
def test_each_model_drops_what_it_drops_alone_in_batches_of_any_size(make, shape, kind):
    flat, w, inputs = case(make, shape)
    stack, counts = StackedModule(flat), [N, 2, 1]
    assert [type(chain) for chain in (stack._chain, stack._convolutions) if chain] == ([] if kind is None else [kind])
    batches = [x[:count] for x, count in zip(inputs, counts, strict=True)]
    if len(shape) == 3:
        batches = [x.contiguous(memory_format=torch.channels_last) for x in batches]
    plans = [stack.plan(x) for x in batches]
    assert alike(plans, counts)
    found = stack.run(w, inputs, noise=drawn(plans, [torch.Generator().manual_seed(k) for k in range(S)]))
    aims = torch.zeros_like(found.outputs)
    for k, count in enumerate(counts):
        aims[k, :, :count] = 2 * found.outputs[k, :, :count]
    slopes = found.gradient(aims)
    for k, count in enumerate(counts):
        flat.load(w[k])
        with torch.random.fork_rng([]):
            torch.manual_seed(k)
            outputs = flat.module.train()(batches[k].clone())
        torch.testing.assert_close(found.outputs[k].mT[:count], outputs, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(slopes[k], flat.gradient(outputs.square().sum()), rtol=1e-11, atol=1e-12)
    assert stack.refusal(batches[0]) is None


def test_samples_along_another_axis_are_not_refused():
    """Their batches must have the same size, which is for the caller to see."""

    class Last(nn.Linear):
        def forward(self, x):
            return super().forward(torch.nn.functional.dropout(x.mT, 0.5, self.training).mT)

    flat, _, inputs = case(lambda: Last(4, 3), (4,))
    stack = StackedModule(flat)
    assert not alike([stack.plan(inputs[0]), stack.plan(inputs[0, :2])], [N, 2])
    assert stack.refusal(inputs[0]) is None


def test_a_plan_has_no_draws_of_the_trial_of_memory_formats():
    """That trial runs in evaluation mode, in which this function drops all the same."""

    class Always(nn.Conv2d):
        def forward(self, x):
            return torch.nn.functional.dropout(super().forward(x), 0.5).flatten(1)

    flat, _, inputs = case(lambda: Always(2, 3, 2), (2, 2, 2))
    images = inputs[0].contiguous(memory_format=torch.channels_last)
    assert len(StackedModule(flat).plan(images)) == 1
    assert StackedModule(flat).refusal(images) is None


def test_a_look_at_the_classes_draws_no_random_numbers():
    flat, _, inputs = case(lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), (4,))
    before = torch.random.get_rng_state()
    assert StackedModule(flat).classes(inputs[0]) == 3
    assert StackedModule(flat).refusal(inputs[0]) is None
    assert torch.equal(torch.random.get_rng_state(), before)


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


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.3, batch_first=True)

    def forward(self, x):
        return self.layer(x)[:, 0]


class Jitter(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)

    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


def doubling() -> nn.Module:
    net = nn.Sequential(nn.Conv1d(1, 2, 1), nn.Flatten())
    net.register_forward_hook(lambda layer, args, output: 2 * output)
    return net


@pytest.mark.parametrize(
    ("make", "shape", "told"),
    [
        (Attention, (2, 4), "a layer of it draws random numbers by itself"),
        (Jitter, (4,), "otherwise than dropout does"),
        (lambda: nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Linear(4, 3)), (4,), "its inputs in place"),
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
