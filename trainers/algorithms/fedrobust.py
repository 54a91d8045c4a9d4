"""Training against each client's worst affine shift of its inputs."""

from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from trainers.algorithm import Algorithm, LocalData, Round, State

_LARGEST = 4096  # numbers in an input: the matrix of 4096 x 4096 takes 64 MiB of float32 a client


@dataclass(frozen=True)
class FedRobust(Algorithm):
    """Gradient descent ascent: the model descends while each client's inputs are moved to Λ_i x + δ_i, uphill.

    Client, each step, both from where the step began: w ← w − η ∇_w f_i(w; Λ_i x + δ_i);
    Λ_i ← Λ_i + η₂ (∇_Λ f_i − 2λ(Λ_i − I)), δ_i ← δ_i + η₂ (∇_δ f_i − 2λ δ_i), the ascent on
    f_i − λ(‖Λ_i − I‖²_F + ‖δ_i‖²).  Server: w ← ‹w_i›.
    Λ_i and δ_i start at I and 0 and stay with the client from round to round.
    With ``structure="channel"`` Λ_i x + δ_i scales and shifts each channel: the full form's step projected on such
    maps (slopes are means over a channel's places), so λ and η₂ mean the same; inputs without places ([n]) get a
    diagonal Λ_i.
    With an ascent part, Λ_i and δ_i follow the slopes at the unperturbed w.
    Traffic per sampled client: one model down, one up (Λ_i and δ_i are never sent).

    Example:
        >>> import torch
        >>> from trainers import FedRobust, Round, State
        >>> client = State(tilt=torch.tensor([[0.0, 1.0], [0.0, 0.0]]), shift=torch.tensor([1.0, 0.0]))
        >>> algorithm = FedRobust(lam=0.25, ascent_lr=0.5)
        >>> algorithm.perturb(torch.tensor([[1.0, 2.0]]), client)  # Λ x + δ: (1 + 2 + 1, 2)
        tensor([[4., 2.]])
        >>> slopes = State(tilt=torch.zeros(2, 2), shift=torch.tensor([2.0, 0.0]))
        >>> algorithm.ascend(slopes, client, Round(1, 0.1, 1.0))
        >>> client.shift  # 1 + 0.5 (2 − 2 · 0.25 · 1)
        tensor([1.7500, 0.0000])
    """

    paper = "Reisizadeh et al., NeurIPS 2020, Algorithm 1"
    drift = "moved inputs, uncorrected local drift"
    perturbation = ("tilt", "shift")

    lam: float = 0.1
    """λ, weight of the penalty on Λ − I and δ"""
    ascent_lr: float = 0.01
    """η₂, rate of the ascent on Λ and δ; 0 is FedAvg"""
    structure: Literal["full", "channel"] = "full"
    """Λ: full, a matrix over all numbers of an input (the paper's; CIFAR: 38 MB a client), or one factor a channel"""

    def __post_init__(self) -> None:
        self.require(self.lam >= 0 and self.ascent_lr >= 0, "λ and η₂ of 0 or more")
        self.require(self.lam * self.ascent_lr <= 1, "λ η₂ of at most 1, beyond which the penalty overshoots")
        self.require(self.structure in ("full", "channel"), "a structure of full or channel")

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """Λ_i − I and δ_i, empty until the shape of the inputs is known."""
        return {"tilt": w.new_zeros(0), "shift": w.new_zeros(0)}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """Λ_i = I and δ_i = 0 before the client's first round."""
        shape, n = data.input_shape, prod(data.input_shape)
        if self.structure == "full" and n > _LARGEST:
            raise FedscapeError(
                f"inputs of {n} numbers make a matrix Λ of {n * n} for each client: give --structure channel"
            )
        if client.shift.numel() == 0 and self.structure == "full":
            client.tilt, client.shift = server.w.new_zeros(n, n), server.w.new_zeros(n)
        elif client.shift.numel() == 0:
            channels = (shape[0], *(1 for _ in shape[1:]))
            client.tilt, client.shift = server.w.new_zeros(channels), server.w.new_zeros(channels)
        # How many numbers of an input share an entry of δ: autograd sums their slopes.
        client.places = torch.full_like(client.shift, n / client.shift.numel())

    def perturb(self, inputs: Tensor, client: State) -> Tensor:
        """Λ_i x + δ_i, as x + (Λ_i − I) x + δ_i."""
        if not inputs.is_floating_point():
            raise FedscapeError("FedRobust moves inputs by an affine map: they must be numbers, not token ids")
        if self.structure == "channel":
            return inputs + client.tilt * inputs + client.shift
        x = inputs.reshape(len(inputs), -1)
        return (x + x @ client.tilt.mT + client.shift).reshape(inputs.shape)

    def ascend(self, slopes: State, client: State, round: Round) -> None:
        """Λ_i and δ_i one step uphill."""
        tilt, shift = slopes.tilt, slopes.shift
        if self.structure == "channel":
            tilt, shift = tilt / client.places, shift / client.places
        client.tilt = client.tilt + self.ascent_lr * (tilt - 2 * self.lam * client.tilt)
        client.shift = client.shift + self.ascent_lr * (shift - 2 * self.lam * client.shift)
