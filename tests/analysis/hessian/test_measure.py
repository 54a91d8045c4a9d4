"""``measure_hessian``: against dense Hessians, and its options in groups and by name."""

import numpy as np
import pytest
import torch
from torch import nn

import analysis.hessian.measure
import analysis.hessian.spectrum.operators
import analysis.hessian.spectrum.resume
from analysis import Dense, extreme_eigenpairs, measure_hessian
from analysis.hessian import Effort, Spectrum
from analysis.source import Source
from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from tests.analysis.hessian.spectrum.spectra import dense_hessian, small_landscape


def test_report_of_a_net_agrees_with_its_dense_hessian():
    landscape = small_landscape()
    dense = dense_hessian(landscape)
    exact = np.linalg.eigvalsh(dense)[::-1]
    report = measure_hessian(landscape, density=True, trace_tolerance=0.01)
    np.testing.assert_allclose(report.eigen.values, exact[:5], rtol=1e-3)
    assert report.to_dict()["ratio_1_5"] == pytest.approx(exact[0] / exact[4], rel=2e-3)
    assert abs(report.trace.value - np.trace(dense)) <= 4 * report.trace.stderr
    assert report.loss == landscape.value()
    assert report.hvps == report.eigen.products + report.trace.products + report.density.products


def test_weight_decay_shifts_all_eigenvalues(checkpoint):
    plain, shifted = (
        measure_hessian(checkpoint, 3, samples=50, trace=False, weight_decay=c, dtype="float64") for c in (0.0, 0.5)
    )
    np.testing.assert_allclose(shifted.eigen.values, plain.eigen.values + 0.5, rtol=1e-3)


def test_without_a_block_man_is_of_all_parameters(checkpoint):
    names = ["1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"]
    around = Landscape.from_checkpoint(checkpoint, samples=40, device="cpu", dtype="float64", penalty=MAN(0.3))
    report = measure_hessian(checkpoint, 2, samples=40, man=0.3, trace=False, dtype="float64", device="cpu")
    assert report.loss == around.value()
    same = measure_hessian(around, 2, block=names, trace=False)
    np.testing.assert_allclose(report.eigen.values, same.eigen.values, rtol=1e-9)
    with pytest.raises(FedscapeError, match="a Landscape has its own penalty"):
        measure_hessian(around, 2, man=0.1)


def test_self_check_passes_on_a_trained_model(checkpoint):
    assert measure_hessian(checkpoint, 1, samples=100, trace=False, verify=True).hvps > 0


def test_an_interrupted_measurement_continues_and_is_no_others(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(analysis.hessian.spectrum.resume, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(analysis.hessian.spectrum.resume, "_COST_SHARE", float("inf"))
    options = {"trace": False, "samples": 60, "device": "cpu", "tolerance": 1e-6}
    plain = measure_hessian(checkpoint, 3, **options)
    multiply, spent = analysis.hessian.spectrum.operators.Hessian.matmat, []

    def interrupted(self, vectors):
        spent.append(1)
        if len(spent) == 9:
            raise KeyboardInterrupt
        return multiply(self, vectors)

    monkeypatch.setattr(analysis.hessian.spectrum.operators.Hessian, "matmat", interrupted)
    state = tmp_path / "state.pt"
    with pytest.raises(KeyboardInterrupt):
        measure_hessian(checkpoint, 3, **options, state=state)
    assert state.exists()
    with pytest.raises(FedscapeError, match="another question"):
        measure_hessian(checkpoint, 3, **{**options, "samples": 50}, state=state)
    again = measure_hessian(checkpoint, 3, **options, state=state)
    np.testing.assert_array_equal(again.eigen.values, plain.eigen.values)
    assert again.hvps < plain.hvps
    assert not state.exists()


def test_clients_restrict_the_data(checkpoint):
    report = measure_hessian(checkpoint, 1, clients=[3], trace=False)
    assert report.samples == len(np.load(checkpoint.parent / "partition.npz")["client_00003"])
    assert report.loss == Landscape.from_checkpoint(checkpoint, clients=[3]).value()


def test_tf32_widens_the_bounds_by_its_rounding():
    found = extreme_eigenpairs(Dense(torch.diag(torch.arange(1.0, 9))), 3)
    wide = analysis.hessian.measure._with_rounding(found, "tf32")
    rounding = 2**-10 * np.abs(found.values).max()  # of the λ1 that was computed: near 8, on each CPU another
    assert found.residuals.max() < rounding
    assert (wide.residuals == rounding).all()
    assert (wide.bounds == rounding).all()
    assert analysis.hessian.measure._with_rounding(found, "float32") is found


def test_a_loss_that_is_not_finite_is_refused():
    net = nn.Linear(2, 2)
    with torch.no_grad():
        net.weight.fill_(torch.nan)
    data = torch.ones(3, 2), torch.zeros(3, dtype=torch.long)
    with pytest.raises(FedscapeError, match=r"the loss at .* is nan"):
        measure_hessian(Landscape(net, data, device="cpu"), 1)


class TestOptions:
    def test_groups_and_keywords_say_the_same(self, checkpoint):
        keywords = measure_hessian(
            checkpoint, 3, samples=40, clients=[3], device="cpu", which="both", ratios=[(1, 2)], tolerance=1e-5, seed=4,
            density=True, density_probes=3, density_steps=6, weight_decay=0.1,
        )  # fmt: skip
        groups = measure_hessian(
            checkpoint,
            spectrum=Spectrum(top=3, which="both", ratios=["1/2"], density=True, weight_decay=0.1),
            source=Source(samples=40, clients=(3,), device="cpu"),
            effort=Effort(tolerance=1e-5, seed=4, density_probes=3, density_steps=6),
        )
        numbers = [report.to_dict() for report in (keywords, groups)]
        for one in numbers:
            del one["seconds"]
        assert numbers[0] == numbers[1]
        assert len(keywords.eigen.values) == 6

    def test_a_keyword_goes_before_the_groups_option(self):
        options = Spectrum(top=4, trace=False)
        assert len(measure_hessian(small_landscape(), spectrum=options).eigen.values) == 4
        changed = measure_hessian(small_landscape(), 2, spectrum=options, trace=True)
        assert len(changed.eigen.values) == 2
        assert changed.trace is not None

    def test_five_eigenvalues_and_the_trace_are_measured_where_nothing_is_said(self):
        report = measure_hessian(small_landscape())
        assert len(report.eigen.values) == 5
        assert (report.which, report.matrix, report.density) == ("largest", "hessian", None)
        assert report.trace is not None

    def test_an_option_that_there_is_not_is_told_with_the_one_meant(self):
        with pytest.raises(TypeError, match=r"measure_hessian\(\) has no option 'tolerence': did you mean 'tolerance'"):
            measure_hessian(small_landscape(), tolerence=1e-3)

    def test_threads_are_as_many_as_asked_for_and_only_inside(self, monkeypatch):
        seen, evaluate, before = [], Landscape.evaluate, torch.get_num_threads()
        monkeypatch.setattr(Landscape, "evaluate", lambda *a: (seen.append(torch.get_num_threads()), evaluate(*a))[1])
        measure_hessian(small_landscape(), 1, trace=False, threads=before + 1)
        assert seen == [before + 1]
        assert torch.get_num_threads() == before

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"ggn": True, "matrix": "fisher"}, "ask for two matrices"),
            ({"weight_decay": -1.0}, "the weight decay is -1.0: it must be 0 or more"),
            ({"ratios": ["1:2"]}, "'1:2' is no ratio of eigenvalues"),
            ({"matrix": "jacobian"}, "unknown matrix 'jacobian'"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, options, sentence):
        with pytest.raises(FedscapeError, match=sentence):
            measure_hessian(small_landscape(), 1, **options)

    def test_small_work_has_one_thread_and_a_number_that_is_given_goes_first(self, monkeypatch):
        def noting(*_, **__):
            seen.append(torch.get_num_threads())
            raise KeyError("enough is known")

        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("analysis.hessian.measure.extreme_eigenpairs", noting)
        seen, before = [], torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            for limit, threads in ((1e8, None), (1e8, 2), (1, None)):
                monkeypatch.setattr("landscape.compute.cost.THREADED_FLOPS", limit)
                with pytest.raises(KeyError, match="enough is known"):
                    measure_hessian(small_landscape(), 1, trace=False, threads=threads)
                assert torch.get_num_threads() == 3
        finally:
            torch.set_num_threads(before)
        assert seen == [1, 2, 3]
