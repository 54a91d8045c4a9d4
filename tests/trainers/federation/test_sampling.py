"""Sampling of clients: statistics of both schemes, and the share of clients that algorithms are given."""

import numpy as np
import pytest
import torch
from scipy import stats

from tests.trainers.federations import SIZES, federation
from trainers import FedAvg, Scaffold, Settings, State
from trainers.algorithms.feddyn import FedDyn
from trainers.federation import Federation, sampled_clients
from trainers.federation.execution import ClientResult

ROUNDS = 2500


class Idle:
    """Clients that do nothing; keeps the rounds as they see them."""

    def __init__(self, clients):
        self.rounds, self.sizes = [], [1] * clients

    def work(self, clients, received, store, round):
        self.rounds.append((clients, round))
        for client in clients:
            yield ClientResult(
                client, received.w, {"delta": torch.zeros(2)}, State(), torch.zeros(()).double(), 1, 1, 1
            )


def drawn(clients, per_round, sampling, seed=0, rounds=ROUNDS):
    """Who took part, [rounds, clients], and the rounds."""
    settings = Settings(clients=clients, per_round=per_round, sampling=sampling, seed=seed)
    ours = Federation(FedAvg(), executor := Idle(clients), settings, torch.zeros(2))
    there = np.zeros((rounds, clients), dtype=int)
    for number in range(rounds):
        record = ours.step()
        assert record.clients == sorted(set(record.clients)) == executor.rounds[-1][0]
        there[number, record.clients] = 1
    return there, [round for _, round in executor.rounds]


def test_exact_sampling_takes_so_many_each_time_and_all_sets_alike():
    there, rounds = drawn(5, 2, "exact")
    assert (there.sum(axis=1) == 2).all()
    pairs = there.T @ there
    counts = pairs[np.triu_indices(5, 1)]
    assert counts.sum() == ROUNDS
    assert stats.chisquare(counts).pvalue > 1e-3
    assert {round.participation for round in rounds} == {0.4}


def test_bernoulli_sampling_takes_each_client_on_its_own():
    """The number of clients is binomial, given that it is not 0, and clients are drawn independently."""
    n, q = 8, 0.25
    there, rounds = drawn(n, 2, "bernoulli")
    sizes = there.sum(axis=1)
    assert [round.participation for round in rounds] == [size / n for size in sizes]
    expected = stats.binom.pmf(np.arange(1, n + 1), n, q) / (1 - (1 - q) ** n)
    counts = np.bincount(sizes, minlength=n + 1)[1:].astype(float)
    few = np.concatenate([counts[:5], [counts[5:].sum()]]), np.concatenate([expected[:5], [expected[5:].sum()]])
    assert stats.chisquare(few[0], few[1] * ROUNDS).pvalue > 1e-3
    share = q / (1 - (1 - q) ** n)
    assert there.mean(axis=0) == pytest.approx(share, abs=4 * (share * (1 - share) / ROUNDS) ** 0.5)
    # Given at least one client: P(i and j) = q²/(1 − (1 − q)ⁿ).
    together = (there.T @ there)[np.triu_indices(n, 1)] / ROUNDS
    both = q**2 / (1 - (1 - q) ** n)
    assert together.mean() == pytest.approx(both, rel=0.06)


def test_an_empty_draw_is_drawn_again():
    """With probability (2/3)³ = 30 % nobody of three comes: no round is without clients, and none is left out."""
    there, rounds = drawn(3, 1, "bernoulli")
    assert there.sum(axis=1).min() == 1
    assert [round.number for round in rounds] == list(range(1, ROUNDS + 1))
    alone = 3 * (1 / 3) * (2 / 3) ** 2 / (1 - (2 / 3) ** 3)
    assert (there.sum(axis=1) == 1).mean() == pytest.approx(alone, abs=0.04)


@pytest.mark.parametrize("sampling", ["exact", "bernoulli"])
def test_all_clients_of_all_are_all(sampling):
    there, rounds = drawn(4, 4, sampling, rounds=50)
    assert there.all()
    assert {round.participation for round in rounds} == {1.0}


@pytest.mark.parametrize("sampling", ["exact", "bernoulli"])
def test_draws_hang_on_the_seed_and_the_round_and_not_on_the_rounds_before(sampling):
    first, again, other = (drawn(9, 3, sampling, seed, 40)[0] for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    assert len({tuple(row) for row in first}) > 20
    late = Federation(FedAvg(), Idle(9), Settings(clients=9, per_round=3, sampling=sampling), torch.zeros(2))
    late.round = 30
    assert late.step().clients == list(first[30].nonzero()[0])


@pytest.mark.parametrize("sampling", ["exact", "bernoulli"])
def test_who_is_sampled_is_known_before_the_run_from_its_settings_alone(sampling):
    settings, executor = Settings(clients=6, per_round=2, seed=3, sampling=sampling), Idle(6)
    run = Federation(FedAvg(), executor, settings, torch.zeros(2))
    for _ in range(20):
        run.step()
    assert [list(chosen) for chosen, _ in executor.rounds] == [sampled_clients(settings, n) for n in range(1, 21)]


@pytest.mark.parametrize(("algorithm", "of_server", "of_client"), [(Scaffold(), "c", "c"), (FedDyn(0.3), "h", "dual")])
def test_server_state_follows_the_number_that_came(algorithm, of_server, of_client):
    """SCAFFOLD's c is the mean of all clients' c_i, FedDyn's h that of their λ_i, however many come in a round."""
    ours = federation(algorithm, sampling="bernoulli", per_round=2)
    came = [len(ours.step().clients) for _ in range(12)]
    assert len(set(came)) > 2
    mean = sum(size * getattr(ours.store.fetch(i), of_client) for i, size in enumerate(SIZES)) / sum(SIZES)
    torch.testing.assert_close(getattr(ours.server, of_server), mean, rtol=1e-10, atol=1e-12)
