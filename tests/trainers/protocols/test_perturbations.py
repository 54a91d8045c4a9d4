"""The lines of FedLESAM's, FedGloSS' and fedMAN's code replayed: a coordinate a tensor, σ by |S| again, the radius that
grows, the gradient that is not cleared, the variance of a layer in MAN."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from landscape.activations import MAN
from landscape.models import build_model
from tests.trainers.protocols.replay import SPACE, STEPS, N, agrees, mean, zeros
from trainers import FedGloSS, FedLESAM, FedSpeed
from trainers.protocols import protocol

RHO, NORM, LAMB = 0.2, 0.3, 0.7
UNIFORM = {"weighting": "uniform", "norm_eps": NORM}


class Lesam:
    """FedLESAM: LESAM.py:22-52, fedlesam.py; fedlesam_s.py and SCAFFOLD's server; fedlesam_d.py and FedDyn's."""

    def __init__(self, base):
        self.base, self.update = base, None
        self.h, self.ci, self.c = [zeros() for _ in range(N)], [zeros() for _ in range(N)], zeros()
        self.delta = zeros()

    def perturbed(self, w):
        if self.update is None:
            return w
        norm, parts = 0.0, []
        for idx in range(len(SPACE.sizes)):
            norm += self.update[idx].norm(p=2)
        for idx, length in enumerate(SPACE.sizes):
            e_w = -self.update[idx] * RHO / (norm + NORM)
            parts.append(e_w * torch.ones(length, dtype=w.dtype))
        return w + torch.cat(parts)

    def client(self, i, w, steps, lr, number):
        p = w
        correction = {"scaffold": self.c - self.ci[i], "feddyn": self.h[i] - w}.get(self.base, zeros())
        for gradient in steps:
            decay = LAMB * p if self.base == "feddyn" else 0
            p = p - lr * (gradient(self.perturbed(p)) + LAMB * correction + decay)
        self.h[i] = self.h[i] + (p - w)
        updated = self.ci[i] - self.c - (p - w) / STEPS[i] / lr
        self.delta, self.ci[i] = self.delta + updated - self.ci[i], updated
        return p

    def server(self, w, models, lr):
        self.c, self.delta = self.c + self.delta / N, zeros()
        new = mean(models) + (sum(self.h) / N if self.base == "feddyn" else 0)
        self.update = new - w
        return new


@pytest.mark.parametrize("base", ["fedavg", "scaffold", "feddyn"])
def test_fedlesam_moves_each_tensor_by_one_coordinate(base):
    own = {} if base == "fedavg" else {"alpha": LAMB}
    assert agrees(FedLESAM(RHO, base, variant="official", **own), Lesam(base), rounds=4, **UNIFORM)


class Gloss:
    """FedGloSS: fedgloss_server.py and fedgloss_client.py, a local epoch a round's part as there."""

    def __init__(self, warmup, rounds, rho=0.3, rho_l=RHO, rho0=0.01, beta=2.0):
        self.beta, self.sigma, self.state, self.gradient = beta, zeros(), [zeros() for _ in range(N)], None
        self.rhos_l, self.rhos = [rho_l] * rounds, [rho] * rounds
        if warmup > 1:
            self.rhos_l = [rho0]
            for _ in range(warmup):
                self.rhos_l.append(self.rhos_l[-1] + (rho_l - rho0) / warmup)
            self.rhos_l += [rho_l] * (rounds - len(self.rhos_l))
            self.rhos = [rho0]
            for _ in range(warmup):
                self.rhos.append(self.rhos_l[-1] + (rho - rho0) / warmup)
            self.rhos += [rho] * (rounds - len(self.rhos))

    def tilde(self, w, t):
        return w if self.gradient is None else w + self.gradient * self.rhos[t] / self.gradient.norm()

    def client(self, i, w, steps, lr, number):
        begun = p = self.tilde(w, number - 1)
        for gradient in steps:
            g = gradient(p)
            g = gradient(p + self.rhos_l[number - 1] / g.norm() * g)
            p = p - lr * (g - self.state[i] + (p - begun) / self.beta)
        self.state[i] = self.state[i] - (p - begun) / self.beta
        self.begun = begun
        return p

    def server(self, w, models, lr):
        updates = [p - self.begun for p in models.values()]
        self.sigma = self.sigma - sum(updates) / (self.beta * N * len(updates))
        self.gradient = -sum(updates) / len(updates)
        return w - self.gradient - self.beta * self.sigma


@pytest.mark.parametrize("warmup", [0, 2])
def test_fedgloss_divides_sigma_by_the_sampled_clients_again(warmup):
    algorithm = FedGloSS(0.3, RHO, 2.0, warmup=warmup, variant="official", **({"rho0": 0.01} if warmup else {}))
    assert agrees(algorithm, Gloss(warmup, 5), rounds=5, weighting="uniform")
    with pytest.raises(AssertionError):
        agrees(FedGloSS(0.3, RHO, 2.0), Gloss(0, 5), rounds=3, weighting="uniform")


class Uncleared:
    """fedMAN: utils_optimizer.py and utils_general.py:730-790, without clipping."""

    def __init__(self):
        self.h = [zeros() for _ in range(N)]

    def client(self, i, w, steps, lr, number):
        p, grad = w, zeros()
        for gradient in steps:
            grad = grad + gradient(p)
            grad = gradient(p + RHO / (grad.norm() + NORM) * grad)
            grad = grad + LAMB * (-w + self.h[i])
            p = p - lr * (grad + LAMB * p)
        self.h[i] = self.h[i] + (p - w)
        return p

    def server(self, w, models, lr):
        return mean(models) + sum(self.h) / N


def test_fedmans_fedspeed_climbs_along_a_gradient_that_is_not_cleared():
    algorithm = partial(FedSpeed, RHO, lam=1 / LAMB)
    assert agrees(algorithm(variant="uncleared"), Uncleared(), **UNIFORM)
    with pytest.raises(AssertionError):
        agrees(algorithm(variant="official"), Uncleared(), **UNIFORM)


def test_fedmans_man_of_the_network_for_tiny_imagenet_is_its_lines():
    """code/utils_models.py:208-258, and the mean of each entry in code/utils_general.py:462-468."""
    net = build_model("convnet_tiny", input_shape=[3, 16, 16], classes=7, seed=0).double()
    x = torch.randn(5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    conv1, gn1, conv2, gn2, conv3, gn3, fc1, fc2 = (net[k] for k in (0, 1, 4, 5, 8, 9, 13, 15))
    a = F.relu(gn1(conv1(x)))
    var1 = torch.mean(a**2, dim=[1, 2, 3])
    a = F.relu(gn2(conv2(F.max_pool2d(a, 2))))
    var2 = torch.mean(a**2, dim=[1, 2, 3])
    a = F.max_pool2d(F.relu(gn3(conv3(F.max_pool2d(a, 2)))), 2)
    a = F.relu(fc1(a.view(a.shape[0], -1)))
    var3 = torch.mean(a**2, dim=[1])
    a = F.relu(fc2(a))
    var5, var4 = torch.std(a, dim=[0]) ** 2, torch.mean(a**2, dim=[1])
    theirs = 0.2 / 2 * sum(torch.mean(each) for each in (var1, var2, var3, var4, var5))
    values = protocol("fedman").values("fedavg", man="0.2", model="convnet_tiny", data="tiny_imagenet")
    man = MAN(0.2, values["man_layers"], half=values["man_variant"] == "half", variance=values["man_variance"])
    with man.watching(net) as penalty:
        net(x)
    torch.testing.assert_close(penalty(), theirs, rtol=1e-13, atol=0)
    with MAN(0.2, half=True).watching(net) as paper:
        net(x)
    assert abs(float((paper() / theirs).detach()) - 1) > 0.01
