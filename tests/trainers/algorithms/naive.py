"""The algorithms written out from the papers' pseudo-code: plain loops, lists of tensors, no shared parts.

Each ``*_round`` takes and returns the server's model as a list of tensors, given which clients were sampled.  Only the
order of mini-batches (:func:`batches`) is the trainers' own.
"""

import torch
from torch import nn

from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SETTINGS, SIZES, net, partition, samples
from trainers.federation.batches import batch_indices

EPOCHS = SETTINGS["local_epochs"]


class Clients:
    """The clients' full-batch gradients, by hand, and their weights p_i."""

    def __init__(self, weighting="samples"):
        self.model, data = net(), samples()
        self.p = [n / sum(SIZES) if weighting == "samples" else 1 / len(SIZES) for n in SIZES]
        self.names = [name for name, _ in self.model.named_parameters()]
        self.x = [data.inputs[torch.from_numpy(i)] for i in partition().clients]
        self.y = [data.targets[torch.from_numpy(i)] for i in partition().clients]

    def start(self):
        return [p.detach().clone() for p in self.model.parameters()]

    def mean(self, models, sampled):
        """Σ_S p_i w_i / Σ_S p_i."""
        total = sum(self.p[i] for i in sampled)
        return [
            sum(self.p[i] * m[j] for i, m in zip(sampled, models, strict=True)) / total for j in range(len(models[0]))
        ]

    def over_all(self, states):
        """Σ p_i state_i over all clients."""
        return [sum(p * s[j] for p, s in zip(self.p, states, strict=True)) for j in range(len(states[0]))]

    def gradient(self, i, w):
        for p, value in zip(self.model.parameters(), w, strict=True):
            p.data.copy_(value)
        loss = nn.functional.cross_entropy(self.model(self.x[i]), self.y[i])
        return list(torch.autograd.grad(loss, list(self.model.parameters())))


def zeros(w):
    return [torch.zeros_like(t) for t in w]


def add(a, b, scale=1.0):
    return [x + scale * y for x, y in zip(a, b, strict=True)]


def length(a):
    return torch.sqrt(sum((t**2).sum() for t in a))


def batches(i, size, number):
    """The rows of client ``i``'s mini-batches in a round, in order."""
    return batch_indices(SIZES[i], size, EPOCHS, torch_generator(SETTINGS["seed"], "batches", number, i))


def fedavg_round(clients, w, sampled, lr, server_lr=1.0, weight_decay=0.0):
    locals_ = []
    for i in sampled:
        wi = [t.clone() for t in w]
        for _ in range(EPOCHS):
            g = clients.gradient(i, wi)
            wi = [a - lr * (b + weight_decay * a) for a, b in zip(wi, g, strict=True)]
        locals_.append(wi)
    average = clients.mean(locals_, sampled)
    return [a + server_lr * (b - a) for a, b in zip(w, average, strict=True)]


def fedprox_round(clients, w, sampled, lr, mu):
    locals_ = []
    for i in sampled:
        wi = [t.clone() for t in w]
        for _ in range(EPOCHS):
            g = clients.gradient(i, wi)
            wi = [a - lr * (b + mu * (a - c)) for a, b, c in zip(wi, g, w, strict=True)]
        locals_.append(wi)
    return clients.mean(locals_, sampled)


def fedsam_round(clients, w, sampled, lr, rho, weight_decay=0.0):
    locals_ = []
    for i in sampled:
        wi = [t.clone() for t in w]
        for _ in range(EPOCHS):
            g = clients.gradient(i, wi)
            norm = torch.sqrt(sum((t**2).sum() for t in g))
            up = clients.gradient(i, [a + rho * b / norm for a, b in zip(wi, g, strict=True)])
            wi = [a - lr * (b + weight_decay * a) for a, b in zip(wi, up, strict=True)]
        locals_.append(wi)
    return clients.mean(locals_, sampled)


def fedasam_round(clients, w, sampled, lr, rho, eta):
    locals_ = []
    for i in sampled:
        wi = [t.clone() for t in w]
        for _ in range(EPOCHS):
            g = clients.gradient(i, wi)
            scale = [
                torch.ones_like(a) if name.endswith("bias") else a.abs() + eta
                for name, a in zip(clients.names, wi, strict=True)
            ]
            norm = torch.sqrt(sum(((t * b) ** 2).sum() for t, b in zip(scale, g, strict=True)))
            up = clients.gradient(i, [a + rho * t**2 * b / norm for a, t, b in zip(wi, scale, g, strict=True)])
            wi = [a - lr * b for a, b in zip(wi, up, strict=True)]
        locals_.append(wi)
    return clients.mean(locals_, sampled)


class NaiveScaffold:
    """Karimireddy et al. 2020, Algorithm 1, option II."""

    def __init__(self, w, server_lr):
        self.c = [torch.zeros_like(t) for t in w]
        self.ci = [[torch.zeros_like(t) for t in w] for _ in SIZES]
        self.server_lr = server_lr

    def round(self, clients, w, sampled, lr):
        dw, dc = [], []
        for i in sampled:
            y = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g = clients.gradient(i, y)
                y = [a - lr * (b - ci + c) for a, b, ci, c in zip(y, g, self.ci[i], self.c, strict=True)]
            plus = [ci - c + (x - a) / (EPOCHS * lr) for ci, c, x, a in zip(self.ci[i], self.c, w, y, strict=True)]
            dw.append([a - x for a, x in zip(y, w, strict=True)])
            dc.append([a - b for a, b in zip(plus, self.ci[i], strict=True)])
            self.ci[i] = plus
        new = [x + self.server_lr * d for x, d in zip(w, clients.mean(dw, sampled), strict=True)]
        for i, change in zip(sampled, dc, strict=True):
            self.c = [c + clients.p[i] * d for c, d in zip(self.c, change, strict=True)]
        return new
