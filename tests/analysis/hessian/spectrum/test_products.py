"""How many products eigenvalues take, and how often one is wrong by more than its bound."""

import numpy as np
import pytest
import torch
from torch import nn

from analysis import extreme_eigenpairs
from benchmarks.hessian_lanczos import plain_lanczos
from landscape import Landscape, load_dataset
from landscape.compute.randomness import torch_generator
from tests.analysis.hessian.spectrum.spectra import dense_hessian

D, TOLERANCE = 1000, 1e-3
draw = np.random.default_rng(0)
SPECTRA = {
    "power law": 1 / np.arange(1.0, D + 1),
    "outliers and a bulk": np.r_[np.geomspace(30, 3, 12), draw.uniform(-1, 1, D - 12)],
    "clusters": np.r_[10, 9.9, 9.8, 5, 4.95, 4.9, np.geomspace(3, 0.5, 60), -0.3 * draw.random(D - 66)],
    "geometric": 0.8 ** np.arange(D),
    "five outliers": np.r_[40, 25, 11, 7, 5, np.linspace(-0.5, 0.5, 115)],
}


class Diagonal:
    """A diagonal matrix, as an operator."""

    def __init__(self, values):
        self.values, self.products = torch.from_numpy(values)[:, None], 0
        self.shape, self.dtype, self.device = (len(values), len(values)), torch.float64, torch.device("cpu")

    def matmat(self, vectors):
        self.products += vectors.shape[1]
        return self.values * vectors


class Recurrent(nn.Module):
    """An LSTM or a GRU that reads an image row by row, and one dense layer."""

    def __init__(self, kind):
        super().__init__()
        self.cells, self.dense = kind(8, 7, batch_first=True), nn.Linear(7, 10)

    def forward(self, x):
        return self.dense(self.cells(x[:, 0])[0][:, -1])


def trained(build):
    """The spectrum of a net with 500 to 600 parameters after 20 steps of Adam on the digits, by LAPACK, descending."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = build()
    x, y = load_dataset("digits").train.batch(slice(0, 200), torch.float32)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    matrix = dense_hessian(Landscape(net.double(), (x.double(), y), device="cpu"))
    return np.linalg.eigvalsh((matrix + matrix.T) / 2)[::-1].copy()


NETS = {
    "LSTM": lambda: Recurrent(nn.LSTM),
    "GRU": lambda: Recurrent(nn.GRU),
    "dense net": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.GELU(), nn.Linear(7, 10)),
}


@pytest.mark.parametrize("k", [5, 10])
@pytest.mark.parametrize("name", ["power law", "outliers and a bulk"])
def test_products_are_about_those_that_honest_bounds_need(name, k):
    values, ours, honest = np.sort(SPECTRA[name])[::-1].copy(), 0, 0
    for seed in range(5):
        start = torch.randn(D, generator=torch_generator(seed, "lanczos"), dtype=torch.float64).numpy()
        needed = plain_lanczos(values, start, k, TOLERANCE)
        assert k <= needed.true <= needed.honest
        found = extreme_eigenpairs(Diagonal(values), k, tolerance=TOLERANCE, seed=seed)
        np.testing.assert_allclose(found.values, values[:k], rtol=TOLERANCE)
        ours, honest = ours + found.products - found.searched, honest + needed.honest
    assert honest <= ours <= 1.25 * honest


def test_honest_bounds_of_a_matrix_with_three_eigenvalues_need_three_steps():
    spectrum = np.array([3.0, 2.0, 2.0, 1.0])
    assert plain_lanczos(spectrum, np.ones(4), 1, 1e-12).honest == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPECTRA, *NETS])
def test_of_200_starts_at_most_one_gives_a_value_that_is_wrong_by_more_than_its_bound(name):
    values = trained(NETS[name]) if name in NETS else np.sort(SPECTRA[name])[::-1].copy()
    rounding = 20 * np.finfo(float).eps * values[0]
    for k in (3, 5, 10):
        wrong = 0
        for seed in range(200):
            found = extreme_eigenpairs(Diagonal(values), k, tolerance=TOLERANCE, seed=seed)
            assert found.converged.all()
            wrong += bool((np.abs(found.values - values[:k]) > found.bounds + rounding).any())
        assert wrong <= 1, f"k = {k}"
