"""Eigenvalues of float32 networks, ended with a float64 product: the bounds hold against float64's own eigenvalues."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn

from analysis import Dense, Hessian, measure_hessian
from analysis.hessian.report import HessianReport
from analysis.hessian.spectrum import operators
from analysis.hessian.spectrum.eigen import extreme_eigenpairs
from analysis.hessian.spectrum.operators import GaussNewton, Shifted, to_scipy
from analysis.hessian.spectrum.refinement import cluster_bounds, refined, refined_where_needed
from landscape import Landscape
from landscape.compute.devices import TF32, TF32_EPSILON
from landscape.datasets import load_dataset
from landscape.models import MODELS


class Residual(nn.Module):
    """x + convolutions with GroupNorm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm, self.last = nn.GroupNorm(2, channels), nn.GroupNorm(2, channels)

    def forward(self, x):
        return torch.relu(x + self.last(self.second(torch.relu(self.norm(self.first(x))))))


def small(name: str) -> nn.Module:
    """A net of 200 to 700 parameters on 8 x 8 images."""
    head = nn.Flatten(), nn.Linear(64, 10)
    return {
        "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)),
        "cnn": lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), *head),
        "groupnorm": lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), *head
        ),
        "resnet": lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=4, padding=1), Residual(4), nn.Flatten(), nn.Linear(16, 10)
        ),
    }[name]()


def trained(net: nn.Module, samples: int = 150, steps: int = 60) -> Landscape:
    """The net after some steps, in float32."""
    x, y = load_dataset("digits").train.batch(slice(0, samples), torch.float32)
    adam = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(steps):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
    return Landscape(net, (x, y), device="cpu")


def true_values(operator, k: int) -> np.ndarray:
    """The k largest eigenvalues by a dense decomposition in float64."""
    matrix = operator.matmat(torch.eye(operator.shape[0], dtype=torch.float64))
    return torch.linalg.eigvalsh((matrix + matrix.T) / 2).numpy()[::-1][:k]


class TestBoundsHold:
    """True error over printed bound is at most 1."""

    @pytest.mark.parametrize("tolerance", [1e-3, pytest.param(1e-6, marks=pytest.mark.slow)])
    @pytest.mark.parametrize("name", ["mlp", "cnn", "groupnorm", "resnet"])
    def test_small_nets(self, name, tolerance):
        torch.manual_seed(2)
        here = trained(small(name))
        operator = Hessian(here)
        eigen = refined(operator, extreme_eigenpairs(operator, 6, tolerance=tolerance), tolerance=tolerance)
        error = np.abs(eigen.values - true_values(Hessian(here.to("float64")), 6))
        assert (error <= eigen.bounds).all()
        assert (error <= eigen.residuals).all()

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn"])
    def test_whole_nets(self, name, seed):
        torch.manual_seed(seed)
        here = trained(MODELS.get(name)((1, 8, 8), 10), 600, 100)
        eigen = measure_hessian(here, 8, trace=False).eigen
        matrix = to_scipy(Hessian(here.to("float64")))
        true = eigsh(matrix, 8, which="LA", tol=1e-11, return_eigenvectors=False)[::-1]
        assert (np.abs(eigen.values - true) <= eigen.bounds).all()


class TestRefined:
    """What it says, costs and leaves alone."""

    @pytest.fixture
    def here(self):
        torch.manual_seed(3)
        return trained(small("mlp"))

    def test_residuals_are_those_of_the_float64_products(self, here):
        operator, double = Hessian(here), Hessian(here.to("float64"))
        before = extreme_eigenpairs(operator, 5)
        kept = before.vectors.clone()
        after = refined(operator, before)
        vectors = after.vectors.double()
        true = (double.matmat(vectors.T).T - torch.from_numpy(after.values)[:, None] * vectors).norm(dim=1).numpy()
        # The Rayleigh-Ritz vectors are the Ritz vectors but for rounding.
        assert after.residuals == pytest.approx(true, rel=0.05, abs=1e-6 * after.values[0])
        assert torch.equal(after.vectors, kept)
        assert after.krylov is before.krylov

    def test_noise_is_that_of_float32(self, here):
        operator, double = Hessian(here), Hessian(here.to("float64"))
        after = refined(operator, extreme_eigenpairs(operator, 5))
        unit = after.vectors.double()
        apart = operator.matmat(after.vectors.T).double() - double.matmat(unit.T)
        typical = float(apart.square().sum(0).mean().sqrt())
        assert typical / 4 < after.refinement.noise < 4 * typical

    @pytest.mark.parametrize("which", ["largest", "smallest", "magnitude", "both"])
    def test_order(self, here, which):
        operator = Hessian(here)
        before = extreme_eigenpairs(operator, 3, which=which)
        after = refined(operator, before)
        assert after.values == pytest.approx(before.values, rel=1e-4, abs=1e-6)
        assert after.refinement.products == len(after.values)

    def test_shifted_and_gauss_newton(self, here):
        operator = Shifted(GaussNewton(here), 0.25)
        found = refined(operator, extreme_eigenpairs(operator, 2))
        true = true_values(GaussNewton(here.to("float64")), 2) + 0.25
        assert (np.abs(found.values - true) <= found.bounds).all()

    def test_left_alone(self, here):
        for operator in (Hessian(here.to("float64")), Dense(torch.diag(torch.arange(20.0)))):
            eigen = extreme_eigenpairs(operator, 2)
            assert refined(operator, eigen) is eigen

    def test_at_another_point(self, here):
        w = here.weights + 0.05 * torch.ones(here.dimension)
        operator = Hessian(here, w)
        found = refined(operator, extreme_eigenpairs(operator, 2))
        true = true_values(Hessian(here.to("float64"), w.double()), 2)
        assert (np.abs(found.values - true) <= found.bounds).all()

    def test_report(self, here):
        report, plain = (measure_hessian(here, 2, trace=False, refine=refine) for refine in (True, False))
        assert plain.eigen.refinement is None
        assert report.hvps == plain.hvps + 3  # two in float64, and one in float32 for the noise
        assert "2 of them in float64" in report.cost
        again = HessianReport.from_dict(report.to_dict())
        assert again.eigen.refinement == report.eigen.refinement
        assert HessianReport.from_dict(plain.to_dict()).eigen.refinement is None

    def test_values_below_the_noise_are_said_to_be(self):
        """Of 24 inputs, 3 vary: the other eigenvalues are 0, and float32 gives them rounding."""
        torch.manual_seed(4)
        x = 30 * torch.randn(40, 3) @ torch.randn(3, 24)
        flat = Landscape(nn.Linear(24, 1, bias=False), (x, torch.zeros(40, 1)), nn.functional.mse_loss, device="cpu")
        text = str(measure_hessian(flat, 5, trace=False))
        assert text.count("below the noise of float32 products") == 2


class RoundedHessian(Hessian):
    """Products of factors with ten-bit mantissas, as TF32 rounds them: a relative error of 1e-3 of the whole matrix."""

    def matmat(self, vectors):
        mantissas, exponents = torch.frexp(vectors)
        return super().matmat(torch.ldexp((mantissas / TF32_EPSILON).round() * TF32_EPSILON, exponents))


class TestTF32:
    """What TF32 rounds away, a float64 product restores."""

    @pytest.fixture
    def here(self):
        torch.manual_seed(5)
        return trained(small("mlp"))

    def test_bounds_hold_though_the_products_are_rounded(self, here):
        operator = RoundedHessian(here)
        before = extreme_eigenpairs(operator, 4, tolerance=1e-2)
        after = refined(operator, before, tolerance=1e-2)
        true = true_values(Hessian(here.to("float64")), 4)
        assert (np.abs(before.values - true) > before.bounds).any()  # else this shows nothing
        assert (np.abs(after.values - true) <= after.bounds).all()
        assert after.converged.all()
        assert after.refinement.noise > 1e-5 * true[0]

    def test_a_landscape_in_tf32_is_refined_and_its_bounds_are_not_widened_after_that(self, here, monkeypatch):
        monkeypatch.setattr(
            Landscape, "precision", property(lambda self: TF32 if self.dtype.itemsize == 4 else "float64")
        )
        fine, wide = (
            measure_hessian(here, 2, trace=False, tolerance=1e-5, refine=refine).eigen for refine in (True, False)
        )
        assert fine.refinement is not None
        assert (wide.bounds >= TF32_EPSILON * wide.values[0]).all()
        assert (fine.bounds < 0.01 * wide.bounds).all()


class TestClusters:
    """Bounds of Ritz values that are nearer to each other than their residuals."""

    def test_each_value_has_an_eigenvalue_of_its_own_within_its_bound(self):
        """Of three eigenvalues 2 + δ, 2, 2 − δ two Ritz vectors can see 2 twice, with residuals of 0.71 δ."""
        true = np.array([2.001, 2.0, 1.999])
        middle, sum_of_others = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 1.0]) / np.sqrt(2)
        vectors = np.stack([middle + sum_of_others, middle - sum_of_others]) / np.sqrt(2)
        theta = np.einsum("ki,i,ki->k", vectors, true, vectors)
        residuals = np.linalg.norm(vectors * true - theta[:, None] * vectors, axis=1)
        bounds = cluster_bounds(theta, residuals, np.array([1.0]), np.array([1e-3]))
        apart = np.abs(theta - true[:2])
        assert apart.max() > residuals.max()  # so that residuals are no bounds
        assert (apart <= bounds + 1e-12).all()
        assert bounds == pytest.approx([1e-3, 1e-3])

    def test_of_values_apart_it_is_the_square_of_the_residual_by_the_gap(self):
        theta, residuals = np.array([3.0, 2.0, 1.0]), np.array([1e-2, 2e-2, 0.1])
        found = cluster_bounds(theta, residuals, np.array([0.95, 0.0]), np.array([0.01, 0.5]))
        assert found == pytest.approx([1e-4 / 0.98, 4e-4 / 0.9, 0.1])

    def test_of_values_together_it_is_that_of_both(self):
        found = cluster_bounds(np.array([2.0, 2.0, 1.0]), np.array([3e-3, 4e-3, 0.0]), *np.zeros((2, 0)))
        assert found == pytest.approx([5e-3, 5e-3, 0.0])
        apart = cluster_bounds(np.array([2.0, 2.0]), np.array([3e-3, 4e-3]), *np.zeros((2, 0)), gaps=False)
        assert apart == pytest.approx([5e-3, 5e-3])


class TestWhereNeeded:
    """One float64 product for all values, where it says that float32 is good enough."""

    @pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
    def test_bounds_hold_against_a_dense_float64_hessian(self, name):
        torch.manual_seed(2)
        here = trained(small(name))
        true = true_values(Hessian(here.to("float64")), 6)
        for tolerance, products in ((1e-2, 1), (1e-6, 7)):
            operator = Hessian(here)
            before = extreme_eigenpairs(operator, 6, tolerance=tolerance)
            found = refined_where_needed(operator, before, tolerance=tolerance)
            assert (np.abs(found.values - true) <= found.bounds).all()
            assert found.refinement.products == products  # the wider tolerance is far above the noise
            if products == 1:
                assert found.values.tolist() == before.values.tolist()
                assert np.abs(found.values - true).max() <= 1e-2 * true[-1]

    def test_products_that_are_wrong_by_more_than_the_tolerance_are_refined(self):
        """A float32 operator that is 1 % off on one eigenvector."""
        values = torch.tensor([5.0, 4.0, 3.0, 2.0, *torch.linspace(0, 1, 30)])
        wrong = values.clone()
        wrong[1] *= 1.01

        class Noisy(Dense):
            def in_float64(self):
                return Dense(torch.diag(values).double())

        operator = Noisy(torch.diag(wrong))
        found = refined_where_needed(operator, extreme_eigenpairs(operator, 3))
        assert found.values == pytest.approx([5, 4, 3], rel=1e-5)
        assert found.refinement.products == 4
        careless = Noisy(torch.diag(wrong))
        assert extreme_eigenpairs(careless, 3).values[1] == pytest.approx(4.04, rel=1e-3)


def test_memory_of_float32_passes_is_given_back_before_float64_ones(monkeypatch):
    """Their blocks are twice as large and fit into none of it."""
    released = []
    monkeypatch.setattr(operators, "release_freed_memory", lambda: released.append(True))
    line = Landscape(nn.Linear(2, 1), (torch.eye(2), torch.ones(2, 1)), nn.functional.mse_loss, device="cpu")
    assert operators.in_float64(Hessian(line.to("float64"))) is None
    assert not released
    assert operators.in_float64(Hessian(line)) is not None
    assert released == [True]
