"""Random probes of the space that known eigenvectors leave, and their quadratures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from analysis.hessian.spectrum.lanczos import Lanczos
from analysis.hessian.spectrum.operators import Operator
from landscape.compute.randomness import torch_generator

Quadratures = tuple[np.ndarray, np.ndarray]
"""Nodes and weights, [probes, steps] each."""
_ATOM_BYTES = 2**28
"""Eigenvectors that are held apart take so much memory at most."""
_KNOWN = 0.05
"""An eigenvalue is known where its residual is below this share of the kernel's width: what is left of the coupling of
its vector moves no eigenvalue by more."""


class Probes:
    """Lanczos on PAP from random starts, P = I − VVᵀ for eigenvectors V (rows) of A.

    Args:
        operator: A.
        krylov: a Lanczos process of A, of which the largest known eigenvalues are taken; nothing in it changes.
        relative_width: the kernel's σ as a share of the spectrum's range.
        seed: draws the starts.

    Attributes:
        atoms: the eigenvalues of V, [a].
    """

    def __init__(self, operator: Operator, krylov: Lanczos | None, relative_width: float, seed: int) -> None:
        self.atoms: np.ndarray = np.zeros(0)
        self._operator, self._seed, self._vectors = operator, seed, torch.zeros(0)
        d = operator.shape[0]
        if krylov is not None and krylov.steps > 1:
            ritz = krylov.ritz()
            known = ritz.residuals <= _KNOWN * relative_width * (ritz.values[-1] - ritz.values[0])
            largest = np.argsort(-np.abs(ritz.values), kind="stable")
            most = min(d - 1, _ATOM_BYTES // (d * operator.dtype.itemsize))
            taken = np.sort(largest[known[largest]][:most])
            self.atoms = ritz.values[taken]
            columns = torch.from_numpy(ritz.coordinates[:, taken]).to(krylov.basis)
            self._vectors = (columns.T @ krylov.basis).to(operator.device)

    @property
    def dimension(self) -> int:
        """The dimension of the space that V leaves."""
        return self._operator.shape[0] - len(self.atoms)

    def quadratures(
        self, members: range, steps: int, enough: Callable[[int, Callable[[], Quadratures]], bool]
    ) -> Quadratures:
        """Nodes and weights of some probes that take steps together, [probes, steps] each.

        Args:
            members: the probes' numbers; each has its own random start.
            steps: at most.
            enough: told the steps taken, and how to get nodes and weights, and asked whether there are enough.
        """
        processes = [self._process(member) for member in members]

        def found() -> Quadratures:
            # After an invariant space the rest of the tridiagonal matrix is decoupled, with weights of 0.
            ritz = [process.ritz() for process in processes]
            share = self.dimension / self._operator.shape[0]
            return np.stack([one.values for one in ritz]), share * np.stack([one.weights for one in ritz])

        for taken in range(1, steps + 1):
            block = torch.stack([process.vector for process in processes], dim=1)
            products = self._outside(self._operator.matmat(block))
            for process, product in zip(processes, products.T, strict=True):
                process.absorb(product)
            if enough(taken, found):
                break
        return found()

    def _process(self, member: int) -> Lanczos:
        generator, operator = torch_generator(self._seed, "density", member), self._operator
        start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64)
        moved = start.to(operator.device, operator.dtype)[:, None]
        return Lanczos(self._outside(self._outside(moved))[:, 0], generator)

    def _outside(self, columns: Tensor) -> Tensor:
        """P times columns [d, n]."""
        return columns - self._vectors.T @ (self._vectors @ columns) if len(self.atoms) else columns
