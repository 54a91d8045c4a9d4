"""The privacy part: what each client sends is clipped and noised, and what that guarantees is counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from landscape.compute.randomness import torch_generator
from landscape.errors import FedscapeError


@dataclass(frozen=True)
class ClientPrivacy:
    """Client-level differential privacy: uploads are clipped to norm C, and their sum gets Gaussian noise σC.

    All tensors that a client sends in a round are one vector u_i: u_i ← u_i min(1, C/‖u_i‖) + N(0, σ²C²/n), n the
    number of clients that come in the round, so that the noise of the *sum* is N(0, σ²C²), σ times what one client can
    change it by.  The mean divides by the expected number qN, whoever comes, so its noise is σC/(qN).

    The guarantee (ε, δ) is for the sequence of the server's models, and all that is computed from them, when one client
    with all of its data is added or removed; each client comes with probability q, by itself.  It is the Gaussian
    mechanism's, subsampled and composed over the rounds (McMahan et al., ICLR 2018; DP-FedSAM, Shi et al., CVPR 2023).

    Example:
        >>> import torch
        >>> from trainers import ClientPrivacy
        >>> clipped = ClientPrivacy(noise=0.0, clip=1.0).protected({"delta": torch.tensor([3.0, 4.0])}, 0, 1, 7, came=1)
        >>> clipped["delta"]
        tensor([0.6000, 0.8000])
        >>> noised = ClientPrivacy(noise=2.0, clip=1.0).protected({"delta": torch.zeros(40_000)}, 0, 1, 7, came=4)
        >>> bool((noised["delta"].std() - 2 * 1.0 / 4**0.5).abs() < 0.02)
        True
    """

    noise: float
    """σ, differential privacy of clients: all that a client sends is clipped as one vector, and the sum over all
    clients gets Gaussian noise of σ times the clipping norm (0: clipping alone, no guarantee). ε is told for a client
    added or removed with all of its data, for the server's models (docs/privacy.md); needs --sampling bernoulli
    --weighting uniform --aggregation unbiased, and dp-accounting (pip install 'fedscape[privacy]')"""
    clip: float = 0.2
    """C, largest norm of what one client sends in a round, all tensors together (DP-FedSAM: 0.2)"""
    delta: float = 1e-5
    """δ, at which ε is told; to be well below 1/clients"""

    def __post_init__(self) -> None:
        good = self.noise >= 0 and self.clip > 0 and 0 < self.delta < 1
        if not good or math.isinf(self.noise) or (math.isinf(self.clip) and self.noise > 0):
            values = ", ".join(f"{name}={value}" for name, value in asdict(self).items())
            raise FedscapeError(
                "ClientPrivacy needs a finite noise σ of 0 or more, a clipping norm C above 0 (finite with noise) and "
                f"δ between 0 and 1, not {values}"
            )

    def protected(
        self, upload: Mapping[str, Tensor], seed: int, number: int, client: int, came: int, *, counts: bool = True
    ) -> dict[str, Tensor]:
        """What leaves a client: its tensors clipped together, and noised.

        The noise follows from seed, round and client alone, whatever computes them.

        Args:
            upload: the tensors that the algorithm sends.
            seed: of the run; the guarantee is towards those who do not know it.
            number: of the round.
            client: its id.
            came: n, clients that come in the round.
            counts: false where the round has no client (another one's stead is taken by zeros with noise).
        """
        length = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in upload.values()))
        factor = 0.0 if not counts else 1.0 if length <= self.clip else self.clip / length
        sent = {name: factor * tensor if factor != 1 else tensor for name, tensor in upload.items()}
        if self.noise == 0:
            return sent
        draws, scale = torch_generator(seed, "privacy noise", number, client), self.noise * self.clip / math.sqrt(came)
        return {
            name: tensor + scale * torch.randn(tensor.shape, generator=draws, dtype=tensor.dtype).to(tensor.device)
            for name, tensor in sent.items()
        }

    def epsilon(self, rounds: int, share: float) -> float | None:
        """ε after so many rounds, at δ, where each client comes with probability ``share``; ``None`` without noise.

        By dp-accounting's privacy loss distributions: an upper bound, and nearly the exact value.

        Raises:
            FedscapeError: dp-accounting is not installed.

        Example:
            >>> from trainers import ClientPrivacy
            >>> ClientPrivacy(1.0).epsilon(0, 0.1), ClientPrivacy(0.0).epsilon(10, 0.1)
            (0.0, None)
        """
        if self.noise == 0:
            return None
        if rounds == 0:
            return 0.0
        spent = _one_round(self.noise, share).self_compose(rounds).get_epsilon_for_delta(self.delta)
        return float(spent)

    def told(self, rounds: int, share: float) -> str:
        """One line: what is guaranteed after so many rounds.

        Example:
            >>> from trainers import ClientPrivacy
            >>> ClientPrivacy(0.0, clip=0.5).told(10, 0.1)
            'uploads are clipped to norm 0.5 without noise: no differential privacy'
        """
        epsilon = self.epsilon(rounds, share)
        if epsilon is None:
            return f"uploads are clipped to norm {self.clip:g} without noise: no differential privacy"
        return (
            f"client-level differential privacy after {rounds} rounds: ε = {epsilon:.4g} at δ = {self.delta:g} (noise "
            f"{self.noise:g}, clipping norm {self.clip:g}, clients come with probability {share:g})"
        )


def accounting() -> Any:
    """The package dp-accounting's privacy loss distributions.

    Raises:
        FedscapeError: it is not installed.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise FedscapeError(
            "--dp counts ε with the package dp-accounting, which is not installed: pip install 'fedscape[privacy]'"
        ) from error
    return privacy_loss_distribution


@cache
def _one_round(noise: float, share: float) -> Any:
    """The privacy loss of a round: adding a client and removing one, the worse of both."""
    # Losses are of the size of q/σ, or of 1/(2σ²) with little noise: finer steps than these change ε by 0.1 % at most.
    # They would take time after every round, the more the later, as the losses of many rounds reach farther.
    interval = max(1e-5, min(4e-3 * max(1.0, 0.5 / noise**2), 0.1 * share / noise))
    return accounting().from_gaussian_mechanism(
        noise, sampling_prob=share, value_discretization_interval=interval, pessimistic_estimate=True
    )
