"""The result of a measurement of the Hessian: a value with a table, a plot and a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from analysis.hessian.checks.differences import disagreement
from analysis.hessian.density.estimate import Density
from analysis.hessian.density.shares import Shares
from analysis.hessian.sampling import Sampling
from analysis.hessian.spectrum.eigen import Eigenpairs, Refinement, StepComparison
from analysis.hessian.spectrum.evidence import UNSEEN
from analysis.hessian.spectrum.operators import Product
from analysis.hessian.spectrum.refinement import doubts
from analysis.hessian.spectrum.symmetry import complaint
from analysis.hessian.spectrum.trace import Trace
from analysis.hessian.spectrum.wanted import check_ratios, read_ratio
from landscape.compute.devices import TF32, TF32_EPSILON
from landscape.storage.display import Shown
from landscape.storage.schema import printable
from landscape.storage.style import PictureStyle, StyleName
from landscape.terminal.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EigenvalueAxis = Literal["auto", "linear", "symlog"]
DensityAxis = Literal["log", "linear"]
Matrix = Literal["hessian", "ggn", "fisher", "mc-fisher"]

_PLAIN = (
    "hvps", "seconds", "samples", "parameters", "loss", "accuracy", "split", "dtype", "device", "which", "matrix",
    "product", "weight_decay", "man",
)  # fmt: skip

_Kind = TypeVar("_Kind", Refinement, StepComparison)
MATRICES = {
    "hessian": "Hessian",
    "ggn": "Gauss-Newton matrix",
    "fisher": "empirical Fisher matrix",
    "mc-fisher": "Monte-Carlo Fisher matrix",
}
"""In words, for pictures."""
_PRODUCTS = {
    "hessian": "Hessian-vector",
    "ggn": "Gauss-Newton-vector",
    "fisher": "Fisher-vector",
    "mc-fisher": "Monte-Carlo-Fisher-vector",
}


def _lists(density: Density) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(density).items()}


def _read(kind: type[_Kind], found: dict[str, Any] | None) -> _Kind | None:
    return None if found is None else kind(**found)


@dataclass(frozen=True, repr=False)
class HessianReport(Shown):
    """The spectrum of ∇²L at one point.

    Attributes:
        title: the objective and the point, in a line.
        eigen: the largest eigenvalues.
        trace, density: ``None`` where they were not measured.
        loss, accuracy: at the point (accuracy ``None`` where the targets are not classes), with MAN's penalty where
            there is one and without the weight decay.
        split: which data; samples: how many.
        parameters: d.
        dtype, device: of the arithmetic.
        hvps: matrix-vector products spent in all.
        seconds: time spent in all.
        which: the end of the spectrum measured; ``matrix``: which matrix; ``weight_decay``: c of c I added to it.
        product: ``autograd``, or ``fd`` for products by differences of gradients.
        man: what MAN's activation norms are multiplied by in the loss; block: globs over the parameters whose principal
            block it is, of which ``parameters`` is the dimension; empty for the whole.
        ratios: (i, j) of the λ_i/λ_j to show beside λ1/λ5.
        sampling: of a random subset of the samples, what all of them would give.
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
    product: Product = "autograd"
    weight_decay: float = 0.0
    man: float = 0.0
    block: tuple[str, ...] = ()
    ratios: tuple[tuple[int, int], ...] = ()
    sampling: Sampling | None = None

    @property
    def largest(self) -> int:
        """How many of the largest eigenvalues there are."""
        n = len(self.eigen.values)
        return {"largest": n, "both": n // 2}.get(self.which, 0)

    def ratio(self, i: int, j: int) -> float | None:
        """λ_i/λ_j of the largest eigenvalues, counted from 1; ``None`` where they are not all measured."""
        return self.eigen.ratio(i, j) if max(i, j) <= self.largest else None

    @property
    def ratio_1_5(self) -> float | None:
        """λ1/λ5 of the largest eigenvalues; ``None`` where they are not all measured."""
        return self.ratio(1, 5)

    def ratio_error(self, i: int, j: int) -> float | None:
        """How far λ_i/λ_j may be off, by the error bounds of both; ``inf`` where λ_j may be 0."""
        if (ratio := self.ratio(i, j)) is None:
            return None
        value, bound = abs(float(self.eigen.values[j - 1])), float(self.eigen.bounds[j - 1])
        error = float(self.eigen.bounds[i - 1]) + abs(ratio) * bound
        return error / (value - bound) if bound < value else float("inf")

    @property
    def shares(self) -> Shares | None:
        """The shares of eigenvalues below −δ, within ±δ and above δ, with errors; ``None`` without a density."""
        if self.density is None:
            return None
        epsilon = TF32_EPSILON if self.dtype == TF32 else torch.finfo(getattr(torch, self.dtype)).eps
        epsilon = max(epsilon, self.eigen.steps.difference if self.eigen.steps else 0.0)
        noise = self.eigen.refinement.noise if self.eigen.refinement else 0.0
        return self.density.shares(self.parameters, epsilon, floor=noise)

    @property
    def data(self) -> str:
        """Over which samples: ``512 train samples``, of a random subset ``512 train samples of 4,000``."""
        among = f" of {self.sampling.population:,}" if self.sampling else ""
        return f"{self.samples:,} {self.split} samples{among}"

    def doubts(self, i: int) -> str:
        """What must be said of the eigenvalue at that place (:func:`analysis.hessian.spectrum.refinement.doubts`)."""
        e = self.eigen
        return doubts(float(e.values[i]), bool(e.converged[i]), e.refinement.noise if e.refinement else None)

    def remarks(self, places: Sequence[int] | None = None) -> list[str]:
        """What must be said of the eigenvalues at these places (all unless given), of the trace and of the products."""
        labels = self.labels()
        doubtful = [(labels[i], self.doubts(i)) for i in (range(len(labels)) if places is None else places)]
        said = [label + doubt.replace(",", "", 1) for label, doubt in doubtful if doubt]
        if self.trace is not None and self.trace.shortfall:
            said.append(f"trace {self.trace.shortfall}")
        if self.density is not None and self.density.shortfall:
            said.append(f"density {self.density.shortfall}")
        if self.eigen.missed is not None and self.eigen.missed > UNSEEN:
            said.append(f"copies of multiple eigenvalues: missed with a probability of up to {self.eigen.missed:.2g}")
        wrong = complaint(self.eigen.asymmetry, self.dtype, self.product), disagreement(self.eigen.steps)
        return [*said, *(f"WRONG: {one}" for one in wrong if one)]

    def intervals(self, places: Sequence[int]) -> list[str]:
        """Of a random subset: where all samples' eigenvalues at these places and trace lie; else nothing."""
        if (sampling := self.sampling) is None:
            return []
        texts = [(self.labels()[i], sampling.eigenvalue_text(i)) for i in places] + [("trace", sampling.trace_text)]
        return [label + text.replace(";", "", 1) for label, text in texts if text]

    def with_ratios(self, ratios: Sequence[tuple[int, int]]) -> HessianReport:
        """The same report that shows these ratios beside λ1/λ5.

        Raises:
            FedscapeError: as :func:`analysis.hessian.spectrum.wanted.check_ratios`.
        """
        check_ratios(ratios, self.which, self.largest)
        return replace(self, ratios=tuple(pair for pair in dict.fromkeys(ratios) if pair != (1, 5)))

    def labels(self) -> list[str]:
        """The names of the eigenvalues: λ1 is the largest, λd the smallest, |λ|1 the largest in magnitude."""
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
            "refinement": None if self.eigen.refinement is None else asdict(self.eigen.refinement),
            "search_hvps": self.eigen.searched,
            "search_missed": self.eigen.missed,
            "asymmetry": self.eigen.asymmetry,
            "step_comparison": None if self.eigen.steps is None else asdict(self.eigen.steps),
            "ratio_1_5": self.ratio_1_5,
            "ratio_1_5_error": self.ratio_error(1, 5),
            "ratios": {f"{i}/{j}": self.ratio(i, j) for i, j in self.ratios},
            "ratio_errors": {f"{i}/{j}": self.ratio_error(i, j) for i, j in self.ratios},
            "sampling": None if self.sampling is None else self.sampling.to_dict(),
            "trace": None if self.trace is None else asdict(self.trace),
            "density": None if self.density is None else self._density(),
            **{name: getattr(self, name) for name in _PLAIN},
            "block": list(self.block),
        }

    def _density(self) -> dict[str, Any]:
        assert self.density is not None
        shares, rank = self.shares, self.density.estimated_rank(self.parameters)
        assert shares is not None
        moments = [self.density.estimated_moment(order, self.parameters) for order in (1, 2, 3, 4)]
        derived = {
            "moments": [moment.value for moment in moments],
            "moments_stderr": [moment.stderr for moment in moments],
            "shares": shares.to_dict(),
            "effective_rank": rank.value,
            "effective_rank_stderr": rank.stderr,
        }
        return {**_lists(self.density), **derived}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> HessianReport:
        """The report that :meth:`to_dict` gave, without eigenvectors.

        Raises:
            KeyError, TypeError: the dictionary is not from there.
        """
        # In JSON files null stands for what is not finite.
        values, residuals, bounds = (
            np.array(numbers[name], dtype=float) for name in ("eigenvalues", "residuals", "error_bounds")
        )
        converged = np.array(numbers["converged"])
        trace, density = numbers["trace"], numbers["density"]
        return cls(
            eigen=Eigenpairs(
                values,
                residuals,
                bounds,
                converged,
                numbers["eigen_hvps"],
                refinement=_read(Refinement, numbers.get("refinement")),
                searched=numbers.get("search_hvps", 0),
                missed=numbers.get("search_missed"),
                asymmetry=numbers.get("asymmetry"),
                steps=_read(StepComparison, numbers.get("step_comparison")),
            ),
            trace=None if trace is None else Trace(**trace),
            density=None if density is None else Density.read(density),
            title=printable(numbers["title"]),
            sampling=Sampling.from_dict(numbers["sampling"]) if numbers.get("sampling") else None,
            block=tuple(map(printable, numbers.get("block", ()))),
            ratios=tuple(read_ratio(text) for text in numbers.get("ratios", {})),
            **{name: numbers[name] for name in _PLAIN if name in numbers},  # earlier files lack the newest
        )

    def rows(self) -> list[tuple[str, str, str]]:
        """The table: quantity, value, uncertainty."""
        e, sampling, rows = self.eigen, self.sampling, []
        for i, (label, value, bound, residual) in enumerate(
            zip(self.labels(), e.values, e.bounds, e.residuals, strict=True)
        ):
            error = f"± {bound:.1e} (error bound), residual {residual:.1e}{self.doubts(i)}"
            rows.append((label, f"{value:.6g}", error + (sampling.eigenvalue_text(i) if sampling else "")))
        rows += self._product_rows()
        for i, j in ((1, 5), *self.ratios):
            if (ratio := self.ratio(i, j)) is not None:
                error = f"± {self.ratio_error(i, j):.1e} (error bound)"
                error += sampling.ratio_text(i, j) if sampling else ""
                rows.append((f"λ{i}/λ{j}", f"{ratio:.4g}", error))
        if self.trace is not None:
            probes = f"{self.trace.probes} random probes" if self.trace.probes else "every coordinate taken"
            error = f"± {self.trace.stderr:.2g} (standard error, {probes})"
            short = f", {self.trace.shortfall}" if self.trace.shortfall else ""
            rows.append(("trace", f"{self.trace.value:.6g}", error + short + (sampling.trace_text if sampling else "")))
        if self.density is not None:
            rows += self._density_rows()
        over = f"mean over {self.data}"
        decay = ", without the weight decay" if self.weight_decay else ""
        error = sampling.loss_text if sampling else ""
        rows.append(("loss + MAN" if self.man else "loss", f"{self.loss:.6g}", over + error + decay))
        if self.accuracy is not None:
            error = sampling.accuracy_text if sampling else ""
            rows.append(("accuracy", f"{self.accuracy:.2%}", over + error))
        return rows

    def _product_rows(self) -> list[tuple[str, str, str]]:
        """Rows of what speaks against the products: a warning, and of differences how much the step matters."""
        rows, found = [], self.eigen.asymmetry
        if (wrong := complaint(found, self.dtype, self.product)) is not None:
            rows.append(("asymmetry", f"{found:.1e}", f"WRONG: {wrong}"))
        if (steps := self.eigen.steps) is not None:
            moved = "of the largest: so far a step a quarter as long moves the eigenvalues"
            wrong = disagreement(steps)
            rows.append(("step / 4", f"{steps.difference:.1e}", f"WRONG: {wrong}" if wrong else moved))
        return rows

    def _density_rows(self) -> list[tuple[str, str, str]]:
        """The rows of what was derived from the density."""
        density, shares = self.density, self.shares
        assert density is not None
        assert shares is not None
        delta, origin = f"{shares.delta:.1e}", f"(standard error), from the density, {len(density.nodes)} probes"
        origin += f", of the {self.samples:,} samples alone" if self.sampling else ""
        mean, rank = density.estimated_moment(1, self.parameters), density.estimated_rank(self.parameters)
        probes, steps = density.nodes.shape
        band = f"{probes} probes of {steps} steps, 95 % band ± {density.area:.2g} of the curve's area"
        short = f", {density.shortfall}" if density.shortfall else ""
        rows = [("density", f"{len(density.grid)} points", band + short)]
        rows.append(("λ mean", f"{mean.value:.4g}", f"± {mean.stderr:.2g} {origin}"))
        for name, share in (
            (f"λ < −{delta}", shares.below),
            (f"|λ| ≤ {delta}", shares.within),
            (f"λ > {delta}", shares.above),
        ):
            interval = f"{share.low:.2%} to {share.high:.2%} (95 %, with the quadrature's error)"
            rows.append((name, f"{share.value:.2%}", f"{interval}; of the probes alone ± {share.stderr:.2%}"))
        return [*rows, ("effective rank", f"{rank.value:.4g}", f"± {rank.stderr:.2g} {origin}, (Σλ)²/Σλ²")]

    @property
    def cost(self) -> str:
        """Products and time spent, in a line."""
        refinement, sampling, missed = self.eigen.refinement, self.sampling, self.eigen.missed
        apart = [f"{refinement.products} of them in float64"] if refinement else []
        if self.eigen.searched and missed is not None:
            apart.append(f"{self.eigen.searched} for copies of multiple eigenvalues, missed with p < {missed:.1g}")
        apart += [f"{sampling.products} for the sampling error"] if sampling else []
        precise = f" ({', '.join(apart)})" if apart else ""
        arithmetic = f"{self.dtype} differences of gradients" if self.product == "fd" else self.dtype
        return (
            f"{self.hvps:,} {_PRODUCTS[self.matrix]} products of {self.parameters:,} parameters{precise} "
            f"in {self.seconds:.1f} s ({self.device}, {arithmetic})"
        )

    def __str__(self) -> str:
        rows = self.rows()
        name, value = (max(len(row[i]) for row in rows) for i in (0, 1))
        lines = [f"{a:<{name}}  {b:>{value}}  {c}".rstrip() for a, b, c in rows]
        return "\n".join([self.title, *lines, self.cost])

    def _heading(self) -> str:
        return self.title

    def _facts(self) -> dict[str, str]:
        values, bounds = self.eigen.values, self.eigen.bounds
        facts = {f"{self.labels()[0]}": f"{values[0]:.4g} ± {bounds[0]:.1g}{self.doubts(0)}"} if len(values) else {}
        facts |= {} if self.ratio_1_5 is None else {"λ1/λ5": f"{self.ratio_1_5:.4g}"}
        if self.trace is not None:
            short = " NOT CONVERGED" if self.trace.shortfall else ""
            facts["trace"] = f"{self.trace.value:.4g} ± {self.trace.stderr:.2g}{short}"
        accuracy = {} if self.accuracy is None else {"accuracy": f"{self.accuracy:.2%}"}
        return {**facts, "loss": f"{self.loss:.4g}", **accuracy, "over": self.data}

    def _picture(self) -> Figure:
        return self.plot()

    def _table(self) -> str:
        every = Table(("quantity", "value", "error, and of what"), tuple(self.rows())).html(self.cost)
        return f"{super()._table()}\n<details><summary>all numbers</summary>\n{every}</details>"

    def plot(
        self,
        path: str | Path | None = None,
        eigenvalue_axis: EigenvalueAxis = "auto",
        density_axis: DensityAxis = "log",
        style: PictureStyle | StyleName = "screen",
    ) -> Figure:
        """Eigenvalues and, where it was measured, the density; written to ``path`` where one is given.

        Args:
            path: the picture's file.
            eigenvalue_axis: of the density: ``linear`` (as ``auto`` is here), or ``symlog``: logarithmic on both sides
                of 0 and linear where the quadrature does not resolve eigenvalues
                (:class:`analysis.hessian.density.estimate.SymLog`).
            density_axis: ``log`` or ``linear``.
            style: ``paper`` for a paper (:class:`landscape.storage.style.PictureStyle`).

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write; another kind of
                axis.
        """
        from analysis.hessian.plots.spectrum import plot_spectra
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: plot_spectra([self], None, eigenvalue_axis, density_axis), path, style)
