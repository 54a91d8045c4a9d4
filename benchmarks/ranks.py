"""Rounds on 1, 2 and 4 ranks of one thread on this machine, and a model of what a round costs.

    python benchmarks/ranks.py --json ranks.json         # speed-up, overhead and traffic: 2 to 4 minutes on idle cores
    python benchmarks/ranks.py --points points.json      # measure what the model is fitted to
    python benchmarks/ranks.py --fit points.json         # fit it, and predict 1,000 clients of FedSMOO on ResNet-18

Seconds are those of local work and aggregation in metrics.jsonl, without start, evaluation and saving; the first round
is left out.  Numbers of ranks follow one another in turn, so that other work on the machine meets all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import tyro
from scipy.optimize import nnls

from landscape import build_model
from landscape.storage.files import write_json
from landscape.storage.reading import read_json
from landscape.storage.schema import Anything
from trainers.ranks import dealt_by_size
from trainers.runs.stored import read_metrics

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    ranks: tuple[int, ...] = (1, 2, 4)
    """numbers of ranks"""
    repeats: int = 2
    """runs of each number of ranks, in turn"""
    json: Path | None = None
    """write the figures there"""
    points: Path | None = None
    """measure the points of the model instead, into this file"""
    fit: Path | None = None
    """fit the model to the points in this file instead"""
    bandwidth: float = 1.25e9
    """bytes a second into the first rank, for the plan; 10 Gb/s"""
    step_seconds: float | None = None
    """seconds of one of the plan's local steps; that of the points unless given"""


@dataclass(frozen=True)
class Work:
    """A run whose rounds are timed."""

    model: str
    clients: int
    steps: int
    batch: int
    rounds: int
    algorithm: str = "fedavg"

    @property
    def parameters(self) -> int:
        """d, of the network on 3x32x32 images of ten classes."""
        return sum(p.numel() for p in build_model(self.model, seed=0, input_shape=[3, 32, 32], classes=10).parameters())


FULL = Work("lenet_fed", 8, 12, 50, 4)
"""All arithmetic: 8 equal clients, so that 2 and 4 ranks can have equal shares."""
TINY = Work("digits_mlp", 8, 1, 1, 100)
"""No arithmetic to speak of: what is left is what ranks cost."""
POINTS = (
    *(Work("digits_mlp", clients, steps, 2, 40) for clients, steps in ((4, 1), (8, 1), (16, 2))),
    *(Work("lenet_fed", clients, steps, 2, 12) for clients, steps in ((4, 1), (8, 2))),
    *(Work("resnet18_gn", clients, steps, 2, 4) for clients, steps in ((4, 1), (8, 1))),
    Work("lenet_fed", 8, 1, 2, 12, "fedsmoo"),
    Work("resnet18_gn", 4, 1, 2, 4, "fedsmoo"),
)
"""Little arithmetic for the parameters, so that what is exchanged can be seen beside it."""


def measured(work: Work, ranks: int, folder: Path) -> dict[str, float]:
    """Seconds of a round, in the median and at least, and the bytes that ranks exchange in one."""
    out = folder / "run"
    words = {
        "data": folder / "data.npz", "model": work.model, "clients": work.clients, "per-round": work.clients,
        "local-steps": work.steps, "batch-size": work.batch, "rounds": work.rounds, "eval-every": 0, "save-every": 0,
        "partition": "iid", "executor": "sequential", "lr": 0.01, "device": "cpu", "ranks": ranks, "out": out,
    }  # fmt: skip
    line = [sys.executable, "-m", "trainers", work.algorithm, "--quiet"]
    line += [str(word) for name, value in words.items() for word in (f"--{name}", value)]
    path = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    subprocess.run(line, env=environment, check=True, stdout=subprocess.DEVNULL)
    records = read_metrics(out)[1:]
    for file in sorted(out.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    seconds = [record["seconds_local"] + record["seconds_aggregation"] for record in records]
    exchanged = median(record.get("bytes_between_ranks", 0) for record in records)
    return {"seconds": median(seconds), "least": min(seconds), "bytes": exchanged}


def images(folder: Path) -> None:
    """Random images, 600 to train on and 100 to test, into ``folder/data.npz``."""
    random = np.random.default_rng(0)
    inputs = random.integers(0, 256, (700, 3, 32, 32), np.uint8)
    labels = np.arange(700) % 10
    np.savez(folder / "data.npz", x_train=inputs[:600], y_train=labels[:600], x_test=inputs[600:], y_test=labels[600:])


def speed(settings: Settings, folder: Path) -> dict[str, object]:
    """Seconds, speed-up and traffic of the full work, and what the tiny one costs more than in one process."""
    found: dict[str, dict[int, list[dict[str, float]]]] = {"full": {}, "tiny": {}}
    for _ in range(settings.repeats):
        for name, work in (("full", FULL), ("tiny", TINY)):
            for ranks in settings.ranks:
                found[name].setdefault(ranks, []).append(measured(work, ranks, folder))
    best = {
        name: {ranks: min(each["seconds"] for each in runs) for ranks, runs in rows.items()}
        for name, rows in found.items()
    }
    alone = settings.ranks[0]
    return {
        "seconds_per_round": best["full"],
        "speed_up": {ranks: best["full"][alone] / seconds for ranks, seconds in best["full"].items()},
        "bytes_per_round": {ranks: runs[0]["bytes"] for ranks, runs in found["full"].items()},
        "parameters": FULL.parameters,
        "tiny_milliseconds_per_round": {ranks: 1e3 * seconds for ranks, seconds in best["tiny"].items()},
        "tiny_overhead_milliseconds": {
            ranks: 1e3 * (seconds - best["tiny"][alone]) for ranks, seconds in best["tiny"].items()
        },
    }


def points(settings: Settings, folder: Path) -> list[dict[str, object]]:
    """What the model is fitted to."""
    found: list[dict[str, object]] = []
    for work in POINTS:
        for ranks in settings.ranks:
            best = min((measured(work, ranks, folder) for _ in range(settings.repeats)), key=lambda one: one["least"])
            found.append({**vars(work), "parameters": work.parameters, "ranks": ranks, **best})
            print(json.dumps(found[-1]), flush=True)
    return found


def longest(point: dict[str, object]) -> int:
    """Local steps of the rank with the most clients."""
    clients = int(str(point["clients"]))
    shares = dealt_by_size(range(clients), [1] * clients, int(str(point["ranks"])))
    return max(map(len, shares)) * int(str(point["steps"]))


def fitted(found: list[dict[str, object]]) -> dict[str, object]:
    """The coefficients of the model, by least squares of relative errors of the fastest rounds, with no
    coefficient below zero.

        seconds = s_model · steps of the longest rank + a · clients · parameters + bytes / B + m · messages

    s is a local step's time, of each network and algorithm; a the server's for a parameter of a client; B the bytes a
    second between ranks, and m a message's time: one to each other rank, one from each, and one for each client that
    another rank computes.
    """
    kinds = sorted({(str(p["model"]), str(p["algorithm"])) for p in found})
    rows, seconds = [], []
    for p in found:
        clients, ranks = int(str(p["clients"])), int(str(p["ranks"]))
        steps = [longest(p) if (p["model"], p["algorithm"]) == kind else 0 for kind in kinds]
        messages = 0 if ranks == 1 else 2 * (ranks - 1) + clients - clients // ranks
        rows.append([*steps, clients * float(str(p["parameters"])), float(str(p["bytes"])), messages])
        seconds.append(float(str(p["least"])))
    relative = np.array(rows) / np.array(seconds)[:, None]
    scale = relative.max(axis=0)
    found_scaled, _ = nnls(relative / scale, np.ones(len(seconds)))
    values = found_scaled / scale
    errors = np.abs(relative @ values - 1)
    a, per_byte, m = values[-3:]
    return {
        "step_seconds": {" ".join(kind): float(value) for kind, value in zip(kinds, values, strict=False)},
        "aggregation_seconds_per_parameter": float(a),
        "bytes_per_second": float(1 / per_byte) if per_byte else None,
        "seconds_per_message": float(m),
        "median_relative_error": float(np.median(errors)),
        "largest_relative_error": float(errors.max()),
    }


def plan(model: dict[str, object], found: list[dict[str, object]], settings: Settings) -> list[dict[str, float]]:
    """Seconds of a round of FedSMOO on ResNet-18: 100 of 1,000 clients, 5 local steps each, by number of ranks."""
    sampled, steps = 100, 5
    one = next(p for p in found if (p["model"], p["algorithm"], p["ranks"]) == ("resnet18_gn", "fedsmoo", 2))
    d, clients = float(str(one["parameters"])), int(str(one["clients"]))
    vectors = (float(str(one["bytes"])) / 4 / d - sent_down(one)) / (clients - clients // 2)
    step_times = model["step_seconds"]
    assert isinstance(step_times, dict)
    step = settings.step_seconds or float(step_times["resnet18_gn fedsmoo"])
    table = []
    for ranks in (1, 2, 4, 8, 16, 32):
        share = -(-sampled // ranks)
        sent = 0 if ranks == 1 else 4 * d * ((ranks - 1) * sent_down(one) + vectors * (sampled - sampled // ranks))
        local = step * steps * share
        server = float(str(model["aggregation_seconds_per_parameter"])) * sampled * d
        table.append(
            {
                "ranks": ranks, "local_s": local, "server_s": server, "exchanged_GB": sent / 1e9,
                "exchange_s": sent / settings.bandwidth, "round_s": local + server + sent / settings.bandwidth,
                "states_GB_a_rank": 2 * 4 * d * 1000 / ranks / 1e9,
            }
        )  # fmt: skip
    return table


def sent_down(point: dict[str, object]) -> float:
    """Vectors that a rank receives in a round: w, and for FedSMOO s beside it."""
    return 1.0 if point["algorithm"] == "fedavg" else 2.0


def main(settings: Settings) -> None:
    """Measure, or fit."""
    figures: object
    if settings.fit is not None:
        found = read_json(settings.fit, Anything())
        model = fitted(found)
        figures = {"model": model, "plan": plan(model, found, settings)}
    else:
        with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
            images(Path(folder))
            figures = (points if settings.points else speed)(settings, Path(folder))
        if settings.points is not None:
            write_json(settings.points, figures)
    print(json.dumps(figures, indent=2))
    if settings.json is not None:
        write_json(settings.json, figures)


if __name__ == "__main__":
    main(tyro.cli(Settings))
