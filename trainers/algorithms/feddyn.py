"""Federated learning with dynamic regularisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, LocalData, Mean, Round, State


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """Dynamic regularisation: each client's linear term λ_i aligns its optimum with the global one.

    Client: w ← w − η (g − λ_i + α(w − w^t)); then λ_i ← λ_i − α d_i.
    Server: h ← h − α Σ_S p_i d_i; w ← ‹w_i› − h/α.
    h is Σ p_i λ_i over all clients; the number of local steps enters nowhere.  (The paper's λ_i is ∇L_i(θ_i), its h
    the same; the authors' code keeps −λ_i/α and divides α by each client's relative size s_i = N n_i/n.)
    With ``sizes="relative"`` that is done here, too: α is α/s_i in the client's two lines.  h is then Σ p_i s_i λ_i.
    Traffic per sampled client: one model down, one up.

    Example:
        >>> import torch
        >>> from trainers import FedDyn, Mean, Round, State
        >>> algorithm, round = FedDyn(alpha=0.5), Round(1, lr=0.1, participation=0.5)
        >>> client, received = State(dual=torch.tensor([0.5])), State(w=torch.tensor([1.0]))
        >>> algorithm.direction(torch.tensor([3.0]), lambda w: 2 * w, client, received, round)  # 6 − 0.5 + 0.5 (3 − 1)
        tensor([6.5000])
        >>> server, change = State(w=torch.tensor([1.0]), h=torch.zeros(1)), torch.tensor([2.0])
        >>> algorithm.server_step(server, Mean(delta=change, all_clients=State(delta=change / 2)), round)
        >>> server.h, server.w  # −0.5 · 1, and 1 + 2 + 0.5/0.5
        (tensor([-0.5000]), tensor([4.]))
    """

    paper = "Acar et al., ICLR 2021, Algorithm 1"
    drift = ""
    excludes: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its server step solves for the model, h/α must be that of the plain average"
    }

    alpha: float = 0.1
    """α, weight of the regulariser (0.1 in FedSMOO's comparison, 0.01 in FedDC's and MAN's)"""
    sizes: Literal["equal", "relative"] = "equal"
    """relative: a client's α is divided by its number of samples over the mean client's, as in the authors' code: with
    --weighting uniform, the model then comes to rest where the loss over all samples does"""
    proximal: Literal["full", "half"] = "full"
    """half: the direction has α/2 (w − w^t), as in fedsim; the duals have the whole α"""

    def __post_init__(self) -> None:
        self.require(self.alpha > 0, "α above 0")
        self.require(self.sizes in ("equal", "relative"), "sizes equal or relative")
        self.require(self.proximal in ("full", "half"), "a proximal term full or half")

    def _alpha(self, client: State) -> float | Tensor:
        """α, or α/s_i."""
        return self.alpha / client.size if self.sizes == "relative" else self.alpha

    def pull(self, client: State) -> float | Tensor:
        """α of the proximal term."""
        return self._alpha(client) if self.proximal == "full" else self._alpha(client) / 2

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """λ_i = 0, and s_i as one number where it is used."""
        size = {"size": torch.ones_like(w[..., :1])} if self.sizes == "relative" else {}
        return {"dual": torch.zeros_like(w), **size}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """h = 0."""
        return {"h": torch.zeros_like(w)}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The model; h stays on the server."""
        return {"w": server.w}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """s_i."""
        if self.sizes == "relative":
            client.size = torch.full_like(client.size, data.size)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """The gradient of L_i − ‹λ_i, w› + (α/2)‖w − w^t‖²: g − λ_i + α(w − w^t)."""
        return gradient(w) - client.dual + self.pull(client) * (w - server.w)

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i; λ_i moves to the gradient at the client's new optimum."""
        delta = w - server.w
        client.dual = client.dual - self._alpha(client) * delta
        return {"delta": delta}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """h and w."""
        server.h = server.h - self.alpha * mean.all_clients.delta
        server.w = server.w + mean.delta - server.h / self.alpha
