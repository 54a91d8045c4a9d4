"""Algorithms with parts and settings on top: what goes together runs, repeats and resumes; what does not is refused."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from landscape import Checkpoint, FedscapeError, Landscape, Samples
from landscape.activations import MAN
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SIZES, federation, samples, stopped_half_way
from tests.trainers.usual import USUAL
from trainers import (
    ALGORITHMS,
    ASAM,
    GSAM,
    SAM,
    SWA,
    AdaBest,
    Adam,
    Affine,
    Centralised,
    FedAvg,
    FedAvgM,
    FedCM,
    FedDC,
    FedDyn,
    FedGAMMA,
    FedGloSS,
    FedLESAM,
    FedProx,
    FedRobust,
    FedSAM,
    FedSMOO,
    FedSpeed,
    Linear,
    MimeLite,
    MoFedSAM,
    Momentum,
    Parts,
    Relaxed,
    Scaffold,
    Settings,
    Yogi,
    train,
)

SWA_ = SWA(0.0, 2, 0.02)  # captures rounds 2 and 4
COMBINATIONS = {
    "scaffold + asam + man + swa": (Scaffold(), Parts(ascent=ASAM(0.5, 0.2), man=MAN(0.1), swa=SWA_), {}),
    "feddyn + sam + man": (
        FedDyn(0.1),
        Parts(ascent=SAM(0.05), man=MAN(0.1, half=True)),
        {"clip": 2.0, "weight_decay": 1e-3, "evaluated_model": "all-clients-mean"},
    ),
    "adabest + asam + swa": (AdaBest(), Parts(ascent=ASAM(0.5, 0.2), swa=SWA_), {"lr_decay": 0.998}),
    "fedavgm + asam + mixup": (FedAvgM(), Parts(ascent=ASAM(0.5, 0.2), mixup=True), {"weighting": "uniform"}),
    "fedprox + gsam + cutout": (FedProx(), Parts(ascent=GSAM(0.1, 0.2), cutout=3), {"augment": "flip-crop"}),
    "feddc + man": (FedDC(), Parts(man=MAN(0.1)), {"sampling": "bernoulli", "last_batch": "drop"}),
    "fedsmoo + man + mixup + swa": (FedSMOO(), Parts(man=MAN(0.1), mixup=True, swa=SWA_), {"clip": 1.0}),
    "fedspeed + cutout + swa": (FedSpeed(), Parts(cutout=3, swa=SWA_), {"evaluated_model": "sampled-mean"}),
    "mofedsam + man": (MoFedSAM(), Parts(man=MAN(0.1)), {"weighting": "samples", "weight_decay": 1e-3}),
    "fedsam + man + adam + swa": (FedSAM(), Parts(man=MAN(0.1), server_optimizer=Adam(lr=0.01), swa=SWA_), {}),
    "mimelite + sam + mixup": (MimeLite(), Parts(ascent=SAM(0.1), mixup=True), {"local_steps": 5}),
    "fedrobust + asam + momentum": (
        FedRobust(structure="channel"),
        Parts(ascent=ASAM(0.5, 0.2), server_optimizer=Momentum()),
        {},
    ),
    "fedgamma + mixup + cutout + yogi": (
        FedGAMMA(),
        Parts(mixup=True, cutout=3, server_optimizer=Yogi(lr=0.01)),
        {"augment": "flip-crop", "sampling": "bernoulli"},
    ),
    "fedlesam-s + man": (FedLESAM(base="scaffold"), Parts(man=MAN(0.1)), {"clip": 1.0, "clip_at": "gradient"}),
    "fedgloss + mixup + swa": (FedGloSS(), Parts(mixup=True, swa=SWA_), {}),
    "fedcm + asam": (FedCM(), Parts(ascent=ASAM(0.5, 0.2)), {"clip": 1.0, "clip_at": "gradient"}),
    "centralised + asam + cutout + swa": (Centralised(), Parts(ascent=ASAM(0.5, 0.2), cutout=3, swa=SWA_), {}),
}
CASES = pytest.mark.parametrize("case", COMBINATIONS)


def images():
    inputs = torch.randint(0, 256, (sum(SIZES), 2, 6, 6), generator=torch_generator(7, "images"), dtype=torch.uint8)
    return Samples(inputs, samples().targets, torch.full((2, 1, 1), 127.0), torch.full((2, 1, 1), 70.0))


def image_net(normalised=False):
    torch.manual_seed(3)
    norm = nn.BatchNorm2d(4) if normalised else nn.GroupNorm(2, 4)
    return nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double()


def small(algorithm, parts=None, *, normalised=False, **changes):
    usual = {"rounds": 4, "batch_size": 5, "local_epochs": 1, "lr": 0.1}
    return federation(algorithm, parts, module=image_net(normalised), data=images(), **{**usual, **changes})


def built(case, **changes):
    algorithm, parts, own = COMBINATIONS[case]
    return small(algorithm, parts, **{**own, **changes})


def everything(ours):
    """All tensors of a federation's state, by name."""

    def flat(name, value):
        if isinstance(value, torch.Tensor):
            return {name: value}
        if isinstance(value, dict):
            return {k: v for key, inner in value.items() for k, v in flat(f"{name}.{key}", inner).items()}
        return {name: torch.tensor(value)}

    return flat("", ours.export())


def same(a, b):
    a, b = everything(a), everything(b)
    assert a.keys() == b.keys()
    return all(torch.equal(a[name], b[name]) for name in a)


class OneByOne:
    """The same work, each client alone and in the opposite order."""

    def __init__(self, executor):
        self.executor = executor

    def work(self, clients, *rest):
        done = {client: next(iter(self.executor.work([client], *rest))) for client in reversed(clients)}
        yield from (done[client] for client in clients)


@CASES
def test_a_combination_trains_and_repeats_whoever_works_beside_whom(case):
    first, again, apart, other = built(case), built(case), built(case), built(case, seed=5)
    apart.executor = OneByOne(apart.executor)
    start = first.server.w.clone()
    for _ in range(2):
        record = first.step()
        assert math.isfinite(record.train_loss)
        for ours in (again, apart, other):
            ours.step()
    assert first.finite()
    assert (first.server.w - start).norm() > 1e-3
    assert same(first, again)
    assert same(first, apart)
    assert not torch.equal(first.server.w, other.server.w)


WITH_BATCHNORM = [
    "scaffold + asam + man + swa",
    "fedgamma + mixup + cutout + yogi",
    "centralised + asam + cutout + swa",
]
"""Resumed with silo BatchNorm in the fast tests too: a client's state, a server optimizer's, and neither."""
MODES = [
    pytest.param(case, mode, marks=pytest.mark.slow if mode == "silo" and case not in WITH_BATCHNORM else ())
    for mode in ("groupnorm", "silo")
    for case in COMBINATIONS
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "mode"), MODES)
def test_a_combination_resumes_with_and_without_batchnorm(case, mode):
    changes = {} if mode == "groupnorm" else {"normalised": True, "batchnorm": mode}
    whole, second = stopped_half_way(lambda: built(case, **changes), rounds=4)
    assert same(whole, second)
    assert whole.averaged.count == (2 if COMBINATIONS[case][1].swa else 0)


@pytest.mark.slow
@CASES
def test_a_combination_on_digits_leaves_a_checkpoint_that_says_what_it_is(case, tmp_path):
    algorithm, parts, own = COMBINATIONS[case]
    usual = {"clients": 10, "per_round": 3, "rounds": 4, "local_steps": 2, "eval_every": 0, "device": "cpu"}
    settings = Settings(**{**usual, "model": "digits_cnn", "lr": 0.02, "save_every": 0, **own})
    run = train(algorithm, settings, parts, out=tmp_path)
    assert (run.status, len(run.metrics)) == ("finished", 4)
    assert all(math.isfinite(record["train_loss"]) for record in run.metrics)
    checkpoint = Checkpoint.verify(run.checkpoint)
    assert checkpoint.algorithm["parts"].keys() == parts.chosen().keys()
    assert Landscape.from_checkpoint(run.checkpoint, "test", device="cpu").value() == run.metrics[-1]["test_loss"]
    assert (run.path / "swa.pt").exists() == (parts.swa is not None)


# Each algorithm with each part

PARTS = {
    "ascent": SAM(0.3),
    "man": MAN(0.3),
    "swa": SWA(0.0, 2, 0.02),
    "mixup": True,
    "cutout": 4,
    "server_optimizer": Momentum(0.5),
    "adversary": Affine(0.1, 0.5, "channel"),
    "local_schedule": Linear(0.3),
    "start": Relaxed(0.5),
}
REFUSED = {
    "ascent": {
        "fedsam": "FedSAM has its own ascent (SAM): two make no sense, leave out --ascent",
        "fedasam": "FedASAM has its own ascent (ASAM): two make no sense, leave out --ascent",
        "fedgsam": "FedGSAM has its own ascent (GSAM): two make no sense, leave out --ascent",
        "mofedsam": "MoFedSAM has its own ascent (SAM): two make no sense, leave out --ascent",
        "fedgamma": "FedGAMMA has its own ascent (SAM): two make no sense, leave out --ascent",
        "fedsmoo": "FedSMOO cannot be combined with --ascent: FedSMOO perturbs its own way",
        "fedspeed": "FedSpeed cannot be combined with --ascent: FedSpeed perturbs its gradient itself",
        "fedlesam": "FedLESAM has its own ascent (LESAM): two make no sense, leave out --ascent",
        "fedgloss": "FedGloSS cannot be combined with --ascent: FedGloSS has its own",
        "fednsam": "FedNSAM has its own ascent (SAM): two make no sense, leave out --ascent",
        "fedgf": "FedGF cannot be combined with --ascent: FedGF perturbs its own way",
        "fedwmsam": "FedWMSAM cannot be combined with --ascent: FedWMSAM perturbs its own way",
        "fedsol": "FedSOL has its own ascent (SOL): two make no sense, leave out --ascent",
        "mime": "Mime cannot be combined with --ascent: what it changes in g(w) and g(w^t) cancels to first order",
    },
    "man": {"mime": "Mime cannot be combined with --man: what it changes in g(w) and g(w^t) cancels to first order"},
    "mixup": {"mime": "Mime cannot be combined with --mixup: what it changes in g(w) and g(w^t) cancels to"},
    "server_optimizer": {
        "fedavgm": "FedAvgM has its own server optimizer (Momentum): two make no sense, leave out --server-optimizer",
        "fedadam": "FedAdam has its own server optimizer (Adam): two make no sense, leave out --server-optimizer",
        "fedadagrad": "FedAdagrad has its own server optimizer (Adagrad): two make no sense",
        "fedyogi": "FedYogi has its own server optimizer (Yogi): two make no sense, leave out --server-optimizer",
        "feddyn": "FedDyn cannot be combined with --server-optimizer: its server step solves for the model",
        "feddc": "FedDC cannot be combined with --server-optimizer: its server averages drift-corrected models",
        "fedspeed": "FedSpeed cannot be combined with --server-optimizer: its server averages prox-corrected models",
        "fedcm": "FedCM cannot be combined with --server-optimizer: its clients' momentum is made of the plain mean",
        "mofedsam": "MoFedSAM cannot be combined with --server-optimizer: its clients' momentum is made of the plain",
        "fedsmoo": "FedSMOO cannot be combined with --server-optimizer: its server step solves for the model",
        "adabest": "AdaBest cannot be combined with --server-optimizer: its server step is itself a momentum",
        "fedgloss": "FedGloSS cannot be combined with --server-optimizer: its server step is ADMM's",
        "centralised": "Centralised cannot be combined with --server-optimizer: with one client there is no mean",
        "fedacg": "FedACG has its own server optimizer (Nesterov): two make no sense, leave out --server-optimizer",
        "fednsam": "FedNSAM has its own server optimizer (Nesterov): two make no sense",
        "fednova": "FedNova has its own server optimizer (Normalised): two make no sense",
        "fedexp": "FedExP has its own server optimizer (Extrapolation): two make no sense",
        "fedvarp": "FedVARP cannot be combined with --server-optimizer: its clients send changes of changes",
        "fedwmsam": "FedWMSAM cannot be combined with --server-optimizer: its clients' momentum is made of the plain",
    },
    "local_schedule": {
        "fedswa": "FedSWA has its own local schedule (Linear): two make no sense, leave out --local-schedule",
        "fedcm": "FedCM cannot be combined with --local-schedule: Δ takes −‹d›/(Kη) for the mean",
        "mofedsam": "MoFedSAM cannot be combined with --local-schedule: Δ takes −‹d›/(Kη) for the mean",
        "fedwmsam": "FedWMSAM cannot be combined with --local-schedule: Δ takes −‹d›/(Kη) for the mean",
    },
    "start": {"fedinit": "FedInit has its own start (Relaxed): two make no sense, leave out --start"},
    "adversary": {
        "fedrobust": "FedRobust has its own adversary (Affine): two make no sense, leave out --adversary",
        "mime": "Mime cannot be combined with --adversary: what it changes in g(w) and g(w^t) cancels to first order",
    },
}
PAIRS = [(name, part) for name in ALGORITHMS for part in PARTS]


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in REFUSED.items() for name in names])
def test_what_makes_no_sense_is_refused_with_its_reason_before_anything_is_written(part, name, tmp_path):
    with pytest.raises(FedscapeError) as refusal:
        train(ALGORITHMS.get(name)(), Settings(rounds=4), Parts(**{part: PARTS[part]}), out=tmp_path / "run")
    assert str(refusal.value).startswith(REFUSED[part][name])
    assert not (tmp_path / "run").exists()


@cache
def without_parts(name):
    ours = small(ALGORITHMS.get(name)(), rounds=2)
    for _ in range(2):
        ours.step()
    return ours.server.w


@pytest.mark.parametrize(
    ("name", "part"),
    [
        pytest.param(*pair, marks=() if pair[0] in USUAL else pytest.mark.slow)
        for pair in PAIRS
        if pair[0] not in REFUSED.get(pair[1], {})
    ],
)
def test_everything_else_goes_together_and_makes_a_difference(name, part):
    algorithm, parts = ALGORITHMS.get(name)(), Parts(**{part: PARTS[part]})
    parts.check(algorithm)
    if (name, part) == ("fedgf", "start"):  # here c = 1 by default, where all gradients are at w̃ whatever the start
        algorithm = replace(algorithm, t_d=1e6)
    ours = small(algorithm, parts, rounds=2)
    for _ in range(2):
        assert math.isfinite(ours.step().train_loss)
    assert ours.finite()
    # Mime's clients end near where they begin, so that they begin near there, too.
    least = 1e-7 if (name, part) == ("mime", "start") else 1e-5
    assert (ours.server.w - without_parts(name)).norm() > least * ours.server.w.norm()
    assert ours.averaged.count == (part == "swa")


def test_the_parts_of_a_run_are_recorded_by_name_with_their_numbers():
    parts = Parts(ASAM(0.5, 0.2), MAN(0.1, ("0",), half=True), SWA(0.5, 4, 0.02), True, 16, Momentum(0.9))
    assert parts.recorded() == {
        "ascent": {"name": "asam", "rho": 0.5, "eta": 0.2},
        "man": {"name": "man", "zeta": 0.1, "layers": ("0",), "half": True, "variance": ()},
        "swa": {"name": "swa", "start": 0.5, "cycle": 4, "lr": 0.02, "variant": "paper"},
        "mixup": True,
        "cutout": 16,
        "server_optimizer": {"name": "momentum", "beta": 0.9, "lr": 1.0},
    }
    assert Parts().recorded() == Parts().chosen() == {}
    Parts().check(FedAvg())
