"""How much work a measurement of one round is, and about how long it takes, in a line before it starts."""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass

import torch

from analysis.alignment.federation import Federation
from analysis.alignment.options import Asked
from analysis.hessian.spectrum.operators import Hessian
from analysis.timing import duration, seconds_of
from landscape.compute.distributed import apart, rank_and_world

_BEFORE_PROBES = 15
"""Products that a trace takes to choose the space in which it is exact."""
_PRECISE = 5.0
"""A product in float64 without a kept graph takes so many times as long as one in float32: ``lenet_fed`` on a CPU."""


@dataclass(frozen=True)
class Work:
    """Passes over everybody's data: of measured clients alone they count by their share of the samples.

    Attributes:
        evaluations, gradients, products: how many; products are those that typical nets take.
        precise: products in float64 that judge those in float32, the first with a graph of its own.
    """

    evaluations: float = 0.0
    gradients: float = 0.0
    products: float = 0.0
    precise: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> Work:
        return Work(*(times * mine for mine in astuple(self)))


def expected_work(federation: Federation, local: int, received: bool, asked: Asked) -> Work:
    """What one round takes.

    Args:
        federation: its clients.
        local: how many local models there are.
        received: whether the model that the clients received is there.
        asked: the parts and how exactly.

    Example:
        Two clients, both measured, gradients alone: each one's loss and gradient, a pass over everybody's data each.

        >>> import torch
        >>> from analysis.alignment import Asked, Federation
        >>> from analysis.alignment.cost import expected_work
        >>> from landscape import Landscape
        >>> data = torch.ones(2, 1), torch.ones(2, 1)
        >>> whole = Landscape(torch.nn.Linear(1, 1), data, torch.nn.functional.mse_loss, device="cpu")
        >>> both = Federation(whole, {0: torch.tensor([0]), 1: torch.tensor([1])}, {0: 0.5, 1: 0.5}, (0, 1))
        >>> expected_work(both, 0, False, Asked(parts=("gradients",)))
        Work(evaluations=1.0, gradients=1.0, products=0.0, precise=0.0)
    """
    n, samples = len(federation.measured), sum(len(part) for part in federation.indices.values())
    share = sum(len(federation.indices[client]) for client in federation.measured) / samples
    d = federation.whole.dimension

    def solve(top: int) -> Work:
        """With the search for multiple eigenvalues, the product that float64 judges, and that judgement."""
        low = federation.whole.precision != "float64"
        return Work(products=min(8 + 8 * top, d) + low, precise=float(low))

    work = Work(evaluations=1.0)  # the losses at the model, whatever is asked of it
    if "gradients" in asked.parts:
        work += Work(gradients=1.0)
    if "perturbations" in asked.parts:
        work += Work(evaluations=n + 3.0, gradients=1.0 if "gradients" in asked.parts else 2.0)
    if "curvature" in asked.parts:
        work += (solve(asked.top) + Work(products=asked.probes)) * (1 + share)
    if "local" in asked.parts and local:
        own = share * local / n
        losses = (2 + received) * own + local + 1 + received
        trace = Work(products=min(_BEFORE_PROBES + asked.trace_probes, d))
        lines = local + min(asked.barrier_pairs, local * (local - 1) // 2)
        work += Work(evaluations=2 * losses + lines * (asked.barrier_points - 2), gradients=losses)
        work += (solve(1) + trace) * (losses if "curvature" in asked.parts else 0.0)
    return work


def announce(work: Work, federation: Federation, rounds: int, clients: str) -> None:
    """Say on stderr how much work there is, and about how long it takes.

    The time is that of a gradient and of a product of the first measured client; nothing is decided by it.  Of the
    ranks of ``torchrun`` the first one says it.
    """
    client = federation.clients[0]
    everybody = sum(len(part) for part in federation.indices.values()) / client.samples
    with apart():  # the others do not take part
        gradient = seconds_of(client.gradient) * everybody
        operator = Hessian(client)
        vector = torch.ones(client.dimension, 1, device=client.device, dtype=client.dtype)
        product = seconds_of(lambda: operator.matmat(vector)) * everybody if work.products else 0.0
    seconds = (work.evaluations / 3 + work.gradients) * gradient
    seconds += (work.products + _PRECISE * work.precise) * product
    world = rank_and_world()[1]
    seconds /= world
    print(
        f"alignment: {rounds} round{'s' * (rounds != 1)}, {clients}: "
        f"some {work.products + work.precise:,.0f} products, "
        f"{work.gradients:,.0f} gradients and {work.evaluations:,.0f} evaluations, each over everybody's data: "
        f"about {duration(seconds)}{f' on {world} ranks' if world > 1 else ''}",
        file=sys.stderr,
    )
