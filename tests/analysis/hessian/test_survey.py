"""A survey: eigenvalues that ``measure_hessian`` prints in float32, of all kinds of networks, against float64's own.

Every one of them must lie within its printed bound, except those that :data:`PASSED_OVER` counts, which are printed as
NOT CONVERGED.  A float64 eigenvalue is that of a dense Hessian, or where that is too large of a Lanczos process of
float64 products to a tolerance of 1e-8.
"""

import re

import numpy as np
import pytest
import torch

from analysis import Hessian, HessianReport, measure_hessian
from analysis.hessian.spectrum.eigen import extreme_eigenpairs
from landscape import Landscape
from tests.analysis.hessian.survey import LARGE, TRAINED
from tests.landscape import nets
from tests.landscape.autograd import test_layer_types as layers

pytestmark = pytest.mark.slow

TOP = 5
PASSED_OVER = {"softmax regression at 0: every value nine times": 2}
"""Of the smallest eigenvalues: there are 200 zeros, of which the search finds one, and then others of 1e-6 of λ_max."""
LAYERS = {
    **{f"{name} (net)": (nets.case, (name,)) for name in nets.NETS},
    **{name: (layers.case, given) for name, given in layers.NETS.items()},
}


def in_float32(name: str) -> Landscape:
    """A small network of one kind of layer, at a random point."""
    build, given = LAYERS[name]
    net = build(*given)
    return Landscape(net.model, (net.x, net.y), dtype="float32", device="cpu")


def dense(landscape: Landscape) -> torch.Tensor:
    """The Hessian in float64, at the same point."""
    precise = landscape.to("float64")
    matrix = precise.hvp(None, torch.eye(precise.dimension, dtype=torch.float64))
    return (matrix + matrix.T) / 2


def check(report: HessianReport, true: np.ndarray, passed_over: int = 0) -> None:
    """All that the table says of eigenvalues is so."""
    found = report.eigen
    apart = np.abs(found.values - true[: len(found.values)])
    wrong = apart > found.bounds
    assert wrong.sum() <= passed_over, f"{apart} off, {found.bounds} promised, of {true[: len(found.values)]}"
    assert not wrong[found.converged].any()
    assert found.refinement is not None
    lost = np.abs(found.values) < found.refinement.noise
    assert len(re.findall("below the noise of float32 products", str(report))) == lost.sum()
    met = found.bounds <= np.maximum(1e-3 * np.abs(found.values), found.refinement.noise)
    assert met[found.converged].all()
    assert str(report).count("NOT CONVERGED") == (~found.converged).sum()


def check_residuals(report: HessianReport, matrix: torch.Tensor) -> None:
    """‖Ay − θy‖ of the Rayleigh-Ritz vectors y, which are the eigenvectors' own but for rotations within clusters."""
    found = report.eigen
    basis = torch.linalg.qr(found.vectors.double().T)[0]
    theta, turn = torch.linalg.eigh(basis.T @ matrix @ basis)
    vectors = basis @ turn
    residuals = (matrix @ vectors - vectors * theta).norm(dim=0).numpy()[::-1]
    rounding = 1e-6 * float(theta.abs().max())
    np.testing.assert_allclose(found.residuals, residuals, rtol=0.05, atol=rounding)


@pytest.mark.parametrize("name", LAYERS)
def test_every_kind_of_layer(name):
    here = in_float32(name)
    matrix = dense(here)
    report = measure_hessian(here, TOP, trace=False)
    check(report, torch.linalg.eigvalsh(matrix).flip(0).numpy())
    check_residuals(report, matrix)


@pytest.mark.parametrize("name", TRAINED)
def test_trained_networks(name):
    here = TRAINED[name].landscape()
    matrix = dense(here)
    true = torch.linalg.eigvalsh(matrix).flip(0).numpy()
    report = measure_hessian(here, TOP, trace=False)
    check(report, true)
    assert report.eigen.converged.all()
    check_residuals(report, matrix)
    check(measure_hessian(here, 3, which="smallest", trace=False), true[::-1], PASSED_OVER.get(name, 0))


@pytest.mark.parametrize("name", LARGE)
def test_whole_networks(name):
    here = LARGE[name].landscape()
    true = extreme_eigenpairs(Hessian(here.to("float64")), TOP, tolerance=1e-8)
    assert true.converged.all()
    check(measure_hessian(here, TOP, trace=False), true.values)
