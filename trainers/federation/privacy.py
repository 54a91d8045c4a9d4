"""A run's differential privacy: what it must be like, and what leaves its clients."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from landscape.errors import FedscapeError
from trainers.algorithm import Algorithm
from trainers.federation.aggregate import Aggregate
from trainers.federation.execution import ResultRows
from trainers.federation.sampling import nobody_came
from trainers.federation.weights import inclusion_probability
from trainers.parts.privacy import ClientPrivacy, accounting
from trainers.settings import Settings


def require_private(
    privacy: ClientPrivacy | None, algorithm: Algorithm, settings: Settings, *, batchnorm: bool = False
) -> None:
    """Refuse a run whose models would tell more of a client than ε says; clipping alone asks nothing.

    Args:
        privacy: the part, if there is one.
        algorithm: of the run.
        settings: of the run.
        batchnorm: whether the model has BatchNorm's running statistics.

    Raises:
        FedscapeError: with the reason; or dp-accounting is not installed.

    Example:
        >>> from trainers import ClientPrivacy, FedAvg, Settings
        >>> from trainers.federation.privacy import require_private
        >>> require_private(ClientPrivacy(1.0), FedAvg(), Settings(sampling="bernoulli"))
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: --dp needs --weighting uniform: by samples, a client counts for its size
    """
    if privacy is None or privacy.noise == 0:
        return
    name, unchanged = type(algorithm).__name__, "neither clipped nor noised"
    rules = {
        "--sampling bernoulli: ε is counted for clients that come by chance, each by itself": (
            settings.sampling == "bernoulli"
        ),
        "--weighting uniform: by samples, a client counts for its size": settings.weighting == "uniform",
        "--aggregation unbiased: a ratio divides by how many clients came, which no noise hides": (
            settings.aggregation == "unbiased"
        ),
        f"--evaluated-model server: local models, and so their mean, are {unchanged}": (
            settings.evaluated_model == "server"
        ),
        f"a run without --save-clients: local models are {unchanged}": not settings.save_clients,
        f"one upload a round: the clients of {name} send twice, and ε counts one": not algorithm.two_phases,
        f"several clients: {name} has a single one": not algorithm.pooled,
        "a model without BatchNorm (one with GroupNorm, _gn): its statistics are no changes that could be clipped": (
            not batchnorm
        ),
    }
    for rule, holds in rules.items():
        if not holds:
            raise FedscapeError(f"--dp needs {rule}")
    accounting()


def spent(privacy: ClientPrivacy | None, settings: Settings, rounds: int) -> dict[str, Any]:
    """What ``metrics.jsonl`` records of the privacy of a run after so many rounds: ``dp_epsilon``, none without noise.

    Example:
        >>> from trainers import ClientPrivacy, Settings
        >>> from trainers.federation.privacy import spent
        >>> spent(None, Settings(), 3), spent(ClientPrivacy(0.0), Settings(), 3)
        ({}, {'dp_epsilon': None})
    """
    return {} if privacy is None else {"dp_epsilon": privacy.epsilon(rounds, settings.per_round / settings.clients)}


def guarantee(privacy: ClientPrivacy | None, settings: Settings, rounds: int) -> dict[str, Any]:
    """What ``result.json`` says of the privacy of a run that ended after so many rounds, as ``privacy``.

    Example:
        >>> from trainers import ClientPrivacy, Settings
        >>> from trainers.federation.privacy import guarantee
        >>> guarantee(ClientPrivacy(0.0, clip=0.5), Settings(clients=20, per_round=5), 3)["privacy"]["epsilon"]
    """
    if privacy is None:
        return {}
    share = settings.per_round / settings.clients
    told = {**asdict(privacy), "rounds": rounds, "participation": share, "unit": "client"}
    return {"privacy": {"epsilon": privacy.epsilon(rounds, share), **told}}


class Protection:
    """What leaves the clients of a run, and how its means are taken: as they are, or clipped, noised and hidden.

    With noise, nothing that the server computes may depend on how many clients came: means are sums over the expected
    number qN, algorithms are told q for p = |S|/N, and a round without clients has noise alone.  (In its stead clients
    are drawn again, as every round has some, and what they send is multiplied by 0.)

    Args:
        privacy: the part, if the run has one.
        algorithm, settings, batchnorm: as :func:`require_private` takes them.

    Raises:
        FedscapeError: the run would tell more than ε says.

    Example:
        >>> from trainers import FedAvg, Settings
        >>> from trainers.federation.privacy import Protection
        >>> Protection(None, FedAvg(), Settings(clients=20, per_round=5), batchnorm=False).participation(came=4)
        0.2
    """

    def __init__(
        self, privacy: ClientPrivacy | None, algorithm: Algorithm, settings: Settings, *, batchnorm: bool
    ) -> None:
        require_private(privacy, algorithm, settings, batchnorm=batchnorm)
        self._privacy, self._settings = privacy, settings
        self._hidden = privacy is not None and privacy.noise > 0
        self._share = settings.per_round / settings.clients

    def participation(self, came: int) -> float:
        """p, as algorithms are told."""
        return self._share if self._hidden else came / self._settings.clients

    def aggregate(self) -> Aggregate:
        """The sums of a round's uploads."""
        if self._hidden:
            return Aggregate(self._share, fixed=True)
        unbiased = self._settings.aggregation == "unbiased"
        return Aggregate(inclusion_probability(self._settings) if unbiased else None)

    def uploads(self, result: ResultRows, number: int, came: int) -> dict[str, Tensor]:
        """What clients send in round ``number``, in which ``came`` do, in rows [S, ...]."""
        if self._privacy is None:
            return result.uploads
        counts = not (self._hidden and nobody_came(self._settings, number))
        sent = [
            self._privacy.protected(
                {name: tensor[row] for name, tensor in result.uploads.items()},
                self._settings.seed,
                number,
                client,
                came,
                counts=counts,
            )
            for row, client in enumerate(result.clients)
        ]
        return {name: torch.stack([one[name] for one in sent]) for name in result.uploads}
