"""Products by differences of gradients: against closed forms, nets written by hand and naive differences."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from analysis import Hessian, extreme_eigenpairs, measure_hessian
from analysis.hessian.checks.differences import GradientDifferences, compared_steps
from analysis.hessian.report import HessianReport
from analysis.hessian.spectrum.operators import Shifted
from analysis.hessian.spectrum.refinement import refined
from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from landscape.terminal.command import run
from tests.analysis.hessian.spectrum.spectra import dense_hessian, small_landscape
from tests.analysis.hessian.spectrum.test_symmetry import landscape, weight_normed


def by_hand(around: Landscape, dim: int) -> np.ndarray:
    """The dense Hessian of :func:`weight_normed`, its weights g v/‖v‖ written out in plain arithmetic."""
    x, y = around.data.batch(slice(None), torch.float64)
    names = [entry.name for entry in around.space.entries]
    assert [name.rpartition(".")[2] for name in names] == ["bias", "original0", "original1", "weight", "bias"]

    def loss(w: Tensor) -> Tensor:
        first, g, v, last, bias = around.space.unflatten(w).values()
        weight = g * v / (v * v).sum(1 - dim, keepdim=True) ** 0.5
        outputs = torch.tanh(x @ weight.T + first) @ last.T + bias
        return (torch.logsumexp(outputs, 1) - outputs[torch.arange(len(y)), y]).mean()

    return torch.autograd.functional.hessian(loss, around.weights).numpy()


def naive(around: Landscape) -> np.ndarray:
    """Differences of PyTorch's gradients of the module itself, coordinate by coordinate."""
    x, y = around.data.batch(slice(None), torch.float64)

    def gradient(w: Tensor) -> Tensor:
        module = around.model(w)
        loss = nn.functional.cross_entropy(module(x), y)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])

    step = 1e-5 * torch.eye(around.dimension, dtype=torch.float64)
    return torch.stack([(gradient(around.weights + e) - gradient(around.weights - e)) / 2e-5 for e in step]).numpy()


@pytest.mark.parametrize("dim", [0, 1])
def test_weight_norm_has_its_true_eigenvalues(dim):
    around = weight_normed(dim)
    exact = np.linalg.eigvalsh(by_hand(around, dim))[::-1]
    np.testing.assert_allclose(naive(around), by_hand(around, dim), rtol=0, atol=1e-8 * exact[0])
    report = measure_hessian(around, 5, product="fd", tolerance=1e-9, verify=True, trace=False)
    np.testing.assert_allclose(report.eigen.values, exact[:5], rtol=1e-7)
    assert report.eigen.converged.all()
    assert report.eigen.steps.difference < 1e-7
    assert report.eigen.asymmetry < 1e-7
    assert report.hvps == report.eigen.products + 5
    with pytest.warns(UserWarning, match="--product fd"):
        wrong = measure_hessian(around, 5, tolerance=1e-9, trace=False)
    assert np.abs(wrong.eigen.values - exact[:5]).max() > 1e-3 * exact[0]


class TestProducts:
    def test_they_are_those_of_the_dense_hessian_for_vectors_of_any_length(self):
        around = small_landscape()
        exact = torch.from_numpy(dense_hessian(around))
        vectors = torch.randn(115, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        vectors *= torch.tensor([1e-6, 1.0, 1e6])
        operator = GradientDifferences(around)
        found = operator @ vectors
        assert operator.products == 3
        for one, true in zip(found.T, (exact @ vectors).T, strict=True):
            assert (one - true).norm() < 3e-9 * true.norm()
        assert not (operator @ torch.zeros(115, dtype=torch.float64)).any()

    def test_a_landscape_in_float32_is_multiplied_with_in_float64(self):
        single = small_landscape().to("float32")
        operator, exact = GradientDifferences(single), Hessian(single.to("float64"))
        v = torch.ones(115, dtype=torch.float64)
        assert operator.dtype == torch.float64
        torch.testing.assert_close(operator @ v, exact @ v, rtol=1e-7, atol=1e-8)

    def test_they_are_at_the_point_given_and_leave_the_landscape_alone(self):
        around = small_landscape()
        before = around.weights.clone()
        w = around.weights + 0.1
        v = torch.ones(115, dtype=torch.float64)
        torch.testing.assert_close(GradientDifferences(around, w) @ v, Hessian(around, w) @ v, rtol=1e-7, atol=1e-8)
        assert torch.equal(around.weights, before)

    def test_no_product_in_float64_refines_them(self):
        operator = GradientDifferences(small_landscape().to("float32"))
        for each in (operator, Shifted(operator, 0.5)):
            eigen = extreme_eigenpairs(each, 2)
            assert refined(each, eigen) is eigen

    def test_a_matrix_without_a_step_is_not_compared(self):
        operator = Hessian(small_landscape())
        eigen = extreme_eigenpairs(operator, 2)
        assert compared_steps(operator, eigen) is eigen


def test_blocks_weight_decay_penalty_and_streaming_are_as_by_autograd():
    draw = torch.Generator().manual_seed(3)
    data = torch.randn(30, 5, generator=draw), torch.randint(3, (30,), generator=draw)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 6), nn.SiLU(), nn.Linear(6, 3)).double()
    around = Landscape(net, data, device="cpu", batch_size=10, penalty=MAN(0.3), stream=True)
    options = {"weight_decay": 0.25, "block": ["0"], "which": "both", "tolerance": 1e-9, "density": True}
    options |= {"density_steps": 4, "density_probes": 2}
    ours, theirs = (measure_hessian(around, 3, product=product, **options) for product in ("fd", "autograd"))
    np.testing.assert_allclose(ours.eigen.values, theirs.eigen.values, rtol=1e-6)
    assert ours.trace.value == pytest.approx(theirs.trace.value, rel=1e-6)
    mean, exact = (report.to_dict()["density"]["moments"][0] for report in (ours, theirs))
    assert mean == pytest.approx(exact, rel=1e-6)
    assert (ours.loss, ours.title) == (theirs.loss, theirs.title)
    assert ours.eigen.steps.difference < 1e-7


class Kinked(nn.Module):
    """w₀²/2 + c max(w₁ − at, 0) at w = 0: the gradient jumps by c within a step longer than ``at``."""

    def __init__(self, height: float) -> None:
        super().__init__()
        self.w, self.height = nn.Parameter(torch.zeros(2, dtype=torch.float64)), height

    def forward(self, at: Tensor) -> Tensor:
        return self.w[0] ** 2 / 2 + self.height * torch.relu(self.w[1] - at)


class TestKinks:
    step = 0.5 * 2 ** (-52 / 3)  # ½ ε^⅓ at w = 0: 3.0e-6

    def around(self, at: float, height: float) -> Landscape:
        data = torch.tensor([[at]], dtype=torch.float64), torch.zeros(1)
        return Landscape(Kinked(height), data, lambda outputs, _: outputs.mean(), device="cpu")

    def test_within_the_step_the_product_is_the_jump_by_the_step(self):
        along = torch.tensor([0.0, 1.0], dtype=torch.float64)
        operator = GradientDifferences(self.around(1e-6, 0.1))
        assert float((operator @ along)[1]) == pytest.approx(0.1 / (2 * self.step), rel=1e-9)
        assert float((operator.with_shorter_steps() @ along)[1]) == 0.0  # 7.6e-7, before the kink

    def test_a_shorter_step_shows_it_and_verify_refuses_it(self, capsys):
        with pytest.warns(UserWarning, match="the gradient jumps within the step"):
            report = measure_hessian(self.around(1e-6, 1e-4), 1, product="fd", trace=False)
        (value,), (bound,) = report.eigen.values, report.eigen.bounds
        assert value == pytest.approx(1e-4 / (2 * self.step), rel=0.1)
        assert bound >= value - 1  # the largest second derivative beside the kink is 1
        assert report.eigen.steps.difference == pytest.approx(bound / value, rel=1e-6)
        assert not report.eigen.converged.any()
        with pytest.warns(UserWarning, match="the gradient jumps within the step"):
            assert run(lambda: measure_hessian(self.around(1e-6, 1e-4), 1, product="fd", verify=True)) == 2
        assert capsys.readouterr().err.count("the gradient jumps within the step (ReLU, max-pooling)") == 1

    def test_beyond_the_step_it_does_not_matter(self):
        report = measure_hessian(self.around(1e-4, 1e-4), 1, product="fd", trace=False, verify=True)
        assert report.eigen.values[0] == pytest.approx(1.0, rel=1e-8)
        assert "so far a step a quarter as long moves the eigenvalues" in str(report)
        assert report.eigen.steps.difference < 1e-8

    def test_of_a_relu_network_the_table_and_the_json_say_how_far_two_steps_differ(self):
        around = landscape(nn.Linear(5, 6), nn.ReLU(), torch.float32)
        around.weights[30:36] = 1e-6  # the first biases: where all inputs are 0 the kinks are that near
        with pytest.warns(UserWarning, match="the gradient jumps within the step"):
            report = measure_hessian(around, 3, product="fd", trace=False, density=True, density_steps=5)
        steps = report.eigen.steps
        assert steps.difference > 1e-2
        operator = GradientDifferences(around.to("float64"))
        vectors = report.eigen.vectors.T
        shorter = ((operator.with_shorter_steps() @ vectors) * vectors).sum(0).numpy()
        assert steps.difference == pytest.approx(np.abs(report.eigen.values - shorter).max() / report.eigen.values[0])
        (line,) = [line for line in str(report).splitlines() if line.startswith("step / 4")]
        assert line.split()[3:5] == [f"{steps.difference:.1e}", "WRONG:"]
        assert "the gradient jumps" in line
        assert "float64 differences of gradients" in report.cost
        numbers = json.loads(json.dumps(report.to_dict()))
        assert (numbers["product"], numbers["dtype"]) == ("fd", "float64")
        assert numbers["step_comparison"] == {"products": 3, "difference": steps.difference}
        assert str(HessianReport.from_dict(numbers)) == str(report)


def test_another_matrix_or_product_is_refused():
    for options in ({"matrix": "fisher"}, {"ggn": True}):
        with pytest.raises(FedscapeError, match="differences of gradients multiply with the Hessian"):
            measure_hessian(small_landscape(), product="fd", **options)
    with pytest.raises(FedscapeError, match="unknown product 'forward': give autograd or fd"):
        measure_hessian(small_landscape(), product="forward")
