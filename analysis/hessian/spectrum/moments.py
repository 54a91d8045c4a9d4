"""Diagonal, Frobenius norm and trace of the square, by random probes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.operators import Operator, Report
from analysis.hessian.spectrum.trace import confidence_interval, rademacher
from landscape import FedscapeError
from landscape.compute.randomness import torch_generator

_BLOCK = 5


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error over independent probes."""

    value: float
    stderr: float
    probes: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval by Student's t over the probes."""
        return confidence_interval(self.value, self.stderr, self.probes, level)


def trace_of_square(operator: Operator, probes: int = 50, *, seed: int = 0, report: Report | None = None) -> Estimate:
    """tr A² = ‖A‖²_F = E‖A z‖² for random ±1 vectors z, with the standard error of the mean.

    Raises:
        FedscapeError: fewer than 2 probes.
    """
    squares = [float(p.double().square().sum()) for _, p in _probed(operator, probes, seed, report)]
    return Estimate(float(np.mean(squares)), float(np.std(squares, ddof=1) / np.sqrt(probes)), probes)


def frobenius_norm(operator: Operator, probes: int = 50, *, seed: int = 0, report: Report | None = None) -> Estimate:
    """‖A‖_F = (tr A²)^½; the standard error by first-order propagation."""
    square = trace_of_square(operator, probes, seed=seed, report=report)
    norm = square.value**0.5
    return Estimate(norm, square.stderr / (2 * norm) if norm else 0.0, probes)


def diagonal(
    operator: Operator, probes: int = 50, *, seed: int = 0, report: Report | None = None
) -> tuple[Tensor, Tensor]:
    """diag A ≈ mean of z ∘ A z over random ±1 vectors z (Bekas, Kokiopoulou & Saad, Appl. Numer. Math. 2007).

    Returns:
        The estimate and its standard error, each [d] in the operator's type.

    Raises:
        FedscapeError: fewer than 2 probes.
    """
    mean = torch.zeros(operator.shape[0], dtype=operator.dtype, device=operator.device)
    spread = torch.zeros_like(mean)
    for count, (z, product) in enumerate(_probed(operator, probes, seed, report), 1):
        before = z * product - mean
        mean += before / count
        spread += before * (z * product - mean)
    return mean, (spread / (probes - 1) / probes).sqrt()


def _probed(operator: Operator, probes: int, seed: int, report: Report | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Random ±1 vectors and their products, a few at a time."""
    if probes < 2:
        raise FedscapeError(f"{probes} probes give no standard error: at least 2 are needed")
    generator, before = torch_generator(seed, "moments"), operator.products
    for first in range(0, probes, _BLOCK):
        count = min(_BLOCK, probes - first)
        z = rademacher(operator.shape[0], count, generator).to(operator.device, operator.dtype)
        yield from zip(z.T, operator.matmat(z).T, strict=True)
        if report is not None:
            report(operator.products - before, None)
