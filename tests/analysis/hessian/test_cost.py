"""The line with the time that a measurement will take."""

from itertools import count
from types import SimpleNamespace

import pytest

from analysis import measure_hessian
from analysis.hessian.cost import expected_products
from analysis.hessian.options import Effort, Spectrum
from landscape import Landscape
from tests.analysis.hessian.spectrum.spectra import small_landscape

SECONDS = 0.3
"""Of a product over a micro-batch of 6 samples, by the clock that is read."""


class Began(Exception):
    """The work has begun."""


@pytest.fixture
def told(monkeypatch, capsys):
    """What is said before the loss is evaluated, of 60 samples in micro-batches."""

    def begin(*_: object, **__: object) -> None:
        raise Began

    def told(batch_size=6, seconds=SECONDS, top=5, **options) -> str:
        clock = count(0.0, seconds)
        monkeypatch.setattr("analysis.timing.time", SimpleNamespace(perf_counter=lambda: next(clock)))
        around = small_landscape()
        around.batch_size = batch_size
        with pytest.raises(Began):
            measure_hessian(around, top, **options)
        return capsys.readouterr().err

    monkeypatch.setattr(Landscape, "evaluate", begin)
    return told


def test_the_time_is_told_before_the_work(told):
    """8 + 3·5 products for the eigenvalues, 20 for the trace, of 10 micro-batches each."""
    assert told(progress=True) == (
        "about 2 min: some 43 products at 3 s (115 parameters, 60 samples); --samples auto or --samples N would be "
        "faster\n"
    )


def test_a_subset_is_not_told_to_be_smaller(told):
    line = told(top=1, samples=36, progress=True)
    assert line == "about 56 s: some 31 products at 1.8 s (115 parameters, 36 samples)\n"


def test_nothing_is_said_in_silence_nor_of_few_micro_batches_nor_of_less_than_ten_seconds(told):
    assert told() == ""
    assert told(batch_size=15, progress=True) == ""  # 4 micro-batches
    assert told(top=3, seconds=0.05, trace=False, progress=True) == ""  # 17 products of 0.5 s
    assert "about 10 s: some 20 products at 0.5 s" in told(top=4, seconds=0.05, trace=False, progress=True)


def test_the_count_follows_what_is_asked_for():
    few = expected_products(Spectrum(top=1, trace=False), Effort(), 10**6)
    assert expected_products(Spectrum(top=1, trace=False, density=True), Effort(), 10**6) == few + 4 * 16
    assert expected_products(Spectrum(top=1), Effort(trace_probes=7), 10**6) == few + 7
    assert expected_products(Spectrum(top=1, trace=False, which="both"), Effort(), 10**6) > few
    assert expected_products(Spectrum(top=2, trace=False, density=True), Effort(), 3) == 3 + 4 * 3
