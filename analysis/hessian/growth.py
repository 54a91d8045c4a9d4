"""Measure on all samples, on a random subset, or on one that grows until its sampling error is small enough."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from analysis.hessian.cost import announce
from analysis.hessian.options import Effort, Spectrum
from analysis.hessian.report import HessianReport
from analysis.hessian.sampling import MatrixOf, sampling_error
from landscape import FedscapeError, Landscape
from landscape.data.samples import random_order

AUTO = "auto"
_FIRST = 512
"""Samples of the first subset."""
_FASTEST = 8
"""A subset grows at most so much at a time: how much is needed is told from an error that is itself uncertain."""


@dataclass(frozen=True)
class Question:
    """What is measured on some of the samples.

    Attributes:
        measure: gives a report of a landscape.
        matrix: the matrix that the report is of.
        spectrum, effort: as given to the measurement.
        progress: whether to say on stderr how long it will take, and how far a subset was from the tolerance.
    """

    measure: Callable[[Landscape], HessianReport]
    matrix: MatrixOf
    spectrum: Spectrum
    effort: Effort
    progress: bool = False

    def answer(self, landscape: Landscape, *, subset: bool) -> HessianReport:
        """The report of a landscape, after a line with the time it will take."""
        if self.progress:
            announce(landscape, self.matrix, self.spectrum, self.effort, subset=subset)
        return self.measure(landscape)


def measure_on(whole: Landscape, samples: int | str | None, question: Question) -> HessianReport:
    """The report of all samples, or of a random subset with intervals of what all samples would give.

    With ``auto`` the subset has 512 samples at first and grows while some eigenvalue's interval, or the trace's, has a
    half-width above ``effort.sampling_tolerance`` of the value: to as many samples as the tolerance is expected to need
    (the half-width falls as 1/√n), at least twice and at most eight times as many.  Above half of all samples, all are
    taken, without sampling error.  The subsets are nested, and the same as those of ``samples=N``.  The products of
    smaller subsets are counted as the share that they are of one over the last.

    Args:
        whole: the landscape over all samples.
        samples: how many, or ``auto``; all if ``None``.
        question: what is measured.

    Raises:
        FedscapeError: another text than ``auto``, a tolerance that is not above 0, ``auto`` with a file for the state;
            more samples than there are; a subset of a loss that is no mean over samples; what the measurement refuses.
    """
    if isinstance(samples, str):
        _check(samples, question.effort)
        return _grown(whole, question)
    if samples is None or samples == whole.samples:
        return question.answer(whole, subset=False)
    if not 1 <= samples <= whole.samples:
        raise FedscapeError(f"{samples} samples are asked for: give a number from 1 to {whole.samples}")
    return _on_first(whole, random_order(whole.data), samples, question)


def _on_first(whole: Landscape, order: Tensor, count: int, question: Question) -> HessianReport:
    """The report of the first samples in a random order, with intervals."""
    whole.require_samples()  # intervals are of means over groups of samples
    start = time.perf_counter()
    report = question.answer(whole.subset(order[:count].sort().values), subset=True)
    found = sampling_error(whole, order, count, report.eigen, report.trace, question.matrix, question.effort.seed)
    seconds = time.perf_counter() - start
    return replace(report, sampling=found, hvps=report.hvps + found.products, seconds=seconds)


def _grown(whole: Landscape, question: Question) -> HessianReport:
    """The report of the first subset whose intervals are narrow enough, or of all samples."""
    total, order, tolerance = whole.samples, random_order(whole.data), question.effort.sampling_tolerance
    before: list[HessianReport] = []
    count = _FIRST
    while 2 * count <= total:
        report = _on_first(whole, order, count, question)
        assert report.sampling is not None
        error = report.sampling.relative_error(report.eigen.values, report.trace.value if report.trace else None)
        if error <= tolerance:
            sizes = tuple(one.samples for one in before)
            grown = replace(report.sampling, sizes=sizes, tolerance=tolerance)
            return _with_cost_of(before, replace(report, sampling=grown))
        before.append(replace(report, eigen=replace(report.eigen, vectors=None, krylov=None)))
        if question.progress:
            print(
                f"{count:,} of {total:,} samples: values known to {error:.1%}, {tolerance:.1%} asked for",
                file=sys.stderr,
            )
        count = next_size(count, total, error, tolerance)
    return _with_cost_of(before, question.answer(whole, subset=True))


def _with_cost_of(before: Sequence[HessianReport], report: HessianReport) -> HessianReport:
    """A report that counts what smaller subsets took too."""
    work = sum(one.hvps * one.samples for one in before)
    seconds = report.seconds + sum(one.seconds for one in before)
    return replace(report, hvps=report.hvps - (-work // report.samples), seconds=seconds)


def next_size(count: int, total: int, error: float, tolerance: float) -> int:
    """Samples expected to reach the tolerance, at least twice and at most eight times as many as now.

    A relative error in proportion to √(1/n − 1/N) is taken for granted.
    """
    needed = 1 / ((1 / count - 1 / total) * (tolerance / error) ** 2 + 1 / total)
    return int(np.clip(np.ceil(needed), 2 * count, _FASTEST * count))


def _check(samples: str, effort: Effort) -> None:
    if samples != AUTO:
        raise FedscapeError(f"'{samples}' samples are asked for: give a number, or auto")
    if not effort.sampling_tolerance > 0:
        raise FedscapeError(f"the sampling tolerance is {effort.sampling_tolerance}: it must be above 0")
    if effort.state is not None:
        raise FedscapeError("--state keeps the iteration on one set of samples: give --samples N, not auto")
