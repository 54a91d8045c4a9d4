"""Which clients take part in a round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from landscape.compute.randomness import numpy_generator
from trainers.settings import Settings


def sampled_clients(settings: Settings, number: int) -> list[int]:
    """The clients that take part in a round, ascending; they follow from the settings, so that they are known before.

    Args:
        settings: of the run.
        number: the round, 1 for the first.

    Example:
        >>> from trainers import Settings
        >>> from trainers.federation import sampled_clients
        >>> sampled_clients(Settings(clients=4, per_round=4), 1)
        [0, 1, 2, 3]
    """
    if settings.sampling == "exact" and settings.per_round == settings.clients:
        return list(range(settings.clients))  # what the draw would give
    random = numpy_generator(settings.seed, "clients", number)
    if settings.sampling == "exact":
        chosen = random.choice(settings.clients, settings.per_round, replace=False)
        return sorted(int(client) for client in chosen)
    return next(drawn for drawn in _bernoulli_draws(settings, random) if drawn)  # a round needs at least one client


def nobody_came(settings: Settings, number: int) -> bool:
    """Whether a round's Bernoulli draw had no client, so that :func:`sampled_clients` drew again.

    Example:
        >>> from trainers import Settings
        >>> from trainers.federation.sampling import nobody_came
        >>> few = Settings(clients=2, per_round=1, sampling="bernoulli")
        >>> sum(nobody_came(few, number) for number in range(1, 1001))  # a quarter, but for chance
        259
    """
    return not next(_bernoulli_draws(settings, numpy_generator(settings.seed, "clients", number)))


def _bernoulli_draws(settings: Settings, random: np.random.Generator) -> Iterator[list[int]]:
    """The clients of one draw after the other."""
    while True:
        drawn = random.random(settings.clients) < settings.per_round / settings.clients
        yield [int(client) for client in drawn.nonzero()[0]]
