"""The asymmetry that Lanczos sees in passing: against the matrix itself, and of networks right and wrong."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from analysis import Dense, Hessian, Lanczos, extreme_eigenpairs, measure_hessian
from analysis.hessian.layers import layer_eigenvalues
from analysis.hessian.report import HessianReport
from analysis.hessian.spectrum import symmetry
from analysis.hessian.spectrum.blocks import Block
from analysis.hessian.spectrum.operators import GaussNewton, Shifted
from analysis.hessian.spectrum.symmetry import asymmetry, complaint, confirmed
from landscape import FedscapeError, Landscape
from landscape.compute.randomness import torch_generator
from landscape.terminal.command import run
from tests.analysis.hessian.spectrum.spectra import SPECTRA, matrix, small_landscape

WRONG = "not those of a symmetric matrix"


def landscape(first: nn.Module, activation: nn.Module, dtype: torch.dtype = torch.float64) -> Landscape:
    """``first`` of 5 inputs and 6 outputs, an activation and 3 classes, on 40 samples, of which four are 0."""
    draw = torch.Generator().manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(copy.deepcopy(first), activation, nn.Linear(6, 3)).to(dtype)
    for parameter in net.parameters():
        parameter.data.copy_(0.7 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
    x = torch.randn(40, 5, generator=draw, dtype=torch.float64)
    x[:4] = 0.0
    return Landscape(net, (x, torch.randint(3, (40,), generator=draw)), device="cpu")


def weight_normed(dim: int | None = 0, dtype: torch.dtype = torch.float64) -> Landscape:
    return landscape(parametrizations.weight_norm(nn.Linear(5, 6), dim=dim), nn.Tanh(), dtype)


def steps(operator: Dense, count: int, restart: int = 0) -> list[float]:
    """The asymmetry after each step of a Lanczos process of which the last chains are others."""
    generator = torch_generator(0, "test")
    start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64).to(operator.dtype)
    process, seen = Lanczos(start, generator), []
    for step in range(count):
        if step == restart > 0:
            process.restart(lambda ascending: np.arange(len(ascending))[-4:])
            process.branch()
        process.absorb(operator @ process.vector)
        seen.append(process.asymmetry)
    return seen


class TestOfAMatrix:
    def test_a_step_is_judged_by_its_definition(self):
        draw = np.random.default_rng(0)
        components, coupled = draw.normal(size=4), draw.normal(size=3)
        length = np.sqrt((components**2).sum() + 0.25)
        exact = np.linalg.norm(components[:3] - coupled) / length
        assert asymmetry(components, coupled, 0.5, 1.0, 1e-16) == pytest.approx(exact, rel=1e-12)
        assert asymmetry(components, components[:3], 0.5, 1.0, 1e-16) == 0.0

    def test_a_short_product_is_judged_by_the_longest(self):
        components = np.array([3e-6, 0.0])
        assert asymmetry(components, np.zeros(1), 0.0, 1.0, 1e-16) == pytest.approx(3e-3, rel=1e-6)
        assert asymmetry(components, np.zeros(1), 0.0, 1.0, 1e-7) == 0.0  # within rounding

    @pytest.mark.parametrize("restart", [0, 9])
    @pytest.mark.parametrize("part", [1e-3, 1e-1])
    def test_it_is_seen_in_the_second_step_and_of_the_size_of_the_antisymmetric_part(self, part, restart):
        operator, _ = matrix("indefinite")
        draw = torch.Generator().manual_seed(0)
        noise = torch.randn(120, 120, generator=draw, dtype=torch.float64)
        noise = (noise - noise.T) / (noise - noise.T).norm() * operator.matrix.norm()
        seen = steps(Dense(operator.matrix + part * noise), 16, restart)
        assert seen[0] == 0.0
        assert seen == sorted(seen)
        q = torch.randn(120, generator=torch_generator(0, "test"), dtype=torch.float64)
        q = q / q.norm()
        product = Dense(operator.matrix + part * noise) @ q
        nxt = product - (q @ product) * q
        nxt = nxt / nxt.norm()
        second = Dense(operator.matrix + part * noise) @ nxt
        assert seen[1] == pytest.approx(float((q @ second - nxt @ product).abs() / second.norm()), rel=1e-6)
        assert part / 10 < seen[-1] < 10 * part

    def test_it_survives_a_state_and_does_not_depend_on_how_much_of_the_basis_is_on_the_device(self, monkeypatch):
        operator = Dense(matrix("spread")[0].matrix.triu())
        processes = []
        for size in (2**28, 3 * 120 * 8):
            monkeypatch.setattr("analysis.hessian.spectrum.lanczos._GROUP_BYTES", size)
            process = Lanczos(torch.ones(120, dtype=torch.float64), torch_generator(0, "test"))
            for _ in range(10):
                process.absorb(operator @ process.vector)
            processes.append(process)
        whole, groups = processes
        assert groups.asymmetry == pytest.approx(whole.asymmetry, rel=1e-6)
        assert whole.asymmetry > 0.01
        groups.resume(whole.state())
        assert groups.asymmetry == whole.asymmetry
        groups.resume({name: value for name, value in whole.state().items() if name != "asymmetry"})  # an earlier one
        assert groups.asymmetry == 0.0

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    @pytest.mark.parametrize("name", SPECTRA)
    def test_symmetric_ones_have_none_through_ends_of_spaces_and_restarts(self, name, dtype):
        operator, _ = matrix(name, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for options in ({}, {"max_basis": 14}, {"k": 40}):
                found = extreme_eigenpairs(operator, **{"k": 5, "tolerance": 1e-2, **options})
                assert found.asymmetry < symmetry.ALLOWED[str(dtype).removeprefix("torch.")] / 10

    def test_any_other_is_warned_of(self):
        operator = Dense(torch.diag(torch.arange(1.0, 41.0, dtype=torch.float64)).roll(1, 0))
        with pytest.warns(UserWarning, match=WRONG):
            assert extreme_eigenpairs(operator, 3, max_products=20).asymmetry > 0.1


class TestOfNetworks:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_right_double_backwards_do_not_warn(self, dtype):
        right = [landscape(nn.Linear(5, 6), nn.Tanh()), landscape(nn.Linear(5, 6), nn.ReLU()), small_landscape()]
        right += [landscape(nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6)), nn.GELU()), weight_normed(None)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for each in right:
                found = extreme_eigenpairs(Hessian(each.to(dtype)), 5, max_products=20)
                assert found.asymmetry < symmetry.ALLOWED[str(dtype).removeprefix("torch.")] / 10
            report = measure_hessian(right[0].to(dtype), 2, trace=False, verify=True)
        assert "symmetric" not in str(report)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_weight_norm_along_an_axis_is_warned_of_and_the_table_names_the_fallback(self, dtype):
        with pytest.warns(UserWarning, match=f"{WRONG}.*--product fd"):
            report = measure_hessian(weight_normed(dtype=dtype), 3, trace=False)
        assert report.eigen.asymmetry > 1e-2
        lines = [line for line in str(report).splitlines() if line.startswith("asymmetry")]
        assert len(lines) == 1
        assert "--product fd" in lines[0]
        numbers = report.to_dict()
        assert numbers["asymmetry"] == report.eigen.asymmetry
        assert str(HessianReport.from_dict(numbers)) == str(report)
        older = {name: value for name, value in numbers.items() if name not in ("asymmetry", "product")}
        assert HessianReport.from_dict(older).eigen.asymmetry is None

    def test_it_reaches_sums_blocks_and_layers(self):
        wrong = weight_normed()
        for operator in (Shifted(Hessian(wrong), 0.1), Block(Hessian(wrong.to("float32")), slice(0, 40))):
            with pytest.warns(UserWarning, match=WRONG):
                extreme_eigenpairs(operator, 3, max_products=20)
        with pytest.warns(UserWarning, match=WRONG):
            layer_eigenvalues(wrong, top=3, max_products=20)

    def test_the_gauss_newton_matrix_needs_no_second_derivative_of_the_layer(self):
        assert extreme_eigenpairs(GaussNewton(weight_normed()), 3, max_products=20).asymmetry < 1e-9

    def test_verify_refuses_it_with_exit_code_two_even_where_its_own_check_saw_nothing(self, monkeypatch, capsys):
        assert run(lambda: measure_hessian(weight_normed(), 3, verify=True)) == 2
        assert "--product fd" in capsys.readouterr().err
        monkeypatch.setattr("analysis.hessian.checks.verify.Verification.require", lambda self: None)
        with pytest.warns(UserWarning, match=WRONG):
            assert run(lambda: measure_hessian(weight_normed(), 3, verify=True)) == 2
        assert capsys.readouterr().err.startswith("error: the products are not those of a symmetric matrix")


class TestFloat32:
    def test_what_is_suspected_is_looked_at_in_float64_and_paid_for(self):
        basis, _ = torch.linalg.qr(torch.randn(75, 20, generator=torch.Generator().manual_seed(0)))
        right, wrong = (
            Hessian(landscape(nn.Linear(5, 6), nn.Tanh(), torch.float32)),
            Hessian(weight_normed(dtype=torch.float32)),
        )
        assert confirmed(1e-5, right, basis[: right.shape[0]].T) == (1e-5, 0)
        value, products = confirmed(1e-2, right, basis[: right.shape[0]].T)
        assert value < 1e-9
        assert products == 3
        assert confirmed(1e-2, wrong, basis[: wrong.shape[0]].T) == (1e-2, 3)

    def test_of_tf32_only_what_is_above_its_own_rounding_is_looked_at(self, monkeypatch):
        right = Hessian(landscape(nn.Linear(5, 6), nn.Tanh(), torch.float32))
        name = property(lambda self: "tf32" if self.dtype == torch.float32 else "float64")
        monkeypatch.setattr(Landscape, "precision", name)
        basis = torch.eye(right.shape[0])[:20]
        assert confirmed(1e-3, right, basis) == (1e-3, 0)
        value, products = confirmed(0.1, right, basis)
        assert value < 1e-9
        assert products == 3

    def test_false_suspicion_does_not_warn_and_its_products_are_counted(self, monkeypatch):
        operator = Hessian(small_landscape().to("float32"))
        plain = extreme_eigenpairs(operator, 3)
        monkeypatch.setitem(symmetry.ALLOWED, "float32", -1.0)
        before = operator.products
        monkeypatch.setattr("analysis.hessian.spectrum.eigen.warn_if_asymmetric", lambda *_: None)
        found = extreme_eigenpairs(operator, 3)
        assert found.products == operator.products - before == plain.products + 3
        assert 0 < found.asymmetry < 1e-9
        np.testing.assert_array_equal(found.values, plain.values)

    def test_a_matrix_without_a_float64_twin_is_judged_as_it_is(self):
        assert confirmed(0.3, Dense(torch.eye(4)), torch.eye(4)) == (0.3, 0)


def test_a_sentence_only_where_something_is_wrong():
    for precision, allowed in symmetry.ALLOWED.items():
        assert complaint(allowed, precision, "autograd") is None
        assert WRONG in complaint(1.01 * allowed, precision, "autograd")
    assert complaint(None, "float64", "autograd") is None
    assert "--product fd" not in complaint(1.0, "float64", "fd")
    with pytest.raises(FedscapeError, match=WRONG):
        symmetry.require_symmetric(1.0, Dense(torch.eye(3)))
