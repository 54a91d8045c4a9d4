"""SAM whose perturbation is the change of the server's model since the client last saw it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from torch import Tensor

from trainers.algorithm import Algorithm, Gradient, Mean, Round, State, unit
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.scaffold import Scaffold


@dataclass(frozen=True)
class FedLESAM(Algorithm):
    """Locally estimated global perturbation: uphill is back to the model the client received the last time.

    Client: its base's step with g(w + ρ (w^old − w^t)/‖w^old − w^t‖) for g(w): one gradient a step, and one
    perturbation for all steps of a round; w^old is the server's model as the client last received it.
    Server: as the base.  The bases are FedAvg (FedLESAM), SCAFFOLD (FedLESAM-S) and FedDyn (FedLESAM-D).
    A client that never took part has w^old = w^0, the initial model, which all are given: the first round is the
    base's, without perturbation, and who joins in round t looks back along w^0 − w^t.
    The training loss is that of the perturbed points, the only ones a client visits.

    The authors' code departs from their paper: its w^old is the model one round ago, the same for all clients; it
    takes one coordinate of the flat difference for each parameter tensor; and FedLESAM-S scales c − c_i by
    FedDyn's α.  The paper's form is the one here.
    Traffic per sampled client: as the base (one model down, one up; with SCAFFOLD two and two).

    Example:
        >>> import torch
        >>> from trainers import FedLESAM, Round, State
        >>> client, received = State(old=torch.tensor([4.0, 5.0])), State(w=torch.tensor([1.0, 1.0]))
        >>> algorithm, round = FedLESAM(rho=0.5), Round(2, 0.1, 1.0)
        >>> algorithm.direction(received.w, lambda w: w, client, received, round)  # (1, 1) + 0.5 (3, 4)/5
        tensor([1.3000, 1.4000])
    """

    paper = "Fan et al., ICML 2024, Algorithm 1"
    weighting = "uniform"

    rho: float = 0.05
    """ρ, length of the perturbation; 0 is the base"""
    base: Literal["fedavg", "scaffold", "feddyn"] = "fedavg"
    """what it perturbs: fedavg (FedLESAM), scaffold (FedLESAM-S) or feddyn (FedLESAM-D)"""
    alpha: float = 0.1
    """α of the base feddyn, weight of its regulariser; the others have none"""

    @property
    def excludes(self) -> Mapping[str, str]:  # type: ignore[override]
        """Its own, and those of its base."""
        own = "FedLESAM perturbs along the server's last change instead"
        theirs = "its bases SCAFFOLD and FedDyn have server steps of their own"
        return {**self._base.excludes, "ascent": own, "server_optimizer": theirs}

    def __post_init__(self) -> None:
        self.require(self.rho >= 0, "a radius ρ of 0 or more")
        self.require(self.base in ("fedavg", "scaffold", "feddyn"), "a base of fedavg, scaffold or feddyn")
        self.require(self.alpha > 0, "α above 0")

    @cached_property
    def _base(self) -> Algorithm:
        if self.base == "scaffold":
            return Scaffold()
        return FedDyn(alpha=self.alpha) if self.base == "feddyn" else FedAvg()

    def client_state(self, w: Tensor) -> dict[str, Tensor]:
        """The base's, and w^old = w^0."""
        return {**self._base.client_state(w), "old": w}

    def server_state(self, w: Tensor) -> dict[str, Tensor]:
        """The base's."""
        return self._base.server_state(w)

    def broadcast(self, server: State) -> dict[str, Tensor]:
        """As the base."""
        return self._base.broadcast(server)

    def direction(self, w: Tensor, gradient: Gradient, client: State, server: State, round: Round) -> Tensor:
        """The base's direction with the gradient taken ρ away, towards w^old."""
        uphill = self.rho * unit(client.old - server.w)
        return self._base.direction(w, lambda point: gradient(point + uphill), client, server, round)

    def upload(self, w: Tensor, client: State, server: State, round: Round, steps: int) -> dict[str, Tensor]:
        """As the base; w^old = w^t."""
        client.old = server.w.expand_as(w)
        return self._base.upload(w, client, server, round, steps)

    def server_step(self, server: State, mean: Mean, round: Round) -> None:
        """As the base."""
        self._base.server_step(server, mean, round)
