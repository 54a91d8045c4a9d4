"""The weights p_i of the clients in the objective F = Σ p_i f_i, and those that their models have in a round's mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.settings import Settings, Weighting

Weights = NDArray[np.float64]

_STEP, _NEGLIGIBLE = 0.3, 36.0  # e^{−36} is below the rounding of a weight
_MOST_CLIENTS = 2000


@dataclass(frozen=True)
class ClientWeights:
    """Client weights of a run.

    Attributes:
        objective: p_i, [N], sum 1: n_i/n or 1/N.
        expected: what client i's change counts for in a round's mean of models on average, [N], sum 1: p_i where
            ``aggregation`` is unbiased; ``None`` above 2000 clients of unequal weights, where it is not worked out.
    """

    objective: Weights
    expected: Weights | None

    @property
    def bias(self) -> float | None:
        """½ Σ |expected − p_i|, from 0 to 1: how far the mean of models is from the objective's, on average."""
        return None if self.expected is None else 0.5 * float(np.abs(self.expected - self.objective).sum())

    def describe(self) -> str:
        """One line: the weights and how far the expected ones are."""
        told = f"client weights: {_range(self.objective)} in the objective"
        if self.expected is None or self.bias is None:
            return f"{told}; the expected ones in a round's mean are not worked out for so many clients"
        if self.bias == 0:
            return f"{told}, and the same expected in a round's mean"
        return f"{told}, {_range(self.expected)} expected in a round's mean (½ Σ|difference| = {self.bias:.2g})"


def client_weights(sizes: Sequence[int], settings: Settings) -> ClientWeights:
    """The weights of a run's clients; ``sizes`` are their numbers of samples, [N].

    Example:
        >>> from trainers import Settings
        >>> from trainers.federation.weights import client_weights
        >>> weights = client_weights([1, 3], Settings(clients=2, per_round=1))
        >>> weights.objective, weights.expected  # one client a round: whoever comes is the whole mean
        (array([0.25, 0.75]), array([0.5, 0.5]))
    """
    p = objective_weights(sizes, settings.weighting)
    equal = bool((p == p[0]).all())
    if settings.aggregation == "unbiased" or equal or settings.per_round == settings.clients:
        return ClientWeights(p, p)
    if len(p) > _MOST_CLIENTS:
        return ClientWeights(p, None)
    return ClientWeights(p, expected_ratio(p, settings.per_round, bernoulli=settings.sampling == "bernoulli"))


def objective_weights(sizes: Sequence[int], weighting: Weighting) -> Weights:
    """p_i, [N]: n_i/n, or 1/N."""
    counted = np.ones(len(sizes)) if weighting == "uniform" else np.asarray(sizes, dtype=np.float64)
    return counted / counted.sum()


def inclusion_probability(settings: Settings) -> float:
    """π, the probability that a client is sampled in a round; Bernoulli draws without a client are drawn again."""
    share = settings.per_round / settings.clients
    return share if settings.sampling == "exact" else share / _somebody(share, settings.clients)


def expected_ratio(p: Weights, per_round: int, *, bernoulli: bool) -> Weights:
    """E[1{i ∈ S} p_i / Σ_S p_j] over the samples S of a round, [N], to rounding.

    1/Σ_S p_j = ∫ exp(−t Σ_S p_j) dt turns the expectation of a ratio into an integral over products of one factor
    1 − q + q z exp(−p_j t) a client, q = per_round/N; for exactly n clients the coefficient of zⁿ is taken, over that
    of exp = 1.  The integral is a trapezoidal sum in log t, where it converges faster than any power of the step.

    Example:
        >>> import numpy as np
        >>> from trainers.federation.weights import expected_ratio
        >>> p = np.array([0.2, 0.3, 0.5])  # two of three: 0.2/0.5, 0.2/0.7 and not sampled, each with probability 1/3
        >>> expected_ratio(p, 2, bernoulli=False).round(6) == np.round([(2/5 + 2/7) / 3, (3/5 + 3/8) / 3,
        ...     (5/7 + 5/8) / 3], 6)
        array([ True,  True,  True])
    """
    n, q = len(p), per_round / len(p)
    log_t = np.arange(-_NEGLIGIBLE - math.log(p.max()), math.log(_NEGLIGIBLE / p.min()), _STEP)
    t = np.exp(log_t)
    factors = q * np.exp(-np.outer(p, t))  # [N, nodes]
    if bernoulli:
        others = np.exp(np.log1p(factors - q).sum(axis=0) - np.log1p(factors - q))
        others /= _somebody(q, n)
    else:
        others = np.empty_like(factors)
        _others_sampled(factors, 1 - q, per_round, others)
        others /= math.exp(
            math.lgamma(n + 1) - math.lgamma(per_round + 1) - math.lgamma(n - per_round + 1)
            + per_round * math.log(q) + (n - per_round) * math.log1p(-q)
        )  # fmt: skip
    return p * (factors * others * t).sum(axis=1) * _STEP


def _others_sampled(factors: Weights, absent: float, count: int, found: Weights) -> None:
    """For each client, the coefficient of z^(count − 1) of the product of all others' (absent + factor z).

    Halves are multiplied into what lies outside them, so that nothing is divided: all terms are positive.
    """
    start = np.zeros((count, factors.shape[1]))
    start[0] = 1
    pending = [(0, len(factors), start)]
    while pending:
        low, high, outside = pending.pop()
        if high - low == 1:
            found[low] = outside[count - 1]
            continue
        middle = (low + high) // 2
        for mine, others in (((low, middle), (middle, high)), ((middle, high), (low, middle))):
            product = outside
            for factor in factors[slice(*others)]:
                shifted = product[:-1] * factor
                product = product * absent
                product[1:] += shifted
            pending.append((*mine, product))


def _somebody(share: float, clients: int) -> float:
    """1 − (1 − q)^N, the probability that a Bernoulli draw has a client."""
    return 1.0 if share == 1 else -math.expm1(clients * math.log1p(-share))


def _range(weights: Weights) -> str:
    low, high = float(weights.min()), float(weights.max())
    return f"{low:.3g} each" if math.isclose(low, high) else f"{low:.3g} to {high:.3g}"
