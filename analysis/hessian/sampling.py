"""How far the spectrum of a random subset of the samples may lie from that of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from analysis.hessian.spectrum.eigen import Eigenpairs
from analysis.hessian.spectrum.operators import Operator
from analysis.hessian.spectrum.trace import Trace
from landscape import Landscape
from landscape.compute.randomness import torch_generator

LEVEL = 0.95
"""Nominal coverage of every interval."""
_GROUPS = 16
"""Groups that the subset, and as many that the samples held out, are divided into; fewer of a small subset."""
_FEWEST = 8
"""Samples in a group at least, where there are those of two groups."""
_BLOCK = 5
"""Vectors multiplied at a time, and probes of the trace beside the eigenvectors."""

_EVEN, _WIDER = 0.25, 2.0
"""Below this evenness a value is said to be carried by few samples, and its interval is so much wider: with 1 it held
the value in 0.86 to 0.92 of 100 draws of a net of which 1 % of the samples have 99 % of the curvature, with 2 in 0.92
to 0.97."""

MatrixOf = Callable[[Landscape], Operator]
"""The matrix that is measured, of a landscape over some of the samples."""


@dataclass(frozen=True)
class Sampling:
    """Intervals of the values over all N samples, where n of them, drawn at random, were measured.

    They hold the numerical errors too.  Their nominal coverage is 95 %; ``tests/analysis/hessian/test_sampling.py``
    measures it.  There is none for a spectral density.

    Attributes:
        samples: n.
        population: N.
        held_out: samples outside of the subset that the eigenvectors were tried on.
        low, high: ends of the eigenvalues' intervals, [k]; infinite where two samples are too few to say.
        trace: ends of the trace's interval; ``None`` where it was not measured.
        loss_stderr: the standard error of the loss as that of all samples, without a penalty's; ``None`` of one sample.
        evenness: how evenly the groups of samples share each eigenvalue's curvature, [k]: the effective number of
            groups (Σ|c_g|)²/Σc_g² over their number, 1 where all have the same.  Where it is below 0.25, a few samples
            decide, and the subset may have too few of these: the interval is twice as wide.
        products: what all that cost, in products over the subset.
        sizes: the sizes of smaller subsets that were tried before.
        tolerance: the half-width of an interval asked for, as a share of the value; ``None`` where n was given.
        accuracy_stderr: the standard error of the accuracy as that of all samples; ``None`` where there is none.
    """

    samples: int
    population: int
    held_out: int
    low: np.ndarray
    high: np.ndarray
    trace: tuple[float, float] | None
    loss_stderr: float | None
    evenness: np.ndarray
    products: int
    sizes: tuple[int, ...] = ()
    tolerance: float | None = None
    accuracy_stderr: float | None = None

    def ratio(self, i: int, j: int) -> tuple[float, float]:
        """The range of λ_i/λ_j, counted from 1, while both are in their intervals: nominal coverage 90 % at least."""
        if self.low[j - 1] <= 0 <= self.high[j - 1]:
            return -np.inf, np.inf
        corners = [a / b for a in (self.low[i - 1], self.high[i - 1]) for b in (self.low[j - 1], self.high[j - 1])]
        return float(min(corners)), float(max(corners))

    def relative_error(self, values: np.ndarray, trace: float | None) -> float:
        """The largest half-width of an interval as a share of its value; ``inf`` of a value of 0."""
        halves, sizes = list((self.high - self.low) / 2), list(np.abs(values))
        if self.trace is not None and trace is not None:
            halves, sizes = [*halves, (self.trace[1] - self.trace[0]) / 2], [*sizes, abs(trace)]
        return max(float(half / size) if size else float("inf") for half, size in zip(halves, sizes, strict=True))

    def eigenvalue_text(self, i: int) -> str:
        """What the table says beside an eigenvalue, counted from 0."""
        doubt = ", twice as wide: few samples carry it" if self.evenness[i] < _EVEN else ""
        return self._text(float(self.low[i]), float(self.high[i]), f"95 %{doubt}")

    def ratio_text(self, i: int, j: int) -> str:
        """What it says beside λ_i/λ_j, counted from 1."""
        return self._text(*self.ratio(i, j), "90 %")

    @property
    def trace_text(self) -> str:
        """What it says beside the trace."""
        return "" if self.trace is None else self._text(*self.trace, "95 %")

    @property
    def loss_text(self) -> str:
        """What it says beside the loss."""
        return "" if self.loss_stderr is None else f", ± {self.loss_stderr:.2g} (standard error)"

    @property
    def accuracy_text(self) -> str:
        """What it says beside the accuracy."""
        return "" if self.accuracy_stderr is None else f", ± {self.accuracy_stderr:.2%} (standard error)"

    def _text(self, low: float, high: float, level: str) -> str:
        return f"; of all {self.population:,} samples {low:.4g} to {high:.4g} ({level})"

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists only."""
        lists = {name: value.tolist() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {**vars(self), **lists, "trace": self.trace and list(self.trace), "sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> Sampling:
        """What :meth:`to_dict` gave."""
        # In JSON files null stands for what is not finite: of an interval, that it has no end.
        low, high, evenness = (np.array(numbers[name], dtype=float) for name in ("low", "high", "evenness"))
        ends = {"low": np.where(np.isnan(low), -np.inf, low), "high": np.where(np.isnan(high), np.inf, high)}
        trace = numbers["trace"]
        if trace is not None:
            trace = tuple(end if found is None else found for found, end in zip(trace, (-np.inf, np.inf), strict=True))
        return cls(**{**numbers, **ends, "evenness": evenness, "trace": trace, "sizes": tuple(numbers["sizes"])})


def sampling_error(
    whole: Landscape, order: Tensor, count: int, eigen: Eigenpairs, trace: Trace | None, matrix: MatrixOf, seed: int
) -> Sampling:
    """Intervals of the eigenvalues and the trace over all samples, from those of the first ``count`` in random order.

    With unit eigenvectors v of the subset's matrix A_n, λ_n = vᵀA_n v differs from the λ of all samples by
    vᵀ(A_n − A)v + b, to the second order in A_n − A: the first is a mean over random samples, and
    b = Σ_j |v_jᵀ(A_n − A)v|²/(λ − λ_j) is a bias, because v was fitted to the subset (the largest eigenvalue of a
    subset is too large).  On samples held out, v was not fitted: q, the mean of vᵀA_i v over all samples as the subset
    and the held-out ones tell it, is λ − b to that order.  The interval is [min(λ_n, q) − h, max(λ_n, q) + h],
    h = t S √((1 − n/N)/n).  S², the variance of vᵀA_i v over samples, comes from the means of random groups (batch
    means), 16 of the subset and 16 of as many samples held out (fewer below 128 samples); the larger S² is taken,
    because a few samples may have most of the curvature, and t is Student's of 15 degrees of freedom.  The trace is
    linear in A: it has no such bias, and its groups are multiplied with the eigenvectors and with 5 random vectors
    orthogonal to them.

    A direction in which no sample of the subset has curvature is not seen.  Of a net near its minimum, where 1 % of
    4,000 samples had 99 % of the curvature, such intervals of 512 samples covered λ1 … λ5 in 0.86 to 0.95 of 200 draws;
    of other nets in 0.96 to 1.00, because they are wide enough for the bias and the larger S².  ``evenness`` was below
    0.25 near minima, where h is doubled, and 0.9 of a net that was not.

    Args:
        whole: the landscape over all samples.
        order: a random order of them, [N].
        count: n, below N.
        eigen: of the first n in that order, with their vectors.
        trace: of the same.
        matrix: the matrix that they are of.
        seed: of the trace's probes.
    """
    total = len(order)
    held_out = min(count, total - count)
    vectors, room = _vectors(whole, eigen, trace is not None, seed)
    k, share = len(eigen.values), count / total
    inside, outside = (_divided(part) for part in (order[:count], order[count : count + held_out]))
    forms = [_forms(whole, groups, vectors, matrix) for groups in (inside, outside)]
    spread, degrees = _spread(forms[0], inside, forms[1], outside, k, room)
    quantile = float(scipy.special.stdtrit(degrees, 0.5 + LEVEL / 2))
    half = quantile * spread * np.sqrt((1 - share) / count) if degrees else np.full(k + 1, np.inf)
    beyond = np.average(forms[1][:, :k], axis=0, weights=[len(group) for group in outside])
    everywhere = share * eigen.values + (1 - share) * beyond
    around = None
    if trace is not None:
        wide = float(np.hypot(half[k], trace.interval(LEVEL)[1] - trace.value))
        around = trace.value - wide, trace.value + wide
    evenness = _evenness(np.concatenate(forms)[:, :k])
    half[:k] *= np.where(evenness < _EVEN, _WIDER, 1.0)
    here, rest = whole.subset(order[:count]).evaluate(stderr=True), float(np.sqrt(1 - share))
    return Sampling(
        samples=count,
        population=total,
        held_out=held_out,
        low=np.minimum(eigen.values, everywhere) - half[:k] - eigen.bounds,
        high=np.maximum(eigen.values, everywhere) + half[:k] + eigen.bounds,
        trace=around,
        loss_stderr=None if here.loss_stderr is None else here.loss_stderr * rest,
        accuracy_stderr=None if here.accuracy_stderr is None else here.accuracy_stderr * rest,
        evenness=evenness,
        products=-(-vectors.shape[1] * (count + held_out) // count),
    )


def _divided(indices: Tensor) -> list[Tensor]:
    """Groups of nearly equal size; the order is random, so they are."""
    n = len(indices)
    return list(indices.tensor_split(min(n, max(2, min(_GROUPS, n // _FEWEST)))))


def _vectors(whole: Landscape, eigen: Eigenpairs, trace: bool, seed: int) -> tuple[Tensor, float]:
    """The eigenvectors and, for the trace, orthonormal random ones orthogonal to them, [d, k + p]; and (d − k)/p."""
    assert eigen.vectors is not None
    found = eigen.vectors.to(whole.device, whole.dtype).T
    d, k = found.shape
    count = min(_BLOCK, d - k) if trace else 0
    if not count:
        return found, 0.0
    draw = torch.randn(d, count, generator=torch_generator(seed, "sampling"), dtype=torch.float64).to(found)
    for _ in range(2):  # once more for what rounding left
        draw = torch.linalg.qr(draw - found @ (found.T @ draw)).Q
    return torch.cat([found, draw], 1), (d - k) / count


def _forms(whole: Landscape, groups: list[Tensor], vectors: Tensor, matrix: MatrixOf) -> np.ndarray:
    """vᵀA_g v of each group of samples and each column, [groups, columns]."""
    forms, part = np.empty((len(groups), vectors.shape[1])), whole.subset(groups[0])
    for row, group in zip(forms, groups, strict=True):
        part.data = whole.data.subset(group)
        operator, at = matrix(part), 0
        for block in vectors.split(_BLOCK, 1):
            for one, product in zip(block.T, operator.matmat(block).T, strict=True):
                row[at], at = float(one.double() @ product.double()), at + 1
    return forms


def _evenness(forms: np.ndarray) -> np.ndarray:
    """The effective number of groups over their number, of each column; 1 of a column of zeros."""
    sizes = np.abs(forms)
    squares = (sizes**2).sum(0) * len(forms)
    return np.divide(sizes.sum(0) ** 2, squares, out=np.ones(forms.shape[1]), where=squares > 0)


def _spread(
    inside: np.ndarray, groups: list[Tensor], outside: np.ndarray, others: list[Tensor], k: int, room: float
) -> tuple[np.ndarray, int]:
    """√S² of the eigenvalues and of the trace, [k + 1], and its degrees of freedom; 0 of these where none is known."""
    found, degrees = [np.zeros(k + 1)], []
    for forms, parts in ((inside, groups), (outside, others)):
        if len(parts) > 1:
            traces = forms[:, :k].sum(1) + room * forms[:, k:].sum(1)
            size = sum(len(part) for part in parts) / len(parts)
            found.append(np.column_stack([forms[:, :k], traces]).std(0, ddof=1) * np.sqrt(size))
            degrees.append(len(parts) - 1)
    return np.max(found, axis=0), min(degrees, default=0)
