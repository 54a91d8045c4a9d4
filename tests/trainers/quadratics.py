"""Clients with strongly convex quadratic losses f_i(w) = ½ (w − b_i)·A_i (w − b_i) in float64, unequal in all."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch

from landscape import ParameterSpace
from trainers import Settings
from trainers.federation.execution import ClientResult, Told
from trainers.federation.federation import Federation
from trainers.federation.local import local_step
from trainers.parts import Surroundings
from trainers.parts.server_optimizers import LocalSteps

SIZES = (5, 40, 12, 3, 90, 25, 8, 60)
STEPS, LR = 6, 0.25
D = 4
SPACE = ParameterSpace.of(torch.nn.Linear(D, 1, bias=False))


class Quadratics:
    """An executor of full-batch steps on the losses."""

    sizes = SIZES

    def __init__(self, algorithm):
        self.algorithm = algorithm
        draw = torch.Generator().manual_seed(3)
        self.minima = torch.randn(len(SIZES), D, generator=draw, dtype=torch.float64)
        axes = torch.linalg.qr(torch.randn(len(SIZES), D, D, generator=draw, dtype=torch.float64))[0]
        values = 0.5 + torch.rand(len(SIZES), D, generator=draw, dtype=torch.float64)
        self.curvature = axes @ torch.diag_embed(values) @ axes.mT

    def slope(self, client, w):
        return self.curvature[client] @ (w - self.minima[client])

    def ascending(self, client, state, received, round):
        part, plain = self.algorithm.ascent, partial(self.slope, client)
        batch = SimpleNamespace(divergence=lambda w, reference, temperature: plain(w) - plain(reference))
        around = Surroundings(SPACE, state, received, round, batch)
        return plain if part is None else lambda w: part.gradient(w, plain, around)

    def ask(self, clients, received, store, round):
        for client in clients:
            data = SimpleNamespace(gradient=partial(self.slope, client))
            yield Told(client, self.algorithm.ask(store.fetch(client), received, data, round), store.fetch(client))

    def work(self, clients, received, store, round):
        schedule, start, optimizer = (
            getattr(self.algorithm, part) for part in ("local_schedule", "relaxed", "server_optimizer")
        )
        shares = [1.0 if schedule is None else schedule.share(step, STEPS) for step in range(STEPS)]
        round = replace(round, steps=STEPS)
        for client in clients:
            state = store.fetch(client)
            self.algorithm.prepare(state, received, SimpleNamespace(gradient=partial(self.slope, client)), round)
            begun = received if start is None else start.begun(state, received)
            w = begun.w
            for step, share in enumerate(shares):
                here = replace(round, step=step, steps=STEPS, share=share)
                gradient = self.ascending(client, state, received, here)
                w = local_step(w, gradient, self.algorithm, state, begun, here, 0.0)
            if self.algorithm.ascent is not None:
                self.algorithm.ascent.remember(state, received)
            upload = self.algorithm.upload(w, state, begun, replace(round, lr=round.lr * sum(shares) / STEPS), STEPS)
            if optimizer is not None:
                upload = optimizer.sent(upload, LocalSteps(round.lr, shares, proximal=self.algorithm.proximal_weight))
            if start is not None:
                start.remember(state, w)
            yield ClientResult(client, w, upload, state, w.new_zeros(()), 1, STEPS, STEPS)


def slope_after(algorithm, rounds, weighting, sampling="exact", enough=1e-14, **changes):
    """The smallest ‖∇F‖, F = Σ p_i f_i, that lasts over 20 rounds; stops when it is below ``enough``."""
    executor = Quadratics(algorithm)
    settings = Settings(
        clients=len(SIZES), per_round=3, lr=LR, weighting=weighting, sampling=sampling, client_store="host", **changes
    )
    ours = Federation(algorithm, executor, settings, torch.zeros(D, dtype=torch.float64))
    total = sum(SIZES) if weighting == "samples" else len(SIZES)
    weights = SIZES if weighting == "samples" else [1] * len(SIZES)
    p = torch.tensor(weights, dtype=torch.float64) / total
    recent = []
    for _ in range(rounds):
        ours.step()
        residuals = ours.server.w - executor.minima  # [N, d]
        slope = torch.einsum("i,ijk,ik->j", p, executor.curvature, residuals).norm().item()
        recent = [*recent[-19:], slope]
        if max(recent) < enough:
            break
    return max(recent)
