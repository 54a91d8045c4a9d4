"""FL-Simulator's lines replayed: client 0's K, the clipped half of the proximal term, 1e-7 in norms, v_0 = 0."""

import pytest
import torch

from tests.trainers.federations import SIZES
from tests.trainers.protocols.replay import BATCH, DECAY, EPOCHS, N, agrees, clip_grad_norm, mean, zeros
from trainers import FedAdam, FedCM, FedDyn, FedGAMMA, FedProx, FedSAM, FedSMOO, FedSpeed, MoFedSAM, Scaffold

WD, CLIP, NORM, LAMB, RHO = 0.02, 0.4, 0.3, 0.7, 0.2  # a norm's 1e-7 is 0.3 here, so that it is seen
HOW = {
    "weighting": "uniform", "weight_decay": WD, "clip": CLIP, "clip_at": "linear", "clip_eps": 1e-6, "norm_eps": NORM,
    "dual_steps": "first",
}  # fmt: skip
K0 = EPOCHS * (SIZES[0] / BATCH)


def descend(w, steps, lr, slope, proximal=0.0):
    """client.py:36-47: clip, then SGD with weight_decay + lamb."""
    for gradient in steps:
        w = w - lr * (clip_grad_norm(slope(w, gradient), CLIP) + (WD + proximal) * w)
    return w


def sam(w, gradient):
    """ESAM.py:22-33, 49-66."""
    g = gradient(w)
    return gradient(w + RHO / (g.norm() + NORM) * g)


class Prox:
    def client(self, i, w, steps, lr, number):
        return descend(w, steps, lr, lambda p, gradient: gradient(p) - LAMB * w, LAMB)

    def server(self, w, models, lr):
        return mean(models)


class Dyn:
    """feddyn.py and FedDyn.py; with a gradient of its own fedspeed.py."""

    def __init__(self, gradient=lambda w, gradient: gradient(w)):
        self.h, self.gradient = [zeros() for _ in range(N)], gradient

    def client(self, i, w, steps, lr, number):
        correction = self.h[i] - w
        end = descend(w, steps, lr, lambda p, gradient: self.gradient(p, gradient) + LAMB * correction, LAMB)
        self.h[i] = self.h[i] + (end - w)
        return end

    def server(self, w, models, lr):
        return mean(models) + sum(self.h) / N


class Variates:
    """scaffold.py and SCAFFOLD.py; with SAM's gradient FedGamma.py."""

    def __init__(self, gradient=lambda w, gradient: gradient(w)):
        self.ci, self.c, self.delta, self.gradient = [zeros() for _ in range(N)], zeros(), zeros(), gradient

    def client(self, i, w, steps, lr, number):
        correction = self.c - self.ci[i]
        end = descend(w, steps, lr, lambda p, gradient: self.gradient(p, gradient) + correction)
        updated = self.ci[i] - self.c - (end - w) / K0 / lr
        self.delta, self.ci[i] = self.delta + updated - self.ci[i], updated
        return end

    def server(self, w, models, lr):
        self.c, self.delta = self.c + self.delta / N, zeros()
        return mean(models)


class Momentum:
    """fedcm.py and FedCM.py; with SAM's gradient mofedsam.py."""

    def __init__(self, gradient=lambda w, gradient: gradient(w)):
        self.update, self.gradient = zeros(), gradient

    def client(self, i, w, steps, lr, number):
        sent = self.update / K0 / lr * DECAY * -1.0
        return descend(w, steps, lr, lambda p, gradient: 0.1 * self.gradient(p, gradient) + 0.9 * sent)

    def server(self, w, models, lr):
        self.update = mean(models) - w
        return w + self.update


class Smoo:
    """fedsmoo.py, DRegSAM.py and FedSMOO.py."""

    def __init__(self):
        self.h, self.mu = [zeros() for _ in range(N)], [zeros() for _ in range(N)]
        self.common, self.here = zeros(), []

    def client(self, i, w, steps, lr, number):
        def slope(p, gradient):
            g = gradient(p) - (self.mu[i] + self.common)
            e = RHO / (g.norm() + NORM) * g
            self.mu[i] = self.mu[i] + e - self.common
            return gradient(p + e) + LAMB * (self.h[i] - w)

        end = descend(w, steps, lr, slope, LAMB)
        self.h[i] = self.h[i] + (end - w)
        self.here.append(self.mu[i])
        return end

    def server(self, w, models, lr):
        average = sum(self.here) / len(self.here)
        self.common, self.here = average / (average.norm() + NORM) * RHO, []
        return mean(models) + sum(self.h) / N


class Adam:
    def __init__(self):
        self.m, self.v = zeros(), zeros()

    def client(self, i, w, steps, lr, number):
        return descend(w, steps, lr, lambda p, gradient: gradient(p))

    def server(self, w, models, lr):
        update = mean(models) - w
        self.m = 0.9 * self.m + 0.1 * update
        self.v = 0.99 * self.v + 0.01 * update**2
        return w + 0.5 * self.m / (self.v.sqrt() + 0.01)


class Sam:
    def client(self, i, w, steps, lr, number):
        return descend(w, steps, lr, sam)

    def server(self, w, models, lr):
        return mean(models)


REPLAYS = {
    "fedprox": (FedProx(LAMB), Prox),
    "feddyn": (FedDyn(LAMB), Dyn),
    "scaffold": (Scaffold(), Variates),
    "fedcm": (FedCM(), Momentum),
    "fedsam": (FedSAM(RHO), Sam),
    "mofedsam": (MoFedSAM(RHO), lambda: Momentum(sam)),
    "fedgamma": (FedGAMMA(RHO), lambda: Variates(sam)),
    "fedspeed": (FedSpeed(RHO, lam=1 / LAMB, variant="official"), lambda: Dyn(sam)),
    "fedsmoo": (FedSMOO(RHO, 1 / LAMB, "official"), Smoo),
    "fedadam": (FedAdam(server_lr=0.5, tau=0.01, v0="zero"), Adam),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_under_its_protocol_ours_ends_as_its_lines(name):
    algorithm, repository = REPLAYS[name]
    assert agrees(algorithm, repository(), **HOW)


@pytest.mark.parametrize(
    ("name", "undone"),
    [
        ("feddyn", {"clip_at": "direction"}),
        ("scaffold", {"dual_steps": "own"}),
        ("fedsam", {"norm_eps": 0.0}),
        ("fedcm", {"clip_eps": 0.1}),
    ],
)
def test_a_replay_fails_without_what_it_is_about(name, undone):
    algorithm, repository = REPLAYS[name]
    with pytest.raises(AssertionError):
        agrees(algorithm, repository(), **{**HOW, **undone})


def test_clipping_is_pytorchs_with_its_epsilon():
    from trainers.federation.local import clipped

    g = torch.tensor([3.0, 4.0], dtype=torch.float64)
    for largest in (0.5, 5.0, 10.0):
        torch.testing.assert_close(clipped(g, largest, 1e-6), clip_grad_norm(g, largest), rtol=1e-15, atol=0)
