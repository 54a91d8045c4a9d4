"""Runs in worlds of several ranks: one world is started and trains many runs, one after the other."""

import gc
import json
import multiprocessing
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from tests.processes import group_of, run_ranks
from trainers import Settings, train
from trainers.ranks import Ranks

SETTINGS = {
    "rounds": 2,
    "clients": 7,
    "per_round": 4,
    "local_steps": 2,
    "batch_size": 8,
    "device": "cpu",
    "executor": "sequential",
}
TIMES = ("seconds", "seconds_local", "seconds_aggregation", "seconds_evaluation", "ranks", "bytes_between_ranks")


def batchnorm_net(*, input_shape, classes):
    """A small net with BatchNorm, for ``--model``."""
    inputs = torch.Size(input_shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, classes))


def broken_net(*, input_shape, classes):
    """A net that fails in training on the third rank."""
    return nn.Sequential(nn.Flatten(), Breaks(), nn.Linear(torch.Size(input_shape).numel(), classes))


class Breaks(nn.Module):
    def forward(self, x):
        if self.training and torch.is_grad_enabled() and dist.get_rank() == 2:
            raise ZeroDivisionError("broken on purpose")
        return x


def run(case, out, **more):
    """Train a case (algorithm, parts, settings) into a directory."""
    algorithm, parts, settings = case
    return train(algorithm, Settings(**{**SETTINGS, **settings}), parts, out=out, **more)


def train_all(cases, folder, world, **more):
    """Train the cases in a world of so many ranks; the folder of their runs."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    if world == 1:
        for name, case in cases.items():
            run(case, folder / name, **more)
    else:
        run_ranks(_train_all, world, cases, folder, more, seconds=600)
    return folder


def _train_all(rank, world, cases, folder, more):
    multiprocessing.current_process().daemon = False
    torch.set_num_threads(1)
    gc.disable()
    with group_of(rank, world, folder / "meeting"):
        for name, case in cases.items():
            ended = run(case, folder / name, **more)
            assert ended.status == "finished"
            assert ended.metrics == json_lines(folder / name / "metrics.jsonl")
        # Each would keep the connections and threads of its run until the next collection.
        assert not [found for found in gc.get_objects() if type(found) is Ranks]


def json_lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def contents(path):
    """All that a run's files hold, but for times and for how its clients were shared."""
    state = torch.load(path / "state.pt")
    kept = {}
    for place, which in (("clients", "clients"), ("latest", "latest")):
        for client, value in sorted(state.pop(which).items()):
            file = path / place / f"{client:06d}-{value}.pt" if isinstance(value, int) else None
            kept[which, client] = torch.load(file) if file else value
    checkpoint = torch.load(path / "ckpt.pt")
    metrics = [{k: v for k, v in each.items() if k not in TIMES} for each in json_lines(path / "metrics.jsonl")]
    checkpoint["metrics"] = {k: v for k, v in checkpoint["metrics"].items() if k not in TIMES}
    checkpoint["algorithm"].pop("training")
    return flat({"state": state, "kept": kept, "checkpoint": checkpoint, "metrics": metrics})


def flat(value, name=""):
    """Every leaf by its place; tensors by their bytes, so that nothing but the last bit is equal."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, f"{name}/{key}").items()}
    if isinstance(value, list):
        return {k: v for key, item in enumerate(value) for k, v in flat(item, f"{name}/{key}").items()}
    if isinstance(value, torch.Tensor):
        return {name: (str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes())}
    return {name: value}


def differing(one, other):
    return sorted(name for name in one.keys() | other.keys() if one.get(name, "nothing") != other.get(name, "nothing"))
