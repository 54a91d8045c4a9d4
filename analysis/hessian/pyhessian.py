"""The same questions answered by PyHessian's own code, for comparison with numbers in papers.

PyHessian (Yao et al., IEEE Big Data 2020; PyPI 0.1) estimates eigenvalues by power iteration with deflation and the
trace by Hutchinson's method, and stops both when two successive values are near each other.  It tells no error;
here its eigenpairs get residuals, by our own products, and its trace the standard error of its own samples.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from analysis.hessian.report import HessianReport
from analysis.hessian.spectrum.density import Density, _averaged, _grid
from analysis.hessian.spectrum.eigen import Eigenpairs
from analysis.hessian.spectrum.trace import Trace
from landscape import FedscapeError, Landscape
from landscape.compute.devices import reproducible_arithmetic
from landscape.compute.randomness import global_seed
from landscape.terminal.progress import Progress


@dataclass(frozen=True)
class PyHessianReport(HessianReport):
    """What PyHessian answers, as a report like ours.

    Its eigenvalues are the largest by magnitude |λ|, in the order PyHessian found them, which need not be descending;
    ``which`` is ``largest`` where none is negative, for then they are the algebraically largest too.
    ``eigen.bounds`` are the residuals: some eigenvalue lies within (which, and whether another was missed, they do
    not tell); ``eigen.converged`` says which are within the tolerance, not where PyHessian stopped.
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
            KeyError, TypeError: the dictionary is not one of its.
        """
        own: dict[str, Any] = {name: numbers[name] for name in PyHessianReport.__annotations__}
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
        if numbers["trace"] is not None and numbers["trace"]["stderr"] is None:  # JSON knows no infinity
            numbers = {**numbers, "trace": {**numbers["trace"], "stderr": float("inf")}}
        return cls(**vars(HessianReport.from_dict(numbers)), **own)

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
        """What it took, in a line."""
        return f"{super().cost}; {self.residual_hvps} more for the residuals"


def pyhessian_report(
    landscape: Landscape,
    top: int = 5,
    *,
    trace: bool = True,
    density: bool = False,
    tolerance: float = 1e-3,
    max_iterations: int = 100,
    density_probes: int = 8,
    density_steps: int = 40,
    split: str = "train",
    title: str | None = None,
    seed: int = 0,
    progress: bool = False,
) -> PyHessianReport:
    """Eigenvalues, trace and density at a landscape's own point, by PyHessian's code.

    PyHessian gets a copy of the model at ``landscape.weights``, the landscape's micro-batches as its data loader,
    our arithmetic (full float32) and seeded random numbers; the landscape, its model and torch's generators stay
    as they are.  Its ``density`` calls ``torch.eig``, which is gone from torch; it gets a symmetric solver in that
    place.

    Args:
        landscape: the function.
        top: how many eigenvalues, the largest by magnitude.
        trace, density: whether to estimate those too.
        tolerance: PyHessian's ``tol``: it stops when two successive values differ by less than this share.
        max_iterations: PyHessian's ``maxIter``: of each eigenvalue, and samples of the trace.
        density_probes, density_steps: PyHessian's ``n_v`` and ``iter``.
        split, title: what the data and the point are called.
        seed: of all random vectors.
        progress: show progress on stderr.

    Raises:
        FedscapeError: numbers that make no sense, a loss that is not finite, a parameter without gradient or a penalty
            on the activations (PyHessian cannot take those), or PyHessian fails.

    Example:
        >>> import torch
        >>> from analysis.hessian.pyhessian import pyhessian_report
        >>> from landscape import Landscape
        >>> line = torch.nn.Linear(3, 1, bias=False)
        >>> bowl = Landscape(line, (torch.eye(3), torch.ones(3, 1)), torch.nn.functional.mse_loss, device="cpu")
        >>> report = pyhessian_report(bowl, top=1)
        >>> round(float(report.eigen.values[0]), 4), round(report.trace.value, 4)
        (0.6667, 2.0)
    """
    if not 1 <= top <= landscape.dimension:
        raise FedscapeError(
            f"{top} eigenvalues are asked for: give a number from 1 to the {landscape.dimension} parameters there are"
        )
    if landscape.penalty is not None:
        raise FedscapeError("PyHessian measures a loss of the outputs, and this one has a penalty on the activations")
    if max_iterations < 2 or not tolerance > 0:
        raise FedscapeError("PyHessian's stopping rules need at least 2 iterations and a tolerance above 0")
    if density and (density_probes < 2 or density_steps < 1):
        raise FedscapeError("the density needs at least 2 probes and 1 step")
    title = title or repr(landscape)
    here = landscape.evaluate()
    if not np.isfinite(here.loss):
        raise FedscapeError(f"the loss at {title} is {here.loss}: there is nothing to measure around it")
    start, samples, density_ = time.perf_counter(), [], None
    with _PyHessian(landscape, progress) as theirs:
        with theirs.doing(f"PyHessian: top {top} eigenvalues", seed, "eigenvalues"):
            values, vectors = theirs.hessian.eigenvalues(maxIter=max_iterations, tol=tolerance, top_n=top)
        iterations = _iterations(theirs.quotients, tolerance, max_iterations)
        eigen_hvps = theirs.products
        if trace:
            with theirs.doing("PyHessian: trace", seed, "trace"):
                samples = theirs.hessian.trace(maxIter=max_iterations, tol=tolerance)
        if density:
            before = theirs.products
            with theirs.doing("PyHessian: density", seed, "density"), _torch_eig(theirs.source):
                # Beyond d steps its Lanczos goes on in rounding errors.
                steps = min(density_steps, landscape.dimension)
                nodes, weights = theirs.hessian.density(iter=steps, n_v=density_probes)
            density_ = _density(np.array(nodes), np.array(weights), theirs.products - before)
    seconds = time.perf_counter() - start
    rows = torch.stack([torch.cat([part.reshape(-1) for part in vector]) for vector in vectors])
    rows = nn.functional.normalize(rows.to(landscape.weights), dim=1)
    shares = torch.tensor(values, dtype=rows.dtype, device=rows.device)[:, None]
    residuals = (landscape.hvp(None, rows) - shares * rows).norm(dim=1).cpu().numpy().astype(np.float64)
    found = np.array(values, dtype=np.float64)
    return PyHessianReport(
        title=f"PyHessian: {title}",
        eigen=Eigenpairs(
            values=found,
            residuals=residuals,
            bounds=residuals.copy(),
            converged=residuals <= tolerance * np.abs(found),
            products=eigen_hvps,
            vectors=rows,
        ),
        trace=_trace(samples) if trace else None,
        density=density_,
        loss=here.loss,
        accuracy=here.accuracy,
        split=split,
        samples=len(landscape.data),
        parameters=landscape.dimension,
        dtype=str(landscape.dtype).removeprefix("torch."),
        device=str(landscape.device),
        hvps=theirs.products,
        seconds=seconds,
        which="largest" if (found >= 0).all() else "magnitude",
        iterations=iterations,
        trace_samples=tuple(map(float, samples)),
        tolerance=tolerance,
        max_iterations=max_iterations,
        residual_hvps=top,
        residual_seconds=time.perf_counter() - start - seconds,
    )


@dataclass(frozen=True)
class Difference:
    """One number by two ways.

    Attributes:
        quantity: its name.
        ours, theirs: the values; ``None`` where one did not find it.
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


@dataclass(frozen=True)
class PyHessianComparison:
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
            rows.append(Difference("λ1/λ5", self.ours.ratio_1_5, None, self.theirs.ratio_1_5, None))
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

    def __str__(self) -> str:
        head = ("", "ours", "error", "PyHessian", "error", "difference")
        rows = [head, *self.rows()]
        width, *others = (max(len(row[i]) for row in rows) for i in range(len(head)))
        lines = [
            "  ".join([name.ljust(width), *(cell.rjust(w) for cell, w in zip(cells, others, strict=True))])
            for name, *cells in rows
        ]
        return "\n".join([self.ours.title, *(line.rstrip() for line in lines)])

    def explain(self) -> str:
        """Why the numbers differ, in a few sentences; only what applies here."""
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
        ours: our report of the same landscape, where it is measured already.
        tolerance: error wanted of our eigenvalues; of successive values, PyHessian's ``tol``.
        trace_tolerance: as in :func:`analysis.hessian.measure.measure_hessian`.
        trace, density, max_iterations, density_probes, density_steps, split, title, seed, progress: as in
            :func:`pyhessian_report`.

    Raises:
        FedscapeError: as :func:`pyhessian_report` and :func:`analysis.hessian.measure.measure_hessian`; or ``ours`` is
            of another matrix or objective, of a block or of the smallest eigenvalues.
    """
    if ours is None:
        from analysis.hessian import measure_hessian  # a command too: not imported before it runs

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


class _PyHessian:
    """PyHessian's object for a landscape, its products counted, and the surroundings it needs.

    Attributes:
        hessian: PyHessian's own object.
        source: the module it is defined in.
        products: products it has made.
        quotients: vᵀHv of each product of what it is doing.
    """

    def __init__(self, landscape: Landscape, progress: bool) -> None:
        self.source: ModuleType = importlib.import_module("pyhessian.hessian")
        self.products, self.quotients = 0, [0.0][:0]
        self._landscape, self._progress, self._bar = landscape, progress, Progress("", enabled=False)
        self._before = 0

    def __enter__(self) -> _PyHessian:
        landscape = self._landscape
        module = landscape.model()
        _refuse_unused(module, landscape)
        self.hessian = self.source.hessian(
            module, landscape.loss, dataloader=_Loader(landscape), cuda=landscape.device.type == "cuda"
        )
        product = self.hessian.dataloader_hv_product

        def counted(v: list[Tensor]) -> tuple[float, list[Tensor]]:
            quotient, products = product(v)
            self.products += 1
            self.quotients.append(quotient)
            self._bar.update(self.products - self._before)
            return quotient, products

        self.hessian.dataloader_hv_product = counted
        return self

    def __exit__(self, *_: object) -> None:
        del self.hessian

    @contextmanager
    def doing(self, description: str, seed: int, purpose: str) -> Iterator[None]:
        """The surroundings for one of PyHessian's methods; its failures as one sentence."""
        self.quotients, self._before = [], self.products
        device = self._landscape.device
        place = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with (
            Progress(description, unit="HVPs", enabled=self._progress) as self._bar,
            place,
            global_seed(seed, "pyhessian", purpose),
            reproducible_arithmetic(),
            sdpa_kernel(SDPBackend.MATH),
            torch.enable_grad(),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message="Using backward")  # its way, and the graph is freed
            try:
                yield
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                reason = str(error).strip().partition("\n")[0]
                raise FedscapeError(
                    f"PyHessian cannot measure this model ({reason}): use the default backend"
                ) from error


class _Loader:
    """A landscape's micro-batches, as often as they are asked for."""

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, targets, _ in self._landscape.data.batches(self._landscape.batch_size, self._landscape.dtype):
            yield inputs, targets


def _refuse_unused(module: nn.Module, landscape: Landscape) -> None:
    """PyHessian takes the number 0 for the gradient of a parameter that has none, and crashes on it.

    Raises:
        FedscapeError: there are such parameters.
    """
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    with torch.enable_grad(), reproducible_arithmetic():
        inputs, targets = next(iter(_Loader(landscape)))
        loss = landscape.loss(module(inputs), targets)
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True) if loss.requires_grad else ()
    unused = [name for name, g in zip(named, gradients, strict=True) if g is None] if gradients else list(named)
    if unused:
        more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
        raise FedscapeError(
            f"PyHessian cannot take parameters without gradient ({', '.join(unused[:5])}{more}): "
            "use the default backend, for which their rows are zero, or freeze them (requires_grad_(False))"
        )


class _TorchWithEig:
    """torch as PyHessian's density knows it: with ``torch.eig``, for the symmetric matrices it gives it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def eig(matrix: Tensor, eigenvectors: bool) -> tuple[Tensor, Tensor]:
        """Eigenvalues [n, 2] (real and imaginary parts) and eigenvectors as columns, as torch < 2 returned them."""
        assert eigenvectors
        values, vectors = torch.linalg.eigh(matrix)
        return torch.stack([values, torch.zeros_like(values)], dim=1), vectors


@contextmanager
def _torch_eig(source: ModuleType) -> Iterator[None]:
    """PyHessian's module, and nobody else, sees a torch that has ``eig``."""
    names = vars(source)
    before, names["torch"] = names["torch"], _TorchWithEig()
    try:
        yield
    finally:
        names["torch"] = before


def _iterations(quotients: list[float], tolerance: float, limit: int) -> tuple[int, ...]:
    """Power iterations per eigenvalue: PyHessian's stopping rule applied again to the quotients it saw."""
    counts, previous, count = [], 0.0, 0
    for quotient in quotients:
        count += 1
        if (count > 1 and abs(previous - quotient) / (abs(previous) + 1e-6) < tolerance) or count == limit:
            counts.append(count)
            count = 0
        previous = quotient
    return tuple(counts)


def _trace(samples: list[float]) -> Trace:
    n = len(samples)
    stderr = float(np.std(samples, ddof=1) / np.sqrt(n)) if n > 1 else float("inf")
    return Trace(value=float(np.mean(samples)), stderr=stderr, probes=n, products=n, deflated=0)


def _density(nodes: np.ndarray, weights: np.ndarray, products: int) -> Density:
    nodes, weights = nodes.astype(np.float64), weights.astype(np.float64)
    grid, width = _grid(nodes[weights > 1e-12], 1000, 0.01)
    values, stderr = _averaged(grid, nodes, weights, width)
    return Density(grid, values, stderr, width, nodes, weights, products)


def _mean(density: Density) -> tuple[float, float]:
    each = (density.weights * density.nodes).sum(axis=1)
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
