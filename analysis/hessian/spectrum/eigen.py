"""Extreme eigenvalues and their eigenvectors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.evidence import UNSEEN
from analysis.hessian.spectrum.iteration import ThickRestart
from analysis.hessian.spectrum.lanczos import Lanczos
from analysis.hessian.spectrum.multiplicity import MultiplicitySearch
from analysis.hessian.spectrum.operators import Operator, Report
from analysis.hessian.spectrum.resume import StateFile
from analysis.hessian.spectrum.stopping import Approximation, StoppingRule
from analysis.hessian.spectrum.symmetry import confirmed, warn_if_asymmetric
from analysis.hessian.spectrum.unfinished import Unfinished
from analysis.hessian.spectrum.wanted import Wanted, Which
from landscape.compute.devices import one_blas_thread
from landscape.storage.display import Shown

_PARTS = ("process", "restarts", "history", "search")
"""What a file of unfinished eigenvalues holds: the states of the iteration, the stopping rule and the search."""


@dataclass(frozen=True)
class Refinement:
    """What a product in float64 cost, and what it said of those in float32.

    Attributes:
        products: in float64: one for each eigenvalue, or one for all
            (:func:`analysis.hessian.spectrum.refinement.refined_where_needed`).
        noise: ‖(A₃₂ − A₆₄)u‖ for a random unit vector u in the span of the eigenvectors, where A₃₂ is the matrix as
            float32 multiplies with it.  A value below it is not told from 0 by float32.
    """

    products: int
    noise: float


@dataclass(frozen=True)
class StepComparison:
    """What products by differences of gradients say of another step.

    Attributes:
        products: by the other step, one for each eigenvalue.
        difference: by how much a value moves at most, as a share of the largest |value|.
    """

    products: int
    difference: float


@dataclass(frozen=True, repr=False)
class Eigenpairs(Shown):
    """Extreme eigenvalues, in the order asked for (the largest: descending).

    Attributes:
        values: [k].
        residuals: ‖A v − λ v‖ for unit eigenvectors v, [k]: an eigenvalue lies within it of each value.
        bounds: error bounds of the values, [k]: residual²/gap where the gap to the neighbouring Ritz values is
            wide, else the residual; and never less than the value moved in the last steps.  Of eigenvalues that differ
            by less than the tolerance, some may be missing and the next ones be here instead.
        converged: which bounds are within the wanted tolerance, [k]; none where all are, but the search for hidden and
            multiple eigenvalues ended without its evidence (``missed`` above 1 %), or was cut short.
        products: products spent (HVPs), with those of the search.
        searched: of these, products from a second start, which look for further copies of multiple eigenvalues, and
            for others that the first start had too little of.
        missed: the probability that the search did not see a copy that would take the place of one of the values, if
            there is one; ``None`` where that is not known.
        vectors: unit eigenvectors as rows, [k, d]: the first rows of ``krylov.basis``, with no memory of their own.
        krylov: the process they came from; its basis serves the trace too.
        restarts: how often the basis was shrunk to stay within ``max_basis``.
        refinement: the cost and the noise of :func:`analysis.hessian.spectrum.refinement.refined`, if it was done: then
            values, residuals and bounds are float64's.
        asymmetry: how far the products are from those of a symmetric matrix, beyond rounding: the largest
            :func:`analysis.hessian.spectrum.symmetry.asymmetry` of all, of float32 products if some in float64 bear it
            out (:func:`analysis.hessian.spectrum.symmetry.confirmed`); ``None`` where nobody looked.
        steps: of products by differences, what :func:`analysis.hessian.checks.differences.compared_steps` found.

    A report that was read from a file has neither ``vectors`` nor ``krylov``.
    """

    values: np.ndarray
    residuals: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    products: int
    vectors: Tensor | None = None
    krylov: Lanczos | None = None
    restarts: int = 0
    refinement: Refinement | None = None
    searched: int = 0
    missed: float | None = None
    asymmetry: float | None = None
    steps: StepComparison | None = None

    def _facts(self) -> dict[str, str]:
        numbers = zip(self.values, self.bounds, self.converged, strict=True)
        each = {
            f"{place}.": f"{value:.4g} ± {bound:.1g}{'' if converged else ' NOT CONVERGED'}"
            for place, (value, bound, converged) in enumerate(numbers, 1)
        }
        return {"products": f"{self.products:,}", **each}

    def ratio(self, i: int, j: int) -> float | None:
        """λ_i/λ_j, counted from 1; ``None`` where fewer eigenvalues were asked for."""
        return float(self.values[i - 1] / self.values[j - 1]) if max(i, j) <= len(self.values) else None


_Steps = Generator[Tensor, Tensor, Eigenpairs]
"""An iteration under way: vectors to be multiplied come out, products go in, and the eigenpairs are its result."""


@one_blas_thread()
def extreme_eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    which: Which = "largest",
    tolerance: float = 1e-3,
    max_products: int | None = None,
    max_basis: int | None = None,
    offload: bool | None = None,
    state: str | Path | None = None,
    fingerprint: str = "",
    seed: int = 0,
    report: Report | None = None,
) -> Eigenpairs:
    """The k eigenvalues at an end of the spectrum, by thick-restart Lanczos with full re-orthogonalisation.

    An iteration (:class:`analysis.hessian.spectrum.iteration.ThickRestart`) takes steps until every value's error
    bound is below ``tolerance`` times the value (:class:`analysis.hessian.spectrum.stopping.StoppingRule`), and
    then some steps from a second random start, orthogonal to all before, which search for the other eigenvectors of
    multiple eigenvalues (:class:`analysis.hessian.spectrum.multiplicity.MultiplicitySearch`).

    Args:
        operator: a symmetric operator.
        k: how many, 1 to d.
        which: ``largest`` (descending), ``smallest`` (ascending), ``magnitude`` (largest |λ|, descending), or
            ``both``: the k largest, then the k smallest (k up to d/2).
        tolerance: relative error wanted of each value.
        max_products: stop there even if not converged (``converged`` says which are); 20 k + 100 unless given.
        max_basis: basis vectors held at most: a full basis is shrunk to its most wanted Ritz vectors and goes on
            (Wu & Simon, SIMAX 2000).  :func:`analysis.hessian.spectrum.iteration.default_basis` unless given.  With
            little more than k + 8 a search for copies may have too little room, and then no value counts as converged.
        offload: keep the basis, and so the vectors found, in (pinned) host memory; unless given, where it would take
            more than half of the GPU memory that is free.  Every value stays the same; each step moves it twice.
        state: a file to keep unfinished work in, written about every minute; where it exists already, the work
            continues from it, to the same values to the last bit (on the same kind of machine).  It is as large as the
            basis, and removed at the end.
        fingerprint: names the operator, as a checkpoint's digest does: a state file of another one is refused.
        seed: draws the start vector.
        report: called after each product, with the largest relative error bound.

    Warns:
        UserWarning: the products are not those of a symmetric matrix (:mod:`analysis.hessian.spectrum.symmetry`).

    Raises:
        FedscapeError: k is not from 1 to d, ``max_basis`` has no room for the eigenvalues, or the operator gives
            values that are not finite.
    """
    steps = _steps(
        operator,
        k,
        which=which,
        tolerance=tolerance,
        max_products=max_products,
        max_basis=max_basis,
        offload=offload,
        state=state,
        fingerprint=fingerprint,
        seed=seed,
        report=report,
    )
    vector = next(steps)
    try:
        while True:
            vector = steps.send(operator.matmat(vector[:, None])[:, 0])
    except StopIteration as ended:
        found: Eigenpairs = ended.value
        return found
    except BaseException as error:
        steps.throw(error)  # what it has begun is put in order
        raise


@one_blas_thread()
def eigenpairs_together(
    operators: Sequence[Operator],
    multiply: Callable[[Tensor], Tensor],
    k: int = 5,
    *,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> list[Eigenpairs]:
    """The k largest eigenvalues of several operators of one size, whose products are computed at once.

    Each iteration is that of :func:`largest_eigenpairs` alone, step by step; the products go into the operators'
    counts.

    Args:
        operators: A_1, ..., A_n.
        multiply: (v_1, ..., v_n) -> (A_1 v_1, ..., A_n v_n), rows [n, d].
        k, tolerance, seed: as in :func:`extreme_eigenpairs`.

    Example:
        >>> import torch
        >>> from analysis import Dense
        >>> from analysis.hessian.spectrum.eigen import eigenpairs_together
        >>> matrices = torch.stack([torch.diag(torch.arange(4.0)), torch.diag(2 * torch.arange(4.0))]).double()
        >>> both = eigenpairs_together([Dense(a) for a in matrices], lambda v: (matrices @ v[..., None])[..., 0], 2)
        >>> [each.values.round(6).tolist() for each in both]
        [[3.0, 2.0], [6.0, 4.0]]
    """
    solves = [_steps(operator, k, tolerance=tolerance, seed=seed) for operator in operators]
    found: list[Eigenpairs | None] = [None] * len(solves)
    due = torch.stack([next(each) for each in solves])
    while None in found:
        products = multiply(due)
        due = torch.zeros_like(due)
        for i, each in enumerate(solves):
            if found[i] is None:  # one that has ended has zeros multiplied in its row
                try:
                    due[i] = each.send(products[i])
                except StopIteration as ended:
                    found[i] = ended.value
                    operators[i].products += ended.value.krylov.absorbed
    return [each for each in found if each is not None]


def _steps(
    operator: Operator,
    k: int,
    *,
    which: Which = "largest",
    tolerance: float = 1e-3,
    max_products: int | None = None,
    max_basis: int | None = None,
    offload: bool | None = None,
    state: str | Path | None = None,
    fingerprint: str = "",
    seed: int = 0,
    report: Report | None = None,
) -> _Steps:
    """:func:`extreme_eigenpairs`: yields the vectors to be multiplied, and is sent their products."""
    wanted, epsilon = Wanted(which, k), torch.finfo(operator.dtype).eps
    wanted.check(operator.shape[0])
    limit = max_products if max_products is not None else 20 * k + 100
    iteration = ThickRestart(operator, wanted, max_basis=max_basis, offload=offload, seed=seed)
    rule = StoppingRule(wanted, tolerance, epsilon)
    search = MultiplicitySearch(wanted, tolerance, iteration.room)
    parts, krylov = (iteration, rule, search), iteration.krylov
    question = {"dimension": operator.shape[0], "dtype": str(operator.dtype), "seed": seed, "k": k, "which": which}
    rule_of_file = Unfinished(operator.shape[0], operator.dtype, wanted.count)
    question |= {"max_basis": iteration.room, "fingerprint": fingerprint}
    file = StateFile(state, question, _PARTS, rule_of_file)
    with file.owned():
        if (saved := file.read()) is not None:
            for part in parts:
                part.resume(saved)
        while True:
            file.keep(krylov.absorbed, lambda: {name: value for part in parts for name, value in part.state().items()})
            goes_on = iteration.absorb((yield iteration.due()))
            if krylov.steps < wanted.count:
                continue
            ritz = krylov.ritz()
            found = rule.judge(ritz, restarts=krylov.restarts, complete=krylov.complete)
            converged = found.converged
            if report is not None:
                report(krylov.absorbed, found.relative_error)
            if krylov.complete or search.finished(krylov, ritz, found, goes_on):
                break
            if not search.active:
                iteration.follow_coupled(ritz, found.moving)
            if krylov.absorbed >= limit:
                converged = converged & (not converged.all())  # all are near, but the evidence was cut short
                break
        file.remove()
    if not krylov.complete:
        converged = converged & (search.missed <= UNSEEN)  # else another eigenvalue may belong among them
    return _eigenpairs(operator, iteration, search, found, converged, float(np.abs(ritz.values).max()))


def largest_eigenpairs(
    operator: Operator,
    k: int = 5,
    *,
    tolerance: float = 1e-3,
    max_products: int | None = None,
    max_basis: int | None = None,
    seed: int = 0,
    report: Report | None = None,
) -> Eigenpairs:
    """The k algebraically largest eigenvalues: :func:`extreme_eigenpairs` with ``which="largest"``."""
    return extreme_eigenpairs(
        operator,
        k,
        tolerance=tolerance,
        max_products=max_products,
        max_basis=max_basis,
        seed=seed,
        report=report,
    )


def _eigenpairs(
    operator: Operator,
    iteration: ThickRestart,
    search: MultiplicitySearch,
    found: Approximation,
    converged: np.ndarray,
    largest: float,
) -> Eigenpairs:
    """The result of an iteration that has ended; ``largest``: the largest Ritz value in magnitude."""
    krylov = iteration.krylov
    # The recurrence gives residuals and bounds of exact arithmetic; none can be trusted below rounding.
    rounding = torch.finfo(operator.dtype).eps * largest
    vectors = krylov.to_ritz_vectors(found.chosen)
    asymmetry, extra = confirmed(krylov.asymmetry, operator, krylov.basis)
    operator.products += extra
    warn_if_asymmetric(asymmetry, operator)
    return Eigenpairs(
        found.values,
        np.maximum(found.residuals, rounding),
        np.maximum(found.bounds, rounding),
        converged,
        krylov.absorbed + extra,
        vectors,
        krylov,
        krylov.restarts,
        asymmetry=asymmetry,
        searched=search.products,
        missed=0.0 if krylov.complete else search.missed,
    )
