"""The trace, with its standard error."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from torch import Tensor

from analysis.hessian.spectrum.iteration import default_basis
from analysis.hessian.spectrum.lanczos import Lanczos
from analysis.hessian.spectrum.operators import Operator, Report
from landscape import FedscapeError
from landscape.compute.devices import one_blas_thread
from landscape.compute.randomness import torch_generator
from landscape.storage.display import Shown

_BLOCK = 5
"""Probes multiplied at a time: the number of pilot probes, and the smallest number in the estimate."""
_LOOK_BACK = 8
"""The value of the next Lanczos step is judged by the fall of the variance over this many steps."""
_MOST_DEGREES = 1e6
"""Degrees of freedom beyond which Student's distribution is taken for the normal one."""
_PIECE = 2**16
"""Coordinates of the probes that are drawn, or summed in float64, at a time: this takes little memory."""
_FEWEST_STEPS = 6
"""A basis may always grow to this many vectors and the 24 that default_basis adds."""


@dataclass(frozen=True, repr=False)
class Trace(Shown):
    """An estimate of tr A.

    Attributes:
        value: the estimate.
        stderr: its standard error; 0 where every coordinate was taken.
        probes: random probes averaged.
        products: products spent on it (HVPs): probes and Lanczos steps.
        deflated: the dimension of the space whose part of the trace is exact.
        degrees: degrees of freedom of ``stderr``; probes − 1 unless given.
        tolerance: the standard error asked for, as a share of the estimate; ``None`` where that is not known.
        converged: whether it was reached; ``None`` where that is not known.
    """

    value: float
    stderr: float
    probes: int
    products: int
    deflated: int
    degrees: float | None = None
    tolerance: float | None = None
    converged: bool | None = None

    @property
    def shortfall(self) -> str:
        """What is said of a tolerance that was not met; else nothing."""
        if self.converged is not False or self.tolerance is None:
            return ""
        reached = f"{self.stderr / abs(self.value):.2g}" if self.value else "no share"
        return (
            f"NOT CONVERGED: {reached} of it, asked for {self.tolerance:g}, after {self.probes} probes, "
            "the most allowed (--trace-probes)"
        )

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval by Student's t."""
        degrees = self.probes - 1 if self.degrees is None else self.degrees
        return confidence_interval(self.value, self.stderr, degrees + 1, level)


@one_blas_thread()
def estimate_trace(
    operator: Operator,
    krylov: Lanczos | None = None,
    *,
    tolerance: float = 0.02,
    max_probes: int = 100,
    seed: int = 0,
    report: Report | None = None,
) -> Trace:
    """tr A = tr QᵀAQ + tr PAP with P = I − QQᵀ: the first part exactly, the second by random probes.

    Q is the basis of a Krylov space, which holds the large eigenvalues; what it leaves has little variance.
    That is Hutch++ (Meyer et al., SOSA 2021) with a Krylov basis (Chen & Hallman, SIMAX 2023): where the
    eigenvalues were measured before, Q and tr QᵀAQ cost nothing more.  How far Q grows is decided on the way, as in
    A-Hutch++ (Persson, Cortinovis & Kressner, SIMAX 2022): a Lanczos step is taken while it saves more probes than
    it costs products.  Five pilot probes decide; they follow Q as it grows without a further product.  Growth stops
    where they happen to be low, so the estimate is made with new probes: with the pilots it would be biased.

    A probe z is uniform on the sphere of radius √r in the space that Q leaves, of dimension r = d − m.  It is
    independent of Q, so the mean of zᵀAz is unbiased, and its variance is known (that of a ratio of quadratic forms):
    2r/(r+2) · (‖PAP‖²_F − (tr PAP)²/r).  ‖PAz‖² has the mean ‖PAP‖²_F, and varies far less than the square of zᵀAz
    does: some five probes give a standard error that a sample's spread needs dozens for.

    In memory at once are Q and a few blocks of 5 vectors: probes, products and temporary ones.  Q grows to 30
    vectors, or to what fits in 256 MB where that is more.

    Args:
        operator: a symmetric operator.
        krylov: a Lanczos process of this operator; it is continued where that saves products.
        tolerance: stop when the standard error is below this share of the estimate (at least 5 probes).
        max_probes: stop there even if it is not (then ``converged`` is false); the pilots are not counted.
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
    room = max(krylov.steps, default_basis(_FEWEST_STEPS, d, operator.dtype))

    def tell(sample: _Sample) -> None:
        if report is not None:
            report(operator.products - before, sample.relative_error(len(sample.forms)))

    # Where fewer dimensions are left than the probes would cost, the basis is completed.
    pilots = _Probes(operator, krylov, _BLOCK, generator) if d - krylov.steps > 2 * _BLOCK else None
    variances: deque[float] = deque(maxlen=_LOOK_BACK + 1)
    while not krylov.complete:
        if pilots is not None:
            sample = pilots.sample()
            tell(sample)
            variances.append(sample.variance)
            if krylov.steps == room or not _pays(sample, variances, d - krylov.steps, tolerance, max_probes):
                break
        vector = krylov.vector
        krylov.absorb(operator.matmat(vector[:, None])[:, 0])
        if pilots is not None:
            pilots.follow(vector)
    if krylov.complete:
        exact = float(np.sum(krylov.diagonal))
        return Trace(exact, 0.0, 0, operator.products - before, d, tolerance=tolerance, converged=True)
    del pilots  # the next probes need their memory
    sample = _Probes(operator, krylov, min(_BLOCK, max_probes), generator).sample()
    while (missing := min(sample.probes_needed(tolerance), max_probes) - len(sample.forms)) > 0:
        tell(sample)
        sample = sample.joined(_Probes(operator, krylov, min(_BLOCK, int(np.ceil(missing))), generator).sample())
    tell(sample)
    n = len(sample.forms)
    stderr = float(np.sqrt(sample.variance / n))
    products, met = operator.products - before, stderr <= tolerance * abs(sample.value)
    return Trace(sample.value, stderr, n, products, krylov.steps, sample.degrees, tolerance, bool(met))


@dataclass(frozen=True)
class _Sample:
    """Results of probes of PAP, in the space of dimension r orthogonal to Q.

    Attributes:
        exact: tr QᵀAQ.
        room: r.
        forms: zᵀAz of each probe, [n].
        squares: ‖PAz‖² of each probe, [n].
    """

    exact: float
    room: int
    forms: np.ndarray
    squares: np.ndarray

    @property
    def value(self) -> float:
        """The estimate of tr A."""
        return float(self.exact + self.forms.mean())

    @property
    def variance(self) -> float:
        """The variance of one probe's zᵀAz: 2r/(r+2) · (‖PAP‖²_F − (tr PAP)²/r)."""
        spread = self.squares.mean() - self.forms.mean() ** 2 / self.room
        return float(2 * self.room / (self.room + 2) * max(spread, 0.0))

    @property
    def degrees(self) -> float:
        """Degrees of freedom of ``variance``: 2 E²/Var (Satterthwaite, Biometrics 1946), to first order."""
        n = len(self.forms)
        each = self.squares - 2 * self.forms.mean() * self.forms / self.room
        spread, scatter = self.variance * (self.room + 2) / (2 * self.room), float(each.var(ddof=1)) / n
        return min(2 * spread**2 / scatter, _MOST_DEGREES) if spread > 0 and scatter > 0 else n - 1.0

    def relative_error(self, probes: int) -> float:
        """The standard error of that many probes, as a share of the estimate."""
        return float(np.sqrt(self.variance / probes) / abs(self.value)) if self.value else float("inf")

    def probes_needed(self, tolerance: float) -> float:
        """Probes needed for a relative standard error of ``tolerance``."""
        if self.variance == 0.0:
            return 1.0
        return (self.relative_error(1) / tolerance) ** 2 if tolerance > 0 else float("inf")

    def joined(self, other: _Sample) -> _Sample:
        """This sample and another of the same space in one."""
        forms, squares = (self.forms, other.forms), (self.squares, other.squares)
        return _Sample(self.exact, self.room, np.concatenate(forms), np.concatenate(squares))


class _Probes:
    """Random probes Z in the space orthogonal to a basis, and their products B = PAZ, [d, n] each.

    When q joins the basis, with Aq = Q(...) + q' for q' outside of the grown basis, they become Z − q qᵀZ and
    B − q qᵀB − q' qᵀZ: the same as new projections, without a product.
    """

    def __init__(self, operator: Operator, krylov: Lanczos, count: int, generator: torch.Generator) -> None:
        self.krylov = krylov
        self.vectors = torch.empty(operator.shape[0], count, device=operator.device, dtype=operator.dtype)
        for piece in self.vectors.split(_PIECE):
            piece.copy_(torch.randn(piece.shape, generator=generator, dtype=torch.float64))
        self.vectors = krylov.outside(self.vectors)
        self.products = krylov.outside(operator.matmat(self.vectors))

    def follow(self, vector: Tensor) -> None:
        """Update the probes after a step that added ``vector`` to the basis."""
        ahead = self.krylov.remainder()
        along = vector @ self.vectors
        self.vectors -= torch.outer(vector, along)
        self.products -= torch.outer(vector, vector @ self.products)
        self.products -= torch.outer(ahead, along)

    def sample(self) -> _Sample:
        """The probes' forms and squares, with each probe of length √r."""
        room = len(self.vectors) - self.krylov.steps
        forms, squares, lengths = torch.zeros(3, self.vectors.shape[1], dtype=torch.float64, device=self.vectors.device)
        for z, product in zip(self.vectors.split(_PIECE), self.products.split(_PIECE), strict=True):
            z, product = z.double(), product.double()
            forms += (z * product).sum(dim=0)
            squares += product.square().sum(dim=0)
            lengths += z.square().sum(dim=0)
        scale = room / lengths
        exact = float(np.sum(self.krylov.diagonal))
        return _Sample(exact, room, (forms * scale).cpu().numpy(), (squares * scale).cpu().numpy())


def _pays(sample: _Sample, variances: deque[float], left: int, tolerance: float, max_probes: int) -> bool:
    """Whether one more Lanczos step saves more than one probe.

    With n probes still needed and the variance falling by a share s a step, a step saves ns probes.  Where n is more
    than the ``left`` dimensions, completing the basis is cheaper and exact.
    """
    n = min(max(sample.probes_needed(tolerance), _BLOCK), max_probes)  # fewer are never drawn
    if n >= left:
        return True
    if n <= _BLOCK:
        return False
    if len(variances) <= _LOOK_BACK:
        return True
    return n * (variances[0] / variances[-1] - 1) >= _LOOK_BACK


def confidence_interval(value: float, stderr: float, probes: float, level: float) -> tuple[float, float]:
    """value ± t·stderr, t the quantile of Student's distribution with probes − 1 degrees of freedom."""
    half = float(scipy.special.stdtrit(probes - 1, 0.5 + level / 2)) * stderr if stderr else 0.0
    return value - half, value + half


def rademacher(d: int, count: int, generator: torch.Generator) -> Tensor:
    """Random ±1 vectors as columns, [d, count]."""
    return torch.randint(0, 2, (d, count), generator=generator, dtype=torch.int8) * 2 - 1
