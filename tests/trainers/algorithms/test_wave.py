"""FedVARP, FedGF and FedWMSAM against their sources' text written out naively, in float64, and their special cases."""

from dataclasses import dataclass

import pytest
import torch

from landscape import FedscapeError, Partition
from tests.trainers.algorithms.naive import Clients, add, length, zeros
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.algorithms.test_identities import after
from tests.trainers.algorithms.test_wave_starts import EXACT, RAGGED, Naive, others_slow, same
from tests.trainers.federations import SETTINGS, SIZES, federation, stopped_half_way
from trainers import FedAvg, FedCM, FedGF, FedSAM, FedVARP, FedWMSAM


class NaiveFedVARP(Naive):
    """w += η_g(y + ‹d_i − y_i›), y the mean of all y_i, kept by the server; then y_i = d_i."""

    def __init__(self, server_lr, w):
        super().__init__()
        self.server_lr, self.y = server_lr, [zeros(w) for _ in SIZES]

    def advanced(self, clients, w, sampled, lr):
        new = []
        for i in sampled:
            x = w
            for gradient in self.minibatches(clients, i):
                x = add(x, gradient(x), -lr)
            new.append(add(x, w, -1.0))
        news = [add(d, self.y[i], -1.0) for i, d in zip(sampled, new, strict=True)]
        w = add(w, add(clients.over_all(self.y), clients.mean(news, sampled)), self.server_lr)
        for i, d in zip(sampled, new, strict=True):
            self.y[i] = d
        return w


class NaiveFedGF(Naive):
    """fedgf.py: calc_c, the mean, calc_perturbation; the clients' weighted_sum after the ascent step."""

    def __init__(self, rho, rho_g, t_d, window, eps=0.0):
        super().__init__()
        self.eps = eps
        self.rho, self.rho_g, self.t_d, self.length = rho, rho_g, t_d, window
        self.window, self.c, self.perturbed, self.shares = [], 0.0, None, []

    def advanced(self, clients, w, sampled, lr):
        models = []
        for i in sampled:
            x = w
            for gradient in self.minibatches(clients, i):
                g = gradient(x)
                up = add(x, g, self.rho / (length(g) + self.eps))
                if self.perturbed is not None:
                    up = [self.c * p + (1 - self.c) * u for p, u in zip(self.perturbed, up, strict=True)]
                x = add(x, gradient(up), -lr)
            models.append(x)
        distance = clients.mean([[length(add(x, w, -1.0))] for x in models], sampled)[0]
        self.window.append(1 if distance > self.t_d else 0)
        del self.window[: -self.length]
        self.c = sum(self.window) / len(self.window)
        self.shares.append(self.c)
        new = clients.mean(models, sampled)
        back = add(w, new, -1.0)
        self.perturbed = add(new, back, self.rho_g / (length(back) + self.eps))
        return new


class NaiveFedWMSAM(Naive):
    """Section 4.2 and Algorithm 1, with Δ by 1/(Kη); the server keeps c_i; α by the authors' server."""

    def __init__(self, rho, lam, alpha, server_lr, w, eps=0.0, k=None, first_lr=False):
        super().__init__()
        self.eps, self.k, self.first_lr = eps, k, first_lr
        self.rho, self.lam, self.alpha, self.server_lr = rho, lam, alpha, server_lr
        self.delta, self.c, self.ci, self.alphas = zeros(w), zeros(w), [zeros(w) for _ in SIZES], []

    def advanced(self, clients, w, sampled, lr):
        changes, counts, likeness = [], [], []
        for i in sampled:
            correction = add(self.c, self.ci[i], -1.0)
            own = add(self.delta, correction, self.alpha / (1 - self.alpha))
            x, target, steps = w, w, 0
            for gradient in self.minibatches(clients, i):
                towards = add(target, x, -1.0)
                point = add(x, towards, self.rho / (length(towards) + self.eps)) if length(towards) > 0 else x
                g = gradient(point)
                x = add(x, add([self.alpha * t for t in g], own, 1 - self.alpha), -lr)
                target, steps = add(target, own), steps + 1
            d = add(x, w, -1.0)
            changes.append(d)
            counts.append(steps)
            norms = length(d) * length(self.delta)
            inner = sum((a * b).sum() for a, b in zip(d, self.delta, strict=True))
            likeness.append([inner / norms + 1 if norms > 0 else torch.zeros((), dtype=torch.float64)])
        moved, rate = zeros(w), SETTINGS["lr"] if self.first_lr else lr
        for i, d, steps in zip(sampled, changes, counts, strict=True):
            change = add([-t for t in self.c], d, -1 / ((self.k or steps) * rate))
            self.ci[i] = add(self.ci[i], change)
            moved = add(moved, change, clients.p[i])
        self.c = add(self.c, moved)
        share = sum(clients.p[i] for i in sampled)
        mean_steps = sum(clients.p[i] * k for i, k in zip(sampled, counts, strict=True)) / share
        mean = clients.mean(changes, sampled)
        self.delta = [-t / ((self.k or mean_steps) * rate) for t in mean]
        target = clients.mean(likeness, sampled)[0].clamp(0.1, 0.9)
        self.alpha = ((1 - self.lam) * self.alpha + self.lam * target).item()
        self.alphas.append(self.alpha)
        return add(w, mean, self.server_lr)


@pytest.mark.parametrize("weighting", others_slow("samples", "uniform"))
@pytest.mark.parametrize("server_lr", others_slow(0.8, 1.0))
def test_fedvarp(server_lr, weighting):
    reference = NaiveFedVARP(server_lr, Clients().start())
    assert relative_error(FedVARP(server_lr), reference.round, **RAGGED, weighting=weighting) < EXACT


def test_fedvarps_memory_is_the_mean_of_all_clients():
    ours = federation(FedVARP(0.8), **RAGGED)
    for _ in range(5):
        ours.step()
    mean = sum(p * ours.store.fetch(i).y for i, p in enumerate(Clients().p))
    torch.testing.assert_close(ours.server.y, mean, rtol=1e-12, atol=1e-14)
    assert ours.server.y.norm() > 1e-3


def test_fedvarp_is_fedavg_where_all_take_part_and_in_the_first_round():
    same(FedVARP(0.8), FedAvg(0.8), per_round=len(SIZES), **RAGGED)
    same(FedVARP(0.8), FedAvg(0.8), 1, **RAGGED)
    assert (after(FedVARP(0.8), 2, **RAGGED) - after(FedAvg(0.8), 2, **RAGGED)).norm() > 1e-3


@pytest.mark.parametrize(
    ("rho", "rho_g", "t_d", "window"),
    others_slow((0.3, 0.2, 1.0, 2), (0.3, 0.2, 1.0, 30), (0.05, 0.05, 0.0, 30)),
)
def test_fedgf(rho, rho_g, t_d, window):
    reference = NaiveFedGF(rho, rho_g, t_d, window)
    assert relative_error(FedGF(rho, rho_g, t_d, window), reference.round, **RAGGED) < EXACT
    assert set(reference.shares) - {0.0}, "c must not be 0 throughout"
    if t_d:
        assert len(set(reference.shares)) > 1, reference.shares


def test_norm_eps_is_in_both_perturbations_of_fedgf():
    reference = NaiveFedGF(0.3, 0.2, 1.0, 2, eps=0.5)
    assert relative_error(FedGF(0.3, 0.2, 1.0, 2), reference.round, **RAGGED, norm_eps=0.5) < EXACT
    assert set(reference.shares) - {0.0}, "c must not be 0 throughout"


def test_fedgf_is_fedsam_in_its_first_round_and_while_clients_stay_near():
    same(FedGF(0.3, t_d=0.0), FedSAM(0.3), 1, **RAGGED)
    same(FedGF(0.3, t_d=1e6), FedSAM(0.3), **RAGGED)
    assert (after(FedGF(0.3, t_d=0.0), 2, **RAGGED) - after(FedSAM(0.3), 2, **RAGGED)).norm() > 1e-3


def test_fedgfs_gradients_are_all_at_the_servers_point_where_every_round_drifts():
    """c = 1: full batches make d_i = −Kη ∇f_i(w̃), whatever K."""
    ours, clients = federation(FedGF(0.3, 0.2, t_d=0.0), per_round=len(SIZES)), Clients()
    ours.step()
    w, point, lr = ours.server.w, ours.server.perturbed, 0.3 * 0.9
    shapes = clients.start()
    tensors = [t.view_as(s) for t, s in zip(point.split([s.numel() for s in shapes]), shapes, strict=True)]
    slope = torch.cat(
        [t.reshape(-1) for t in clients.over_all([clients.gradient(i, tensors) for i in range(len(SIZES))])]
    )
    ours.step()
    torch.testing.assert_close(ours.server.w, w - 3 * lr * slope, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("weighting", others_slow("samples", "uniform"))
@pytest.mark.parametrize(
    ("rho", "lam", "alpha", "server_lr"), others_slow((0.3, 0.4, 0.3, 0.8), (0.01, 0.01, 0.1, 1.0))
)
def test_fedwmsam(rho, lam, alpha, server_lr, weighting):
    reference = NaiveFedWMSAM(rho, lam, alpha, server_lr, Clients().start())
    algorithm = FedWMSAM(rho, lam, alpha, server_lr)
    assert relative_error(algorithm, reference.round, **RAGGED, weighting=weighting) < EXACT
    assert reference.alphas[0] == pytest.approx((1 - lam) * alpha + lam * 0.1)  # nothing to agree with yet
    assert len({round(a, 6) for a in reference.alphas}) > 1 or lam < 0.1


@pytest.mark.parametrize(
    ("changes", "told"),
    others_slow(
        ({"norm_eps": 0.5, "dual_steps": "first", "dual_lr": "first"}, {"eps": 0.5, "k": 3 * 5 / 4, "first_lr": True}),
        ({"norm_eps": 0.5}, {"eps": 0.5}),
        ({"dual_steps": "mean"}, {"k": 9}),
        ({"dual_lr": "first"}, {"first_lr": True}),
    ),
)
def test_fedwmsam_in_the_form_of_a_repository(changes, told):
    reference = NaiveFedWMSAM(0.3, 0.4, 0.3, 0.8, Clients().start(), **told)
    assert relative_error(FedWMSAM(0.3, 0.4, 0.3, 0.8), reference.round, **RAGGED, **changes) < EXACT


def test_fedwmsams_control_variate_is_the_mean_of_all_clients():
    ours = federation(FedWMSAM(0.1, 0.1, 0.2), **RAGGED)
    for _ in range(5):
        ours.step()
    mean = sum(p * ours.store.fetch(i).c for i, p in enumerate(Clients().p))
    torch.testing.assert_close(ours.server.c, mean, rtol=1e-11, atol=1e-13)
    assert ours.server.c.norm() > 1e-3


@dataclass(frozen=True)
class WithoutVariates(FedWMSAM):
    def upload(self, w, client, server, round, steps):
        sent = super().upload(w, client, server, round, steps)
        client.c = torch.zeros_like(w)
        return {**sent, "c": torch.zeros_like(w)}


def test_fedwmsam_without_its_parts_is_fedcm():
    """ρ = 0, λ = 0 and c ≡ 0, which it is of itself where one client holds all data: then c_i = c."""
    plain = FedWMSAM(0.0, 0.0, 0.3, 0.8)
    same(WithoutVariates(0.0, 0.0, 0.3, 0.8), FedCM(0.3, 0.8), **RAGGED)
    assert (after(plain, **RAGGED) - after(FedCM(0.3, 0.8), **RAGGED)).norm() > 1e-3
    alone = {"split": Partition((torch.arange(20).numpy(),)), "clients": 1, "per_round": 1}
    same(plain, FedCM(0.3, 0.8), **alone, **RAGGED)


def test_fedwmsam_takes_one_gradient_a_step_and_the_first_unperturbed():
    ours, other = federation(FedWMSAM(0.5), local_epochs=1), federation(FedWMSAM(0.0), local_epochs=1)
    record = ours.step()
    other.step()
    assert record.gradients == record.steps
    assert torch.equal(ours.server.w, other.server.w)


@pytest.mark.parametrize(
    "algorithm", [FedVARP(0.8), FedGF(0.3, t_d=0.5, window=2), FedWMSAM(0.1, 0.2)], ids=lambda a: type(a).__name__
)
def test_resumed_it_ends_where_it_would_have(algorithm):
    whole, second = stopped_half_way(lambda: federation(algorithm, **RAGGED), rounds=4)
    for name, tensor in whole.server.tensors().items():
        assert torch.equal(getattr(second.server, name), tensor), name


@pytest.mark.parametrize(
    "bad",
    [
        lambda: FedVARP(0.0),
        lambda: FedGF(-0.1),
        lambda: FedGF(0.1, -0.1),
        lambda: FedGF(t_d=-1.0),
        lambda: FedGF(window=0),
        lambda: FedWMSAM(-0.1),
        lambda: FedWMSAM(lam=1.5),
        lambda: FedWMSAM(alpha=1.0),
        lambda: FedWMSAM(alpha=0.0),
        lambda: FedWMSAM(server_lr=0.0),
    ],
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()
