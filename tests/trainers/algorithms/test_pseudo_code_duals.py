"""FedDyn and its relatives against their pseudo-code written out naively."""

import pytest

from landscape import FedscapeError
from tests.trainers.algorithms import test_contract
from tests.trainers.algorithms.naive import EPOCHS, Clients, length, zeros
from tests.trainers.algorithms.test_against_pseudo_code import WEIGHTINGS, relative_error
from tests.trainers.federations import SIZES, federation
from trainers.algorithms.adabest import AdaBest
from trainers.algorithms.feddc import FedDC
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.fedsmoo import FedSMOO
from trainers.algorithms.fedspeed import FedSpeed


class NaiveFedDyn:
    """Acar et al. 2021, Algorithm 1, each device's problem solved by EPOCHS gradient steps."""

    def __init__(self, alpha):
        w = Clients().start()
        self.alpha, self.h, self.slopes = alpha, zeros(w), [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models = []
        for k in sampled:
            theta = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g = clients.gradient(k, theta)
                theta = [
                    a - lr * (b - s + self.alpha * (a - x))
                    for a, b, s, x in zip(theta, g, self.slopes[k], w, strict=True)
                ]
            self.slopes[k] = [s - self.alpha * (a - x) for s, a, x in zip(self.slopes[k], theta, w, strict=True)]
            models.append(theta)
        for j in range(len(w)):
            moved = sum(clients.p[k] * (theta[j] - w[j]) for k, theta in zip(sampled, models, strict=True))
            self.h[j] = self.h[j] - self.alpha * moved
        return [a - h / self.alpha for a, h in zip(clients.mean(models, sampled), self.h, strict=True)]


class NaiveFedDC:
    """Gao et al. 2022, Algorithm 1; g_i is the client's update without its own correction, over ηK of its round."""

    def __init__(self, alpha):
        w = Clients().start()
        self.alpha = alpha
        self.h, self.g = [zeros(w) for _ in SIZES], [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        sent, average = [], clients.over_all(self.g)
        new = {}
        for i in sampled:
            theta = [t.clone() for t in w]
            for _ in range(EPOCHS):
                s = clients.gradient(i, theta)
                for j in range(len(w)):
                    penalty = self.alpha * (self.h[i][j] + theta[j] - w[j])
                    s[j] = s[j] + penalty + (self.g[i][j] - average[j])
                theta = [a - lr * b for a, b in zip(theta, s, strict=True)]
            moved = [a - x for a, x in zip(theta, w, strict=True)]
            self.h[i] = [h + d for h, d in zip(self.h[i], moved, strict=True)]
            new[i] = [d / (EPOCHS * lr) + (g - a) for d, g, a in zip(moved, self.g[i], average, strict=True)]
            sent.append([a + h for a, h in zip(theta, self.h[i], strict=True)])
        for i in sampled:
            self.g[i] = new[i]
        return clients.mean(sent, sampled)


class NaiveFedDCOfficial:
    """The authors' train_FedDC for clients of one weight, with the round's own rate, and weights put in."""

    def __init__(self, alpha):
        w = Clients().start()
        self.alpha, self.cloud = alpha, zeros(w)
        self.h, self.state = [zeros(w) for _ in SIZES], [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models, change = [], zeros(w)
        for i in sampled:
            theta = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g = clients.gradient(i, theta)
                for j in range(len(w)):
                    g[j] = g[j] + self.alpha * (theta[j] - (w[j] - self.h[i][j])) - self.state[i][j] + self.cloud[j]
                theta = [a - lr * b for a, b in zip(theta, g, strict=True)]
            for j in range(len(w)):
                moved = theta[j] - w[j]
                self.h[i][j] = self.h[i][j] + moved
                state = self.state[i][j] - self.cloud[j] - moved / EPOCHS / lr
                change[j] = change[j] + clients.p[i] * (state - self.state[i][j])
                self.state[i][j] = state
            models.append(theta)
        self.cloud = [c + d for c, d in zip(self.cloud, change, strict=True)]
        return [a + h for a, h in zip(clients.mean(models, sampled), clients.over_all(self.h), strict=True)]


class NaiveFedSpeed:
    """Sun et al. 2023 (ICLR), Algorithm 1; officially FL-Simulator's ESAM; its server with ``correction`` all."""

    def __init__(self, rho, alpha, lam, variant, correction):
        self.rho, self.alpha, self.lam, self.variant, self.correction = rho, alpha, lam, variant, correction
        self.hat = [zeros(Clients().start()) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models, corrected = [], []
        for i in sampled:
            x = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g1 = clients.gradient(i, x)
                rate = self.rho / length(g1) if self.variant == "official" else self.rho
                g2 = clients.gradient(i, [a + rate * b for a, b in zip(x, g1, strict=True)])
                for j in range(len(w)):
                    quasi = g2[j] if self.variant == "official" else (1 - self.alpha) * g1[j] + self.alpha * g2[j]
                    x[j] = x[j] - lr * (quasi - self.hat[i][j] + (x[j] - w[j]) / self.lam)
            self.hat[i] = [g - (a - b) / self.lam for g, a, b in zip(self.hat[i], x, w, strict=True)]
            models.append(x)
            corrected.append([a - self.lam * g for a, g in zip(x, self.hat[i], strict=True)])
        if self.correction == "sampled":
            return clients.mean(corrected, sampled)
        taken = clients.over_all(self.hat)
        return [a - self.lam * g for a, g in zip(clients.mean(models, sampled), taken, strict=True)]


class NaiveFedSMOO:
    """Sun et al. 2023 (ICML), Algorithm 1; officially without ŝ in line 13."""

    def __init__(self, r, beta, variant):
        w = Clients().start()
        self.r, self.beta, self.variant = r, beta, variant
        self.s, self.lam = zeros(w), zeros(w)
        self.lams, self.mus = [zeros(w) for _ in SIZES], [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models, tildes = [], []
        for i in sampled:
            x, mu = [t.clone() for t in w], self.mus[i]
            for _ in range(EPOCHS):
                g = clients.gradient(i, x)
                s = [a - b - c for a, b, c in zip(g, mu, self.s, strict=True)]
                norm = length(s)
                s = [self.r * a / norm for a in s]
                mu = [b + (a - c) for a, b, c in zip(s, mu, self.s, strict=True)]
                g = clients.gradient(i, [a + b for a, b in zip(x, s, strict=True)])
                x = [a - lr * (b - c + (a - d) / self.beta) for a, b, c, d in zip(x, g, self.lams[i], w, strict=True)]
            self.mus[i] = mu
            tildes.append(mu if self.variant == "official" else [a - b for a, b in zip(mu, s, strict=True)])
            self.lams[i] = [c - (a - d) / self.beta for a, c, d in zip(x, self.lams[i], w, strict=True)]
            models.append(x)
        s = clients.mean(tildes, sampled)
        norm = length(s)
        self.s = [self.r * a / norm for a in s]
        for j in range(len(w)):
            moved = sum(clients.p[i] * (x[j] - w[j]) for i, x in zip(sampled, models, strict=True))
            self.lam[j] = self.lam[j] - moved / self.beta
        return [a - self.beta * c for a, c in zip(clients.mean(models, sampled), self.lam, strict=True)]


class NaiveAdaBest:
    """Varno et al. 2022, Algorithm 1, AdaBest's lines."""

    def __init__(self, mu, beta, forgets=True):
        w = Clients().start()
        self.mu, self.beta, self.forgets = mu, beta, forgets
        self.t, self.last, self.average = 0, [0 for _ in SIZES], w
        self.h = [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        self.t += 1
        models = []
        for i in sampled:
            theta = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g = clients.gradient(i, theta)
                theta = [a - lr * (b - h) for a, b, h in zip(theta, g, self.h[i], strict=True)]
            away = self.t - self.last[i] if self.forgets else 1
            self.h[i] = [h / away + self.mu * (x - a) for h, x, a in zip(self.h[i], w, theta, strict=True)]
            self.last[i] = self.t
            models.append(theta)
        average = clients.mean(models, sampled)
        h = [self.beta * (a - b) for a, b in zip(self.average, average, strict=True)]
        self.average = average
        return [a - b for a, b in zip(average, h, strict=True)]


CASES = [
    (FedDyn(), NaiveFedDyn, (0.1,)),
    (FedDyn(0.7), NaiveFedDyn, (0.7,)),
    (FedDC(), NaiveFedDCOfficial, (0.01,)),
    (FedDC(0.3), NaiveFedDCOfficial, (0.3,)),
    (FedDC(0.3, "sampled"), NaiveFedDC, (0.3,)),
    (FedSpeed(), NaiveFedSpeed, (0.1, 1.0, 10.0, "paper", "all")),
    (FedSpeed(0.4, 0.6, 4.0), NaiveFedSpeed, (0.4, 0.6, 4.0, "paper", "all")),
    (FedSpeed(0.4, 0.6, 4.0, "paper", "sampled"), NaiveFedSpeed, (0.4, 0.6, 4.0, "paper", "sampled")),
    (FedSpeed(0.4, 1.0, 4.0, "official"), NaiveFedSpeed, (0.4, 1.0, 4.0, "official", "all")),
    (FedSpeed(0.4, 1.0, 4.0, "official", "sampled"), NaiveFedSpeed, (0.4, 1.0, 4.0, "official", "sampled")),
    (FedSMOO(), NaiveFedSMOO, (0.1, 10.0, "paper")),
    (FedSMOO(0.4, 3.0), NaiveFedSMOO, (0.4, 3.0, "paper")),
    (FedSMOO(0.4, 3.0, "official"), NaiveFedSMOO, (0.4, 3.0, "official")),
    (AdaBest(), NaiveAdaBest, (0.02, 0.96)),
    (AdaBest(0.3, 0.6), NaiveAdaBest, (0.3, 0.6)),
]


ALGORITHMS = [case[0] for case in CASES]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("algorithm", "reference", "values"), CASES, ids=map(str, ALGORITHMS))
def test_is_its_pseudo_code(algorithm, reference, values, weighting):
    assert relative_error(algorithm, reference(*values).round, weighting=weighting) < 1e-11


def test_adabest_forgets_by_the_rounds_a_client_missed():
    assert relative_error(AdaBest(0.3, 0.6), NaiveAdaBest(0.3, 0.6, forgets=False).round) > 1e-5


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_contract_of_stacked_clients(algorithm):
    test_contract.test_stacked_clients_advance_as_they_would_alone(algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_traffic_is_what_the_documentation_says(algorithm):
    models = 2 if isinstance(algorithm, FedDC | FedSMOO) else 1
    ours = federation(algorithm)
    record, size = ours.step(), ours.server.w.nbytes
    assert (record.bytes_down, record.bytes_up) == (3 * models * size, 3 * models * size)
    assert ("two models down" if models == 2 else "one model down") in type(algorithm).__doc__


@pytest.mark.parametrize(
    "bad",
    [
        lambda: FedDyn(0),
        lambda: FedDC(-0.1),
        lambda: FedDC(server_correction="code"),
        lambda: FedSpeed(rho=-1),
        lambda: FedSpeed(lam=0),
        lambda: FedSpeed(alpha=1.5),
        lambda: FedSpeed(alpha=0.5, variant="official"),
        lambda: FedSpeed(variant="code"),
        lambda: FedSpeed(server_correction="code"),
        lambda: FedSMOO(r=-1),
        lambda: FedSMOO(beta=0),
        lambda: FedSMOO(variant="code"),
        lambda: AdaBest(mu=-1),
        lambda: AdaBest(beta=1),
    ],
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()


def test_parts_that_make_no_sense_are_named():
    parts = {"ascent", "man", "swa", "mixup", "cutout", "server_optimizer", "local_optimizer"}
    for algorithm in ALGORITHMS:
        assert set(algorithm.excludes) <= parts
        assert "server_optimizer" in algorithm.excludes
        assert ("ascent" in algorithm.excludes) == isinstance(algorithm, FedSpeed | FedSMOO)
