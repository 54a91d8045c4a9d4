"""FedGAMMA, FedLESAM and FedGloSS against their pseudo-code written out naively."""

import pytest
import torch

from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import EPOCHS, add, batches, length, zeros
from tests.trainers.algorithms.test_against_pseudo_code import ROUNDS, WEIGHTINGS, relative_error
from tests.trainers.algorithms.test_identities import after
from tests.trainers.federations import SIZES, federation
from trainers import FedAvg
from trainers.algorithms.combinations import FedGAMMA
from trainers.algorithms.fedgloss import FedGloSS
from trainers.algorithms.fedlesam import FedLESAM

TOLERANCE = 1e-11


class NaiveFedGAMMA:
    """Dai et al. 2023, Algorithm 1, with mini-batches: K_i is what client i takes."""

    def __init__(self, rho, server_lr=1.0, size=None):
        w = naive.Clients().start()
        self.rho, self.server_lr, self.size, self.number = rho, server_lr, size, 0
        self.c, self.ci = zeros(w), [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        self.number += 1
        x, y = clients.x, clients.y
        models, changes = [], []
        for i in sampled:
            wi, k = [t.clone() for t in w], 0
            for rows in batches(i, self.size, self.number):
                clients.x, clients.y = {i: x[i][rows]}, {i: y[i][rows]}
                g = clients.gradient(i, wi)
                up = clients.gradient(i, add(wi, g, self.rho / length(g)))
                wi, k = add(wi, add(add(up, self.ci[i], -1.0), self.c), -lr), k + 1
            clients.x, clients.y = x, y
            plus = add(add(self.ci[i], self.c, -1.0), add(w, wi, -1.0), 1 / (k * lr))
            models.append(wi)
            changes.append(add(plus, self.ci[i], -1.0))
            self.ci[i] = plus
        for i, change in zip(sampled, changes, strict=True):
            self.c = add(self.c, change, clients.p[i])
        return add(w, add(clients.mean(models, sampled), w, -1.0), self.server_lr)


class NaiveFedLESAM:
    """Fan et al. 2024, Algorithm 1, and its forms on SCAFFOLD and FedDyn."""

    def __init__(self, rho, base="fedavg", alpha=0.1, first="initial"):
        w = naive.Clients().start()
        self.rho, self.base, self.alpha = rho, base, alpha
        self.old = [w if first == "initial" else None for _ in SIZES]
        self.c, self.ci = zeros(w), [zeros(w) for _ in SIZES]
        self.duals = [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models, controls = [], [list(c) for c in self.ci]
        for i in sampled:
            e = zeros(w)
            if self.old[i] is not None:
                difference = add(self.old[i], w, -1.0)
                if length(difference) > 0:
                    e = [self.rho * t / length(difference) for t in difference]
            wi = [t.clone() for t in w]
            for _ in range(EPOCHS):
                v = clients.gradient(i, add(wi, e))
                if self.base == "scaffold":
                    v = add(add(v, self.ci[i], -1.0), self.c)
                if self.base == "feddyn":
                    v = add(add(v, self.duals[i], -1.0), add(wi, w, -1.0), self.alpha)
                wi = add(wi, v, -lr)
            controls[i] = add(add(self.ci[i], self.c, -1.0), add(w, wi, -1.0), 1 / (EPOCHS * lr))
            self.duals[i] = add(self.duals[i], add(wi, w, -1.0), -self.alpha)
            self.old[i] = w
            models.append(wi)
        self.ci = controls
        self.c = clients.over_all(self.ci)
        new = clients.mean(models, sampled)
        if self.base == "feddyn":
            new = add(new, clients.over_all(self.duals), -1 / self.alpha)
        return new


class NaiveFedGloSS:
    """Caldarola et al. 2025, Algorithm 1, by line; radii as the authors' server sets them."""

    def __init__(self, rho, rho_l, beta, warmup=0, rho0=0.001, rounds=ROUNDS):
        w = naive.Clients().start()
        self.beta, self.pseudo, self.t = beta, None, 0
        self.sigma, self.duals = zeros(w), [zeros(w) for _ in SIZES]
        self.radii, self.local_radii = [rho] * rounds, [rho_l] * rounds
        for t in range(warmup):
            self.radii[t] = rho0 + t * (rho - rho0) / warmup
            self.local_radii[t] = rho0 + t * (rho_l - rho0) / warmup

    def round(self, clients, w, sampled, lr):
        start = w
        if self.pseudo is not None:
            start = add(w, self.pseudo, self.radii[self.t] / length(self.pseudo))  # 4, 5
        models = []
        for i in sampled:
            wi = [t.clone() for t in start]  # 8
            for _ in range(EPOCHS):
                g = clients.gradient(i, wi)  # 12
                g = clients.gradient(i, add(wi, g, self.local_radii[self.t] / length(g)))  # 13, 14
                wi = add(wi, add(add(g, self.duals[i], -1.0), add(wi, start, -1.0), 1 / self.beta), -lr)  # 15
            self.duals[i] = add(self.duals[i], add(wi, start, -1.0), -1 / self.beta)  # 19
            models.append(wi)
        for i, wi in zip(sampled, models, strict=True):
            self.sigma = add(self.sigma, add(wi, start, -1.0), -clients.p[i] / self.beta)  # 22
        self.pseudo = add(start, clients.mean(models, sampled), -1.0)  # 23
        self.t += 1
        return add(add(w, self.pseudo, -1.0), self.sigma, -self.beta)  # 24


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("server_lr", [1.0, 0.8])
def test_fedgamma_is_scaffold_on_the_sam_gradient(server_lr, weighting):
    reference = NaiveFedGAMMA(0.4, server_lr)
    assert relative_error(FedGAMMA(0.4, server_lr=server_lr), reference.round, weighting=weighting) < TOLERANCE


def test_fedgamma_divides_by_each_clients_own_number_of_steps():
    steps = {len(list(batches(i, 4, 1))) for i in range(len(SIZES))}
    assert len(steps) > 3, "clients must differ in K here"
    assert relative_error(FedGAMMA(0.2), NaiveFedGAMMA(0.2, size=4).round, batch_size=4) < TOLERANCE


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("base", "alpha"), [("fedavg", 0.1), ("scaffold", 0.1), ("feddyn", 0.1), ("feddyn", 0.4)])
def test_fedlesam_looks_back_to_the_model_the_client_received_last(base, alpha, weighting):
    own, reference = alpha if base == "feddyn" else None, NaiveFedLESAM(0.4, base, alpha)
    assert relative_error(FedLESAM(0.4, base, own), reference.round, weighting=weighting) < TOLERANCE


def test_fedlesam_takes_the_initial_model_for_received_by_all():
    no_perturbation = NaiveFedLESAM(0.4, first="nothing")
    assert relative_error(FedLESAM(0.4), no_perturbation.round) > 1e-4  # so who joins late is seen here
    torch.testing.assert_close(after(FedLESAM(0.4), 1), after(FedAvg(), 1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("radii", [(0.3, 0.2, 4.0), (0.3, 0.2, 15.0), (0.2, 0.0, 4.0), (0.0, 0.2, 4.0)])
def test_fedgloss_starts_clients_uphill_and_descends_from_where_it_stood(radii, weighting):
    assert relative_error(FedGloSS(*radii), NaiveFedGloSS(*radii).round, weighting=weighting) < TOLERANCE


@pytest.mark.parametrize("warmup", [1, 3, 9])
def test_fedgloss_radii_grow_over_the_first_rounds(warmup):
    reference = NaiveFedGloSS(0.3, 0.2, 4.0, warmup, 0.01, rounds=ROUNDS + warmup)
    assert relative_error(FedGloSS(0.3, 0.2, 4.0, warmup, 0.01), reference.round) < TOLERANCE


def test_fedgloss_keeps_the_unperturbed_model_and_sends_the_perturbed_one():
    ours = federation(FedGloSS(0.3))
    ours.step()
    sent = ours.algorithm.broadcast(ours.server)
    assert sent.keys() == {"w"}
    assert (sent["w"] - ours.server.w).norm().item() == pytest.approx(0.3, rel=1e-12)
