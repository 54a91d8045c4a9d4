"""What a precision changes: the same runs in float64, float32 and bfloat16, as one table.

    python benchmarks/precision.py                         # the digits; some five minutes on one core
    python benchmarks/precision.py --cifar FOLDER          # and lenet_fed on CIFAR-10, whose files lie in FOLDER
    python benchmarks/precision.py --device cuda           # on a GPU, with TF32 beside the others

Each run differs from the float64 one beside it in nothing but its precision: data, initial model, partition, sampled
clients, batches and executor are the same.  The table has what that does to the accuracy of the last model (in points,
and beside the deviation over the seeds), how far the two last models lie apart (as a share of the way from the initial
model to the float64 one), and the largest eigenvalue of the Hessian there, measured in float32 with a last product in
float64 whatever the training was.  ``--page`` puts it between the marks of docs/speed.md.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

import numpy as np
import torch
import tyro
from all_algorithms import markdown, write

from analysis import measure_hessian
from landscape import Checkpoint, load_dataset
from landscape.compute.precision import PrecisionName
from landscape.storage.files import write_text
from landscape.terminal.table import Table
from trainers import FedAvg, FedSAM, FedSMOO, Settings, train
from trainers.algorithm import Algorithm
from trainers.algorithms import algorithm_name

REFERENCE: PrecisionName = "float64"


@dataclass(frozen=True)
class Options:
    """What is run, and where it goes."""

    rounds: int = 50
    """communication rounds"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """a run of each precision for each"""
    digits: bool = True
    """digits_mlp and digits_cnn on the embedded digits, FedAvg and FedSMOO"""
    cifar: Path | None = None
    """the folder of cifar-10-batches-py: lenet_fed on its first 5,000 training images, FedAvg (eight minutes a seed)"""
    sam: bool = False
    """FedSAM there too"""
    device: str = "cpu"
    """where the runs are; tf32 is there on CUDA only"""
    json: Path | None = None
    """keep every run's figures there; those that are there already are not run again"""
    page: Path | None = None
    """Markdown page between whose marks the table goes (docs/speed.md)"""


@dataclass(frozen=True)
class Case:
    """What is trained, whatever the precision."""

    name: str
    algorithm: Algorithm
    settings: dict[str, Any]
    hessian: dict[str, Any]
    """options of the measurement of the last model"""


def cases(options: Options, folder: Path) -> Iterator[Case]:
    """What is asked for; data that must be made go to ``folder``."""
    if options.digits:
        for model in ("digits_mlp", "digits_cnn"):
            for algorithm in (FedAvg(), FedSMOO()):
                yield Case(f"`{model}`", algorithm, {"model": model}, {})
    if options.cifar is not None:
        shared = {
            "data": small_cifar(options.cifar, folder / "cifar10-5000.npz"), "normalise": "cifar10",
            "model": "lenet_fed", "partition": "dirichlet:0.6", "clients": 100, "per_round": 10, "batch_size": 50,
            "weight_decay": 1e-3, "clip": 10.0, "lr_decay": 0.998, "augment": "flip-crop",
        }  # fmt: skip
        for algorithm in (FedAvg(), FedSAM()) if options.sam else (FedAvg(),):
            yield Case("`lenet_fed`", algorithm, shared, {"samples": 200})


def small_cifar(source: Path, path: Path) -> str:
    """The first 5,000 training images and all test images of CIFAR-10, as an archive; its path."""
    whole = load_dataset("cifar10", source)
    parts = {"train": (whole.train, 5000), "test": (whole.test, len(whole.test))}
    arrays: dict[str, np.ndarray] = {}
    for name, (samples, count) in parts.items():
        arrays[f"x_{name}"] = samples.inputs[:count].numpy()
        arrays[f"y_{name}"] = samples.targets[:count].numpy()
    np.savez(path, **arrays)
    return str(path)


def precisions(device: str) -> list[PrecisionName]:
    """All of them, the reference first; on a CPU without TF32, which it has not."""
    others = [name for name in get_args(PrecisionName) if name != REFERENCE]
    return [REFERENCE, *(name for name in others if name != "tf32" or device.startswith("cuda"))]


def one_seed(case: Case, seed: int, options: Options, folder: Path) -> list[dict[str, Any]]:
    """The figures of a run in each precision."""
    found: list[dict[str, Any]] = []
    ends: dict[str, torch.Tensor] = {}
    for precision in precisions(options.device):
        settings = Settings(
            **case.settings, rounds=options.rounds, eval_every=0, save_every=0, seed=seed, device=options.device,
            dtype=precision, executor="sequential",
        )  # fmt: skip
        run = train(case.algorithm, settings, out=folder / f"{seed}-{precision}")
        start, end = (flat(file) for file in (run.path / "rounds" / "00000.pt", run.checkpoint))
        ends[precision] = end
        way = (ends[REFERENCE] - start).norm()
        hessian = measure_hessian(run.checkpoint, top=1, trace=False, device=options.device, **case.hessian)
        found.append(
            {
                "net": case.name, "algorithm": algorithm_name(case.algorithm), "seed": seed, "precision": precision,
                "rounds": options.rounds, "accuracy": run.metrics[-1]["test_accuracy"],
                "largest": float(hessian.eigen.values[0]),
                "distance": float((end - ends[REFERENCE]).norm() / way),
            }
        )  # fmt: skip
    return found


def flat(path: Path) -> torch.Tensor:
    """A checkpoint's parameters, in float64, [d]."""
    return torch.cat([p.double().reshape(-1) for p in Checkpoint.load(path).parameters.values()])


def table(figures: Sequence[dict[str, Any]]) -> Table:
    """A row for each net, algorithm and precision, over the seeds."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in figures:
        groups.setdefault((row["net"], row["algorithm"], row["precision"]), []).append(row)
    rows = []
    for (net, algorithm, precision), group in groups.items():
        reference = groups[net, algorithm, REFERENCE]
        beside = [100 * (a["accuracy"] - b["accuracy"]) for a, b in zip(group, reference, strict=True)]
        ratio = [a["largest"] / b["largest"] for a, b in zip(group, reference, strict=True)]
        same = precision == REFERENCE
        rows.append(
            (
                net, algorithm, precision, _spread([100 * row["accuracy"] for row in group], 2),
                "" if same else _spread(beside, 2), "" if same else f"{fmean(row['distance'] for row in group):.2g}",
                _spread([row["largest"] for row in group], 1), "" if same else _spread(ratio, 3),
            )
        )  # fmt: skip
    columns = (
        "net", "algorithm", "precision", "test accuracy %", "beside float64, points", "distance, of the way",
        "λ_max", "beside float64, times",
    )  # fmt: skip
    return Table(columns, tuple(rows))


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean ± deviation over the seeds (of a single one, the value)."""
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.{digits}f}"


def main(options: Options) -> None:
    """Run, print, write."""
    torch.set_num_threads(1)
    figures = json.loads(options.json.read_text()) if options.json is not None and options.json.exists() else []
    with tempfile.TemporaryDirectory() as made:
        for number, case in enumerate(cases(options, Path(made))):
            wanted = {"net": case.name, "algorithm": algorithm_name(case.algorithm), "rounds": options.rounds}
            for seed in options.seeds:
                if any((wanted | {"seed": seed}).items() <= row.items() for row in figures):
                    continue
                figures += one_seed(case, seed, options, Path(made) / str(number))
                if options.json is not None:
                    write_text(options.json, json.dumps(figures, indent=1))
    print(table(figures).on_screen())
    if options.page is not None:
        write(options.page, markdown(table(figures)))


if __name__ == "__main__":
    main(tyro.cli(Options))
