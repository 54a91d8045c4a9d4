"""Our spectrum and PyHessian's side by side, with the reasons of their differences."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from analysis.hessian.density.estimate import Density
from analysis.hessian.measure import measure_hessian
from analysis.hessian.pyhessian.backend import pyhessian_report
from analysis.hessian.pyhessian.report import PyHessianReport
from analysis.hessian.report import HessianReport
from landscape import FedscapeError, Landscape
from landscape.storage.display import Shown, escaped
from landscape.terminal.table import Table

_HEAD = ("", "ours", "error", "PyHessian", "error", "difference")


@dataclass(frozen=True)
class Difference:
    """One quantity by both methods.

    Attributes:
        quantity: its name.
        ours, theirs: the values; ``None`` where it was not found.
        our_error, their_error: error bound and residual of eigenvalues, standard errors of the trace.
    """

    quantity: str
    ours: float | None
    our_error: float | None
    theirs: float | None
    their_error: float | None

    @property
    def relative(self) -> float | None:
        """(theirs − ours)/|ours|."""
        if self.ours is None or self.theirs is None or self.ours == 0:
            return None
        return (self.theirs - self.ours) / abs(self.ours)


@dataclass(frozen=True, repr=False)
class PyHessianComparison(Shown):
    """Our spectrum and PyHessian's of the same Hessian, side by side."""

    ours: HessianReport
    theirs: PyHessianReport

    def differences(self) -> list[Difference]:
        """Eigenvalues by rank (PyHessian's negative ones after its others), λ1/λ5, trace, mean of the density."""
        ours, theirs = self.ours.eigen, self.theirs.eigen
        mine = [(float(v), float(e)) for v, e in zip(ours.values, ours.bounds, strict=True)]
        pairs = [(float(v), float(e)) for v, e in zip(theirs.values, theirs.residuals, strict=True)]
        negative = []
        if self.ours.which == "magnitude":
            pairs.sort(key=lambda pair: -abs(pair[0]))
        else:
            pairs.sort(reverse=True)
            if len(mine) < self.ours.parameters:  # where all are measured, both lists go down to the lowest
                negative = [pair for pair in reversed(pairs) if pair[0] < 0]
                pairs = [pair for pair in pairs if pair[0] >= 0]
        none: tuple[None, None] = (None, None)
        name = "|λ|" if self.ours.which == "magnitude" else "λ"
        rows = [
            Difference(f"{name}{i}", *(one or none), *(other or none))
            for i, (one, other) in enumerate(zip_longest(mine, pairs), 1)
        ]
        rows += [Difference("λ < 0", *none, *pair) for pair in negative]
        if self.ours.ratio_1_5 is not None and self.theirs.ratio_1_5 is not None:
            rows.append(
                Difference("λ1/λ5", self.ours.ratio_1_5, self.ours.ratio_error(1, 5), self.theirs.ratio_1_5, None)
            )
        if self.ours.trace is not None and self.theirs.trace is not None:
            a, b = self.ours.trace, self.theirs.trace
            rows.append(Difference("trace", a.value, a.stderr, b.value, b.stderr))
        if self.ours.density is not None and self.theirs.density is not None:
            rows.append(Difference("λ mean", *_mean(self.ours.density), *_mean(self.theirs.density)))
        return rows

    def rows(self) -> list[tuple[str, ...]]:
        """The table: quantity, our value and error, PyHessian's, relative difference."""
        rows = [
            (
                row.quantity,
                _text(row.ours, ".6g"),
                _text(row.our_error, ".1e"),
                _text(row.theirs, ".6g"),
                _text(row.their_error, ".1e"),
                _text(row.relative, "+.2%"),
            )
            for row in self.differences()
        ]
        hvps, others = self.ours.hvps, self.theirs.hvps
        rows.append(("HVPs", f"{hvps:,}", "", f"{others:,}", "", f"{others / hvps:.3g} times ours" if hvps else ""))
        ratio = f"{self.theirs.seconds / self.ours.seconds:.3g} times ours" if self.ours.seconds else ""
        return [*rows, ("seconds", f"{self.ours.seconds:.2f}", "", f"{self.theirs.seconds:.2f}", "", ratio)]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, text and lists only."""
        return {
            "ours": self.ours.to_dict(),
            "pyhessian": self.theirs.to_dict(),
            "differences": [{**vars(row), "relative": row.relative} for row in self.differences()],
            "explanation": self.explain(),
        }

    def _heading(self) -> str:
        return self.ours.title

    def _facts(self) -> dict[str, str]:
        return {row.quantity: f"{_text(row.relative, '+.2%') or '?'}" for row in self.differences()}

    def _table(self) -> str:
        return f"{Table(_HEAD, tuple(self.rows())).html()}<p>{escaped(self.explain())}</p>"

    def __str__(self) -> str:
        rows = [_HEAD, *self.rows()]
        width, *others = (max(len(row[i]) for row in rows) for i in range(len(_HEAD)))
        lines = [
            "  ".join([name.ljust(width), *(cell.rjust(w) for cell, w in zip(cells, others, strict=True))])
            for name, *cells in rows
        ]
        return "\n".join([self.ours.title, *(line.rstrip() for line in lines)])

    def explain(self) -> str:
        """Why the numbers differ, in a few sentences: the reasons that apply here."""
        theirs = self.theirs
        lines = [
            "Errors are, for eigenvalues, our error bound and PyHessian's residual ‖Hv − λv‖ (an eigenvalue lies "
            "within it; which one, it does not tell); for the trace, standard errors. PyHessian itself tells neither.",
            f"PyHessian's power iteration stops when two successive values differ by less than {theirs.tolerance:g} of "
            "the value: how slowly they creep then it does not see. On a CNN of 268 k parameters, at 1e-3, that left "
            "errors of up to 2e-2. Later eigenvectors inherit those of earlier ones, and near neighbours change "
            "places.",
        ]
        limit = sum(count >= theirs.max_iterations for count in theirs.iterations)
        if limit:
            lines.append(f"{limit} of its eigenvalues took all {theirs.max_iterations} iterations and were left there.")
        negative = int((theirs.eigen.values < 0).sum())
        if negative and self.ours.which == "largest":
            lines.append(
                f"{negative} of PyHessian's eigenvalues are negative: it looks for the largest by magnitude |λ|, "
                "we for the algebraically largest, so its list is another one than ours."
            )
        if theirs.trace is not None:
            lines.append(
                f"PyHessian's trace is the mean of {theirs.trace.probes} samples: it stops as soon as one more sample "
                f"moves the mean by less than {theirs.tolerance:g} of it, which happens by chance: at 1e-3 typically "
                "after a few dozen samples with an error of 9 %. Ours takes the large eigenvalues' part exactly and "
                "samples the rest until the standard error is as small as wanted."
            )
            if theirs.trace.value < 0:
                lines.append("Its rule divides by the trace with its sign: where that is negative, it stops at once.")
        if theirs.density is not None:
            lines.append(
                "PyHessian's quadratures come from probes of ±1 and one pass of re-orthogonalisation; its torch.eig, "
                "gone from torch, is replaced by a symmetric solver, and its smoothing by ours."
            )
        return "\n".join(f"- {line}" for line in lines)


def compare_with_pyhessian(
    landscape: Landscape,
    top: int = 5,
    *,
    ours: HessianReport | None = None,
    trace: bool = True,
    density: bool = False,
    tolerance: float = 1e-3,
    trace_tolerance: float = 0.02,
    max_iterations: int = 100,
    density_probes: int = 8,
    density_steps: int = 40,
    split: str = "train",
    title: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> PyHessianComparison:
    """The spectrum at a landscape's own point by our methods and by PyHessian's.

    Args:
        landscape: the function.
        top: how many eigenvalues: ours the algebraically largest, PyHessian's the largest by magnitude.
        ours: our report of the same landscape, if there is one already.
        tolerance: error wanted of our eigenvalues; of successive values, PyHessian's ``tol``.
        trace_tolerance: as in :func:`analysis.hessian.measure.measure_hessian`.
        trace, density, max_iterations, density_probes, density_steps, split, title, seed, progress: as in
            :func:`pyhessian_report`.

    Raises:
        FedscapeError: as :func:`pyhessian_report` and :func:`analysis.hessian.measure.measure_hessian`; or ``ours`` is
            of another matrix or objective, of a block or of the smallest eigenvalues.
    """
    if ours is None:
        ours = measure_hessian(
            landscape, top, trace=trace, density=density, split=split, tolerance=tolerance,
            trace_tolerance=trace_tolerance, density_probes=density_probes, density_steps=density_steps,
            seed=seed, progress=progress,
        )  # fmt: skip
    special = ours.matrix != "hessian" or ours.weight_decay or ours.man or ours.block
    if special or ours.which not in ("largest", "magnitude"):
        raise FedscapeError("PyHessian knows the largest eigenvalues of the plain Hessian only: compare those")
    theirs = pyhessian_report(
        landscape, top, trace=trace, density=density, tolerance=tolerance, max_iterations=max_iterations,
        density_probes=density_probes, density_steps=density_steps, split=split, title=title or ours.title,
        seed=seed, progress=progress,
    )  # fmt: skip
    return PyHessianComparison(ours, theirs)


def _mean(density: Density) -> tuple[float, float]:
    mean = density.rule.mean(lambda t: t)
    return mean.value, mean.stderr


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
