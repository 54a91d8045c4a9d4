"""Value, gradient and Hessian against formulas written with NumPy, for losses that have them."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax
from torch import nn

from landscape import Landscape

N, FEATURES, OUTPUTS = 13, 4, 3
EXACT = {"rtol": 1e-12, "atol": 1e-12}
OPTIONS = {"device": "cpu", "batch_size": 5}
mean_square = nn.functional.mse_loss


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(5)


def dense(landscape: Landscape, w: np.ndarray) -> np.ndarray:
    return landscape.hvp(torch.from_numpy(w), torch.eye(landscape.dimension, dtype=torch.float64)).numpy()


def weight_then_bias(augmented: np.ndarray) -> np.ndarray:
    """The order of [outputs, features + 1] in the flat vector of ``nn.Linear``: the weight, then the bias."""
    places = np.arange(augmented.size).reshape(augmented.shape)
    return np.concatenate([places[:, :-1].ravel(), places[:, -1]])


def test_least_squares(draw):
    x, y, w = draw.normal(size=(N, FEATURES)), draw.normal(size=(N, OUTPUTS)), draw.normal(size=(OUTPUTS, FEATURES))
    model = nn.Linear(FEATURES, OUTPUTS, bias=False).double()
    bowl = Landscape(model, (torch.from_numpy(x), torch.from_numpy(y)), mean_square, **OPTIONS)
    residual, point = x @ w.T - y, w.ravel()
    assert_allclose(bowl.value(torch.from_numpy(point)), (residual**2).mean(), **EXACT)
    gradient = 2 / (N * OUTPUTS) * (residual.T @ x).ravel()
    assert_allclose(bowl.gradient(torch.from_numpy(point)).numpy(), gradient, **EXACT)
    assert_allclose(dense(bowl, point), 2 / (N * OUTPUTS) * np.kron(np.eye(OUTPUTS), x.T @ x), **EXACT)


def test_softmax_regression(draw):
    x, y = draw.normal(size=(N, FEATURES)), draw.integers(OUTPUTS, size=N)
    w = draw.normal(size=(OUTPUTS, FEATURES + 1))
    order, ones = weight_then_bias(w), np.concatenate([x, np.ones((N, 1))], axis=1)
    model = nn.Linear(FEATURES, OUTPUTS).double()
    landscape = Landscape(model, (torch.from_numpy(x), torch.from_numpy(y)), **OPTIONS)
    logits, point = ones @ w.T, w.ravel()[order]
    p = softmax(logits, axis=1)

    value = (logsumexp(logits, axis=1) - logits[np.arange(N), y]).mean()
    assert_allclose(landscape.value(torch.from_numpy(point)), value, **EXACT)
    assert landscape.accuracy(torch.from_numpy(point)) == (logits.argmax(1) == y).mean()

    gradient = (p - np.eye(OUTPUTS)[y]).T @ ones / N
    assert_allclose(landscape.gradient(torch.from_numpy(point)).numpy(), gradient.ravel()[order], **EXACT)

    blocks = [np.kron(np.diag(q) - np.outer(q, q), np.outer(z, z)) for q, z in zip(p, ones, strict=True)]
    assert_allclose(dense(landscape, point), np.mean(blocks, axis=0)[np.ix_(order, order)], **EXACT)


def test_a_loss_linear_in_the_parameters_has_a_zero_hessian_and_a_constant_one_a_zero_gradient():
    x, v = torch.randn(N, FEATURES), torch.ones(2, FEATURES)
    line = Landscape(nn.Linear(FEATURES, 1, bias=False), (x, x), lambda outputs, _: outputs.mean(), **OPTIONS)
    assert torch.equal(line.hvp(None, v), torch.zeros_like(v))
    torch.testing.assert_close(line.gradient(), x.mean(0))
    plain = Landscape(nn.Linear(FEATURES, 1, bias=False), (x, x), lambda outputs, _: outputs.detach().mean(), **OPTIONS)
    assert torch.equal(plain.gradient(), torch.zeros(FEATURES))
    assert torch.equal(plain.hvp(None, v), torch.zeros_like(v))


def test_accuracy_counts_every_position_of_a_sequence_and_needs_classes():
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x

    best = torch.tensor([0, 1, 2, 0])
    scores = torch.nn.functional.one_hot(best, 3).float().T.expand(2, 3, 4)  # at each of four positions, per class
    targets = torch.tensor([[0, 1, 2, 0], [0, 0, 0, 1]])
    assert Landscape(Scores(), (scores, targets), device="cpu", batch_size=1).accuracy() == 5 / 8
    with pytest.raises(ValueError, match="accuracy needs integer class targets"):
        Landscape(Scores(), (scores, scores), mean_square, **OPTIONS).accuracy()
