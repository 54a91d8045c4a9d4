"""PyHessian's results, as a report like our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.hessian.report import HessianReport


@dataclass(frozen=True, repr=False)
class PyHessianReport(HessianReport):
    """PyHessian's results, as a report like ours.

    Its eigenvalues are the largest by magnitude |λ|, in the order PyHessian found them, which need not be descending;
    ``which`` is ``largest`` where none is negative, for then they are the algebraically largest too.
    ``eigen.bounds`` are the residuals: some eigenvalue lies within them (they do not say which, nor whether another was
    missed); ``eigen.converged`` says which are within the tolerance, not where PyHessian stopped.
    ``hvps`` and ``seconds`` are PyHessian's own.

    Attributes:
        iterations: power iterations spent on each eigenvalue.
        trace_samples: PyHessian's samples zᵀHz, the mean of which is its trace.
        tolerance, max_iterations: of its stopping rules.
        residual_hvps, residual_seconds: our products for the residuals.
    """

    iterations: tuple[int, ...] = ()
    trace_samples: tuple[float, ...] = ()
    tolerance: float = 1e-3
    max_iterations: int = 100
    residual_hvps: int = 0
    residual_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As :meth:`HessianReport.to_dict`, with ``backend`` and the attributes above."""
        own = {name: getattr(self, name) for name in PyHessianReport.__annotations__}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        return {**super().to_dict(), "backend": "pyhessian", **lists}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> PyHessianReport:
        """The report that :meth:`to_dict` gave, without eigenvectors.

        Raises:
            KeyError, TypeError: the dictionary is not from there.
        """
        own: dict[str, Any] = {name: numbers[name] for name in PyHessianReport.__annotations__}
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
        if numbers["trace"] is not None and numbers["trace"]["stderr"] is None:  # JSON has no infinity
            numbers = {**numbers, "trace": {**numbers["trace"], "stderr": float("inf")}}
        return cls(**vars(HessianReport.from_dict(numbers)), **own)

    def doubts(self, i: int) -> str:
        """What must be said of the eigenvalue at that place."""
        return super().doubts(i) + ", the bound is a residual"

    def rows(self) -> list[tuple[str, str, str]]:
        """The table: quantity, value, uncertainty."""
        eigen = [
            (
                label,
                f"{value:.6g}",
                f"residual {residual:.1e}, {count} iterations" + (", LIMIT" if count >= self.max_iterations else ""),
            )
            for label, value, residual, count in zip(
                self.labels(), self.eigen.values, self.eigen.residuals, self.iterations, strict=True
            )
        ]
        return [*eigen, *super().rows()[len(eigen) :]]

    @property
    def cost(self) -> str:
        """Products and time spent, in a line."""
        return f"{super().cost}; {self.residual_hvps} more for the residuals"
