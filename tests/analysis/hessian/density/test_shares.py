"""Shares of eigenvalues below −δ, within ±δ and above δ, against dense spectra; errors of what densities tell."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from analysis import Dense, estimate_density, measure_hessian
from analysis.hessian.density.shares import _undecided, resolved_delta
from landscape import Landscape
from tests.analysis.hessian.spectrum.spectra import dense_hessian, matrix, small_landscape

NAMES = ("below", "within", "above")


def truth(eigenvalues: np.ndarray, delta: float) -> dict[str, float]:
    return {
        "below": (eigenvalues < -delta).mean(),
        "within": (np.abs(eigenvalues) <= delta).mean(),
        "above": (eigenvalues > delta).mean(),
    }


def covered(operator, eigenvalues, seeds: int, dtype=torch.float64, steps: int = 40) -> dict[str, float]:
    """How often the intervals of the shares hold the truth at their δ, and how wide they are on the average."""
    found = {name: [] for name in NAMES} | {"width": []}
    for seed in range(seeds):
        density = estimate_density(operator, probes=8, steps=steps, tolerance=0, seed=seed)
        shares = density.shares(len(eigenvalues), torch.finfo(dtype).eps)
        exact = truth(eigenvalues, shares.delta)
        for name in NAMES:
            share = getattr(shares, name)
            found[name].append(share.low <= exact[name] <= share.high)
        found["width"].append(max(getattr(shares, name).high - getattr(shares, name).low for name in NAMES))
    return {name: float(np.mean(values)) for name, values in found.items()}


def linear_regression(dtype: torch.dtype) -> Landscape:
    """400 inputs of which 5 vary, and a bias: the Hessian is positive semi-definite and has rank 6 in 401."""
    draw = torch.Generator().manual_seed(0)
    x = torch.zeros(200, 400, dtype=torch.float64)
    x[:, :5] = torch.randn(200, 5, generator=draw, dtype=torch.float64)
    y = x[:, :5].sum(dim=1, keepdim=True) + 0.3
    return Landscape(nn.Linear(400, 1).to(dtype), (x.to(dtype), y.to(dtype)), nn.functional.mse_loss, device="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_positive_semi_definite_hessian_has_no_negative_share(dtype):
    for seed in range(3):
        report = measure_hessian(linear_regression(dtype), 2, density=True, trace=False, seed=seed)
        shares = report.shares
        assert shares.delta < 1e-5 * report.eigen.values[0]
        assert (shares.below.value, shares.below.low) == (0, 0)
        assert shares.below.high < 0.006
        assert abs(shares.within.value - 395 / 401) <= 3 * shares.within.stderr + 1e-12 < 0.015
        assert abs(shares.above.value - 6 / 401) <= 3 * shares.above.stderr + 1e-12
        rows = {name: (value, error) for name, value, error in report.rows()}
        assert "λ < 0" not in rows
        assert rows[f"λ < −{shares.delta:.1e}"][0] == "0.00%"
        assert report.to_dict()["density"]["shares"]["below"]["high"] == shares.below.high


def digits_net(steps: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """The dense Hessian of a trained net of 760 parameters, and its eigenvalues: a third within 1e-6 of 0."""
    images = load_digits()
    x, y = torch.from_numpy(images.data / 16), torch.from_numpy(images.target)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 10), nn.ReLU(), nn.Linear(10, 10)).double()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    hessian = dense_hessian(Landscape(net, (x, y), device="cpu"))
    return hessian, np.linalg.eigvalsh(hessian)


@pytest.mark.parametrize(
    ("dtype", "seeds"),
    [
        (torch.float64, 2),
        pytest.param(torch.float64, 60, marks=pytest.mark.slow),
        pytest.param(torch.float32, 60, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_intervals_of_a_digits_net_hold_its_dense_spectrum(dtype, seeds):
    hessian, eigenvalues = digits_net()
    found = covered(Dense(torch.from_numpy(hessian).to(dtype)), eigenvalues, seeds, dtype)
    assert min(found[name] for name in NAMES) >= 0.90
    assert found["width"] < 0.15  # else the interval says nothing


@pytest.mark.parametrize("seeds", [10, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["spread", "outliers", "rank deficient", "all negative"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_intervals_hold_known_spectra(name, dtype, seeds):
    operator, eigenvalues = matrix(name, dtype)
    found = covered(operator, eigenvalues, seeds, dtype, steps=25)
    assert min(found[name] for name in NAMES) >= 0.90
    assert found["width"] < 0.25


def test_eigenvalues_below_the_measured_noise_of_the_products_count_as_zeros():
    operator, eigenvalues = matrix("rank deficient")
    density = estimate_density(operator, probes=8, steps=8, tolerance=0)
    largest = eigenvalues.max()
    plain, floor = density.shares(len(eigenvalues)), 0.3 * largest
    noisy = density.shares(len(eigenvalues), floor=floor)
    assert plain.delta < 1e-3 * largest
    assert floor <= noisy.delta < 1.5 * floor
    report = measure_hessian(small_landscape().to("float32"), 2, density=True, density_steps=12, trace=False)
    spent = replace(report.eigen.refinement, noise=0.5 * float(report.eigen.values[0]))
    told = replace(report, eigen=replace(report.eigen, refinement=spent))
    assert report.shares.delta < spent.noise <= told.shares.delta


@pytest.mark.parametrize("seeds", [80, pytest.param(200, marks=pytest.mark.slow)])
def test_where_the_quadrature_is_exact_the_interval_is_the_probes_alone(seeds):
    """Six distinct eigenvalues take six steps: over many seeds neither too few intervals hold the truth nor all."""
    operator, eigenvalues = matrix("rank deficient")
    found = covered(operator, eigenvalues, seeds, steps=8)
    assert 0.90 <= found["within"] <= 0.99
    assert 0.90 <= found["above"] <= 0.99


def test_the_quadrature_is_off_by_no_more_than_the_christoffel_function():
    draw = np.random.default_rng(0)
    for steps in (3, 8, 15):
        points, masses = np.sort(draw.standard_normal(60)), draw.dirichlet(np.full(60, 0.3))
        basis, matrix_ = np.sqrt(masses)[:, None], np.diag(points)
        for _ in range(steps - 1):
            last = matrix_ @ basis[:, -1]
            for _ in range(2):
                last -= basis @ (basis.T @ last)
            basis = np.column_stack([basis, last / np.linalg.norm(last)])
        nodes, vectors = np.linalg.eigh(basis.T @ matrix_ @ basis)
        weights = vectors[0] ** 2
        for t in np.linspace(-2.5, 2.5, 201):
            width = _undecided(nodes[None], weights[None], t)[0]
            assert abs(masses[points < t].sum() - weights[nodes < t].sum()) <= width + 1e-12
            assert width <= 1


def test_delta_is_what_is_resolved_and_scales_with_the_matrix():
    operator, _ = matrix("outliers")
    coarse, fine = (estimate_density(operator, probes=8, steps=steps, tolerance=0) for steps in (12, 60))
    delta = [resolved_delta(density.rule, 1e-16) for density in (coarse, fine)]
    assert delta[0] > 2 * delta[1]
    for t in (-delta[0], delta[0]):
        assert _undecided(coarse.nodes, coarse.weights, t).mean() <= 0.05
    scaled = resolved_delta(replace(coarse.rule, nodes=1e3 * coarse.nodes), 1e-16)
    assert scaled == pytest.approx(1e3 * delta[0], rel=1e-9)
    assert coarse.shares(120, delta=0.5).delta == 0.5


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_spectrum_of_one_point(value):
    density = estimate_density(Dense(value * torch.eye(50, dtype=torch.float64)), probes=2, steps=3)
    shares = density.shares(50)
    assert [getattr(shares, name).value for name in NAMES] == [0, float(value == 0), float(value > 0)]


@pytest.mark.parametrize(
    "name", ["spread", *(pytest.param(name, marks=pytest.mark.slow) for name in ("outliers", "net"))]
)
def test_errors_of_mean_moment_and_effective_rank_are_honest(name):
    """Over 200 seeds an interval of 1.96 standard errors holds the truth as often as it should."""
    if name == "net":
        hessian, eigenvalues = digits_net()
        operator = Dense(torch.from_numpy(hessian))
    else:
        operator, eigenvalues = matrix(name)
    d, hits = len(eigenvalues), []
    for seed in range(200):
        density = estimate_density(operator, probes=8, steps=5, tolerance=0, seed=seed)
        pairs = [
            (density.estimated_moment(1, d), eigenvalues.mean()),
            (density.estimated_moment(2, d), (eigenvalues**2).mean()),
            (density.estimated_rank(d), eigenvalues.sum() ** 2 / (eigenvalues**2).sum()),
        ]
        hits.append([abs(found.value - exact) <= 1.96 * found.stderr for found, exact in pairs])
    for share in np.mean(hits, axis=0):
        assert 0.90 <= share <= 0.99


def test_the_ratio_of_eigenvalues_is_off_by_no_more_than_its_error():
    landscape = small_landscape()
    exact = np.linalg.eigvalsh(dense_hessian(landscape))[::-1]
    report = measure_hessian(landscape, 6, trace=False, tolerance=0.05, ratios=[(2, 6)])
    for i, j in ((1, 5), (2, 6)):
        assert 0 < report.ratio_error(i, j) < 0.3 * report.ratio(i, j)
        assert abs(report.ratio(i, j) - exact[i - 1] / exact[j - 1]) <= report.ratio_error(i, j)
    assert report.to_dict()["ratio_errors"] == {"2/6": report.ratio_error(2, 6)}
    assert report.ratio_error(1, 7) is None
