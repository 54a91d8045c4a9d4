"""What a round keeps with ``--save-clients``: local models, where they began, and the perturbations that were used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from landscape.checkpoints.client_work import ClientWork
from trainers.algorithm import Algorithm, Gradient
from trainers.parts.ascent import Ascent


class Noted:
    """Notes where the gradient of a local step is taken, and so its perturbation, whatever the algorithm's text is.

    An ascent part is asked for a gradient at some point, and asks for that of the mini-batch elsewhere: the
    perturbation is the way from the one to the other, of the last gradient for the first point that the algorithm asks
    about (Mime asks about a second one, the server's model).  Of an algorithm that perturbs by itself
    (:attr:`Algorithm.perturbs`) it is the way from the local iterate to its last gradient.

    Args:
        w: the local iterate, [..., d], of an algorithm that perturbs by itself; else ``None``.

    Example:
        >>> import torch
        >>> from trainers.federation.perturbation import Noted
        >>> noted, w = Noted(), torch.tensor([1.0])
        >>> plain = noted.of_batch(lambda w: 2 * w)
        >>> gradient = noted.of_algorithm(lambda w: plain(w + 0.5))  # an ascent part's
        >>> gradient(w) - gradient(torch.zeros(1)), noted.perturbation
        (tensor([2.]), tensor([0.5000]))
    """

    def __init__(self, w: Tensor | None = None) -> None:
        self._from, self._own = w, w is not None
        self._to: Tensor | None = None
        self._done = False

    @classmethod
    def by(cls, algorithm: Algorithm, w: Tensor) -> Noted:
        """What notes the perturbation of a local step of an algorithm at ``w``."""
        return cls(w if algorithm.perturbs else None)

    def of_batch(self, gradient: Gradient) -> Gradient:
        """The mini-batch gradient, whose points are noted."""

        def noted(point: Tensor) -> Tensor:
            if not self._done:
                self._to = point
            return gradient(point)

        return noted

    def of_algorithm(self, gradient: Gradient) -> Gradient:
        """The gradient that the algorithm asks for, which may be an ascent part's."""
        if self._own:
            return gradient

        def noted(w: Tensor) -> Tensor:
            if self._from is None:
                self._from = w
            found = gradient(w)
            self._done = True
            return found

        return noted

    @property
    def perturbation(self) -> Tensor:
        """ε of the step, [..., d], as it was added: the rounding of w + ε is in it."""
        assert self._from is not None and self._to is not None, "no gradient was taken"  # noqa: PT018
        return self._to - self._from


def noting(algorithm: Algorithm, ascent: Ascent | None, *, save_clients: bool) -> bool:
    """Whether perturbations are noted: on request, where there are some."""
    return save_clients and (ascent is not None or algorithm.perturbs)


@dataclass
class Saved:
    """What is kept of a round, gathered as the results come; all in host memory.

    Args:
        models: w_i by client, [d].
        starts: where local steps began, of clients that began elsewhere than at the model received.
        perturbations: of the last local steps.
    """

    models: dict[int, Tensor] = field(default_factory=dict)
    starts: dict[int, Tensor] = field(default_factory=dict)
    perturbations: dict[int, Tensor] = field(default_factory=dict)

    def add(self, clients: Sequence[int], models: Tensor, starts: Tensor | None, perturbations: Tensor | None) -> None:
        """Take in what some clients' results say, in rows [S, d]."""
        for row, client in enumerate(clients):
            self.models[client] = _kept(models[row])
            if starts is not None:
                self.starts[client] = _kept(starts[row])
            if perturbations is not None:
                self.perturbations[client] = _kept(perturbations[row])

    def work(self, received: Tensor, server: Tensor, perturbation: Tensor | None) -> ClientWork:
        """All of it but the models.

        Args:
            received: the model that was sent, [d].
            server: the server's own before the round.
            perturbation: the server's, where it has one.
        """
        own = None if torch.equal(received, server) else _kept(server)
        uphill = None if perturbation is None else _kept(perturbation)
        return ClientWork(_kept(received), self.starts, self.perturbations, own, uphill)


def _kept(vector: Tensor) -> Tensor:
    return vector.detach().to("cpu", copy=True)
