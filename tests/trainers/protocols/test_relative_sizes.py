"""The lines of FedDyn's and FedDC's code, and of fedsim's, replayed: α and c by relative size, the first round's rate,
one K for all, half the proximal term, AdaBest's mean batch size."""

import math

import pytest

from tests.trainers.federations import SIZES
from tests.trainers.protocols.replay import BATCH, EPOCHS, LR, RELATIVE, STEPS, N, agrees, clip_grad_norm, mean, zeros
from trainers import AdaBest, FedDC, FedDyn, FedProx, Scaffold, Settings
from trainers.federation.batches import dual_steps

WD, CLIP, ALPHA = 0.02, 0.4, 0.7
HOW = {"weighting": "uniform", "weight_decay": WD, "clip": CLIP, "clip_eps": 1e-6}


def descend(w, steps, lr, slope, proximal=0.0, clip=CLIP):
    for gradient in steps:
        w = w - lr * (clip_grad_norm(slope(w, gradient), clip) + (WD + proximal) * w)
    return w


class Dyn:
    """FedDyn: utils_general.py:185-226, utils_methods.py:386-397."""

    def __init__(self):
        self.local = [zeros() for _ in range(N)]

    def client(self, i, w, steps, lr, number):
        alpha = ALPHA / RELATIVE[i]
        end = descend(w, steps, lr, lambda p, gradient: gradient(p) + alpha * (-w + self.local[i]), alpha)
        self.local[i] = self.local[i] + (end - w)
        return end

    def server(self, w, models, lr):
        return mean(models) + sum(self.local) / N


class Variates:
    """FedDyn: utils_general.py:115-166, utils_methods.py:224-236, with each client's own number of steps."""

    def __init__(self):
        self.state, self.cloud, self.change = [zeros() for _ in range(N)], zeros(), zeros()

    def client(self, i, w, steps, lr, number):
        difference = -self.state[i] + self.cloud / RELATIVE[i]
        end = descend(w, steps, lr, lambda p, gradient: gradient(p) + difference)
        new = self.state[i] - self.cloud + 1 / STEPS[i] / LR * (w - end)
        self.change = self.change + (new - self.state[i]) * RELATIVE[i]
        self.state[i] = new
        return end

    def server(self, w, models, lr):
        self.cloud, self.change = self.cloud + 1 / N * self.change, zeros()
        return mean(models)


class Decoupled:
    """FedDC: utils_general.py:423-475, utils_methods_FedDC.py:163-189."""

    minibatches = EPOCHS * math.ceil(sum(SIZES) / N / BATCH)

    def __init__(self):
        self.drift, self.state = [zeros() for _ in range(N)], [zeros() for _ in range(N)]
        self.cloud, self.sum = zeros(), zeros()

    def client(self, i, w, steps, lr, number):
        alpha, last, everybody = ALPHA / RELATIVE[i], self.state[i], self.cloud / RELATIVE[i]
        end = descend(
            w, steps, lr, lambda p, gradient: gradient(p) + alpha * (p - (w - self.drift[i])) + (-last + everybody)
        )
        self.drift[i] = self.drift[i] + (end - w)
        state = last - everybody + 1 / self.minibatches / LR * -(end - w)
        self.sum = self.sum + (state - last) * RELATIVE[i]
        self.state[i] = state
        return end

    def server(self, w, models, lr):
        self.cloud, self.sum = self.cloud + 1 / N * self.sum, zeros()
        return mean(models) + sum(self.drift) / N


class HalfProx:
    """fedsim: fedprox.py, step_closures.py."""

    def client(self, i, w, steps, lr, number):
        return descend(w, steps, lr, lambda p, gradient: gradient(p) + ALPHA * (0.5 * (p - w)))

    def server(self, w, models, lr):
        return mean(models)


class HalfDyn:
    """fedsim: feddyn.py."""

    def __init__(self):
        self.h, self.cloud = [zeros() for _ in range(N)], zeros()

    def client(self, i, w, steps, lr, number):
        alpha = ALPHA / SIZES[i] * (sum(SIZES) / N)
        end = descend(w, steps, lr, lambda p, gradient: gradient(p) + alpha * (0.5 * (p - w) - self.h[i]))
        self.h[i] = self.h[i] + (w - end)
        return end

    def server(self, w, models, lr):
        average = mean(models)
        self.cloud = self.cloud + len(models) / N * (w - average)
        return average - self.cloud


class Best:
    """fedsim: adabest.py, with the mean batch size of the rounds before."""

    def __init__(self):
        self.h, self.last, self.average, self.sizes, self.here = [None] * N, [None] * N, None, [], []

    def client(self, i, w, steps, lr, number):
        batch = sum(self.sizes) / len(self.sizes) if self.sizes else 0.0
        mu = ALPHA / SIZES[i] * batch * EPOCHS
        h = zeros() if self.h[i] is None else self.h[i]
        end = descend(w, steps, lr, lambda p, gradient: gradient(p) + mu * -h)
        forgotten = zeros() if self.last[i] is None else 1 / (number - self.last[i]) * h
        self.h[i], self.last[i] = forgotten + (w - end), number
        self.here.append(EPOCHS * SIZES[i] / STEPS[i])
        return end

    def server(self, w, models, lr):
        average, before = mean(models), w if self.average is None else self.average
        self.sizes, self.here, self.average = self.sizes + self.here, [], average
        return average - 0.6 * (before - average)


REPLAYS = {
    "feddyn": (FedDyn(ALPHA, sizes="relative"), Dyn, {"clip_at": "linear"}),
    "scaffold": (Scaffold(sizes="relative"), Variates, {"dual_lr": "first"}),
    "feddc": (FedDC(ALPHA, sizes="relative"), Decoupled, {"dual_lr": "first", "dual_steps": "mean"}),
    "half fedprox": (FedProx(ALPHA, "half"), HalfProx, {}),
    "half feddyn": (FedDyn(ALPHA, "relative", "half"), HalfDyn, {}),
    "adabest": (AdaBest(ALPHA, 0.6, "official"), Best, {"rounds": 5}),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_under_its_protocol_ours_ends_as_its_lines(name):
    algorithm, repository, more = REPLAYS[name]
    assert agrees(algorithm, repository(), **HOW, **more)


@pytest.mark.parametrize(
    ("name", "undone"),
    [("feddc", {"dual_lr": "current"}), ("feddc", {"dual_steps": "own"}), ("feddyn", {"clip_at": "direction"})],
)
def test_a_replay_fails_without_what_it_is_about(name, undone):
    algorithm, repository, more = REPLAYS[name]
    with pytest.raises(AssertionError):
        agrees(algorithm, repository(), **{**HOW, **more, **undone})


def test_one_k_for_all_is_what_the_repositories_print():
    """FL-Simulator divides by 25 where 26 steps are taken: 200 clients of 250 images, 2 epochs of batches of 20."""
    sizes = [250] * 200
    assert dual_steps(sizes, 20, 2, "first") == 25
    assert dual_steps(sizes, 20, 2, "mean") == 26
    assert dual_steps(sizes, 20, 2, "own") == 0
    assert dual_steps(sizes, None, 2, "first") == 2
    assert dual_steps(sizes, 20, 2, "mean", steps=7) == 7
    assert Settings().dual_steps == "own"
