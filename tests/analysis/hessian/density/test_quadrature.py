"""Means by quadratures and their errors, against spectra that are known."""

import numpy as np
import pytest
import torch

from analysis import Lanczos, estimate_density
from analysis.hessian.density.quadrature import Quadrature
from tests.analysis.hessian.spectrum.spectra import matrix


def lanczos(operator, start, steps):
    process = Lanczos(torch.from_numpy(start), torch.Generator().manual_seed(0))
    for _ in range(steps):
        process.absorb(operator @ process.vector)
    return process.ritz()


def drawn(operator, probes, steps, seed=0):
    """The quadratures of random probes, without atoms."""
    starts = np.random.default_rng(seed).normal(size=(probes, len(operator.matrix)))
    ritz = [lanczos(operator, start, steps) for start in starts]
    nodes, weights = np.stack([one.values for one in ritz]), np.stack([one.weights for one in ritz])
    return Quadrature(nodes, weights, np.zeros(0), len(operator.matrix)), starts


def test_atoms_and_probes_share_the_eigenvalues():
    rule = Quadrature(np.array([[1.0, 2.0]] * 3), np.array([[0.3, 0.5]] * 3), np.array([10.0, 20.0]), 10)
    assert rule.left == pytest.approx(0.8)
    assert rule.mean(lambda t: t).value == pytest.approx(0.3 + 1.0 + (10 + 20) / 10)
    assert Quadrature(rule.nodes, rule.weights, rule.atoms).left == pytest.approx(0.8)
    assert sorted(set(rule.places)) == [1, 2, 10, 20]


@pytest.mark.parametrize("name", ["spread", pytest.param("outliers", marks=pytest.mark.slow)])
def test_the_standard_error_is_how_far_means_scatter(name):
    operator, exact = matrix(name)

    def functions(t):
        return np.stack([t, t**2, np.exp(-(t**2))])

    found = [drawn(operator, 4, 30, seed)[0].means(functions) for seed in range(150)]
    values, errors = (np.stack(part) for part in zip(*found, strict=True))
    truth = functions(exact).mean(axis=1)
    scatter = np.sqrt(((values - truth) ** 2).mean(axis=0))
    np.testing.assert_allclose(errors.mean(axis=0), scatter, rtol=0.2)


def test_of_probes_of_another_kind_it_is_that_of_the_sample():
    nodes, weights = np.array([[1.0], [2.0], [6.0]]), np.ones((3, 1))
    values, errors = Quadrature(nodes, weights, np.zeros(0)).means(lambda t: t[None])
    assert values[0] == 3
    assert errors[0] == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3))
    assert Quadrature(nodes, weights, np.zeros(0)).quantile == pytest.approx(4.302653, rel=1e-6)


def test_coarser_quadratures_are_those_of_fewer_steps():
    operator, _ = matrix("spread")
    rule, starts = drawn(operator, 2, 20)
    coarser = list(rule.coarser())
    assert [one.nodes.shape[1] for one in coarser] == [14, 15, 16, 17, 18, 19]
    for one in coarser:
        for i, start in enumerate(starts):
            ritz = lanczos(operator, start, one.nodes.shape[1])
            np.testing.assert_allclose(one.nodes[i], ritz.values, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(one.weights[i], ritz.weights, rtol=1e-6, atol=1e-10)


def test_where_the_space_of_a_probe_is_invariant_the_quadrature_has_no_error():
    operator, _ = matrix("rank deficient")  # six different eigenvalues
    rule, _ = drawn(operator, 2, 12)
    np.testing.assert_allclose(rule.error(lambda t: np.stack([t, np.exp(-t)])), 0, atol=1e-12)


def test_the_estimated_error_is_larger_than_the_true_one():
    """Of one probe, against all its steps: of kernels and shares of a broad spectrum at 13 places."""
    operator, _ = matrix("indefinite")
    places = np.linspace(-12, 12, 13)

    def kernels(t):
        return np.exp(-0.5 * ((places[:, None] - t) / 1.5) ** 2)

    better = []
    for seed in range(20):
        full, _ = drawn(operator, 1, 120, seed)
        few, _ = drawn(operator, 1, 14, seed)
        true = np.abs(few.mean(lambda t: t).value - full.mean(lambda t: t).value)
        assert true < 1e-8  # a polynomial of low degree has no error
        off = np.abs(few.means(kernels)[0] - full.means(kernels)[0])
        better.append(off <= few.error(kernels) + 1e-12)
    assert np.mean(better) >= 0.9


@pytest.mark.parametrize("seeds", [12, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["spread", "indefinite", "outliers", "all negative"])
@pytest.mark.parametrize("steps", [6, 12, 30])
def test_the_band_holds_the_smoothed_spectrum(name, steps, seeds):
    """Pointwise coverage of the 95 % band where the density is more than 1 % of its peak."""
    operator, exact = matrix(name)
    held = []
    for seed in range(seeds):
        found = estimate_density(operator, probes=8, steps=steps, points=150, relative_width=0.05, seed=seed)
        kernel = np.exp(-0.5 * ((found.grid[:, None] - exact) / found.width) ** 2)
        truth = kernel.mean(axis=1) / (found.width * np.sqrt(2 * np.pi))
        held.append((np.abs(found.values - truth) <= found.band)[truth > 0.01 * truth.max()])
    assert np.concatenate(held).mean() >= 0.90
