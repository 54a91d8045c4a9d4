"""What the clients of a round received, where they began, and the perturbations that they used, as a file keeps it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from landscape.errors import FedscapeError
from landscape.storage.plain import AnyTensor, require_plain
from landscape.storage.schema import Keyed, Number, Record

_BY_CLIENT = Keyed(Number(0, whole=True), AnyTensor())
SCHEMA = Record(
    {"received": AnyTensor()},
    {
        "starts": _BY_CLIENT,
        "perturbations": _BY_CLIENT,
        "server_model": AnyTensor(),
        "server_perturbation": AnyTensor(),
    },
    extra=False,
)
"""What a file may hold of it; the vectors are looked at one by one (:meth:`ClientWork.of_contents`)."""


@dataclass(frozen=True)
class ClientWork:
    """What stands beside the local models of a round: flat vectors [d] on the CPU.

    Attributes:
        received: the model that the server sent to all sampled clients.
        starts: where a client's local steps began, by its id, of those that began elsewhere than at ``received``.
        perturbations: ε of each client's last local step: how far from the local iterate the gradient that it descended
            along was taken, rounding of w + ε included.  It is the step of one mini-batch, at the last iterate and not
            at ``received``.  Empty where the algorithm has no ascent step.
        server_model: w^t, the server's own model before the round, where it sent another one; else ``None``.
        server_perturbation: the server's own perturbation of w^t in the round (of FedGloSS, whose clients received the
            perturbed model, of FedGF, and FedSMOO's s); ``None`` where there is none.

    Example:
        >>> import torch
        >>> from landscape.checkpoints.client_work import ClientWork
        >>> work = ClientWork(torch.zeros(2), perturbations={3: torch.tensor([0.0, 0.1])})
        >>> sorted(work.contents()), work.of_contents(work.contents(), 2, "ckpt.pt").perturbations[3]
        (['perturbations', 'received'], tensor([0.0000, 0.1000]))
    """

    received: Tensor
    starts: dict[int, Tensor] = field(default_factory=dict)
    perturbations: dict[int, Tensor] = field(default_factory=dict)
    server_model: Tensor | None = None
    server_perturbation: Tensor | None = None

    @property
    def before(self) -> Tensor:
        """w^t, the server's own model before the round."""
        return self.received if self.server_model is None else self.server_model

    def contents(self) -> dict[str, Any]:
        """What a file holds of it: what is there."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        return {name: value for name, value in found.items() if isinstance(value, Tensor) or value}

    @classmethod
    def of_contents(cls, contents: dict[str, Any], dimension: int, path: object) -> ClientWork:
        """From what a file holds, which fits :data:`SCHEMA`.

        Args:
            contents: it.
            dimension: d, of the checkpoint's parameters.
            path: the file, for the error.

        Raises:
            FedscapeError: a vector that is no plain tensor of d floating-point numbers.
        """
        work = cls(**contents)
        for name, vector in work._vectors():
            require_plain(vector, f"{path}: {name}", weights=True)
            if tuple(vector.shape) != (dimension,):
                shape = ", ".join(map(str, vector.shape))
                raise FedscapeError(
                    f"{path}: {name} is a tensor of shape ({shape}): a vector of the model's {dimension:,} parameters "
                    "is needed"
                )
        return work

    def _vectors(self) -> Iterator[tuple[str, Tensor]]:
        """Every vector with what it is called."""
        yield "the model that the clients received", self.received
        for client, start in self.starts.items():
            yield f"the start of client {client}", start
        for client, perturbation in self.perturbations.items():
            yield f"the perturbation of client {client}", perturbation
        if self.server_model is not None:
            yield "the server's model before the round", self.server_model
        if self.server_perturbation is not None:
            yield "the server's perturbation", self.server_perturbation
