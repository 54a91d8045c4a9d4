"""Momentum, adaptive servers and GSAM against their papers' pseudo-code written out naively, in float64."""

import pytest
import torch

from landscape import FedscapeError
from landscape.compute.randomness import torch_generator
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import zeros
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.algorithms.test_contract import ROUND
from tests.trainers.algorithms.test_contract import test_stacked_clients_advance_as_they_would_alone as check_stacked
from tests.trainers.algorithms.test_identities import after
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import FedAvg, FedSAM, State
from trainers.algorithms.combinations import FedAdagrad, FedAdam, FedAvgM, FedGSAM, FedYogi, MoFedSAM
from trainers.algorithms.fedcm import FedCM
from trainers.algorithms.mimelite import MimeLite
from trainers.federation.local import local_step

EPOCHS = SETTINGS["local_epochs"]
EXACT = 1e-11


def changes_by_sgd(clients, w, sampled, lr):
    """What each client's local SGD adds to the model (Reddi et al., Algorithm 2, lines 4 to 9)."""
    result = []
    for i in sampled:
        x = [t.clone() for t in w]
        for _ in range(EPOCHS):
            x = [a - lr * b for a, b in zip(x, clients.gradient(i, x), strict=True)]
        result.append([a - b for a, b in zip(x, w, strict=True)])
    return result


class NaiveFedAvgM:
    """Hsu et al. 2019: Δ = Σ (n_k/n)(w − w_k); v ← βv + Δ; w ← w − v."""

    def __init__(self, w, server_lr, beta):
        self.v, self.server_lr, self.beta = zeros(w), server_lr, beta

    def round(self, clients, w, sampled, lr):
        gradient = [-d for d in clients.mean(changes_by_sgd(clients, w, sampled, lr), sampled)]
        self.v = [self.beta * v + g for v, g in zip(self.v, gradient, strict=True)]
        return [x - self.server_lr * v for x, v in zip(w, self.v, strict=True)]


class NaiveFedOpt:
    """Reddi et al. 2021, Algorithm 2, lines 10 to 15."""

    def __init__(self, w, kind, server_lr, beta1, beta2, tau):
        self.m, self.v = zeros(w), [torch.full_like(t, tau**2) for t in w]
        self.kind, self.server_lr, self.beta1, self.beta2, self.tau = kind, server_lr, beta1, beta2, tau

    def round(self, clients, w, sampled, lr):
        delta = clients.mean(changes_by_sgd(clients, w, sampled, lr), sampled)
        new = []
        for j, d in enumerate(delta):
            self.m[j] = self.beta1 * self.m[j] + (1 - self.beta1) * d
            if self.kind == "adagrad":
                self.v[j] = self.v[j] + d * d
            elif self.kind == "yogi":
                self.v[j] = self.v[j] - (1 - self.beta2) * d * d * torch.sign(self.v[j] - d * d)
            else:
                self.v[j] = self.beta2 * self.v[j] + (1 - self.beta2) * d * d
            new.append(w[j] + self.server_lr * self.m[j] / (torch.sqrt(self.v[j]) + self.tau))
        return new


def worst_gradient(clients, i, x, rho, gradient):
    """The gradient after an ascent step of length ρ."""
    norm = torch.sqrt(sum((t**2).sum() for t in gradient))
    return clients.gradient(i, [a + rho * b / norm for a, b in zip(x, gradient, strict=True)])


class NaiveClientMomentum:
    """Xu et al. 2021 (FedCM), and Qu et al. 2022, Algorithm 2 (MoFedSAM) where ``rho`` is given.

    The papers' Δ⁺ = −1/(ηKS) Σ (x_i − x); x ← x − η_g Δ⁺; their η_g is ours times Kη.
    """

    def __init__(self, w, share, server_lr, rho=None):
        self.delta, self.share, self.server_lr, self.rho = zeros(w), share, server_lr, rho

    def round(self, clients, w, sampled, lr):
        changes = []
        for i in sampled:
            x = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g = clients.gradient(i, x)
                if self.rho is not None:
                    g = worst_gradient(clients, i, x, self.rho, g)
                v = [self.share * a + (1 - self.share) * b for a, b in zip(g, self.delta, strict=True)]
                x = [a - lr * b for a, b in zip(x, v, strict=True)]
            changes.append([a - b for a, b in zip(x, w, strict=True)])
        self.delta = [-d / (lr * EPOCHS) for d in clients.mean(changes, sampled)]
        papers_rate = self.server_lr * EPOCHS * lr
        return [x - papers_rate * d for x, d in zip(w, self.delta, strict=True)]


class NaiveMimeLite:
    """Karimireddy et al. 2021, Algorithm 1 (MimeLite), U(g, m) = (1 − β)g + βm, V(g, m) = (1 − β)g + βm."""

    def __init__(self, w, beta, server_lr):
        self.m, self.beta, self.server_lr = zeros(w), beta, server_lr

    def round(self, clients, x, sampled, lr):
        models, gradients = [], []
        for i in sampled:
            y = [t.clone() for t in x]
            for _ in range(EPOCHS):
                g = clients.gradient(i, y)
                y = [a - lr * ((1 - self.beta) * b + self.beta * m) for a, b, m in zip(y, g, self.m, strict=True)]
            models.append(y)
            gradients.append(clients.gradient(i, x))
        full = clients.mean(gradients, sampled)
        self.m = [(1 - self.beta) * g + self.beta * m for g, m in zip(full, self.m, strict=True)]
        return [a + self.server_lr * (b - a) for a, b in zip(x, clients.mean(models, sampled), strict=True)]


def fedgsam_round(clients, w, sampled, lr, rho, alpha):
    """Zhuang et al. 2022, Algorithm 1, as the local step: the decomposition by cosine, as they have it."""
    models = []
    for i in sampled:
        x = [t.clone() for t in w]
        for _ in range(EPOCHS):
            g = clients.gradient(i, x)
            p = worst_gradient(clients, i, x, rho, g)
            norm_g, norm_p = (torch.sqrt(sum((t**2).sum() for t in v)) for v in (g, p))
            cosine = sum((a * b).sum() for a, b in zip(g, p, strict=True)) / (norm_g * norm_p)
            across = [a - cosine * norm_g * b / norm_p for a, b in zip(g, p, strict=True)]
            x = [a - lr * (b - alpha * c) for a, b, c in zip(x, p, across, strict=True)]
        models.append(x)
    return clients.mean(models, sampled)


def initial():
    return naive.Clients().start()


@pytest.mark.parametrize(("server_lr", "beta"), [(1.0, 0.9), (0.7, 0.5)])
def test_fedavgm(server_lr, beta):
    reference = NaiveFedAvgM(initial(), server_lr, beta)
    assert relative_error(FedAvgM(server_lr, beta), reference.round) < EXACT


@pytest.mark.parametrize(("server_lr", "beta1", "beta2", "tau"), [(0.05, 0.9, 0.99, 1e-3), (0.3, 0.4, 0.7, 0.05)])
@pytest.mark.parametrize("kind", ["adam", "adagrad", "yogi"])
def test_adaptive_servers(kind, server_lr, beta1, beta2, tau):
    algorithm = {
        "adam": FedAdam(server_lr, beta1, beta2, tau),
        "adagrad": FedAdagrad(server_lr, beta1, tau),
        "yogi": FedYogi(server_lr, beta1, beta2, tau),
    }[kind]
    reference = NaiveFedOpt(initial(), kind, server_lr, beta1, beta2, tau)
    assert relative_error(algorithm, reference.round) < EXACT


@pytest.mark.parametrize(("alpha", "server_lr"), [(0.1, 1.0), (0.4, 0.6)])
def test_fedcm(alpha, server_lr):
    reference = NaiveClientMomentum(initial(), alpha, server_lr)
    assert relative_error(FedCM(alpha, server_lr), reference.round) < EXACT


def test_fedcm_with_uniform_weights():
    reference = NaiveClientMomentum(initial(), 0.2, 1.0)
    assert relative_error(FedCM(0.2), reference.round, weighting="uniform") < EXACT


@pytest.mark.parametrize(("rho", "beta", "server_lr"), [(0.05, 0.1, 1.0), (0.4, 0.3, 0.7)])
def test_mofedsam(rho, beta, server_lr):
    reference = NaiveClientMomentum(initial(), beta, server_lr, rho)
    assert relative_error(MoFedSAM(rho, beta, server_lr), reference.round) < EXACT


@pytest.mark.parametrize(("beta", "server_lr"), [(0.9, 1.0), (0.3, 0.6)])
def test_mimelite(beta, server_lr):
    reference = NaiveMimeLite(initial(), beta, server_lr)
    assert relative_error(MimeLite(beta, server_lr), reference.round) < EXACT


def test_mimelite_with_uniform_weights():
    reference = NaiveMimeLite(initial(), 0.6, 1.0)
    assert relative_error(MimeLite(0.6), reference.round, weighting="uniform") < EXACT


@pytest.mark.parametrize(("rho", "alpha"), [(0.05, 0.2), (0.4, 0.7)])
def test_fedgsam(rho, alpha):
    error = relative_error(FedGSAM(rho, alpha), lambda c, w, s, lr: fedgsam_round(c, w, s, lr, rho, alpha))
    assert error < EXACT


def test_momentum_of_clients_that_take_different_numbers_of_steps_is_the_mean_over_all_their_steps():
    """Mini-batches of 4 of 5, 12, 3, ... samples: Δ⁺ = −Σ p_i d_i/(η Σ p_i K_i), by plain loops over six rounds."""
    alpha, size = 0.3, 4
    ours, clients = federation(FedCM(alpha), batch_size=size), naive.Clients()
    x, y = clients.x, clients.y
    w, delta, counts = clients.start(), zeros(clients.start()), set()
    for number in range(1, 7):
        sampled = ours.step().clients
        lr = SETTINGS["lr"] * SETTINGS["lr_decay"] ** (number - 1)
        moved, steps, models = zeros(w), 0, []
        for i in sampled:
            wi, order, taken = [t.clone() for t in w], torch_generator(4, "batches", number, i), 0
            for _ in range(EPOCHS):
                for positions in torch.randperm(SIZES[i], generator=order).split(size):
                    clients.x, clients.y = {i: x[i][positions]}, {i: y[i][positions]}
                    g = clients.gradient(i, wi)
                    v = [alpha * a + (1 - alpha) * b for a, b in zip(g, delta, strict=True)]
                    wi = [a - lr * b for a, b in zip(wi, v, strict=True)]
                    taken += 1
            counts.add(taken)
            models.append(wi)
            moved = [m + clients.p[i] * (a - b) for m, a, b in zip(moved, wi, w, strict=True)]
            steps += clients.p[i] * taken
        w, delta = clients.mean(models, sampled), [-m / (lr * steps) for m in moved]
    assert len(counts) > 2
    for ours_, theirs in ((ours.server.w, w), (ours.server.momentum, delta)):
        flat = torch.cat([t.reshape(-1) for t in theirs])
        assert ((ours_ - flat).norm() / flat.norm()).item() < EXACT


def same(a, b, rounds=4, **changes):
    torch.testing.assert_close(after(a, rounds, **changes), after(b, rounds, **changes), rtol=1e-11, atol=1e-13)


BATCHES = [{}, {"batch_size": 4}, {"lr": 0.2, "weight_decay": 0.05}]


@pytest.mark.parametrize("changes", BATCHES, ids=["full", "batches", "decay"])
@pytest.mark.parametrize(
    ("special", "base"),
    [
        (FedAvgM(0.8, 0.0), FedAvg(0.8)),
        (FedCM(1.0, 0.8), FedAvg(0.8)),
        (MimeLite(0.0, 0.8), FedAvg(0.8)),
        (FedGSAM(0.0, 0.5), FedAvg()),
        (FedGSAM(0.3, 0.0), FedSAM(0.3)),
        (MoFedSAM(0.3, 1.0), FedSAM(0.3)),
        (MoFedSAM(0.0, 0.2, 0.8), FedCM(0.2, 0.8)),
        # Where τ is so large that v stays τ², the servers average: √v + τ = 2τ.
        (FedAdagrad(2e7, 0.0, 1e7), FedAvg()),
        (FedYogi(2e7, 0.0, 0.9, 1e7), FedAvg()),
        (FedAdagrad(2e7 / 0.4, 0.6, 1e7), FedAvgM(1.0, 0.6)),
    ],
    ids=lambda a: repr(a),
)
def test_is_its_base_when_its_own_part_is_off(special, base, changes):
    same(special, base, **changes)


@pytest.mark.parametrize(
    ("active", "base"),
    [
        (FedAvgM(1.0, 0.5), FedAvg()),
        (FedAdam(), FedAvg()),
        (FedAdagrad(), FedAvg()),
        (FedYogi(), FedAdam()),
        (FedCM(0.5), FedAvg()),
        (MimeLite(0.5), FedAvg()),
        (MimeLite(0.5), FedCM(0.5)),
        (FedGSAM(0.3, 0.5), FedSAM(0.3)),
        (MoFedSAM(0.3, 0.5), FedSAM(0.3)),
        (MoFedSAM(0.3, 0.5), FedCM(0.5)),
    ],
    ids=lambda a: repr(a),
)
def test_is_not_its_base_when_its_own_part_is_on(active, base):
    assert (after(active) - after(base)).norm() > 1e-3


def test_the_first_round_of_client_momentum_has_none():
    torch.testing.assert_close(after(FedCM(0.25), 1, lr=0.2), after(FedAvg(), 1, lr=0.05), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(after(MimeLite(0.75), 1, lr=0.2), after(FedAvg(), 1, lr=0.05), rtol=1e-12, atol=1e-14)


ALL = [FedAvgM(), FedAdam(), FedAdagrad(), FedYogi(), FedCM(), MoFedSAM(), MimeLite(), FedGSAM()]


@pytest.mark.parametrize("algorithm", [a for a in ALL if not isinstance(a, MimeLite)], ids=lambda a: type(a).__name__)
def test_stacked(algorithm):
    check_stacked(algorithm)


def test_mimelite_stacked():
    """As the others, after ``prepare``."""

    class Data:
        def __init__(self, slope):
            self.slope = slope

        def gradient(self, w):
            return self.slope * w

    algorithm, draw = MimeLite(0.4), torch.Generator().manual_seed(0)
    w, slopes = (torch.randn(4, 10, generator=draw, dtype=torch.float64) for _ in range(2))
    start, momentum = torch.randn(2, 10, generator=draw, dtype=torch.float64)
    received = State(w=start, momentum=momentum)

    def work(w, slope):
        client = State()
        algorithm.prepare(client, received, Data(slope), ROUND)
        stepped = local_step(w, lambda p: slope * p**3, algorithm, client, received, ROUND, 0.01)
        return algorithm.upload(stepped, client, received, ROUND, 3)

    together = work(w, slopes)
    for i in range(4):
        for name, tensor in work(w[i], slopes[i]).items():
            torch.testing.assert_close(together[name][i], tensor, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("algorithm", ALL, ids=lambda a: type(a).__name__)
def test_traffic(algorithm):
    down, up = {FedCM: (2, 1), MoFedSAM: (2, 1), MimeLite: (2, 2)}.get(type(algorithm), (1, 1))
    ours = federation(algorithm)
    record = ours.step()
    assert (record.bytes_down, record.bytes_up) == (3 * down * ours.server.w.nbytes, 3 * up * ours.server.w.nbytes)
    assert "Traffic" in type(algorithm).__doc__


@pytest.mark.parametrize(
    "bad",
    [
        lambda: FedAvgM(0.0),
        lambda: FedAvgM(1.0, 1.0),
        lambda: FedAdam(0.0),
        lambda: FedAdam(0.1, 0.9, 1.0),
        lambda: FedAdam(tau=0.0),
        lambda: FedAdagrad(-1.0),
        lambda: FedAdagrad(beta1=1.0),
        lambda: FedYogi(0.0),
        lambda: FedYogi(beta2=1.5),
        lambda: FedCM(0.0),
        lambda: FedCM(1.1),
        lambda: FedCM(0.1, 0.0),
        lambda: MoFedSAM(-0.1),
        lambda: MoFedSAM(0.1, 0.0),
        lambda: MoFedSAM(0.1, 0.1, -1.0),
        lambda: MimeLite(1.0),
        lambda: MimeLite(0.5, 0.0),
        lambda: FedGSAM(-0.1),
        lambda: FedGSAM(0.1, -0.1),
    ],
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()
