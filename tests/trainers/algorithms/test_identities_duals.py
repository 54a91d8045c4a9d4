"""FedDyn and its relatives become one another at special values; states are what they are defined as."""

import dataclasses
import math

import pytest
import torch

from tests.trainers.algorithms.naive import EPOCHS
from tests.trainers.algorithms.test_against_pseudo_code import ROUNDS
from tests.trainers.federations import SIZES, federation
from trainers import FedAvg, FedProx, Scaffold
from trainers.algorithms.adabest import AdaBest
from trainers.algorithms.feddc import FedDC
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.fedsmoo import FedSMOO
from trainers.algorithms.fedspeed import FedSpeed
from trainers.parts.ascent import SAM

N = len(SIZES)
VARIANTS = ("paper", "official")
CORRECTIONS = ("all", "sampled")


def after(algorithm, rounds=ROUNDS, **changes):
    ours = federation(algorithm, **{"weighting": "uniform", **changes})
    for _ in range(rounds):
        ours.step()
    return ours


def same(a, b, tolerance=1e-11):
    assert ((a - b).norm() / b.norm()).item() < tolerance


def differ(a, b):
    assert ((a - b).norm() / b.norm()).item() > 1e-4


def all_clients(ours, name):
    sizes = SIZES if ours.settings.weighting == "samples" else (1,) * N
    return sum(size * getattr(ours.store.fetch(i), name) for i, size in enumerate(sizes)) / sum(sizes)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_fedsmoo_without_perturbation_is_feddyn(variant, weighting):
    ours = after(FedSMOO(0.0, 4.0, variant), weighting=weighting)
    dyn = after(FedDyn(0.25), weighting=weighting)
    same(ours.server.w, dyn.server.w)
    same(ours.server.dual, dyn.server.h)
    differ(after(FedSMOO(0.3, 4.0, variant), weighting=weighting).server.w, dyn.server.w)


@dataclasses.dataclass(frozen=True)
class FedDynSAM(FedDyn):
    rho: float = 0.3

    @property
    def ascent(self):
        return SAM(self.rho)


@pytest.mark.parametrize("variant", VARIANTS)
def test_fedsmoo_is_feddyn_on_sams_gradient_at_its_first_step_only(variant):
    same(
        after(FedSMOO(0.3, 4.0, variant), 1, local_epochs=1).server.w,
        after(FedDynSAM(0.25), 1, local_epochs=1).server.w,
    )
    differ(after(FedSMOO(0.3, 4.0, variant), 1).server.w, after(FedDynSAM(0.25), 1).server.w)


def test_fedsmoo_perturbs_with_length_r():
    ours = after(FedSMOO(0.3, 4.0), 3)
    assert ours.server.s.norm().item() == pytest.approx(0.3, rel=1e-12)


def test_fedsmoo_has_no_common_perturbation_after_one_step():
    """One step: μ_i = ŝ, so the paper's s̃_i = 0 and s stays zero; officially s points along the mean of ŝ."""
    assert after(FedSMOO(0.3, 4.0), 1, local_epochs=1).server.s.norm() == 0
    assert after(FedSMOO(0.3, 4.0, "official"), 1, local_epochs=1).server.s.norm() > 0.29


def test_fedspeed_without_mixing_is_feddyn_where_all_clients_take_part():
    ours, dyn = after(FedSpeed(0.4, 0.0, 4.0), per_round=N), after(FedDyn(0.25), per_round=N)
    same(ours.server.w, dyn.server.w)
    for i in range(N):
        same(ours.store.fetch(i).dual, dyn.store.fetch(i).dual)


def test_fedspeed_without_mixing_differs_from_feddyn_by_the_server_mean_only():
    """From one model the clients do the same; FedSpeed takes λĝ_i of the sampled clients off, FedDyn that of all."""
    ours = federation(FedSpeed(0.4, 0.0, 4.0, server_correction="sampled"), weighting="uniform")
    dyn = federation(FedDyn(0.25), weighting="uniform")
    for _ in range(ROUNDS):
        dyn.server.w = start = ours.server.w
        sampled = ours.step().clients
        dyn.step()
        for i in sampled:
            same(ours.store.fetch(i).dual, dyn.store.fetch(i).dual)
        mine = 4.0 * sum(ours.store.fetch(i).dual for i in sampled) / len(sampled)
        same(ours.server.w + mine - start, dyn.server.w + 4.0 * all_clients(ours, "dual") - start, 1e-10)
    differ(after(ours.algorithm).server.w, after(FedDyn(0.25)).server.w)
    same(after(FedSpeed(0.4, 0.0, 4.0)).server.w, after(FedDyn(0.25)).server.w)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_official_fedspeed_is_feddyn_on_sams_gradient(weighting):
    same(
        after(FedSpeed(0.3, 1.0, 4.0, "official"), weighting=weighting).server.w,
        after(FedDynSAM(0.25), weighting=weighting).server.w,
    )
    same(
        after(FedSpeed(0.0, 1.0, 4.0, "official"), weighting=weighting).server.w,
        after(FedDyn(0.25), weighting=weighting).server.w,
    )
    differ(after(FedSpeed(0.3, 1.0, 4.0, "official")).server.w, after(FedDyn(0.25)).server.w)


def test_fedspeed_mixes_with_the_perturbed_gradient():
    plain = after(FedSpeed(0.4, 0.0, 4.0)).server.w
    same(after(FedSpeed(0.0, 0.6, 4.0)).server.w, plain)
    differ(after(FedSpeed(0.4, 0.6, 4.0)).server.w, plain)


def test_first_step_of_the_duals_is_fedprox_drawn_out():
    """No duals yet: the clients run FedProx, and the servers step 1 + p or 2 times as far."""
    start = federation(FedAvg()).server.w
    step = after(FedProx(0.5), 1).server.w - start
    same(after(FedDyn(0.5), 1).server.w - start, (1 + 3 / N) * step)
    same(after(FedDC(0.5), 1).server.w - start, (1 + 3 / N) * step)
    same(after(FedSpeed(0.4, 0.0, 2.0), 1).server.w - start, (1 + 3 / N) * step)
    same(after(FedDC(0.5, "sampled"), 1).server.w - start, 2 * step)
    same(after(FedSpeed(0.4, 0.0, 2.0, server_correction="sampled"), 1).server.w - start, 2 * step)


def test_feddc_without_control_variates_is_feddyn():
    class Uncontrolled(FedDC):
        def direction(self, w, gradient, client, server, round):
            client.c, server.c = torch.zeros_like(w), torch.zeros_like(w)
            return super().direction(w, gradient, client, server, round)

    dyn = after(FedDyn(0.25))
    same(after(Uncontrolled(0.25)).server.w, dyn.server.w)
    differ(after(FedDC(0.25)).server.w, dyn.server.w)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_feddc_without_penalty_runs_scaffolds_clients(correction):
    ours, scaffold = (federation(kind, weighting="uniform") for kind in (FedDC(0.0, correction), Scaffold()))
    for _ in range(ROUNDS):
        scaffold.server.w = ours.server.w
        sampled = ours.step().clients
        scaffold.step()
        same(ours.server.c, scaffold.server.c)
        for i in sampled:
            same(ours.store.fetch(i).c, scaffold.store.fetch(i).c)
        drift = sum(ours.store.fetch(i).drift for i in sampled) / len(sampled)
        drift = all_clients(ours, "drift") if correction == "all" else drift
        same(ours.server.w - drift, scaffold.server.w)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("kind", [FedDC, FedSpeed])
def test_server_corrections_are_one_where_all_clients_take_part(kind, weighting):
    every, sampled = kind(alpha=0.3), kind(alpha=0.3, server_correction="sampled")
    whole = {"weighting": weighting, "per_round": N}
    same(after(every, **whole).server.w, after(sampled, **whole).server.w)
    differ(after(every, weighting=weighting).server.w, after(sampled, weighting=weighting).server.w)


def test_adabest_without_both_parts_is_fedavg():
    plain = after(FedAvg()).server.w
    same(after(AdaBest(0.0, 0.0)).server.w, plain)
    differ(after(AdaBest(0.3, 0.0)).server.w, plain)
    differ(after(AdaBest(0.0, 0.5)).server.w, plain)


def test_first_step_of_adabest_is_fedavg_drawn_out():
    start = federation(FedAvg()).server.w
    same(after(AdaBest(0.3, 0.6), 1).server.w - start, 1.6 * (after(FedAvg(), 1).server.w - start))


def test_adabest_without_client_terms_is_nesterovs_momentum_on_the_server():
    ours, plain = federation(AdaBest(0.0, 0.6)), federation(FedAvg())
    w = torch.nn.Parameter(ours.server.w.clone())
    nesterov = torch.optim.SGD([w], lr=1.0, momentum=0.6, nesterov=True)
    for _ in range(ROUNDS):
        plain.server.w = w.detach().clone()
        plain.step()
        w.grad = w.detach() - plain.server.w
        nesterov.step()
        ours.step()
        same(ours.server.w, w.detach())


@pytest.mark.parametrize("batch_size", ["full", 4])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize(
    ("algorithm", "mine", "theirs"),
    [
        (FedDyn(0.3), "h", "dual"),
        (FedDC(0.3, "sampled"), "c", "c"),
        (FedDC(0.3), "c", "c"),
        (FedDC(0.3), "drift", "drift"),
        (FedSpeed(0.3, 0.6, 4.0), "dual", "dual"),
        (FedSpeed(0.3, 1.0, 4.0, "official"), "dual", "dual"),
        (FedSMOO(0.3, 4.0), "dual", "dual"),
    ],
    ids=str,
)
def test_server_keeps_the_mean_of_all_clients(algorithm, mine, theirs, weighting, batch_size):
    ours = after(algorithm, weighting=weighting, batch_size=batch_size)
    same(getattr(ours.server, mine), all_clients(ours, theirs))


def test_feddc_divides_by_each_clients_own_steps():
    ours = federation(FedDC(0.3), batch_size=4, save_clients=True)
    start = ours.server.w
    for i in ours.step().clients:
        steps = EPOCHS * math.ceil(SIZES[i] / 4)
        same(ours.store.fetch(i).c, -(ours.local_models[i] - start) / (steps * ours.settings.lr))


@pytest.mark.parametrize("kind", [FedSpeed, FedSMOO])
def test_variants_differ(kind):
    differ(after(kind(variant="official"), 3).server.w, after(kind(), 3).server.w)
