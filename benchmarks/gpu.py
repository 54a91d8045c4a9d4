"""A GPU against the CPU: the same numbers from every algorithm, from Hessians and surfaces, then how much faster.

    python benchmarks/gpu.py --json record.json          # under 8 minutes; exit code 1 where numbers differ
    python benchmarks/gpu.py --device cpu --quick        # the same checks of the CPU with itself, to try the script

It makes its own data (noise around one random pattern a class) and needs no network.  Every check runs in float64,
where only the order of sums differs, and Hessians in float32 and TF32 too, against what their rounding allows.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from all_algorithms import LINES
from hessian_arithmetic import seconds

from analysis import measure_hessian, measure_surface
from landscape import FedscapeError, Landscape, build_model
from landscape.compute.randomness import torch_generator
from landscape.terminal.table import Table
from trainers import Settings as Training
from trainers import train
from trainers.__main__ import read

FLOAT64, SPECTRAL, LOSS = 1e-9, 1e-6, 1e-6
HESSIAN = {"float64": 1e-8, "float32": 1e-4, "tf32": 2e-2}
"""Allowed relative differences: of parameters and losses in float64, of traces and densities in it, of a surface's
losses in float32, of eigenvalues by type."""


@dataclass(frozen=True)
class Settings:
    """What is compared."""

    device: str = "cuda"
    """the device that is compared with the CPU"""
    quick: bool = False
    """few algorithms and small networks"""
    json: Path | None = None
    """write all figures there"""


@dataclass
class Checks:
    """Differences found, and what was allowed.

    Attributes:
        rows: (what, relative difference, allowed).
    """

    rows: list[tuple[str, float, float]]

    def note(self, what: str, here: Any, there: Any, allowed: float) -> None:
        """Compare two arrays: the largest difference as a share of the largest value."""
        a, b = (np.asarray(torch.as_tensor(x).cpu(), dtype=np.float64) for x in (here, there))
        scale = float(np.abs(b).max()) or 1.0
        self.rows.append((what, float(np.abs(a - b).max()) / scale, allowed))

    @property
    def failed(self) -> list[str]:
        """What differs by more than is allowed (a not-a-number does)."""
        return [what for what, difference, allowed in self.rows if not difference <= allowed]


def images(n: int, shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise around one random pattern for each of ten classes, in float32, and labels."""
    draw, labels = torch_generator(seed, "gpu benchmark"), torch.arange(n) % 10
    return torch.randn(10, *shape, generator=draw)[labels] + torch.randn(n, *shape, generator=draw), labels


def data_file(folder: Path) -> Path:
    """An ``.npz`` file of 400 training and 100 test images of 8×8 pixels."""
    x, y = (part.numpy() for part in images(500, (1, 8, 8)))
    np.savez(folder / "data.npz", x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
    return folder / "data.npz"


def landscape(model: str, n: int, device: str, dtype: str) -> Landscape:
    """A network after some steps of SGD on the CPU, and its images."""
    x, y = images(n, (3, 32, 32))
    net = build_model(model, seed=0, input_shape=(3, 32, 32), classes=10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for _ in range(6):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return Landscape(net, (x, y), device=device, dtype=dtype)


def algorithms(checks: Checks, settings: Settings, folder: Path) -> None:
    """Three rounds of every algorithm in float64 on both devices."""
    data = data_file(folder)
    budget = (
        f"--data {data} --model digits_mlp --partition dirichlet:0.3 --clients 6 --per-round 3 --rounds 3 "
        "--local-epochs 1 --batch-size 16 --lr 0.05 --clip 10 --save-every 0 --dtype float64 --quiet"
    )
    for line in LINES[:3] if settings.quick else LINES:
        weights = []
        for device in (settings.device, "cpu"):
            out = folder / f"{line.replace(' ', '_')}-{len(weights)}"
            command = read([*line.split(), *budget.split(), "--device", device, "--out", str(out)])
            run = train(command.algorithm, command.settings, command.parts, out=out)
            weights.append(Landscape.from_checkpoint(run.checkpoint, device="cpu", dtype="float64").weights)
        checks.note(f"{line}: parameters after 3 rounds", *weights, FLOAT64)


def hessians(checks: Checks, settings: Settings) -> None:
    """Eigenvalues, trace and density of networks in every type."""
    nets = [("convnet_tiny", 32)] if settings.quick else [("lenet_fed", 512), ("resnet20_gn", 128)]
    asked: dict[str, Any] = {"trace_probes": 10, "density": True, "density_probes": 2, "density_steps": 8}
    for model, n in nets:
        truth = measure_hessian(landscape(model, n, "cpu", "float64"), 3, **asked)
        for dtype, allowed in HESSIAN.items():
            if dtype == "tf32" and settings.device == "cpu":
                continue
            found = measure_hessian(landscape(model, n, settings.device, dtype), 3, **asked)
            checks.note(f"{model} {dtype}: eigenvalues", found.eigen.values, truth.eigen.values, allowed)
            if dtype == "float64":  # the same probes, drawn on the CPU
                pairs = [(one.trace, one.density) for one in (found, truth)]
                traces = [trace.value for trace, _ in pairs if trace]
                moments = [density.moment(2) for _, density in pairs if density]
                checks.note(f"{model} {dtype}: trace", *traces, SPECTRAL)
                checks.note(f"{model} {dtype}: second moment of the density", *moments, SPECTRAL)


def surfaces(checks: Checks, settings: Settings) -> None:
    """Losses and accuracies over a grid."""
    model = "convnet_tiny" if settings.quick else "lenet_fed"
    for dtype, allowed in (("float64", FLOAT64), ("float32", LOSS)):
        found = [
            measure_surface(landscape(model, 64, device, dtype), points=3, workers=1)
            for device in (settings.device, "cpu")
        ]
        checks.note(f"{model} {dtype}: surface", *(one.loss for one in found), allowed)


def timings(settings: Settings, folder: Path) -> list[tuple[str, float, float]]:
    """(what, seconds on the CPU, seconds on the device)."""
    rows = []
    nets = (
        [("convnet_tiny", 32)] if settings.quick else [("lenet_fed", 2048), ("resnet20_gn", 512), ("resnet18_gn", 256)]
    )
    for model, n in nets:
        there = {device: landscape(model, n, device, "float32") for device in ("cpu", settings.device)}
        for what, work in (
            ("loss", lambda here: here.value()),
            ("gradient", lambda here: here.gradient()),
            ("Hessian-vector product", lambda here: here.hvp(None, here.weights)),
        ):
            each = [seconds(lambda here=here, work=work: work(here), 3) for here in there.values()]  # type: ignore[misc]
            rows.append((f"{model}, {n} images: {what}", each[0], each[-1]))
    data = data_file(folder)
    training = Training(data=str(data), model="digits_mlp", clients=6, per_round=3, rounds=5, eval_every=0)
    spent: list[float] = []
    for device in ("cpu", settings.device):
        for attempt in ("first", "second"):  # the first starts kernels
            start = time.perf_counter()
            train(
                read(["fedavg"]).algorithm,
                replace(training, device=device),
                out=folder / f"{attempt}-{device}-{len(spent)}",
            )
            spent.append(time.perf_counter() - start)
    rows.append(("digits_mlp: 5 rounds of FedAvg", spent[1], spent[3]))
    return rows


def main(settings: Settings) -> int:
    """Compare, time, print, write; 1 where something differs."""
    if settings.device.startswith("cuda") and not torch.cuda.is_available():
        raise FedscapeError("there is no CUDA device here: give --device cpu to try the script")
    name = torch.cuda.get_device_name() if settings.device.startswith("cuda") else "CPU"
    print(f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}", flush=True)
    checks = Checks([])
    with tempfile.TemporaryDirectory() as folder:
        for part in (lambda: hessians(checks, settings), lambda: surfaces(checks, settings),
                     lambda: algorithms(checks, settings, Path(folder))):  # fmt: skip
            start, before = time.perf_counter(), len(checks.rows)
            part()
            print(Table(("what", "relative difference", "allowed"), tuple(checks.rows[before:])))
            print(f"in {time.perf_counter() - start:.0f} s\n", flush=True)
        times = timings(settings, Path(folder))
    print(Table(("what", "CPU s", "device s", "ratio"), tuple((*row, row[1] / row[2]) for row in times)))
    if settings.json is not None:
        record = {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda, "checks": checks.rows}
        settings.json.write_text(json.dumps({**record, "failed": checks.failed, "seconds": times}, indent=1))
    for what in checks.failed:
        print(f"DIFFERS: {what}", file=sys.stderr)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
