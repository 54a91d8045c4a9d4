"""Mime and the heavy-ball family against their pseudo-code, with unequal clients, batches and numbers of steps."""

import numpy as np
import pytest
import torch

from landscape import FedscapeError, Partition
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import add, batches, zeros
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.federations import SIZES, federation, samples
from trainers import GHBM, FedCM, FedHBM, LocalGHBM, Mime, MimeLite, Round, State

EXACT = 1e-11
P = 3 / len(SIZES)


class NaiveMime:
    """Karimireddy et al. 2021, Algorithm 1 (Mime), U(g, m) = (1 − β)g + βm, V(g, m) = (1 − β)g + βm."""

    def __init__(self, w, beta, server_lr, size=None):
        self.m, self.beta, self.server_lr, self.size, self.number = zeros(w), beta, server_lr, size, 0

    def round(self, clients, x, sampled, lr):
        self.number += 1
        c = clients.mean([clients.gradient(i, x) for i in sampled], sampled)
        models, whole = [], (clients.x, clients.y)
        for i in sampled:
            y = [t.clone() for t in x]
            for rows in batches(i, self.size, self.number):
                clients.x, clients.y = {i: whole[0][i][rows]}, {i: whole[1][i][rows]}
                g = add(add(clients.gradient(i, y), clients.gradient(i, x), -1.0), c)
                y = add(y, add([(1 - self.beta) * t for t in g], self.m, self.beta), -lr)
            clients.x, clients.y = whole
            models.append(y)
        self.m = [(1 - self.beta) * g + self.beta * m for g, m in zip(c, self.m, strict=True)]
        return add(x, add(clients.mean(models, sampled), x, -1.0), self.server_lr)


class NaiveHeavyBall:
    """Zaccone et al., as their clients' code has it: β/(ηK) m̃ is added to each gradient."""

    def __init__(self, beta, size=None):
        self.beta, self.size, self.number, self.past = beta, size, 0, []

    def begin(self, i, w):
        """m̃ as a function of the point, or ``None``."""
        raise NotImplementedError

    def end(self, i, x):
        """After a client's last step, at ``x``."""

    def round(self, clients, w, sampled, lr):
        self.number += 1
        models, whole = [], (clients.x, clients.y)
        for i in sampled:
            x, order, displacement = [t.clone() for t in w], list(batches(i, self.size, self.number)), self.begin(i, w)
            for rows in order:
                clients.x, clients.y = {i: whole[0][i][rows]}, {i: whole[1][i][rows]}
                g = clients.gradient(i, x)
                if displacement is not None:
                    g = add(g, displacement(x), self.beta / (lr * len(order)))
                x = add(x, g, -lr)
            clients.x, clients.y = whole
            self.end(i, x)
            models.append(x)
        self.past.append(w)
        return clients.mean(models, sampled)


class NaiveGHBM(NaiveHeavyBall):
    def __init__(self, beta, tau, size=None):
        super().__init__(beta, size)
        self.tau = tau

    def begin(self, i, w):
        if len(self.past) < self.tau:
            return None
        return lambda x: [(a - b) / self.tau for a, b in zip(self.past[-self.tau], w, strict=True)]


class NaiveLocalGHBM(NaiveHeavyBall):
    def __init__(self, beta, size=None):
        super().__init__(beta, size)
        self.received = {}

    def begin(self, i, w):
        before, self.received[i] = self.received.get(i), w
        return None if before is None else lambda x: [P * t for t in add(before, w, -1.0)]


class NaiveFedHBM(NaiveHeavyBall):
    def __init__(self, beta, size=None):
        super().__init__(beta, size)
        self.ends = {}

    def begin(self, i, w):
        before = self.ends.get(i)
        return None if before is None else lambda x: [P * t for t in add(before, x, -1.0)]

    def end(self, i, x):
        self.ends[i] = x


PAIRS = {
    "mime": (Mime(0.6), lambda size: NaiveMime(naive.Clients().start(), 0.6, 1.0, size)),
    "mime, η_g": (Mime(0.9, 0.7), lambda size: NaiveMime(naive.Clients().start(), 0.9, 0.7, size)),
    "ghbm": (GHBM(0.9, 2), lambda size: NaiveGHBM(0.9, 2, size)),
    "ghbm, τ = 3": (GHBM(0.5, 3), lambda size: NaiveGHBM(0.5, 3, size)),
    "localghbm": (LocalGHBM(0.9), lambda size: NaiveLocalGHBM(0.9, size)),
    "fedhbm": (FedHBM(1.0), lambda size: NaiveFedHBM(1.0, size)),
}


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, 4) for name in PAIRS] + [pytest.param(name, None, marks=pytest.mark.slow) for name in PAIRS],
)
def test_is_its_pseudo_code(name, size):
    algorithm, reference = PAIRS[name]
    changes = {} if size is None else {"batch_size": size}
    assert relative_error(algorithm, reference(size).round, **changes) < EXACT


@pytest.mark.parametrize("name", ["mime", "ghbm", "localghbm", "fedhbm"])
def test_is_its_pseudo_code_with_uniform_weights(name):
    algorithm, reference = PAIRS[name]
    assert relative_error(algorithm, reference(None).round, weighting="uniform") < EXACT


def ends(algorithm, rounds=5, **changes):
    ours = federation(algorithm, **changes)
    for _ in range(rounds):
        ours.step()
    return ours.server.w


def test_mime_of_one_client_and_full_batches_is_mimelite():
    """g(w) − g(w^t) + c is then g(w)."""
    alone = {"clients": 1, "per_round": 1, "split": Partition((np.arange(len(samples())),))}
    torch.testing.assert_close(ends(Mime(0.6), **alone), ends(MimeLite(0.6), **alone), rtol=1e-12, atol=1e-14)
    assert (ends(Mime(0.6)) - ends(MimeLite(0.6))).norm() > 1e-3


def test_the_first_local_step_of_mime_is_the_same_for_all_clients():
    ours = federation(Mime(0.6), local_epochs=1)
    assert ours.step().drift == pytest.approx(0.0, abs=1e-28)
    assert federation(MimeLite(0.6), local_epochs=1).step().drift > 1e-6


def test_ghbm_over_one_round_is_fedcm_at_another_rate():
    """τ = 1 at αη with β = 1 − α: αη (g + β/(αηK) m̃) = η (αg + (1 − α)Δ), Δ = m̃/(ηK)."""
    alpha, lr = 0.25, 0.3
    ours = federation(GHBM(1 - alpha, 1), lr=alpha * lr, lr_decay=1.0)
    fedcm = federation(FedCM(alpha), lr=lr, lr_decay=1.0)
    for _ in range(6):
        ours.step(), fedcm.step()
    torch.testing.assert_close(ours.server.w, fedcm.server.w, rtol=1e-12, atol=1e-14)
    plain = ends(GHBM(0.0, 1), 6, lr=alpha * lr, lr_decay=1.0)
    assert (plain - ours.server.w).norm() > 1e-2


def test_localghbm_is_ghbm_over_one_round_when_all_take_part():
    every = {"per_round": len(SIZES)}
    torch.testing.assert_close(
        ends(LocalGHBM(0.9), **every), ends(GHBM(0.9, 1), **every), rtol=1e-12, atol=1e-14
    )  # w^{t−1} − w^t is what both have


def test_fedhbm_of_one_client_is_a_repulsion_from_where_the_round_began():
    """One client: w_i° = w^t, so the first step has m̃ = 0 and one-step rounds are FedAvg's."""
    alone = {"clients": 1, "per_round": 1, "split": Partition((np.arange(len(samples())),))}
    one_step = {**alone, "local_epochs": 1}
    assert torch.equal(ends(FedHBM(1.0), **one_step), ends(FedHBM(0.0), **one_step))
    assert (ends(FedHBM(1.0), **alone) - ends(FedHBM(0.0), **alone)).norm() > 1e-3


def test_the_queue_of_ghbm_is_kept_when_a_run_is_interrupted():
    whole, first = federation(GHBM(0.9, 3)), federation(GHBM(0.9, 3))
    for _ in range(6):
        whole.step()
    for _ in range(2):  # the queue is not full yet
        first.step()
    second = federation(GHBM(0.9, 3))
    second.restore(first.export())
    for _ in range(4):
        second.step()
    assert torch.equal(second.server.w, whole.server.w)
    assert not torch.equal(second.server.momentum, torch.zeros_like(second.server.w))


@pytest.mark.parametrize("algorithm", [Mime(0.6), LocalGHBM(0.9), FedHBM(1.0)], ids=lambda a: type(a).__name__)
def test_resuming_changes_nothing(algorithm):
    whole, first, second = (federation(algorithm) for _ in range(3))
    for _ in range(4):
        whole.step()
    first.step(), first.step()
    second.restore(first.export())
    second.step(), second.step()
    assert torch.equal(second.server.w, whole.server.w)


@pytest.mark.parametrize(
    "bad", [lambda: Mime(1.0), lambda: Mime(0.5, 0.0), lambda: GHBM(-0.1), lambda: GHBM(0.9, 0), lambda: FedHBM(-1.0)]
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()


def test_steps_of_clients_with_fewer_batches_are_longer():
    """K is the client's own: after the last step of each, β m̃ has been added whatever K was."""
    ours, w, received = GHBM(0.9, 1), torch.zeros(1), State(momentum=torch.ones(1), w=torch.zeros(1))
    for steps in (1, 4):
        round = Round(3, 0.1, 0.5, steps=steps)
        direction = ours.direction(w, torch.zeros_like, State(), received, round)
        torch.testing.assert_close(steps * round.lr * direction, torch.tensor([0.9]))
