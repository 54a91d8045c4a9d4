"""The adversary part: each client's inputs are moved uphill while its model descends."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Literal, Protocol

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from trainers.parts.state import State

_LARGEST = 4096  # numbers in an input: the matrix of 4096 x 4096 takes 64 MiB of float32 a client


class Adversary(Protocol):
    """Moves the inputs of a client's model by tensors that the client keeps, and these uphill after each local step.

    Where several clients are trained at once, ``move`` is mapped over them by ``torch.func.vmap``, and ``ascend`` gets
    their tensors in rows, [S, ...]: arithmetic by element does both.
    """

    @property
    def moving(self) -> tuple[str, ...]:
        """Names of the client's tensors that :meth:`move` reads and :meth:`ascend` changes."""
        ...

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """Initial values of the tensors that a client keeps between rounds; ``w`` is the initial model."""
        ...

    def begin(self, client: State, shape: tuple[int, ...]) -> None:
        """Prepare the client's tensors for inputs of this shape, before the first local step of a round."""
        ...

    def move(self, inputs: Tensor, client: State) -> Tensor:
        """The inputs that the model sees, [batch, ...] -> [batch, ...], differentiable in ``moving``."""
        ...

    def ascend(self, slopes: State, client: State) -> None:
        """Change the tensors of ``moving`` after a local step; ``slopes`` has the loss's gradients by name."""
        ...


@dataclass(frozen=True)
class Affine:
    """The worst affine shift Λ_i x + δ_i of a client's inputs, by gradient ascent (Reisizadeh et al., NeurIPS 2020).

    After each local step Λ_i ← Λ_i + η₂ (∇_Λ f_i − 2λ(Λ_i − I)), δ_i ← δ_i + η₂ (∇_δ f_i − 2λ δ_i), with the slopes
    from where the step began: the ascent on f_i − λ(‖Λ_i − I‖²_F + ‖δ_i‖²) of Algorithm 1.
    Λ_i and δ_i start at I and 0 and stay with the client from round to round.
    With ``structure="channel"`` Λ_i x + δ_i scales and shifts each channel: the full form's step projected on such
    maps (slopes are means over a channel's places), so λ and η₂ mean the same; inputs without places ([n]) get a
    diagonal Λ_i.
    The slopes are those of a step's first gradient: with SAM, ASAM and GSAM at the unperturbed w.

    Example:
        >>> import torch
        >>> from trainers import Affine, State
        >>> client = State(tilt=torch.tensor([[0.0, 1.0], [0.0, 0.0]]), shift=torch.tensor([1.0, 0.0]))
        >>> adversary = Affine(lam=0.25, ascent_lr=0.5)
        >>> adversary.move(torch.tensor([[1.0, 2.0]]), client)  # Λ x + δ: (1 + 2 + 1, 2)
        tensor([[4., 2.]])
        >>> adversary.ascend(State(tilt=torch.zeros(2, 2), shift=torch.tensor([2.0, 0.0])), client)
        >>> client.shift  # 1 + 0.5 (2 − 2 · 0.25 · 1)
        tensor([1.7500, 0.0000])
    """

    lam: float = 0.1
    """λ, weight of the penalty on Λ − I and δ"""
    ascent_lr: float = 0.01
    """η₂, rate of the ascent on Λ and δ; 0 leaves the inputs as they are"""
    structure: Literal["full", "channel"] = "full"
    """Λ: full, a matrix over all numbers of an input (the paper's; CIFAR: 38 MB a client), or one factor a channel"""

    def __post_init__(self) -> None:
        self._require(self.lam >= 0 and self.ascent_lr >= 0, "λ and η₂ of 0 or more")
        self._require(self.lam * self.ascent_lr <= 1, "λ η₂ of at most 1, beyond which the penalty overshoots")
        self._require(self.structure in ("full", "channel"), "a structure of full or channel")

    def _require(self, condition: bool, rule: str) -> None:
        if not condition:
            values = ", ".join(f"{name}={value}" for name, value in asdict(self).items())
            raise FedscapeError(f"Affine needs {rule}, not {values}")

    @property
    def moving(self) -> tuple[str, ...]:
        """Λ_i − I and δ_i."""
        return ("tilt", "shift")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """Λ_i − I and δ_i, empty until the shape of the inputs is known."""
        return {"tilt": w.new_zeros(0), "shift": w.new_zeros(0)}

    def begin(self, client: State, shape: tuple[int, ...]) -> None:
        """Λ_i = I and δ_i = 0 before the client's first round.

        Raises:
            FedscapeError: inputs too large for a full matrix.
        """
        n = prod(shape)
        if self.structure == "full" and n > _LARGEST:
            raise FedscapeError(
                f"inputs of {n} numbers make a matrix Λ of {n * n} for each client: give the structure channel"
            )
        if client.shift.numel() == 0 and self.structure == "full":
            client.tilt, client.shift = client.tilt.new_zeros(n, n), client.shift.new_zeros(n)
        elif client.shift.numel() == 0:
            channels = (shape[0], *(1 for _ in shape[1:]))
            client.tilt, client.shift = client.tilt.new_zeros(channels), client.shift.new_zeros(channels)
        # How many numbers of an input share an entry of δ: autograd sums their slopes.
        client.places = torch.full_like(client.shift, n / client.shift.numel())

    def move(self, inputs: Tensor, client: State) -> Tensor:
        """Λ_i x + δ_i, as x + (Λ_i − I) x + δ_i.

        Raises:
            FedscapeError: inputs that are no real numbers.
        """
        if not inputs.is_floating_point():
            raise FedscapeError("an affine adversary moves inputs: they must be numbers, not token ids")
        if self.structure == "channel":
            return inputs + client.tilt * inputs + client.shift
        x = inputs.reshape(len(inputs), -1)
        return (x + x @ client.tilt.mT + client.shift).reshape(inputs.shape)

    def ascend(self, slopes: State, client: State) -> None:
        """Λ_i and δ_i one step uphill."""
        tilt, shift = slopes.tilt, slopes.shift
        if self.structure == "channel":
            tilt, shift = tilt / client.places, shift / client.places
        client.tilt = client.tilt + self.ascent_lr * (tilt - 2 * self.lam * client.tilt)
        client.shift = client.shift + self.ascent_lr * (shift - 2 * self.lam * client.shift)
