"""``samples="auto"``: a subset that grows until the sampling error meets the tolerance."""

import numpy as np
import pytest
import torch

from analysis import measure_hessian
from analysis.hessian.growth import next_size
from landscape import FedscapeError, Landscape
from tests.analysis.hessian.test_sampling import line, problem

N = 2500


@pytest.fixture(scope="module")
def around() -> Landscape:
    return Landscape(line(4, 3), problem(1, N, 4, 3, 0.3), device="cpu")


def test_it_ends_with_the_subset_of_as_many_samples_and_says_how_far_smaller_ones_were(around, capsys):
    report = measure_hessian(around, 2, samples="auto", sampling_tolerance=0.12, progress=True)
    assert f"512 of {N:,} samples: values known to 13.9%, 12.0% asked for" in capsys.readouterr().err
    found = report.sampling
    assert found.sizes == (512,)
    assert 2 * 512 <= report.samples == found.samples <= N // 2
    assert found.relative_error(report.eigen.values, report.trace.value) <= 0.12
    plain = measure_hessian(around, 2, samples=report.samples)
    np.testing.assert_array_equal(report.eigen.values, plain.eigen.values)
    np.testing.assert_array_equal([found.low, found.high], [plain.sampling.low, plain.sampling.high])
    first = measure_hessian(around, 2, samples=512)
    assert capsys.readouterr().err == ""
    assert first.sampling.relative_error(first.eigen.values, first.trace.value) == pytest.approx(0.139, abs=1e-3)
    assert report.hvps == plain.hvps + -(-first.hvps * 512 // report.samples)
    assert plain.hvps == plain.eigen.products + plain.trace.products + plain.sampling.products


def test_all_samples_are_taken_where_half_of_them_are_too_few(around):
    report, plain = (measure_hessian(around, 2, samples=n, sampling_tolerance=1e-3) for n in ("auto", None))
    assert report.sampling is None
    assert report.samples == N
    np.testing.assert_array_equal(report.eigen.values, plain.eigen.values)
    assert report.hvps > plain.hvps


def test_few_samples_are_measured_at_once(around):
    few = around.subset(torch.arange(1023))
    report, plain = (measure_hessian(few, 1, samples=n, sampling_tolerance=10.0) for n in ("auto", None))
    assert report.sampling is None
    assert (report.samples, report.hvps) == (1023, plain.hvps)


def test_the_next_size_follows_the_square_root_law():
    endless = 10**15
    assert next_size(512, endless, 0.3, 0.1) == pytest.approx(9 * 512, rel=0.2)  # eight times at most
    assert next_size(512, endless, 0.2, 0.1) == 4 * 512
    assert next_size(512, endless, 0.11, 0.1) == 2 * 512
    assert next_size(512, endless, np.inf, 0.1) == 8 * 512
    # √(1/n − 1/N) falls to a half: 1/n = 1/1000 + (1/200 − 1/1000)/4
    assert next_size(200, 1000, 0.2, 0.1) == 500


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"samples": "some"}, "'some' samples are asked for: give a number, or auto"),
        ({"samples": "auto", "sampling_tolerance": 0.0}, "the sampling tolerance is 0.0: it must be above 0"),
        ({"samples": "auto", "state": "there.pt"}, "give --samples N, not auto"),
        ({"samples": 0}, f"0 samples are asked for: give a number from 1 to {N}"),
        ({"samples": N + 1}, f"{N + 1} samples are asked for"),
    ],
)
def test_what_makes_no_sense_is_refused(around, options, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        measure_hessian(around, 1, **options)
