"""The loop of a repository's code on flat vectors, for replays of its lines; no federation of ours is used."""

import torch
from torch import nn

from landscape import ParameterSpace
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SETTINGS, SIZES, federation, net, partition, samples
from trainers.federation.batches import batch_indices
from trainers.federation.federation import sampled_clients

BATCH, EPOCHS, N, ROUNDS, LR, DECAY = 5, 2, len(SIZES), 3, SETTINGS["lr"], SETTINGS["lr_decay"]
RELATIVE = [n / sum(SIZES) * N for n in SIZES]
SPACE = ParameterSpace.of(net())
FIRST = [int(rows[0]) for rows in partition().clients]
STEPS = [EPOCHS * -(-n // BATCH) for n in SIZES]


def start():
    return torch.cat([p.detach().reshape(-1) for p in net().parameters()])


def batch_gradients(client, number):
    """w -> the gradient, for each of a client's mini-batches of a round."""
    model, data = net(), samples()
    order = torch_generator(SETTINGS["seed"], "batches", number, client)
    for rows in batch_indices(SIZES[client], BATCH, EPOCHS, order):
        at = FIRST[client] + rows

        def gradient(w, at=at):
            w = w.clone().requires_grad_()
            outputs = torch.func.functional_call(model, SPACE.unflatten(w), (data.inputs[at],))
            return torch.autograd.grad(nn.functional.cross_entropy(outputs, data.targets[at]), w)[0]

        yield gradient


def clip_grad_norm(g, largest):
    """As torch.nn.utils.clip_grad_norm_ on one parameter."""
    parameter = torch.nn.Parameter(torch.zeros_like(g))
    parameter.grad = g.clone()
    torch.nn.utils.clip_grad_norm_([parameter], largest)
    return parameter.grad


def agrees(algorithm, repository, rounds=ROUNDS, parts=None, **settings):
    """Whether ours ends as the repository's class: ``client(i, w, steps, lr, number)`` and ``server(w, models, sampled,
    lr)``, after each round."""
    ours = federation(algorithm, parts, local_epochs=EPOCHS, batch_size=BATCH, **settings)
    w = begun = start()
    for number in range(1, rounds + 1):
        lr, sampled = LR * DECAY ** (number - 1), sampled_clients(ours.settings, number)
        models = {i: repository.client(i, w, batch_gradients(i, number), lr, number) for i in sampled}
        w = repository.server(w, models, lr)
        ours.step()
        assert float((ours.server.w - w).norm() / (w - begun).norm()) < 1e-13, number
    return True


def mean(models, weights=None):
    """The plain mean of the clients' models, or by weights."""
    p = {i: 1.0 if weights is None else weights[i] for i in models}
    return sum(p[i] * v for i, v in models.items()) / sum(p.values())


def zeros():
    return torch.zeros_like(start())
