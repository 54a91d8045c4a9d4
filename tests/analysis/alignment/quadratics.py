"""Federations with known answers: f_i(w) = ½ (w − m_i)ᵀ A_i (w − m_i), in float64."""

import numpy as np
import torch

from analysis.alignment import Federation
from landscape import Landscape


class Point(torch.nn.Module):
    def __init__(self, dimension):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(dimension))


def bowl(net, batch):
    apart = net.w - batch["m"]
    return 0.5 * apart @ batch["A"] @ apart


def federation(matrices, centres, weights=None, measured=None):
    n = len(matrices)
    batches = [
        {"A": torch.as_tensor(np.array(a)).double(), "m": torch.as_tensor(np.array(m)).double()}
        for a, m in zip(matrices, centres, strict=True)
    ]
    options = {"device": "cpu", "dtype": "float64"}
    whole = Landscape.of(Point(len(centres[0])), batches, bowl, size=lambda batch: 1, **options)
    p = np.full(n, 1 / n) if weights is None else weights
    chosen = tuple(range(n)) if measured is None else measured
    return Federation(whole, {i: torch.tensor([i]) for i in range(n)}, dict(enumerate(map(float, p))), chosen)


def random_bowls(n, dimension, seed=0):
    """Positive definite matrices with eigenvalues well apart, and centres."""
    generator = np.random.default_rng(seed)
    matrices, centres = [], []
    for _ in range(n):
        q, _ = np.linalg.qr(generator.standard_normal((dimension, dimension)))
        matrices.append((q * 2.0 ** np.arange(dimension)) @ q.T)
        centres.append(generator.standard_normal(dimension))
    return matrices, centres


def top(matrix, k):
    """The K largest eigenvalues, descending, and their eigenvectors as columns, by NumPy."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1][:k], vectors[:, ::-1][:, :k]
