"""What was measured of a Hessian, as a value that tabulates and plots itself."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.density import Density
from analysis.eigen import Eigenpairs
from analysis.trace import Trace
from landscape.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_PLAIN = (
    "hvps", "seconds", "samples", "parameters", "loss", "accuracy", "split", "dtype", "device", "which", "matrix",
    "weight_decay",
)  # fmt: skip


_PRODUCTS = {
    "hessian": "Hessian-vector",
    "ggn": "Gauss-Newton-vector",
    "fisher": "Fisher-vector",
    "mc-fisher": "Monte-Carlo-Fisher-vector",
}


def _lists(density: Density) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(density).items()}


def _arrays(density: dict[str, Any]) -> dict[str, Any]:
    given = {name: density[name] for name in Density.__dataclass_fields__}
    return {name: np.array(value) if isinstance(value, list) else value for name, value in given.items()}


@dataclass(frozen=True)
class HessianReport:
    """The spectrum of ∇²L at one point.

    Attributes:
        title: what was measured, in a line.
        eigen: the largest eigenvalues.
        trace, density: ``None`` where they were not asked for.
        loss, accuracy: at the point (accuracy ``None`` where the targets are no classes).
        split: which data; samples: how many.
        parameters: d.
        dtype, device: of the arithmetic.
        hvps: matrix-vector products spent in all.
        seconds: time spent in all.
        which: the end of the spectrum measured; ``matrix``: which matrix; ``weight_decay``: c of c I added to it.
    """

    title: str
    eigen: Eigenpairs
    trace: Trace | None
    density: Density | None
    loss: float
    accuracy: float | None
    split: str
    samples: int
    parameters: int
    dtype: str
    device: str
    hvps: int
    seconds: float
    which: str = "largest"
    matrix: str = "hessian"
    weight_decay: float = 0.0

    @property
    def ratio_1_5(self) -> float | None:
        """λ1/λ5 of the largest eigenvalues; ``None`` where they are not all measured."""
        values = self.eigen.values[: len(self.eigen.values) // 2] if self.which == "both" else self.eigen.values
        return self.eigen.ratio(1, 5) if self.which in ("largest", "both") and len(values) >= 5 else None

    def labels(self) -> list[str]:
        """What each eigenvalue is called: λ1 is the largest, λd the smallest, |λ|1 the largest in magnitude."""
        n, d = len(self.eigen.values), self.parameters
        if self.which == "magnitude":
            return [f"|λ|{i}" for i in range(1, n + 1)]
        k = {"largest": n, "smallest": 0, "both": n // 2}[self.which]
        return [f"λ{i}" for i in range(1, k + 1)] + [f"λ{d - i}" if i else f"λ{d}" for i in range(n - k)]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, text and lists only; the keys of the JSON file."""
        return {
            "title": self.title,
            "eigenvalues": self.eigen.values.tolist(),
            "residuals": self.eigen.residuals.tolist(),
            "error_bounds": self.eigen.bounds.tolist(),
            "converged": self.eigen.converged.tolist(),
            "eigen_hvps": self.eigen.products,
            "ratio_1_5": self.ratio_1_5,
            "trace": None if self.trace is None else asdict(self.trace),
            "density": None if self.density is None else self._density(),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    def _density(self) -> dict[str, Any]:
        assert self.density is not None
        derived = {
            "moments": [self.density.moment(order) for order in (1, 2, 3, 4)],
            "negative_mass": self.density.mass_below(),
            "effective_rank": self.density.effective_rank(self.parameters),
        }
        return {**_lists(self.density), **derived}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> HessianReport:
        """The report that :meth:`to_dict` gave, without eigenvectors.

        Raises:
            KeyError, TypeError: the dictionary is not one of its.
        """
        values, residuals, bounds, converged = (
            np.array(numbers[name]) for name in ("eigenvalues", "residuals", "error_bounds", "converged")
        )
        trace, density = numbers["trace"], numbers["density"]
        return cls(
            eigen=Eigenpairs(values, residuals, bounds, converged, numbers["eigen_hvps"]),
            trace=None if trace is None else Trace(**trace),
            density=None if density is None else Density(**_arrays(density)),
            title=numbers["title"],
            **{name: numbers[name] for name in _PLAIN},
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """The table: quantity, value, uncertainty."""
        rows = [
            (label, f"{value:.6g}", f"residual {residual:.1e}" + ("" if converged else ", NOT CONVERGED"))
            for label, value, residual, converged in zip(
                self.labels(), self.eigen.values, self.eigen.residuals, self.eigen.converged, strict=True
            )
        ]
        if self.ratio_1_5 is not None:
            rows.append(("λ1/λ5", f"{self.ratio_1_5:.4g}", ""))
        if self.trace is not None:
            rows.append(("trace", f"{self.trace.value:.6g}", f"± {self.trace.stderr:.2g} (standard error)"))
        if self.density is not None:
            origin = f"from the density, {len(self.density.nodes)} probes"
            rows.append(("λ mean", f"{self.density.moment(1):.4g}", origin))
            rows.append(("λ < 0", f"{self.density.mass_below():.2%}", "share of the eigenvalues, " + origin))
            rank = self.density.effective_rank(self.parameters)
            rows.append(("effective rank", f"{rank:.4g}", "(Σλ)²/Σλ², " + origin))
        rows.append(("loss", f"{self.loss:.6g}", f"{self.samples:,} {self.split} samples"))
        if self.accuracy is not None:
            rows.append(("accuracy", f"{self.accuracy:.2%}", ""))
        return rows

    @property
    def cost(self) -> str:
        """What it took, in a line."""
        return (
            f"{self.hvps:,} {_PRODUCTS[self.matrix]} products of {self.parameters:,} parameters "
            f"in {self.seconds:.1f} s ({self.device}, {self.dtype})"
        )

    def __str__(self) -> str:
        rows = self.rows()
        name, value = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines = [f"{a:<{name}}  {b:>{value}}  {c}".rstrip() for a, b, c in rows]
        return "\n".join([self.title, *lines, self.cost])

    def _repr_html_(self) -> str:
        cells = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows()
        )
        return f"<table><caption>{html.escape(self.title)}</caption>{cells}</table><p>{html.escape(self.cost)}</p>"

    def plot(self, path: str | Path | None = None) -> Figure:
        """Eigenvalues and, where it was measured, the density; written to ``path`` where one is given.

        Raises:
            FedscapeError: the file cannot be written or is of no kind Matplotlib writes.
        """
        from analysis.pictures import save_figure
        from analysis.spectrum_plots import plot_spectra

        figure = plot_spectra([self])
        if path is not None:
            save_figure(figure, path)
        return figure


def comparison_table(reports: Sequence[HessianReport]) -> Table:
    """A row a report: loss, accuracy, the first and the last eigenvalue (or both ends), λ1/λ5, trace, cost."""
    first = reports[0]
    other = len(first.eigen.values) // 2 if first.which == "both" else -1
    ends = first.labels()[0], first.labels()[other]
    columns = ("model", "loss", "accuracy", *ends, "λ1/λ5", "trace", "trace stderr", "products", "seconds")
    rows = []
    for r in reports:
        trace = (None, None) if r.trace is None else (r.trace.value, r.trace.stderr)
        values = float(r.eigen.values[0]), float(r.eigen.values[other])
        rows.append((r.title, r.loss, r.accuracy, *values, r.ratio_1_5, *trace, float(r.hvps), r.seconds))
    return Table(columns, tuple(rows))
