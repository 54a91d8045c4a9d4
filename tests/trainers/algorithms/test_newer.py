"""Room for newer rules: ascents that read state, a start of the client's own, the number of the local step."""

from dataclasses import dataclass

import pytest
import torch

from landscape.compute.randomness import torch_generator
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import EPOCHS, add, batches, length, zeros
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import LESAM, Centralised, FedAvg, FedCM, FedDyn, FedLESAM, FedProx, Parts, Scaffold
from trainers.federation.batches import batch_indices, planned_steps
from trainers.federation.local import Batch
from trainers.parts import Ascent

EXACT = 1e-11


class NaiveFedCM:
    """FedCM (Xu et al., 2021) whose gradient is taken at w + ε(i, w_i, w^t, Δ)."""

    def __init__(self, share, perturbation):
        self.share, self.perturbation, self.delta = share, perturbation, zeros(naive.Clients().start())
        self.old = [naive.Clients().start() for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        changes = []
        for i in sampled:
            x = [t.clone() for t in w]
            for _ in range(EPOCHS):
                e = self.perturbation(self.old[i], x, w, self.delta)
                g = clients.gradient(i, add(x, e))
                x = add(x, add([self.share * t for t in g], self.delta, 1 - self.share), -lr)
            changes.append(add(x, w, -1.0))
            self.old[i] = w
        change = clients.mean(changes, sampled)
        self.delta = [-d / (lr * EPOCHS) for d in change]
        return add(w, change)


def along(v, rho):
    return [rho * t / length(v) for t in v] if length(v) > 0 else zeros(v)


@dataclass(frozen=True)
class AlongMomentum(Ascent):
    rho: float

    def gradient(self, w, gradient, around):
        m = around.server.momentum
        return gradient(w + self.rho * m / m.norm().clamp_min(1e-12))


@dataclass(frozen=True)
class AwayFromServer(Ascent):
    rho: float

    def gradient(self, w, gradient, around):
        return gradient(w + self.rho * (w - around.server.w))


@pytest.mark.parametrize(
    ("ascent", "perturbation"),
    [
        (LESAM(0.4), lambda old, x, w, delta: along(add(old, w, -1.0), 0.4)),
        (AlongMomentum(0.4), lambda old, x, w, delta: along(delta, 0.4)),
        (AwayFromServer(0.4), lambda old, x, w, delta: [0.4 * t for t in add(x, w, -1.0)]),
    ],
    ids=["w_old", "momentum", "proximal direction"],
)
def test_an_ascent_reads_what_the_client_received_and_keeps(ascent, perturbation):
    reference = NaiveFedCM(0.3, perturbation)
    assert relative_error(FedCM(0.3), reference.round, parts=Parts(ascent=ascent)) < EXACT
    unperturbed = NaiveFedCM(0.3, lambda old, x, w, delta: zeros(w))
    assert relative_error(FedCM(0.3), unperturbed.round, parts=Parts(ascent=ascent)) > 1e-4


@pytest.mark.parametrize("base", [FedAvg(), FedProx(0.3), FedCM(0.3), Scaffold(), FedDyn(0.3), Centralised()], ids=repr)
def test_looking_back_costs_one_gradient_a_step_and_starts_as_the_base(base, monkeypatch):
    plain, back = federation(base), federation(base, Parts(ascent=LESAM(0.4)))
    once, asked = Batch.gradient, []
    monkeypatch.setattr(Batch, "gradient", lambda batch, w: (asked.append(0), once(batch, w))[1])
    for number in range(1, 5):
        plain.step()
        client = back.step().clients[0]
        assert torch.equal(plain.server.w, back.server.w) == (number == 1)
    assert len(asked) == 2 * 4 * SETTINGS["per_round"] * EPOCHS
    assert back.store.fetch(client).old.shape == back.server.w.shape


def test_fedlesam_is_the_part_on_its_base_and_resumes_with_it():
    named, parts = federation(FedLESAM(0.4), weighting="uniform"), None
    for number in range(4):
        if number in (0, 2):  # a run that is interrupted once
            fresh = federation(FedAvg(), Parts(ascent=LESAM(0.4)), weighting="uniform")
            if parts is not None:
                fresh.restore(parts.export())
            parts = fresh
        named.step()
        parts.step()
    assert torch.equal(named.server.w, parts.server.w)


@dataclass(frozen=True)
class OwnStart(FedAvg):
    """Sun et al., NeurIPS 2023: a_i = w^t + β(w^t − w_i°), w_i° where the client ended the last time; ‹w_i − a_i›."""

    beta: float = 0.1

    def client_state(self, w):
        return {"end": w}

    def start(self, client, server, round):
        return server.w + self.beta * (server.w - client.end)

    def upload(self, w, client, server, round, steps):
        begun, client.end = self.start(client, server, round), w
        return {"delta": w - begun}


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_clients_may_begin_at_points_of_their_own(beta):
    ends = [naive.Clients().start() for _ in SIZES]

    def reference(clients, w, sampled, lr):
        changes = []
        for i in sampled:
            begun = add(w, add(w, ends[i], -1.0), beta)
            x = [t.clone() for t in begun]
            for _ in range(EPOCHS):
                x = add(x, clients.gradient(i, x), -lr)
            changes.append(add(x, begun, -1.0))
            ends[i] = x
        return add(w, clients.mean(changes, sampled))

    assert relative_error(OwnStart(1.0, beta), reference) < EXACT


@dataclass(frozen=True)
class FallingRate(FedAvg):
    """FedSWA's local rate, η_k = η(1 − k/K + ρ k/K)."""

    rho: float = 0.1

    def direction(self, w, gradient, client, server, round):
        return (1 + (self.rho - 1) * round.step / round.steps) * gradient(w)


@pytest.mark.parametrize("size", [None, 4])
def test_a_direction_knows_its_step_and_how_many_there_will_be(size):
    number = 0

    def reference(clients, w, sampled, lr):
        nonlocal number
        number += 1
        whole, models = (clients.x, clients.y), []
        for i in sampled:
            x, order = [t.clone() for t in w], list(batches(i, size, number))
            for k, rows in enumerate(order):
                clients.x, clients.y = {i: whole[0][i][rows]}, {i: whole[1][i][rows]}
                rate = lr * (1 - k / len(order) + 0.1 * k / len(order))
                x = add(x, clients.gradient(i, x), -rate)
            clients.x, clients.y = whole
            models.append(x)
        return clients.mean(models, sampled)

    changes = {} if size is None else {"batch_size": size}
    assert relative_error(FallingRate(), reference, **changes) < EXACT


@pytest.mark.parametrize("last", ["keep", "drop"])
@pytest.mark.parametrize("steps", [None, 1, 7])
def test_the_planned_number_of_steps_is_that_of_the_batches(last, steps):
    for samples in range(1, 12):
        for size in (None, 1, 2, 4, 11, 20):
            draw = torch_generator(SETTINGS["seed"], "batches", samples)
            there = batch_indices(samples, size, 3, draw, steps=steps, last=last)
            assert planned_steps(samples, size, 3, steps=steps, last=last) == len(list(there)), (samples, size)


@dataclass(frozen=True)
class Mime(FedAvg):
    """Mime with SGDm (Karimireddy et al., 2021): the mean gradient c at w^t is asked for first."""

    two_phases = True
    beta: float = 0.9

    def server_state(self, w):
        return {"m": torch.zeros_like(w)}

    def ask(self, client, server, data, round):
        return {"g": data.gradient(server.w)}

    def answer(self, server, mean, round):
        server.m, before = (1 - self.beta) * mean.g + self.beta * server.m, server.m
        return {"c": mean.g, "m": before}

    def direction(self, w, gradient, client, server, round):
        corrected = gradient(w) - gradient(server.w) + server.c
        return (1 - self.beta) * corrected + self.beta * server.m


def test_a_round_may_have_two_phases():
    beta, momentum = 0.6, zeros(naive.Clients().start())

    def reference(clients, w, sampled, lr):
        nonlocal momentum
        c, models = clients.mean([clients.gradient(i, w) for i in sampled], sampled), []
        for i in sampled:
            x, here = [t.clone() for t in w], clients.gradient(i, w)
            for _ in range(EPOCHS):
                corrected = add(add(clients.gradient(i, x), here, -1.0), c)
                x = add(x, [(1 - beta) * g + beta * m for g, m in zip(corrected, momentum, strict=True)], -lr)
            models.append(x)
        momentum = [(1 - beta) * g + beta * m for g, m in zip(c, momentum, strict=True)]
        return clients.mean(models, sampled)

    assert relative_error(Mime(1.0, beta), reference) < EXACT


def test_the_traffic_of_both_phases_is_counted():
    ours = federation(Mime())
    record, size = ours.step(), ours.server.w.nbytes
    assert record.bytes_up == len(record.clients) * 2 * size  # g, d
    assert record.bytes_down == len(record.clients) * 3 * size  # w, m, c
