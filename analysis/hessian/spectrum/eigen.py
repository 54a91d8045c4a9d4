"""Extreme eigenvalues and their eigenvectors."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from analysis.hessian.spectrum.lanczos import Lanczos, Ritz
from analysis.hessian.spectrum.operators import Operator, Report
from landscape import FedscapeError
from landscape.compute.randomness import torch_generator
from landscape.storage.files import load_torch, save_torch

Which = Literal["largest", "smallest", "magnitude", "both"]

_CHOICES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "largest": lambda ascending, k: np.arange(len(ascending))[::-1][:k],
    "smallest": lambda ascending, k: np.arange(k),
    "magnitude": lambda ascending, k: np.argsort(-np.abs(ascending), kind="stable")[:k],
    "both": lambda ascending, k: np.concatenate([np.arange(len(ascending))[::-1][:k], np.arange(k)]),
}

_SETTLING = 5
"""Steps beyond 2k before the first stop: the gaps that bounds rest on are those between settled Ritz values."""
_ROOM = 24
_LEAST_ROOM = 8
"""Basis vectors needed beyond the eigenvalues wanted, that a restart can go on from."""
_KEPT = 0.5
"""Share of a basis's room beyond the wanted eigenvalues that a restart fills with the Ritz vectors next to them."""
_MISSED = 1e-2
"""Bound on the probability that a search for multiple eigenvalues misses one (on hard spectra of 240 eigenvalues, no
seed in 600 did)."""
_SEARCH_SHARE, _SEARCH_APART = 0.2, 0.2
"""A search that finds values near those wanted ends with this share of all products, where others as far apart as
this share of the spectrum's width would have been found."""
_SWITCH = 10.0
"""Another chain is followed where what the wanted values couple to is so much more of it: a Krylov space that is left
after every step does not grow."""
_KEEP_SECONDS = 60.0
_COST_SHARE = 0.05
"""Unfinished work is written so often at most, and at most this share of the time is spent on it."""
_FREE_BYTES = 2**28
"""A basis is allowed this much memory before its size is bounded by the number of eigenvalues."""
_LOOK_BACK = 3
"""Steps over which a value must have stood still: a gap is only seen between Ritz values, and a Ritz value that
still climbs within a cluster shows that its true neighbours are nearer."""


@dataclass(frozen=True)
class Eigenpairs:
    """Extreme eigenvalues, in the order asked for (the largest: descending).

    Attributes:
        values: [k].
        residuals: ‖A v − λ v‖ for unit eigenvectors v, [k]: an eigenvalue lies within it of each value.
        bounds: error bounds of the values, [k]: residual²/gap where the gap to the neighbouring Ritz values is
            wide, else the residual; and never less than the value moved in the last steps.  Of eigenvalues nearer
            together than the tolerance, some may have been passed over for the next ones.
        converged: which bounds are within the wanted tolerance, [k]; none where all are, but the search for multiple
            eigenvalues was cut short.
        products: products spent (HVPs).
        vectors: unit eigenvectors as rows, [k, d]: the first rows of ``krylov.basis``, with no memory of their own.
        krylov: the process they came from; its basis serves the trace too.
        restarts: how often the basis was shrunk to stay within ``max_basis``.

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

    def ratio(self, i: int, j: int) -> float | None:
        """λ_i/λ_j, counted from 1; ``None`` where fewer eigenvalues were asked for."""
        return float(self.values[i - 1] / self.values[j - 1]) if max(i, j) <= len(self.values) else None


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

    Stops when every value's error bound is below ``tolerance`` times the value.  The bound is the residual
    r, or r²/gap where that is smaller (Parlett, The Symmetric Eigenvalue Problem, 1998, section 11.7), with
    the gap to the neighbouring Ritz values less their own residuals, and at least what the value moved in
    the last three steps.  Then some steps from a second random start, orthogonal to all, search for what the
    first could not find: the other eigenvectors of multiple eigenvalues (k = 1 needs none of them).

    Args:
        operator: a symmetric operator.
        k: how many, 1 to d.
        which: ``largest`` (descending), ``smallest`` (ascending), ``magnitude`` (largest |λ|, descending), or
            ``both``: the k largest, then the k smallest (k up to d/2).
        tolerance: relative error wanted of each value.
        max_products: stop there even if not converged (``converged`` says which are); 20 k + 100 unless given.
        max_basis: basis vectors held at most: a full basis is shrunk to its most wanted Ritz vectors and goes on
            (Wu & Simon, SIMAX 2000).  See :func:`default_basis` for the size unless given.
        offload: keep the basis, and so the vectors found, in (pinned) host memory; unless given, where it would take
            more than half of the GPU memory that is free.  Every value stays the same; each step moves it twice.
        state: a file the unfinished work is kept in, written every minute or so; where it is there already, the work
            goes on from it, to the same values to the last bit (on the same kind of machine).  It is as large as the
            basis, and removed at the end.
        fingerprint: what tells this operator from others of its shape, such as a checkpoint's digest: a file with
            another one is refused.
        seed: draws the start vector.
        report: called after each product, with the largest relative error bound.

    Raises:
        FedscapeError: k is not from 1 to d, ``max_basis`` has no room for the eigenvalues, or the operator gives
            values that are not finite.
    """
    d = operator.shape[0]
    if which not in _CHOICES:
        raise FedscapeError(f"unknown end of the spectrum '{which}': give {', '.join(_CHOICES)}")
    if which == "both" and 2 * k > d:
        raise FedscapeError(f"{k} eigenvalues at both ends are more than the {d} there are")
    if not 1 <= k <= d:
        raise FedscapeError(f"{k} eigenvalues are asked for: give a number from 1 to the {d} parameters there are")
    limit = max_products if max_products is not None else 20 * k + 100
    wanted = k * (1 + (which == "both"))
    room = min(d, default_basis(wanted, d, operator.dtype) if max_basis is None else max_basis)
    if room < min(d, wanted + _LEAST_ROOM):
        raise FedscapeError(
            f"a basis of {room} vectors has no room for {wanted} eigenvalues: give at least {wanted + _LEAST_ROOM}"
        )
    if offload is None:
        offload = _is_too_large(room * d * operator.dtype.itemsize, operator.device)
    generator = torch_generator(seed, "lanczos")
    start = torch.randn(d, generator=generator, dtype=torch.float64).to(operator.device, operator.dtype)
    krylov, restarts = Lanczos(start, generator, capacity=room, offload=offload), 0
    history: deque[np.ndarray] = deque(maxlen=_LOOK_BACK + 1)
    search: _Search | None = None
    keeper = None
    if state is not None:
        question = {"dimension": d, "dtype": str(operator.dtype), "seed": seed, "k": k, "which": which}
        keeper = _Keeper(Path(state), {**question, "max_basis": room, "fingerprint": fingerprint})
        restarts, search = keeper.read(krylov, history)
    while True:
        if keeper is not None:
            keeper.write(krylov, history, restarts, search)
        if krylov.steps == room:
            krylov.restart(lambda ascending: _kept(ascending, which, wanted, room))
            restarts += 1
        goes_on = krylov.absorb(operator.matmat(krylov.vector[:, None])[:, 0])
        if not np.isfinite(krylov.diagonal[-1]):
            raise FedscapeError("the operator's products are not finite: there is no spectrum at this point")
        if krylov.steps < wanted:
            continue
        ritz = krylov.ritz()
        chosen = _CHOICES[which](ritz.values, k)
        values, bounds = ritz.values[chosen], _bounds(ritz)[chosen]
        history.append(values)
        if not krylov.complete:
            bounds = np.maximum(bounds, np.abs(values - history[0]))
        # Values that are rounding beside the largest one are as good as they can be; every restart rounds anew.
        floor = 10 * torch.finfo(operator.dtype).eps * np.abs(ritz.values).max() * np.sqrt(1 + restarts)
        margin = np.maximum(tolerance * np.abs(values), floor)
        converged = bounds <= margin
        if report is not None:
            report(krylov.absorbed, _worst(bounds, values))
        if krylov.complete:
            break
        settled = krylov.absorbed >= 2 * wanted + _SETTLING and bool(converged.all())
        if search is not None:
            search.follow(krylov)
            through = not goes_on or search.over(krylov, ritz, which)
            if through and settled:
                break
            if through or search.found(values):
                search = None
        elif settled and k == 1:
            break
        elif settled:
            krylov.branch()
            search = _Search(values, margin)
        if search is None and len(krylov.couplings) > 1:
            moving = chosen if converged.all() else chosen[~converged]
            weights = np.abs(krylov.couplings @ ritz.coordinates[:, moving]).sum(axis=1)
            if weights.max() > _SWITCH * weights[0]:
                krylov.follow(int(weights.argmax()))
        if krylov.absorbed >= limit:
            converged &= not settled
            break
    # The recurrence tells residuals and bounds in exact arithmetic; below rounding nothing can be told.
    rounding = torch.finfo(operator.dtype).eps * np.abs(ritz.values).max()
    residuals, bounds = np.maximum(ritz.residuals[chosen], rounding), np.maximum(bounds, rounding)
    if keeper is not None:
        keeper.remove()
    vectors = krylov.to_ritz_vectors(chosen)
    return Eigenpairs(values, residuals, bounds, converged, krylov.absorbed, vectors, krylov, restarts)


@dataclass
class _Search:
    """A search for eigenvectors that the first start had no part of, by steps from a second one.

    A Krylov space holds one eigenvector of a multiple eigenvalue.  The others are eigenvectors of A restricted to what
    is orthogonal to the basis, outermost ones, which Lanczos finds from a random start.

    Attributes:
        values: what had converged, [k].
        margin: the errors allowed in it, [k].
        diagonal, off_diagonal: the restricted matrix's projection on the second start's Krylov space.
    """

    values: np.ndarray
    margin: np.ndarray
    diagonal: list[float] = field(default_factory=list)
    off_diagonal: list[float] = field(default_factory=list)

    def follow(self, krylov: Lanczos) -> None:
        """Note the step that the process took."""
        self.diagonal.append(float(krylov.diagonal[-1]))
        self.off_diagonal.append(float(krylov.couplings[0, -1]))

    def found(self, values: np.ndarray) -> bool:
        """Whether another value has taken its place among them."""
        return bool((np.abs(values - self.values) > self.margin).any())

    def over(self, krylov: Lanczos, ritz: Ritz, which: Which) -> bool:
        """Whether it is unlikely that there was something to find, or a fifth of all products went into the search.

        Kuczyński & Woźniakowski (SIMAX 1992, theorem 4.2): t steps from a random start miss the largest eigenvalue
        by more than ε of the spectrum's width with a probability of at most 1.648 √d exp(−√ε (2t − 1)).  The width is
        taken of the largest and smallest Ritz values, and ε from the innermost of the values found to the largest
        seen in the search.
        """
        steps = len(self.diagonal)
        seen = eigh_tridiagonal(self.diagonal, self.off_diagonal[: steps - 1], eigvals_only=True)
        top, bottom = seen[-1], seen[0]
        size, k = np.abs(self.values).min(), len(self.values) // (1 + (which == "both"))
        above = {"largest": self.values[-1], "both": self.values[k - 1], "magnitude": size}.get(which, np.inf)
        below = {"smallest": self.values[-1], "both": self.values[-1], "magnitude": -size}.get(which, -np.inf)
        width = ritz.values[-1] - ritz.values[0]
        apart = min(above - top, bottom - below) / width
        enough = np.log(1.648 * np.sqrt(krylov.basis.shape[1]) / _MISSED)
        if (2 * steps - 1) * np.sqrt(max(apart, 0.0)) >= enough:
            return True
        return steps >= _SEARCH_SHARE * krylov.absorbed and (2 * steps - 1) * np.sqrt(_SEARCH_APART) >= enough


class _Keeper:
    """The file that unfinished work is kept in."""

    def __init__(self, path: Path, question: dict[str, Any]) -> None:
        self.path, self.question = path, question
        self.written, self.cost = time.monotonic(), 0.0

    def read(self, krylov: Lanczos, history: deque[np.ndarray]) -> tuple[int, _Search | None]:
        """Go on from the file where it is there; returns the restarts so far, and the search that was under way."""
        if not self.path.exists():
            return 0, None
        saved = load_torch(self.path)
        if not isinstance(saved, dict) or set(saved) != {"question", "process", "history", "restarts", "search"}:
            raise FedscapeError(f"{self.path} does not hold unfinished eigenvalues: give another file, or remove it")
        theirs = saved["question"]
        different = [
            f"{key} {theirs.get(key)!r}, not {value!r}"
            for key, value in self.question.items()
            if theirs.get(key) != value
        ]
        if different:
            raise FedscapeError(
                f"{self.path} holds the unfinished eigenvalues of another question ({'; '.join(different)}): "
                "give another file, or remove it"
            )
        krylov.resume(saved["process"])
        history.extend(values.numpy() for values in saved["history"])
        if (search := saved["search"]) is not None:
            search = _Search(search["values"].numpy(), search["margin"].numpy(), search["diagonal"], search["off"])
        return int(saved["restarts"]), search

    def write(self, krylov: Lanczos, history: deque[np.ndarray], restarts: int, search: _Search | None) -> None:
        """Write the file where the last one is a minute old, and writing costs under 5 % of the time."""
        begin = time.monotonic()
        if krylov.absorbed == 0 or begin - self.written < max(_KEEP_SECONDS, self.cost / _COST_SHARE):
            return
        everything = {
            "question": self.question,
            "process": krylov.state(),
            "history": [torch.from_numpy(values.copy()) for values in history],
            "restarts": restarts,
            "search": search
            and {
                "values": torch.from_numpy(search.values.copy()),
                "margin": torch.from_numpy(search.margin.copy()),
                "diagonal": search.diagonal,
                "off": search.off_diagonal,
            },
        }
        save_torch(self.path, everything)
        self.written = time.monotonic()
        self.cost = self.written - begin

    def remove(self) -> None:
        """The work is done."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def default_basis(wanted: int, d: int, dtype: torch.dtype) -> int:
    """Basis vectors held at most for that many eigenvalues: what fits in 256 MB, and k + 24 where that is more.

    The process works with six vectors more, so that all of it takes k + 30.  On spectra of outliers and a bulk
    (d = 20,000, k = 50) up to 3 % more products were needed than with every vector held, and 8 % more for k = 5 at the
    edge of a semicircle.
    """
    return min(d, max(wanted + _ROOM, _FREE_BYTES // (d * dtype.itemsize)))


def _is_too_large(size: int, device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return size > (torch.cuda.mem_get_info(device)[0] + idle) / 2


def _kept(ascending: np.ndarray, which: Which, wanted: int, room: int) -> np.ndarray:
    """Which Ritz values a restart keeps: those wanted and the ones next to them."""
    extra = int((room - wanted) * _KEPT)
    if which != "both":
        return _CHOICES[which](ascending, wanted + extra)
    return np.unique(_CHOICES[which](ascending, (wanted + extra) // 2))


def _bounds(ritz: Ritz) -> np.ndarray:
    values, residuals = ritz.values, ritz.residuals
    if len(values) == 1:
        return residuals  # nothing is known of the neighbours
    apart = np.diff(values)
    gaps = np.minimum(np.append(apart - residuals[1:], np.inf), np.insert(apart - residuals[:-1], 0, np.inf))
    usable = gaps > residuals
    return np.where(usable, residuals**2 / np.where(usable, gaps, 1.0), residuals)


def _worst(bounds: np.ndarray, values: np.ndarray) -> float:
    return float((bounds / np.maximum(np.abs(values), np.finfo(float).tiny)).max())


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
