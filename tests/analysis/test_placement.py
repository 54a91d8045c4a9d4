"""Nothing of a product, a spectrum, a point or an evaluation is made on the wrong device (:mod:`tests.pretend`)."""

import numpy as np
import pytest
import torch

from analysis import Hessian, largest_eigenpairs, measure_surface
from analysis.hessian.spectrum.operators import Fisher, GaussNewton
from analysis.hessian.spectrum.trace import estimate_trace
from landscape import Landscape, build_model
from tests import pretend


@pytest.fixture(autouse=True)
def a_device_that_is_not_there(monkeypatch):
    pretend.like_a_gpu(monkeypatch)


COPIED = "landscape/autograd/flat.py: _copied"
"""The copy of the model, which is made where the model is and then moved."""
DRAWN = {
    "analysis/hessian/spectrum/iteration.py: __init__",
    "analysis/hessian/spectrum/trace.py: __init__",
    "analysis/surface/directions.py: random_directions",
}
"""Random vectors, by seed: the same on every device, and moved at once."""


def around(device, batch_size=20):
    draw = torch.Generator().manual_seed(0)
    data = torch.randn(50, 1, 8, 8, generator=draw), torch.randint(0, 10, (50,), generator=draw)
    module = build_model("digits_cnn", seed=0, input_shape=(1, 8, 8), classes=10)
    return Landscape(module, data, device=device, dtype="float64", batch_size=batch_size)


def both(measured):
    """What is measured on the CPU and on the device, and who made tensors on the CPU for it."""
    expected = measured(around("cpu"))
    with pretend.device() as by:
        there = around(pretend.HERE)
        by.clear()
        found = measured(there)
        found = found.cpu() if isinstance(found, torch.Tensor) else found
    return np.asarray(expected), np.asarray(found), set(by)


@pytest.mark.parametrize(
    "matrix", [Hessian, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (GaussNewton, Fisher))]
)
def test_products_stay_on_their_device(matrix):
    def product(landscape):
        v = torch.linspace(-1, 1, landscape.dimension, dtype=torch.float64).to(landscape.device)
        found = matrix(landscape) @ v
        assert found.device == landscape.device
        return found

    expected, found, by = both(product)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert by <= {COPIED, "tests/analysis/test_placement.py: product"}


def test_eigenpairs_and_the_trace_stay_on_their_device():
    def spectrum(landscape):
        operator = Hessian(landscape)
        eigen = largest_eigenpairs(operator, 1, tolerance=1e-2)
        trace = estimate_trace(operator, eigen.krylov, tolerance=0.5, max_probes=2)
        return [*eigen.values, trace.value]

    expected, found, by = both(spectrum)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert by <= {COPIED} | DRAWN


def test_an_evaluation_stays_on_its_device():
    def evaluated(landscape):
        result = landscape.evaluator()(landscape.weights, stderr=True)
        return [result.loss, result.accuracy, result.loss_stderr, landscape.value()]

    expected, found, by = both(evaluated)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert by <= {COPIED}


def test_points_of_a_surface_stay_on_their_device():
    expected, found, by = both(lambda landscape: measure_surface(landscape, points=3, exact=True, workers=1).loss)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert by <= {COPIED} | DRAWN


def test_a_forgotten_device_is_found(monkeypatch):
    plain = Landscape.gradient

    def forgotten(self, w=None):
        return plain(self, w) + torch.zeros(self.dimension, dtype=torch.float64)

    monkeypatch.setattr(Landscape, "gradient", forgotten)
    with pytest.raises(pretend.WrongDeviceError, match="is on the CPU, beside tensors that are not"):
        both(lambda landscape: landscape.gradient())
