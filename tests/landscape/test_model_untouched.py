"""The user's module, data, vectors and random numbers are bit for bit what they were, whatever is measured."""

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from landscape import Landscape
from landscape.data.samples import random_subset


def users_model() -> nn.Module:
    """In training mode with one layer in evaluation mode, gradients, a frozen parameter and running statistics."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Tanh(), nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.1))
    )
    model(torch.randn(8, 4)).sum().backward()
    model[0].bias.requires_grad_(False)
    model[4].eval()
    return model


def state(model: nn.Module, *tensors: Tensor) -> list[Any]:
    """Everything that a measurement might disturb, as comparable values."""
    return [
        {name: (raw(t), t.data_ptr()) for name, t in model.state_dict().items()},
        {name: (p.requires_grad, p.dtype, raw(p.grad)) for name, p in model.named_parameters()},
        {name: module.training for name, module in model.named_modules()},
        [(raw(t), t.requires_grad, t.grad) for t in tensors],
        raw(torch.get_rng_state()),
        pickle.dumps(np.random.get_state()),  # noqa: NPY002 (that nobody touches it is the point)
        random.getstate(),
        torch.is_grad_enabled(),
    ]


def raw(tensor: Tensor | None) -> bytes | None:
    return None if tensor is None else tensor.numpy().tobytes()


@pytest.fixture
def model() -> nn.Module:
    return users_model()


X, Y = torch.randn(9, 4, generator=torch.Generator().manual_seed(1)), torch.arange(9) % 3
DIMENSION = 6 * 4 + 2 * 6 + 6 * 3 + 3
W = torch.randn(DIMENSION, generator=torch.Generator().manual_seed(2))
MEASUREMENTS = {
    "construction": lambda function: function,
    "value": lambda function: function.value(W),
    "accuracy": lambda function: function.accuracy(W),
    "gradient": lambda function: function.gradient(W),
    "product": lambda function: function.hvp(W, W),
    "products": lambda function: function.hvp(None, W.expand(3, -1)),
    "subset": lambda function: random_subset(function.data, 4),
}


@pytest.mark.parametrize("name", MEASUREMENTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_of_the_users_changes(model, name, dtype):
    before = state(model, X, Y, W)
    MEASUREMENTS[name](Landscape(model, (X, Y), dtype=dtype, batch_size=4, device="cpu"))
    assert state(model, X, Y, W) == before


def test_the_comparison_sees_what_a_careless_measurement_does(model):
    """Training mode moves the running statistics, backward the gradients, dropout the generator."""
    before = state(model, X, Y, W)
    nn.functional.cross_entropy(model(X), Y).backward()
    changed = [old != new for old, new in zip(before, state(model, X, Y, W), strict=True)]
    assert changed == [True, True, False, False, True, False, False, False]


@pytest.mark.parametrize("name", [name for name in MEASUREMENTS if name not in ("construction", "subset")])
def test_the_function_is_the_same_however_often_and_in_whatever_order_it_is_measured(model, name):
    function = Landscape(model, (X, Y), batch_size=4, device="cpu")
    own, first = function.weights.clone(), MEASUREMENTS[name](function)
    for measurement in MEASUREMENTS.values():
        measurement(function)
    assert torch.equal(torch.as_tensor(MEASUREMENTS[name](function)), torch.as_tensor(first))
    assert torch.equal(function.weights, own)


def test_running_statistics_are_used_and_do_not_drift(model):
    function = Landscape(model, (X, Y), batch_size=4, device="cpu")
    evaluated = copy.deepcopy(model).eval()
    expected = nn.functional.cross_entropy(evaluated(X), Y).item()
    assert function.value() == pytest.approx(expected, rel=1e-6)
    function.gradient()
    assert function.value() == pytest.approx(expected, rel=1e-6)


def test_results_are_the_callers_to_overwrite(model):
    function = Landscape(model, (X, Y), device="cpu")
    gradient = function.gradient(W)
    kept = gradient.clone()
    function.gradient()
    assert torch.equal(gradient, kept)
    gradient.zero_()
    assert torch.equal(function.gradient(W), kept)


def test_training_the_model_afterwards_does_not_move_the_landscape(model):
    function = Landscape(model, (X, Y), device="cpu")
    before = function.value()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.zero_()
    assert function.value() == before
