"""Local drift decoupling and correction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, LocalData, Mean, Round, State


@dataclass(frozen=True)
class FedDC(Algorithm):
    """Each client learns its drift h_i from the server's model and corrects its model by it before averaging.

    Client: w ← w − η (g + α(w − w^t + h_i) + c − c_i); then h_i ← h_i + d_i.
    c_i⁺ = c_i − c − d_i/(Kη) as SCAFFOLD's, K and η those of the client and round; c ← c + Σ_S p_i (c_i⁺ − c_i).
    Server: w ← ‹w_i› + Σ p_i h_i over all clients, sampled or not, as in the authors' code.
    With ``server_correction="sampled"`` w ← ‹w_i + h_i⁺›, as the paper prints it: where not all clients take part, the
    drifts of those that do stand for all, and w never comes to rest, however many rounds it has.  The two are one
    where all take part.
    The paper's local correction is (g_i − g)/(Kη), g_i the client's last update; the authors' code makes it SCAFFOLD's,
    and so does this one: d_i itself contains the correction, which the literal reading would count again.  The
    code's first-round η and common K are ``--dual-lr first --dual-steps mean``.  With ``sizes="relative"`` α and c are
    divided by the client's relative size s_i = N n_i/n, and the change of c_i sent is multiplied by it, as there.
    Traffic per sampled client: two models down (w, c), two up (d_i or the corrected one, c_i⁺ − c_i).

    Example:
        >>> import torch
        >>> from trainers import FedDC, Round, State
        >>> client = State(drift=torch.tensor([1.0]), c=torch.tensor([0.75]))
        >>> received, round = State(w=torch.tensor([1.0]), c=torch.tensor([0.25])), Round(1, lr=0.5, participation=0.5)
        >>> algorithm, w = FedDC(alpha=0.5, server_correction="sampled"), torch.tensor([3.0])
        >>> algorithm.direction(w, lambda w: 2 * w, client, received, round)  # 6 + 0.5 (2 + 1) + 0.25 − 0.75
        tensor([7.])
        >>> algorithm.upload(w, client, received, round, steps=2)  # d_i + h_i⁺ = 2 + 3, and −c − d_i/(Kη)
        {'delta': tensor([5.]), 'c': tensor([-2.2500])}
    """

    paper = "Gao et al., CVPR 2022, Algorithm 1"
    excludes: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its server averages drift-corrected models, not the clients' changes",
        "local_optimizer": "c_i takes −d_i/(Kη) for the mean of the client's directions, as only plain steps make it",
    }

    alpha: float = 0.01
    """α, weight of the drift penalty (the authors': 0.01 CIFAR, 0.1 MNIST)"""
    server_correction: Literal["all", "sampled"] = "all"
    """whose drifts the server adds: all clients' (the authors' code), or the sampled ones' (as the paper prints it),
    which does not converge where not all clients take part"""
    sizes: Literal["equal", "relative"] = "equal"
    """relative: α and c are divided by the client's number of samples over the mean client's, as in the authors'
    code"""

    def __post_init__(self) -> None:
        self.require(self.alpha >= 0, "α of 0 or more")
        self.require(self.server_correction in ("all", "sampled"), "a server correction of all or sampled")
        self.require(self.sizes in ("equal", "relative"), "sizes equal or relative")

    def pull(self, client: State) -> float | Tensor:
        """α, or α/s_i."""
        return self.alpha / client.size if self.sizes == "relative" else self.alpha

    def _c(self, client: State, server: State) -> Tensor:
        """c, or c/s_i."""
        received: Tensor = server.c
        return received / client.size if self.sizes == "relative" else received

    @property
    def bias(self) -> str:
        """None with all clients' drifts."""
        return "" if self.server_correction == "all" else "corrected by sampled clients only"

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """h_i = 0, c_i = 0, and s_i as one number where it is used."""
        size = {"size": torch.ones_like(w[..., :1])} if self.sizes == "relative" else {}
        return {"drift": torch.zeros_like(w), "c": torch.zeros_like(w), **size}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """c = 0, and the mean drift of all clients if it is added."""
        zeros = torch.zeros_like(w)
        return {"c": zeros, "drift": zeros} if self.server_correction == "all" else {"c": zeros}

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """The model and c; the mean drift stays on the server."""
        return {"w": server.w, "c": server.c}

    def prepare(self, client: State, server: State, data: LocalData, round: Round) -> None:
        """s_i."""
        if self.sizes == "relative":
            client.size = torch.full_like(client.size, data.size)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """The gradient of L_i + (α/2)‖h_i + w − w^t‖² + ‹w, c − c_i›."""
        pulled = self.pull(client) * (w - server.w + client.drift)
        return gradient(w) + pulled + self._c(client, server) - client.c

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """d_i, with h_i⁺ if those of the sampled clients are added, and the change of c_i."""
        delta = w - server.w
        change = -self._c(client, server) - delta / round.path(steps)
        client.drift, client.c = client.drift + delta, client.c + change
        sent = change * client.size if self.sizes == "relative" else change
        return {"delta": delta if self.server_correction == "all" else delta + client.drift, "c": sent}

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """w and c."""
        server.c = server.c + mean.all_clients.c
        server.w = server.w + mean.delta
        if self.server_correction == "all":
            server.drift = server.drift + mean.all_clients.delta
            server.w = server.w + server.drift
