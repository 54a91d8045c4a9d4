"""Thick-restart Lanczos: steps on an operator in a basis of bounded size."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.lanczos import Lanczos, Ritz
from analysis.hessian.spectrum.operators import Operator
from analysis.hessian.spectrum.wanted import Wanted
from landscape import FedscapeError
from landscape.compute.devices import free_memory
from landscape.compute.randomness import torch_generator

_ROOM = 24
"""Basis vectors beyond the wanted eigenvalues where memory is short."""
_LEAST_ROOM = 8
"""Basis vectors needed beyond the wanted eigenvalues, so that a restart leaves room for new ones."""
_FREE_BYTES = 2**28
"""A basis may always take this much memory; only beyond it the number of eigenvalues bounds its size."""
_SWITCH = 10.0
"""Another chain is followed where the wanted values couple this many times more to it than to the present one: a
Krylov space that is left after every step does not grow."""


class ThickRestart:
    """The Lanczos iteration with thick restarts (Wu & Simon, SIMAX 2000) and full re-orthogonalisation.

    A step is the product of the vector that is ``due``, which ``absorb`` takes; a full basis is first shrunk to its
    most wanted Ritz vectors.  When to stop is decided elsewhere (:mod:`analysis.hessian.spectrum.stopping`), and so is
    when to begin another Krylov space (:mod:`analysis.hessian.spectrum.multiplicity`).

    Args:
        operator: a symmetric operator: its size, type and device; whoever takes the steps multiplies.
        wanted: the eigenvalues wanted: their Ritz vectors survive restarts.
        max_basis: basis vectors held at most; :func:`default_basis` unless given.
        offload: keep the basis in (pinned) host memory; unless given, where it would take more than half of the GPU
            memory that is free.
        seed: draws the start vectors.

    Raises:
        FedscapeError: ``max_basis`` has no room for the eigenvalues.
    """

    def __init__(
        self,
        operator: Operator,
        wanted: Wanted,
        *,
        max_basis: int | None = None,
        offload: bool | None = None,
        seed: int = 0,
    ) -> None:
        d, count = operator.shape[0], wanted.count
        self.room = min(d, default_basis(count, d, operator.dtype) if max_basis is None else max_basis)
        """Basis vectors held at most."""
        if self.room < min(d, count + _LEAST_ROOM):
            raise FedscapeError(
                f"a basis of {self.room} vectors has no room for {count} eigenvalues: give at least "
                f"{count + _LEAST_ROOM}"
            )
        if offload is None:
            offload = _is_too_large(self.room * d * operator.dtype.itemsize, operator.device)
        generator = torch_generator(seed, "lanczos")
        start = torch.randn(d, generator=generator, dtype=torch.float64).to(operator.device, operator.dtype)
        self.krylov = Lanczos(start, generator, capacity=self.room, offload=offload)
        self._wanted = wanted

    def due(self) -> Tensor:
        """The vector to multiply next, [d], where there is room for it."""
        if self.krylov.steps == self.room:
            self.krylov.restart(lambda ascending: self._wanted.keep(ascending, self.room))
        return self.krylov.vector

    def absorb(self, product: Tensor) -> bool:
        """One more basis vector.

        Args:
            product: A times the vector that was due, [d].

        Returns:
            Whether the Krylov space goes on; else it is invariant, and the next step is from another start.

        Raises:
            FedscapeError: the product is not finite.
        """
        goes_on = self.krylov.absorb(product)
        if not np.isfinite(self.krylov.diagonal[-1]):
            raise FedscapeError("the operator's products are not finite: there is no spectrum at this point")
        return goes_on

    def follow_coupled(self, ritz: Ritz, moving: np.ndarray) -> None:
        """Go on with the chain that the values still moving couple to, where that is by far another one.

        Args:
            ritz: of the present basis.
            moving: indices of those Ritz values.
        """
        if len(self.krylov.couplings) > 1:
            weights = np.abs(self.krylov.couplings @ ritz.coordinates[:, moving]).sum(axis=1)
            if weights.max() > _SWITCH * weights[0]:
                self.krylov.follow(int(weights.argmax()))

    def state(self) -> dict[str, Any]:
        """Everything the iteration continues from, of tensors in host memory and plain values."""
        return {"process": self.krylov.state(), "restarts": self.krylov.restarts}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` gave."""
        self.krylov.resume(state["process"])
        self.krylov.restarts = int(state["restarts"])


def default_basis(wanted: int, d: int, dtype: torch.dtype) -> int:
    """Basis vectors held at most for that many eigenvalues: what fits in 256 MB, and k + 24 where that is more.

    The process works with six vectors more, so that all of it takes k + 30.  On spectra of outliers and a bulk
    (d = 20,000, k = 50) up to 3 % more products were needed than with every vector held, and 8 % more for k = 5 at the
    edge of a semicircle.
    """
    return min(d, max(wanted + _ROOM, _FREE_BYTES // (d * dtype.itemsize)))


def _is_too_large(size: int, device: torch.device) -> bool:
    """Whether that many bytes are more than half of the GPU memory that is free."""
    return device.type == "cuda" and size > free_memory(device) / 2
