"""PyHessian run by the backend: the same numbers as by hand, errors that hold, and no side effects."""

import copy
import importlib
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from analysis import Hessian, largest_eigenpairs, measure_hessian
from analysis.hessian.pyhessian import pyhessian_report
from landscape import FedscapeError, Landscape, build_model, load_dataset
from landscape.activations import MAN
from landscape.compute.randomness import global_seed
from tests.analysis.hessian.pyhessian.landscapes import dense, quadratic, small
from tests.landscape.test_model_untouched import state

SOURCE = importlib.import_module("pyhessian.hessian")


@pytest.fixture(scope="module")
def digits():
    """The digits network on 120 images, its spectrum by PyHessian and by us."""
    model = build_model("digits_cnn", seed=2, input_shape=(1, 8, 8), classes=10)
    data = load_dataset("digits").train.subset(range(120))
    landscape = Landscape(model, data, batch_size=50, device="cpu")
    return landscape, pyhessian_report(landscape, 3, max_iterations=60)


class TestAnswers:
    def test_eigenvalues_are_ours_within_the_error_that_its_stopping_rule_leaves(self, digits):
        landscape, theirs = digits
        ours = largest_eigenpairs(Hessian(landscape), 3, tolerance=1e-4)
        assert theirs.eigen.values == pytest.approx(ours.values, rel=2e-2)
        assert (np.abs(theirs.eigen.values - ours.values) <= theirs.eigen.residuals + ours.bounds).all()

    def test_trace_is_ours_within_the_standard_errors(self, digits):
        landscape, theirs = digits
        ours = measure_hessian(landscape, 3, seed=1).trace
        assert abs(theirs.trace.value - ours.value) < 4 * np.hypot(theirs.trace.stderr, ours.stderr)

    def test_numbers_are_pyhessians_to_the_bit(self, digits):
        """As its users call it: a model, a list of batches, one seed."""
        landscape, theirs = digits
        model = build_model("digits_cnn", seed=2, input_shape=(1, 8, 8), classes=10)
        batches = [landscape.data.batch(slice(a, a + 50), torch.float32) for a in (0, 50, 100)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = SOURCE.hessian(model, nn.CrossEntropyLoss(), dataloader=batches, cuda=False)
            with global_seed(0, "pyhessian", "eigenvalues"):
                values, _ = plain.eigenvalues(maxIter=60, top_n=3)
            with global_seed(0, "pyhessian", "trace"):
                samples = plain.trace(maxIter=60)
        assert theirs.eigen.values.tolist() == values
        assert theirs.trace_samples == tuple(samples)
        assert theirs.trace.value == np.mean(samples)
        assert theirs.trace.stderr == np.std(samples, ddof=1) / np.sqrt(len(samples))

    def test_with_a_tight_tolerance_eigenvalues_are_those_of_the_dense_hessian(self):
        landscape = small()
        report = pyhessian_report(landscape, 2, trace=False, tolerance=1e-9, max_iterations=2000)
        exact = torch.linalg.eigvalsh(dense(landscape)).flip(0)[:2].numpy()
        assert report.eigen.values == pytest.approx(exact, rel=1e-5)
        assert report.eigen.residuals.max() < 1e-3 * exact[0]

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_residuals_are_those_of_the_dense_hessian_and_hold_an_eigenvalue(self, dtype):
        landscape = small(dtype)
        eigen = pyhessian_report(landscape, 4, trace=False).eigen
        H, v = dense(landscape), eigen.vectors.double()
        assert v.norm(dim=1).numpy() == pytest.approx(np.ones(4), rel=1e-6)
        expected = (v @ H - torch.from_numpy(eigen.values)[:, None] * v).norm(dim=1)
        assert eigen.residuals == pytest.approx(expected.numpy(), rel=1e-3, abs=1e-6)
        assert (eigen.bounds == eigen.residuals).all()
        spectrum = torch.linalg.eigvalsh(H).numpy()
        nearest = np.abs(spectrum[:, None] - eigen.values).min(axis=0)
        assert (nearest <= eigen.residuals + 1e-6).all()
        assert (eigen.converged == (eigen.residuals <= 1e-3 * np.abs(eigen.values))).all()

    def test_the_trace_of_a_diagonal_hessian_is_exact(self):
        report = pyhessian_report(quadratic(3.0, 2.0, 1.0), 1)
        assert (report.trace.value, report.trace.stderr) == pytest.approx((6.0, 0.0), abs=1e-9)
        assert report.trace.probes == 2

    def test_a_seed_gives_the_same_numbers_and_another_others(self):
        one, two, three = (pyhessian_report(small(), 2, seed=seed) for seed in (0, 0, 1))
        assert one.eigen.values.tolist() == two.eigen.values.tolist()
        assert one.trace_samples == two.trace_samples
        assert one.trace_samples[0] != three.trace_samples[0]

    def test_eigenvalues_do_not_depend_on_what_else_is_asked_for(self):
        alone, all_ = (
            pyhessian_report(small(), 2, trace=more, density=more, density_steps=3) for more in (False, True)
        )
        assert alone.eigen.values.tolist() == all_.eigen.values.tolist()
        assert (alone.trace, alone.density) == (None, None)


class TestDensity:
    def test_pyhessian_alone_cannot(self):
        """When this fails, PyHessian works without the shim, which can be removed."""
        module = nn.Linear(2, 2)
        plain = SOURCE.hessian(
            module, nn.CrossEntropyLoss(), data=(torch.ones(1, 2), torch.zeros(1).long()), cuda=False
        )
        with pytest.raises(RuntimeError, match="removed"):
            plain.density(iter=2)

    def test_as_many_steps_as_dimensions_give_the_dense_spectrum(self):
        exact = np.array([-4.0, -1.0, 0.5, 2.0, 3.0, 7.0])
        density = pyhessian_report(quadratic(*exact), 1, trace=False, density=True, density_probes=3).density
        assert density.nodes.shape == (3, 6)
        for nodes, weights in zip(density.nodes, density.weights, strict=True):
            assert np.sort(nodes) == pytest.approx(exact, abs=1e-4)
            assert weights == pytest.approx(np.full(6, 1 / 6), abs=1e-4)  # probes of ±1 along the eigenvectors

    def test_moments_of_a_network_are_those_of_the_dense_hessian(self):
        landscape = small()
        density = pyhessian_report(landscape, 1, trace=False, density=True, density_probes=60, density_steps=6).density
        spectrum = torch.linalg.eigvalsh(dense(landscape)).numpy()
        for order in (1, 2, 3):
            each = (density.weights * density.nodes**order).sum(axis=1)
            error = each.std(ddof=1) / np.sqrt(len(each))
            assert abs(each.mean() - (spectrum**order).mean()) < 4 * error
        assert density.products == 60 * 6
        assert np.trapezoid(density.values, density.grid) == pytest.approx(1, abs=1e-3)

    def test_each_probe_has_the_moments_of_its_own_direction(self):
        """A Gauss quadrature of m nodes is exact to order 2m − 1, for any start vector."""
        landscape, steps = small(), 5
        density = pyhessian_report(
            landscape, 1, trace=False, density=True, density_probes=2, density_steps=steps
        ).density
        H = dense(landscape)
        with global_seed(0, "pyhessian", "density"):
            for nodes, weights in zip(density.nodes, density.weights, strict=True):
                v = torch.cat(
                    [
                        torch.randint_like(e, high=2).reshape(-1)
                        for e in landscape.space.unflatten(landscape.weights).values()
                    ]
                )
                v = torch.where(v == 0, -1.0, v)
                v = v / v.norm()
                for order in range(2 * steps):
                    expected = (v @ torch.linalg.matrix_power(H, order) @ v).item()
                    assert (weights * nodes**order).sum() == pytest.approx(expected, rel=1e-4)

    def test_nobody_else_sees_the_shim(self, monkeypatch):
        before = SOURCE.torch
        pyhessian_report(quadratic(1.0, 2.0), 1, trace=False, density=True)
        assert SOURCE.torch is before is torch
        with pytest.raises(RuntimeError, match="removed"):
            torch.eig(torch.eye(2))
        monkeypatch.setattr(SOURCE, "group_add", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pyhessian_report(quadratic(1.0, 2.0), 1, trace=False, density=True)
        assert SOURCE.torch is torch


class TestCounts:
    def test_products_are_those_pyhessian_made_and_the_residuals_ours(self, monkeypatch):
        calls, ours = [], []
        real, hvp = SOURCE.hessian.dataloader_hv_product, Landscape.hvp
        monkeypatch.setattr(SOURCE.hessian, "dataloader_hv_product", lambda self, v: calls.append(1) or real(self, v))
        monkeypatch.setattr(Landscape, "hvp", lambda self, w, v: ours.append(len(v)) or hvp(self, w, v))
        report = pyhessian_report(small(), 3, density=True, density_probes=2, density_steps=5)
        assert report.hvps == len(calls)
        assert report.eigen.products == sum(report.iterations)
        assert report.hvps == report.eigen.products + report.trace.products + report.density.products
        assert report.trace.products == report.trace.probes == len(report.trace_samples)
        assert (report.density.products, report.residual_hvps) == (10, 3)
        assert ours == [3]

    def test_iterations_are_counted_an_eigenvalue_each(self):
        report = pyhessian_report(small(), 3, trace=False, max_iterations=7, tolerance=1e-12)
        assert report.iterations == (7, 7, 7)
        assert str(report).count("7 iterations, LIMIT") == 3
        report = pyhessian_report(quadratic(3.0, 2.0, 1.0), 3, trace=False)
        assert len(report.iterations) == 3
        assert max(report.iterations) < 100
        assert "LIMIT" not in str(report)

    def test_seconds_are_counted_apart(self):
        report = pyhessian_report(small(), 1)
        assert report.seconds > 0
        assert report.residual_seconds > 0


class TestNothingIsDisturbed:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_model_data_random_numbers_and_settings_are_as_before(self, dtype):
        data = load_dataset("digits").train.subset(range(30))
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 10))
        model(torch.randn(8, 1, 8, 8)).sum().backward()
        landscape = Landscape(model, data, dtype=dtype, batch_size=16, device="cpu")
        landscape.value(landscape.weights + 1)  # its private module stands elsewhere
        own = landscape._flat.module
        before = state(model, data.inputs, data.targets), state(own, landscape.weights)
        value = landscape.value()
        standing = landscape._flat.buffer.clone()
        report = pyhessian_report(landscape, 1, density=True, density_probes=2, density_steps=3, max_iterations=5)
        assert torch.equal(standing, landscape._flat.buffer)
        assert state(model, data.inputs, data.targets) == before[0]
        assert landscape.value() == value == report.loss
        assert [p.grad for p in own.parameters()] == [None] * 6
        assert not any(module.training for module in own.modules())

    def test_it_measures_the_landscapes_own_point_wherever_its_module_stands(self):
        here, there = small(), small()
        there.value(there.weights + 5)
        assert pyhessian_report(here, 1).eigen.values == pyhessian_report(there, 1).eigen.values

    def test_it_works_where_gradients_are_switched_off(self):
        with torch.no_grad():
            assert pyhessian_report(quadratic(2.0, 1.0), 1).eigen.values[0] == pytest.approx(2, rel=1e-3)

    def test_it_says_nothing(self, capsys):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pyhessian_report(small(), 1)
        assert capsys.readouterr() == ("", "")

    def test_frozen_parameters_are_constants(self):
        landscape = small()
        model = copy.deepcopy(landscape._flat.module)
        model[0].weight.requires_grad_(False)
        part = Landscape(model, landscape.data, batch_size=16, device="cpu")
        report = pyhessian_report(part, 1, trace=False, tolerance=1e-8, max_iterations=500)
        assert report.parameters == part.dimension == landscape.dimension - 18
        exact = torch.linalg.eigvalsh(dense(part))[-1].item()
        assert report.eigen.values[0] == pytest.approx(exact, rel=1e-4)


class TestRefusals:
    def test_parameters_without_gradient_are_named(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.spare = nn.Linear(2, 2), nn.Linear(2, 2)

            def forward(self, x):
                return self.used(x)

        landscape = Landscape(Net(), (torch.ones(3, 2), torch.zeros(3).long()), device="cpu")
        with pytest.raises(FedscapeError, match=r"parameters without gradient \(spare\.weight, spare\.bias\): use"):
            pyhessian_report(landscape, 1)

    def test_a_gradient_that_is_constant_is_one_sentence(self):
        landscape = Landscape(
            nn.Linear(2, 1), (torch.ones(3, 2), torch.ones(3, 1)), lambda out, y: (out * y).mean(), device="cpu"
        )
        with pytest.raises(FedscapeError, match=r"^PyHessian cannot measure this model \(.+\): use the default"):
            pyhessian_report(landscape, 1)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"top": 0}, "0 eigenvalues are asked for: give a number from 1 to the 2 parameters"),
            ({"top": 3}, "3 eigenvalues are asked for"),
            ({"max_iterations": 1}, "at least 2 iterations"),
            ({"tolerance": 0.0}, "a tolerance above 0"),
            ({"tolerance": float("nan")}, "a tolerance above 0"),
            ({"density": True, "density_probes": 1}, "at least 2 probes"),
        ],
    )
    def test_numbers_that_make_no_sense(self, options, reason):
        with pytest.raises(FedscapeError, match=reason):
            pyhessian_report(quadratic(2.0, 1.0), **{"top": 1, **options})

    def test_a_penalty_on_the_activations(self):
        data = torch.eye(3), torch.arange(3)
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
        with pytest.raises(FedscapeError, match="this one has a penalty on the activations"):
            pyhessian_report(Landscape(net, data, device="cpu", penalty=MAN(0.1)), 1)

    def test_a_loss_that_is_not_finite(self):
        with pytest.raises(FedscapeError, match="the loss at here is inf: there is nothing to measure"):
            pyhessian_report(quadratic(float("inf"), 1.0), 1, title="here")


def test_pyhessian_gets_the_micro_batches_as_often_as_it_asks_and_the_device(monkeypatch):
    seen = {}

    class Stop(Exception):
        pass

    def stand_in(module, criterion, dataloader, cuda):
        seen.update(cuda=cuda, batches=[(len(x), len(y)) for x, y in dataloader], again=len(list(dataloader)))
        raise Stop

    monkeypatch.setattr(SOURCE, "hessian", stand_in)
    with pytest.raises(Stop):
        pyhessian_report(small(), 1)
    assert seen == {"cuda": False, "batches": [(16, 16), (16, 16), (8, 8)], "again": 3}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_numbers_are_the_same_on_a_gpu():
    landscape = small()
    model, place = landscape._flat.module, f"cuda:{torch.cuda.device_count() - 1}"
    there = Landscape(model, landscape.data, dtype="float64", batch_size=16, device=place)
    one, other = (
        pyhessian_report(where, 1, trace=False, tolerance=1e-9, max_iterations=2000) for where in (landscape, there)
    )
    assert one.eigen.values == pytest.approx(other.eigen.values, rel=1e-5)
    assert other.device == place
