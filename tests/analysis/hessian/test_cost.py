"""The line with the time that a measurement will take."""

from itertools import count
from types import SimpleNamespace

import pytest

from analysis import measure_hessian
from analysis.hessian.cost import expected_products
from analysis.hessian.options import Effort, Spectrum
from tests.analysis.hessian.spectrum.spectra import small_landscape


@pytest.fixture
def around(monkeypatch):
    """60 samples, 6 at a time; a product over one such micro-batch takes 0.3 s by the clock that is read."""
    clock = count(0.0, 0.3)
    monkeypatch.setattr("analysis.hessian.cost.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = small_landscape()
    found.batch_size = 6
    return found


def test_the_time_is_told_before_the_work(around, capsys, monkeypatch):
    told = []
    monkeypatch.setattr(type(around), "evaluate", lambda self, *a, **o: told.append(capsys.readouterr().err) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measure_hessian(around, progress=True)
    # 15 + 3·5 for the eigenvalues, 20 for the trace, of 10 micro-batches each
    assert told == [
        "about 2 min: some 50 products at 3 s (115 parameters, 60 samples); --samples auto or --samples N would be "
        "faster\n"
    ]


def test_a_subset_is_not_told_to_be_smaller(around, capsys):
    measure_hessian(around, 1, samples=36, progress=True)
    line = capsys.readouterr().err.splitlines()[0]
    assert line == "about 68 s: some 38 products at 1.8 s (115 parameters, 36 samples)"


def test_nothing_is_said_of_short_work_nor_of_few_micro_batches_nor_in_silence(around, capsys):
    measure_hessian(around, 1, trace=False)  # 18 products of 3 s
    assert "about" not in capsys.readouterr().err
    around.batch_size = 15
    measure_hessian(around, 1, trace=False, progress=True)  # 4 micro-batches
    assert "about" not in capsys.readouterr().err


def test_under_ten_seconds_nothing_is_said(around, capsys, monkeypatch):
    clock = count(0.0, 0.05)
    monkeypatch.setattr("analysis.hessian.cost.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    measure_hessian(around, 1, trace=False, progress=True)  # 18 products of 0.5 s
    assert "about" not in capsys.readouterr().err
    measure_hessian(around, 2, trace=False, progress=True)  # 21
    assert "about 10 s: some 21 products at 0.5 s" in capsys.readouterr().err


def test_the_count_follows_what_is_asked_for():
    few = expected_products(Spectrum(top=1, trace=False), Effort(), 10**6)
    assert expected_products(Spectrum(top=1, trace=False, density=True), Effort(), 10**6) == few + 8 * 40
    assert expected_products(Spectrum(top=1), Effort(trace_probes=7), 10**6) == few + 7
    assert expected_products(Spectrum(top=1, trace=False, which="both"), Effort(), 10**6) > few
    assert expected_products(Spectrum(top=2, trace=False, density=True), Effort(), 3) == 3 + 8 * 3
