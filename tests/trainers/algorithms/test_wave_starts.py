"""Starts, look-ahead, falling rates and server steps of the newer algorithms, from their sources' text, in float64.

Plain loops over clients, mini-batches and lists of tensors; clients take 3 to 15 local steps.
"""

import pytest
import torch

from tests.trainers.algorithms.naive import Clients, add, batches, length, zeros
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.algorithms.test_identities import after
from tests.trainers.federations import SETTINGS, SIZES, federation, stopped_half_way
from trainers import (
    SAM,
    Extrapolation,
    FedACG,
    FedAvg,
    FedDyn,
    FedExP,
    FedInit,
    FedNova,
    FedNSAM,
    FedProx,
    FedSAM,
    FedSWA,
    Linear,
    LocalMomentum,
    Nesterov,
    Normalised,
    Parts,
    Relaxed,
)
from trainers.parts.server_optimizers import LocalSteps
from trainers.parts.server_steps import gradients_in

EXACT, SIZE = 1e-11, 4


def others_slow(*cases):
    """The first case in the fast tests, the others in the slow ones."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=pytest.mark.slow if number else ()) for number, case in enumerate(cases)]


RAGGED = {"batch_size": SIZE}


class Naive:
    """What all replays have: the server's model is the argument of ``round``, which counts the rounds."""

    def __init__(self):
        self.number = 0

    def round(self, clients, w, sampled, lr):
        self.number += 1
        return self.advanced(clients, w, sampled, lr)

    def minibatches(self, clients, i):
        """The gradient functions of a client's mini-batches, in order."""
        x, y = clients.x, clients.y
        for rows in list(batches(i, SIZE, self.number)):

            def gradient(w, rows=rows):
                clients.x, clients.y = {i: x[i][rows]}, {i: y[i][rows]}
                try:
                    return clients.gradient(i, w)
                finally:
                    clients.x, clients.y = x, y

            yield gradient


class NaiveFedInit(Naive):
    """FL-Simulator: a_i = w + β(w − w_i°) is what a client receives; FedAvg's w + ‹w_i − a_i›, or ‹w_i›."""

    def __init__(self, beta, models=False):
        super().__init__()
        self.beta, self.models, self.ends = beta, models, {}
        self.first = None

    def advanced(self, clients, w, sampled, lr):
        self.first = self.first or w
        changes, ends = [], []
        for i in sampled:
            begun = add(w, add(w, self.ends.get(i, self.first), -1.0), self.beta)
            x = begun
            for gradient in self.minibatches(clients, i):
                x = add(x, gradient(x), -lr)
            changes.append(add(x, begun, -1.0))
            ends.append(x)
        self.ends |= dict(zip(sampled, ends, strict=True))
        return clients.mean(ends, sampled) if self.models else add(w, clients.mean(changes, sampled))


class NaiveFedDynInit(NaiveFedInit):
    """FL-Simulator's FedDyn with --use-RI: h_i += w_i − a_i, w = ‹w_i› + mean over all clients of h."""

    def __init__(self, beta, alpha, w):
        super().__init__(beta)
        self.alpha, self.h = alpha, [zeros(w) for _ in SIZES]

    def advanced(self, clients, w, sampled, lr):
        self.first = self.first or w
        ends = []
        for i in sampled:
            begun = add(w, add(w, self.ends.get(i, self.first), -1.0), self.beta)
            x = begun
            for gradient in self.minibatches(clients, i):
                direction = add(gradient(x), add(add(x, begun, -1.0), self.h[i]), self.alpha)
                x = add(x, direction, -lr)
            self.h[i] = add(self.h[i], add(x, begun, -1.0))
            self.ends[i] = x
            ends.append(x)
        return add(clients.mean(ends, sampled), clients.over_all(self.h))


class NaiveLookAhead(Naive):
    """FedACG's servers/base.py and client; with ρ FedNSAM's main program: momentum m, clients begin at w + λm."""

    def __init__(self, lam, mu=0.0, rho=0.0):
        super().__init__()
        self.lam, self.mu, self.rho, self.m = lam, mu, rho, None

    def advanced(self, clients, w, sampled, lr):
        self.m = self.m or zeros(w)
        ahead = add(w, self.m, self.lam)
        changes, ends = [], []
        for i in sampled:
            x = ahead
            for gradient in self.minibatches(clients, i):
                g = gradient(x)
                if self.rho:
                    g = gradient(add(x, g, self.rho / length(g)))
                x = add(x, add(g, add(x, ahead, -1.0), self.mu), -lr)
            changes.append(add(x, ahead, -1.0))
            ends.append(x)
        self.m = add([self.lam * t for t in self.m], clients.mean(changes, sampled))
        return clients.mean(ends, sampled)


class NaiveFedNova(Naive):
    """FedNova's optimiser, line by line: local momentum or proximal term, a_i, tau_eff."""

    def __init__(self, mu=0.0, momentum=0.0, beta=0.0):
        super().__init__()
        self.mu, self.momentum, self.beta, self.v = mu, momentum, beta, None

    def advanced(self, clients, w, sampled, lr):
        normal, effective = [], []
        for i in sampled:
            x, buffer, counter, a, steps = w, zeros(w), 0.0, 0.0, 0
            for gradient in self.minibatches(clients, i):
                buffer = add(gradient(x), buffer, self.momentum)
                x = add(x, add(buffer, add(x, w, -1.0), self.mu), -lr)
                if self.momentum:
                    counter = self.momentum * counter + 1
                    a += counter
                elif self.mu:
                    a = a * (1 - lr * self.mu) + 1
                else:
                    a += 1
                steps += 1
            normal.append([t / a for t in add(x, w, -1.0)])
            effective.append(steps if self.mu else a)
        share = sum(clients.p[i] for i in sampled)
        tau = sum(clients.p[i] * a for i, a in zip(sampled, effective, strict=True)) / share
        change = [tau * t for t in clients.mean(normal, sampled)]
        self.v = change if self.v is None else add(change, self.v, self.beta)
        return add(w, self.v)


class NaiveFedExP(Naive):
    """FedExP's main.py: grad_norm_avg, grad_avg_norm, eta_g."""

    def __init__(self, eps, decay=1.0):
        super().__init__()
        self.eps, self.decay, self.rates = eps, decay, []

    def advanced(self, clients, w, sampled, lr):
        total, squares, p_sum = zeros(w), 0.0, 0.0
        for i in sampled:
            x = w
            for gradient in self.minibatches(clients, i):
                x = add(x, gradient(x), -lr)
            d = add(x, w, -1.0)
            squares += clients.p[i] * length(d) ** 2
            total = add(total, d, clients.p[i])
            p_sum += clients.p[i]
        mean = [t / p_sum for t in total]
        rate = max(1.0, (0.5 * (squares / p_sum) / (length(mean) ** 2 + len(sampled) * self.eps)).item())
        self.rates.append(rate)
        self.eps *= self.decay
        return add(w, mean, rate)


class NaiveFedSWA(Naive):
    """η_k = η(1 − k/K) + ρη k/K (main_FedSWA.py's lr1 and lr2), w + α‹d›."""

    def __init__(self, rho, alpha, weight_decay=0.0):
        super().__init__()
        self.rho, self.alpha, self.weight_decay = rho, alpha, weight_decay

    def advanced(self, clients, w, sampled, lr):
        changes = []
        for i in sampled:
            x, order = w, list(self.minibatches(clients, i))
            for k, gradient in enumerate(order):
                rate = (1 - k / len(order)) * lr + (k / len(order)) * self.rho * lr
                x = add(x, add(gradient(x), x, self.weight_decay), -rate)
            changes.append(add(x, w, -1.0))
        return add(w, clients.mean(changes, sampled), self.alpha)


@pytest.mark.parametrize("models", [False, True], ids=["changes", "models"])
@pytest.mark.parametrize("weighting", others_slow("samples", "uniform"))
def test_fedinit(models, weighting):
    algorithm = FedInit(0.4, average="models" if models else "changes")
    assert relative_error(algorithm, NaiveFedInit(0.4, models).round, **RAGGED, weighting=weighting) < EXACT
    assert relative_error(algorithm, NaiveFedInit(0.4, not models).round, **RAGGED) > 1e-3


def test_feddyn_from_relaxed_starts_is_that_of_the_authors_simulator():
    parts = Parts(start=Relaxed(0.3, "models"))
    reference = NaiveFedDynInit(0.3, 0.2, Clients().start())
    assert relative_error(FedDyn(0.2), reference.round, parts=parts, **RAGGED) < EXACT


@pytest.mark.parametrize(("lam", "mu"), others_slow((0.5, 0.4), (0.85, 0.002)))
def test_fedacg(lam, mu):
    assert relative_error(FedACG(lam, mu), NaiveLookAhead(lam, mu).round, **RAGGED) < EXACT


@pytest.mark.parametrize(("gamma", "rho"), others_slow((0.5, 0.3), (0.85, 0.05)))
def test_fednsam(gamma, rho):
    assert relative_error(FedNSAM(gamma, rho), NaiveLookAhead(gamma, 0.0, rho).round, **RAGGED) < EXACT


@pytest.mark.parametrize(
    ("mu", "momentum", "beta"),
    others_slow((0.0, 0.8, 0.5), (0.0, 0.0, 0.0), (0.0, 0.0, 0.6), (0.5, 0.0, 0.0), (0.0, 0.8, 0.0)),
)
def test_fednova(mu, momentum, beta):
    parts = Parts(local_optimizer=LocalMomentum(momentum) if momentum else None)
    reference = NaiveFedNova(mu, momentum, beta)
    assert relative_error(FedNova(mu, beta), reference.round, parts=parts, **RAGGED) < EXACT
    if not beta:
        assert relative_error(FedProx(mu), NaiveFedNova(mu, momentum).round, parts=parts, **RAGGED) > 1e-2


@pytest.mark.parametrize(("eps", "decay"), others_slow((1e-5, 0.8), (1e-3, 1.0), (0.1, 1.0)))
def test_fedexp(eps, decay):
    reference = NaiveFedExP(eps, decay)
    assert relative_error(FedExP(eps, decay), reference.round, **RAGGED) < EXACT
    assert (max(reference.rates) > 1.1) == (eps < 0.1), "the rate must not be 1 throughout"


@pytest.mark.parametrize(("rho", "alpha"), others_slow((0.1, 1.5), (0.0, 1.0), (0.6, 0.8)))
def test_fedswa(rho, alpha):
    reference = NaiveFedSWA(rho, alpha, weight_decay=0.1)
    assert relative_error(FedSWA(rho, alpha), reference.round, weight_decay=0.1, **RAGGED) < EXACT


def same(one, other, rounds=4, **changes):
    torch.testing.assert_close(after(one, rounds, **changes), after(other, rounds, **changes), rtol=1e-11, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("special", "base"),
    [
        (FedInit(0.0), FedAvg()),
        (FedInit(0.0, average="models"), FedAvg()),
        (FedACG(0.0, 0.3), FedProx(0.3)),
        (FedNSAM(0.0, 0.3), FedSAM(0.3)),
        (FedNSAM(0.6, 0.0), FedACG(0.6, 0.0)),
        (FedSWA(1.0, 1.0), FedAvg()),
        (FedSWA(1.0, 0.7), FedAvg(0.7)),
        (FedExP(1e6), FedAvg()),
    ],
    ids=repr,
)
def test_is_its_base_when_its_own_part_is_off(special, base):
    same(special, base, **RAGGED)


@pytest.mark.parametrize(
    ("named", "base", "parts"),
    [
        (FedInit(0.3), FedAvg(), Parts(start=Relaxed(0.3))),
        (FedACG(0.6, 0.3), FedProx(0.3), Parts(server_optimizer=Nesterov(0.6))),
        (FedNSAM(0.6, 0.3), FedAvg(), Parts(server_optimizer=Nesterov(0.6), ascent=SAM(0.3))),
        (FedNova(0.3), FedProx(0.3), Parts(server_optimizer=Normalised())),
        (FedExP(1e-4), FedAvg(), Parts(server_optimizer=Extrapolation(1e-4))),
        (FedSWA(0.3, 0.8), FedAvg(0.8), Parts(local_schedule=Linear(0.3))),
    ],
    ids=lambda a: repr(a)[:40],
)
def test_is_its_base_with_the_part(named, base, parts):
    assert torch.equal(after(named, 3, **RAGGED), after(base, 3, parts=parts, **RAGGED))
    assert (after(named, 3, **RAGGED) - after(base, 3, **RAGGED)).norm() > 1e-3


@pytest.mark.parametrize(
    "parts", [Parts(), Parts(local_optimizer=LocalMomentum(0.7)), Parts(local_schedule=Linear(0.2))], ids=repr
)
def test_fednova_is_fedavg_where_all_take_equally_many_steps(parts):
    changes = {"local_steps": 5, "batch_size": 4, "parts": parts}
    same(FedNova(), FedAvg(), **changes)
    assert (after(FedNova(), batch_size=4, parts=parts) - after(FedAvg(), batch_size=4, parts=parts)).norm() > 1e-3


def test_fedexp_is_fedavg_where_all_clients_change_alike():
    """One client a round: ½‖d‖²/(‖d‖² + ε) is below 1."""
    assert torch.equal(after(FedExP(0.0), per_round=1), after(FedAvg(), per_round=1))


def test_fedacg_without_a_proximal_term_is_momentum_but_for_the_start():
    """On a constant slope s, where no start matters, every d_i is −Kηs: w = Σ m, m ← λm − Kηs, as FedAvgM's v."""
    nesterov, delta = Nesterov(0.6), torch.tensor([1.5], dtype=torch.float64)
    state, w = nesterov.state(delta), torch.zeros(1, dtype=torch.float64)
    for number in range(1, 6):
        step, state = nesterov.step(delta, state)
        w = w + step
        torch.testing.assert_close(step, 1.5 * (1 - 0.6**number) / 0.4 * torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(nesterov.ahead(w, state) - w, 0.6 * step)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.5, False), (0.9, False), (0.5, True), (0.9, True)])
def test_a_counts_the_coefficients_of_the_gradients(momentum, nesterov):
    """With g_k = e_k, the unit vectors, d = −η Σ_k a_k e_k: a_i is the sum of these a_k."""
    optimizer, steps, lr = LocalMomentum(momentum, nesterov), 6, 0.3
    w = torch.zeros(steps, dtype=torch.float64)
    memory = optimizer.initial(w)
    for k in range(steps):
        w, memory = optimizer.step(w, torch.eye(steps, dtype=torch.float64)[k], memory, lr, 0.0)
    assert gradients_in(LocalSteps(lr, [1.0] * steps, optimizer)) == pytest.approx(-w.sum().item() / lr, rel=1e-12)


def test_a_with_a_proximal_term_is_the_codes_recursion():
    a, lr, mu = 0.0, 0.2, 0.7
    for _ in range(9):
        a = (1 - lr * mu) * a + 1
    assert gradients_in(LocalSteps(lr, [1.0] * 9, proximal=mu)) == pytest.approx(a, rel=1e-12)


@pytest.mark.parametrize(
    "algorithm",
    others_slow(FedInit(0.4), FedACG(0.6), FedNSAM(0.6), FedNova(0.1, 0.5), FedExP(1e-4, 0.9), FedSWA()),
    ids=lambda a: type(a).__name__,
)
def test_resumed_it_ends_where_it_would_have(algorithm):
    whole, second = stopped_half_way(lambda: federation(algorithm, **RAGGED), rounds=4)
    assert torch.equal(whole.server.w, second.server.w)


def test_models_are_averaged_without_bias_too():
    """Σ_S p_i (w_i − w^t)/π, with a_i − w^t in it."""
    ours = federation(FedInit(0.5, average="models"), aggregation="unbiased", save_clients=True, **RAGGED)
    for _ in range(4):
        w = ours.server.w
        ours.step()
        pi = SETTINGS["per_round"] / len(SIZES)
        moved = sum(SIZES[i] / sum(SIZES) * (model - w) for i, model in ours.local_models.items()) / pi
        torch.testing.assert_close(ours.server.w, w + moved, rtol=1e-12, atol=1e-13)
