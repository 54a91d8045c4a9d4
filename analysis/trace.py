"""The trace, with its standard error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import t as student_t
from torch import Tensor

from analysis.lanczos import Lanczos
from analysis.operators import Operator, Report
from landscape import FedscapeError
from landscape.randomness import torch_generator

_BLOCK = 5
_FEWEST = 10
_FEWEST_STEPS = 30


@dataclass(frozen=True)
class Trace:
    """An estimate of tr A.

    Attributes:
        value: the estimate.
        stderr: its standard error; 0 where every coordinate was taken.
        probes: random probes averaged.
        products: products spent on them (HVPs).
        deflated: the dimension of the space whose part of the trace is exact.
    """

    value: float
    stderr: float
    probes: int
    products: int
    deflated: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval by Student's t over the probes."""
        return confidence_interval(self.value, self.stderr, self.probes, level)


def estimate_trace(
    operator: Operator,
    krylov: Lanczos | None = None,
    *,
    tolerance: float = 0.02,
    max_probes: int = 100,
    seed: int = 0,
    report: Report | None = None,
) -> Trace:
    """tr A = tr QᵀAQ + tr (I−QQᵀ)A(I−QQᵀ): the first part exactly, the second by random ±1 probes.

    Q is the basis of a Krylov space, which holds the large eigenvalues; what it leaves has little variance.
    That is Hutch++ (Meyer et al., SOSA 2021) with a Krylov basis (Chen & Hallman, SIMAX 2023): where the
    eigenvalues were measured before, most of Q and tr QᵀAQ costs nothing more.  The probes are independent of Q, so
    the mean is unbiased and the standard error is the usual one.

    Args:
        operator: a symmetric operator.
        krylov: a Lanczos process of this operator; it is carried on to 30 steps where it has fewer.
        tolerance: stop when the standard error is below this share of the estimate (at least 10 probes).
        max_probes: stop there even if it is not.
        seed: draws the probes.
        report: called with the products spent and the relative standard error.

    Raises:
        FedscapeError: fewer than 2 probes are allowed.
    """
    if max_probes < 2:
        raise FedscapeError(f"{max_probes} probes give no standard error: at least 2 are needed")
    d, before = operator.shape[0], operator.products
    generator = torch_generator(seed, "trace")
    if krylov is None:
        start = torch.randn(d, generator=generator, dtype=torch.float64).to(operator.device, operator.dtype)
        krylov = Lanczos(start, generator)
    while krylov.steps < min(d, _FEWEST_STEPS):
        krylov.absorb(operator.matmat(krylov.vector[:, None])[:, 0])
    exact = float(np.sum(krylov.diagonal))
    if krylov.complete:
        return Trace(exact, 0.0, 0, operator.products - before, d)
    forms: list[float] = []
    while len(forms) < max_probes:
        count = min(_BLOCK, max_probes - len(forms))
        probes = rademacher(d, count, generator).to(operator.device, operator.dtype)
        outside = krylov.outside(probes)
        products = operator.matmat(outside)
        forms += (outside.double() * products.double()).sum(dim=0).tolist()
        value = exact + float(np.mean(forms))
        stderr = float(np.std(forms, ddof=1) / np.sqrt(len(forms))) if len(forms) > 1 else float("inf")
        if report is not None:
            report(operator.products - before, stderr / abs(value) if value else float("inf"))
        if len(forms) >= _FEWEST and stderr <= tolerance * abs(value):
            break
    return Trace(value, stderr, len(forms), operator.products - before, krylov.steps)


def confidence_interval(value: float, stderr: float, probes: int, level: float) -> tuple[float, float]:
    """value ± t·stderr, t the quantile of Student's distribution with probes − 1 degrees of freedom."""
    half = float(student_t.ppf(0.5 + level / 2, probes - 1)) * stderr if stderr else 0.0
    return value - half, value + half


def rademacher(d: int, count: int, generator: torch.Generator) -> Tensor:
    """Random ±1 vectors as columns, [d, count]."""
    return torch.randint(0, 2, (d, count), generator=generator, dtype=torch.int8) * 2 - 1
