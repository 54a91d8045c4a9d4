"""Ordinary training on all data, the reference for federated learning."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainers.algorithm import Algorithm


@dataclass(frozen=True)
class Centralised(Algorithm):
    """SGD on one client that holds all data; with an ascent part SAM or ASAM, with SWA its averaged model.

    Client: w ← w − η g, over the pooled data.  Server: w ← w_1, so that a round is ``local_epochs`` epochs.
    The rate decays after each round, and SWA counts rounds, as in federated runs.
    Traffic per sampled client: none; 0 bytes are recorded.

    Example:
        >>> import torch
        >>> from trainers import Centralised, Mean, Round, State
        >>> server = State(w=torch.tensor([1.0]))
        >>> Centralised().server_step(server, Mean(delta=torch.tensor([-0.25])), Round(1, 0.1, 1.0))
        >>> server.w, Centralised.pooled  # w_1: there is one client only
        (tensor([0.7500]), True)
    """

    paper = "Caldarola et al., ECCV 2022, Table 5 (the centralised reference)"
    drift = ""
    pooled: ClassVar[bool] = True
    """The run gives it one client with all data, whatever the partition asked for."""
    excludes: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "with one client there is no mean to make a step of",
        "dp": "there is a single client, which has all data",
    }
