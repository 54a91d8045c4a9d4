"""What a run held is freed when it is over, at once: a cycle would keep data and models until the next collection."""

import gc
import weakref
from typing import ClassVar

import numpy as np
import pytest
from torch import nn

from landscape import make_dataset
from trainers import FedAvg, Scaffold, Settings, train

HERE = __name__
USUAL = {
    "data": f"{HERE}:data", "model": f"{HERE}:Net", "clients": 3, "per_round": 2, "local_steps": 1,
    "partition": "iid", "device": "cpu",
}  # fmt: skip


class Watched:
    """What runs made, without keeping it."""

    made: ClassVar[list[weakref.ref]] = []


class Net(nn.Sequential):
    """Convolution and BatchNorm, every copy of which is watched."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))

    def __new__(cls):
        found = super().__new__(cls)
        Watched.made.append(weakref.ref(found))
        return found


class Dense(Net):
    """A chain of dense layers."""

    def __init__(self) -> None:
        nn.Sequential.__init__(self, nn.Flatten(), nn.Linear(16, 3), nn.ReLU(), nn.Linear(3, 2))


def data(_):
    draw = np.random.default_rng(0)
    parts = [(draw.normal(size=(n, 1, 4, 4)).astype(np.float32), np.arange(n) % 2) for n in (24, 6)]
    found = make_dataset("watched", *parts)
    Watched.made += [weakref.ref(found), *(weakref.ref(each.inputs) for each in (found.train, found.test))]
    return found


class Failing(FedAvg):
    def upload(self, *_):
        raise RuntimeError("on the way")


def failing(out):
    with pytest.raises(RuntimeError, match="on the way"):
        train(Failing(), Settings(**USUAL, rounds=1), out=out)


def resumed(out):
    options = {**USUAL, "executor": "sequential", "evaluated_model": "all-clients-mean"}
    train(Scaffold(), Settings(**options, rounds=1), out=out)
    train(Scaffold(), Settings(**options, rounds=2), out=out, resume=True)


RUNS = {
    "one after the other, resumed": resumed,
    "at once": lambda out: train(FedAvg(), Settings(**USUAL, rounds=1, executor="batched"), out=out),
    "at once, dense": lambda out: train(
        FedAvg(), Settings(**{**USUAL, "model": f"{HERE}:Dense"}, rounds=1, executor="batched"), out=out
    ),
    "failed": failing,
}


@pytest.mark.parametrize("name", RUNS)
def test_nothing_of_a_run_stays(name, tmp_path):
    Watched.made.clear()
    gc.collect()
    gc.disable()
    try:
        RUNS[name](tmp_path)
        assert len(Watched.made) > 3
        assert not [each() for each in Watched.made if each() is not None]
    finally:
        gc.enable()
