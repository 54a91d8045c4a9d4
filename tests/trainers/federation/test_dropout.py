"""Clients trained at once drop what they drop one after the other: equal in float64, to 1e-10 of their size."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from landscape import FedscapeError, Partition, Samples
from tests.trainers.federation.test_batched import at_once, both, images, require_equal
from tests.trainers.federations import dropout_net, federation
from trainers import (
    ASAM,
    GSAM,
    MAN,
    SAM,
    SOL,
    FedAvg,
    FedSAM,
    FedSMOO,
    Parts,
    Scaffold,
)
from trainers.algorithm import Algorithm
from trainers.algorithms import ALGORITHMS
from trainers.federation.stacking import DrawnRows
from trainers.parts import Affine


class Functional(nn.Module):
    """Dropout as functions and as a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        x = torch.tanh(self.norm(self.drop(self.first(x))))
        return self.second(F.dropout(self.drop(x), 0.3, self.training, inplace=True))


class SamplesLast(nn.Module):
    """Dropout on a tensor whose last axis are the samples: batches of different sizes are computed apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(6, 3)

    def forward(self, x):
        return self.layers(F.dropout(x.mT, 0.3, self.training).mT)


def dense(*, first=0.2, inner=0.5, last=0.1, inplace=False) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Dropout(first), nn.Linear(6, 8), nn.Dropout(inner, inplace), nn.Tanh(), nn.Linear(8, 3), nn.Dropout(last)
    ).double()


def functional() -> nn.Module:
    torch.manual_seed(2)
    return Functional().double()


def coloured() -> Samples:
    """Images of three channels: with one, both memory formats are the same."""
    grey = images()
    pixels = torch.randint(0, 256, (len(grey), 3, 4, 4), generator=torch.Generator().manual_seed(5), dtype=torch.uint8)
    return replace(grey, inputs=pixels)


def image_net(*norms: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), *norms, nn.ReLU(), nn.Dropout(0.3), nn.MaxPool2d(2), nn.Dropout2d(0.2),
        nn.Flatten(), nn.Linear(16, 5), nn.Dropout(0.5), nn.Tanh(), nn.Linear(5, 3),
    ).double()  # fmt: skip


CASES = {
    "fedavg": (FedAvg(), Parts()),
    "fedsam": (FedSAM(0.1), Parts()),
    "fedsmoo": (FedSMOO(), Parts()),
    "scaffold and asam": (Scaffold(), Parts(ascent=ASAM(0.5, 0.1))),
    "gsam": (FedAvg(), Parts(ascent=GSAM(0.1, 0.3))),
    "mixup": (FedAvg(), Parts(mixup=True)),
    "man": (FedAvg(), Parts(man=MAN(0.15))),
    "sol: both points draw the same": (FedAvg(), Parts(ascent=SOL(0.3, strength="adaptive"))),
    "man and mixup and sol": (FedAvg(), Parts(man=MAN(0.1), mixup=True, ascent=SOL(0.3))),
}


QUICK = {(name, dense) for name in CASES} - {("man", dense)} | {("fedsmoo", functional), ("man", functional)}
BOTH = [(name, make) for name in CASES for make in (dense, functional)]


@pytest.mark.parametrize(
    ("name", "make"), [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in BOTH]
)
def test_clients_drop_what_they_drop_alone(name, make):
    require_equal(*both(*CASES[name], module=make(), rounds=2))


@pytest.mark.slow
@pytest.mark.parametrize("make", [dense, functional])
@pytest.mark.parametrize("name", [name for name, _ in ALGORITHMS.items()])
def test_every_algorithm_with_dropout(name, make):
    require_equal(*both(dict(ALGORITHMS.items())[name](), module=make()))


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": "full"},
        pytest.param({"last_batch": "drop"}, marks=pytest.mark.slow),
        pytest.param({"local_steps": 3}, marks=pytest.mark.slow),
        {"sampling": "bernoulli", "width": 2},
    ],
)
def test_every_setting_with_dropout(changes):
    require_equal(*both(FedSMOO(), module=dense(), rounds=2, **changes))


@pytest.mark.parametrize(
    ("augment", "parts"),
    [
        ("none", Parts()),
        ("flip-crop", Parts(cutout=2, mixup=True)),
        ("none", Parts(adversary=Affine(0.3, 0.5))),
        pytest.param("none", Parts(adversary=Affine(0.3, 0.5, "channel")), marks=pytest.mark.slow),
        pytest.param("flip-crop-half", Parts(), marks=pytest.mark.slow),
        pytest.param("flip-crop-half", Parts(ascent=SAM(0.1), man=MAN(0.1)), marks=pytest.mark.slow),
    ],
)
def test_images_drop_in_the_memory_format_that_they_have_alone(augment, parts):
    """Numbers are drawn in the order of memory, and augmentation and adversaries change the format."""
    require_equal(*both(Scaffold(), parts, module=image_net(), data=coloured(), augment=augment, rounds=1))


@pytest.mark.parametrize("batchnorm", [pytest.param("average", marks=pytest.mark.slow), "silo"])
def test_batchnorm_with_dropout(batchnorm):
    split = Partition(tuple(np.split(np.arange(64), [10, 21, 24, 44, 50])))
    first, second, _ = both(
        FedSAM(0.1), module=image_net(nn.BatchNorm2d(4)), data=coloured(), split=split, clients=6, batch_size=4,
        batchnorm=batchnorm, rounds=1,
    )  # fmt: skip
    torch.testing.assert_close(second.statistics, first.statistics, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(second.server.w, first.server.w, rtol=1e-10, atol=1e-11)


def test_samples_may_lie_along_any_axis():
    torch.manual_seed(2)
    require_equal(*both(FedSAM(0.1), module=SamplesLast().double(), rounds=2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: dense(first=0.0, inner=1.0),
        lambda: dense(first=0.0, inner=0.0, last=1.0),
        lambda: dense(inplace=True),
        dropout_net,
    ],
)
def test_dropout_of_all_of_nothing_and_in_place(make):
    require_equal(*both(FedSAM(0.1), module=make(), rounds=1))


class AlsoPrepares(Algorithm):
    """Takes a gradient over all data first, whose draws are its own, and sends the last step's gradient."""

    paper = "none"

    def prepare(self, client, server, data, round):
        client.whole = data.gradient(server.w)

    def direction(self, w, gradient, client, server, round):
        client.last = gradient(w)
        return client.last + 0.1 * client.whole

    def upload(self, w, client, server, round, steps):
        return {"delta": w - server.w, "last": client.last}


def test_preparing_draws_by_itself():
    require_equal(*both(AlsoPrepares(), module=functional(), rounds=2))


def test_noise_differs_between_clients_steps_points_and_rounds(monkeypatch):
    taken, draw = [], DrawnRows.noise

    def noise(self):
        found = draw(self)
        taken.extend(
            torch.cat([each[row, :count].flatten() for each in found]) for row, count in enumerate(self.counts)
        )
        return found

    monkeypatch.setattr(DrawnRows, "noise", noise)
    together = at_once(federation(FedSAM(0.1), module=functional(), batch_size=4, per_round=5))
    records = [together.step(), together.step()]
    assert len(taken) == sum(record.gradients for record in records) > 100
    assert len({tuple(each.tolist()) for each in taken}) == len(taken)  # 24 numbers at least
    assert torch.cat(taken).mean().item() == pytest.approx((0.75 + 0.75 + 0.7) / 3, abs=0.02)


def test_the_comparison_would_notice_another_seed():
    one_by_one = federation(FedAvg(), module=dense(), batch_size=4, per_round=5)
    other = at_once(one_by_one)
    other.executor._local = replace(other.executor._local, seed=5)
    one_by_one.step(), other.step()
    assert (one_by_one.server.w - other.server.w).abs().max() > 1e-3


def test_a_model_that_draws_by_itself_is_refused_with_the_reason():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = nn.MultiheadAttention(2, 1, dropout=0.5, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            x = x.unflatten(1, (3, 2))
            return self.last(self.layer(x, x, x)[0].flatten(1))

    with pytest.raises(FedscapeError, match=r"at once: .*random numbers by itself.*--executor sequential"):
        at_once(federation(FedAvg(), module=Attention().double()))


class OtherAlone(nn.Linear):
    """Drops less where a batch is small: no plan of it is right for all."""

    def forward(self, x):
        return super().forward(x if len(x) == 1 else F.dropout(x, 0.5, self.training))


def test_models_whose_draws_depend_on_the_size_of_a_batch_are_computed_apart():
    torch.manual_seed(2)
    require_equal(*both(FedSAM(0.1), module=OtherAlone(6, 3).double(), rounds=2))


class Fours(nn.Linear):
    """Draws otherwise where a batch has four samples, which no trial has shown."""

    def forward(self, x):
        return super().forward(x + torch.rand_like(x) if len(x) == 4 else F.dropout(x, 0.5, self.training))


def test_draws_that_no_trial_has_shown_are_refused_when_they_come():
    together = at_once(federation(FedAvg(), module=Fours(6, 3).double(), batch_size=4, per_round=5))
    with pytest.raises(
        FedscapeError, match=r"at once: .*otherwise than dropout does \(rand_like\).*--executor sequential"
    ):
        together.step()
