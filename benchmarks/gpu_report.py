"""What the sections of benchmarks/gpu.py share: their settings, their clock, what they found, and what they work on."""

from __future__ import annotations

import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landscape import Landscape, Partition, Samples, build_model
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.graphs import Again
from landscape.compute.precision import Precision, PrecisionName
from landscape.compute.randomness import torch_generator
from landscape.storage.files import write_text
from trainers import Parts, Settings
from trainers.algorithm import Algorithm
from trainers.federation import BatchedExecutor, Federation, GraphsExecutor, LocalWork, SequentialExecutor

IMAGE = (3, 32, 32)
"""Of CIFAR."""
QUICK_NET = ("digits_cnn", (1, 8, 8))
"""A small network and its images, with which the script itself is tried."""
_TOLD = 12
"""Lines of a traceback that are kept."""
EXECUTORS = ("sequential", "batched", "graphs")


@dataclass
class Report:
    """What a section found; written after each row, so that a section that is stopped leaves what it had.

    Attributes:
        device: that is compared with the CPU.
        quick: few algorithms and small networks.
        until: when the section ends, by ``time.perf_counter``.
        path: of the JSON file; none where it is ``None``.
        checks: (what, relative difference, allowed).
        figures: what was measured, by name, with a target where the issue names one.
        notes: what was refused, with the reason.
        left: what there was no time for.
        failures: (what, last lines of the traceback) of checks and measurements that raised an error.
    """

    device: str
    quick: bool
    until: float
    path: Path | None = None
    checks: list[tuple[str, float, float]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    def over(self, what: str) -> bool:
        """Whether the section's time is over; what is left out then is told."""
        over = time.perf_counter() > self.until
        if over:
            self.left.append(what)
            self._write()
        return over

    @contextmanager
    def trial(self, what: str) -> Iterator[None]:
        """Around a check or a measurement: an error is recorded, and the rest goes on.

        Raises:
            Exception: the error has spoilt CUDA in this process: the section cannot go on.
        """
        try:
            yield
        except Exception:  # whatever it is, it is told, and the others go on
            self.failures.append((what, "\n".join(traceback.format_exc().splitlines()[-_TOLD:])))
            self._write()
            waited(self.device)
        finally:
            if self.cuda:
                gc.collect()  # of what came before, graphs and what they hold
                torch.cuda.empty_cache()

    def check(self, what: str, here: Any, there: Any, allowed: float) -> None:
        """Compare two arrays: the largest difference as a share of the largest value; not-a-numbers differ."""
        a, b = (np.asarray(torch.as_tensor(x).detach().cpu(), dtype=np.float64) for x in (here, there))
        scale = float(np.abs(b).max()) or 1.0
        self.checks.append((what, float(np.abs(a - b).max()) / scale, allowed))
        self._write()

    def figure(self, what: str, value: float, unit: str, target: float | None = None) -> None:
        """Note a measured value, and the target of issue 17 that it is to be at most; small networks have none."""
        self.figures.append({"what": what, "value": value, "unit": unit, "target": None if self.quick else target})
        self._write()

    def note(self, text: str) -> None:
        """Note what was refused or left out."""
        self.notes.append(text)
        self._write()

    @property
    def differing(self) -> list[str]:
        """What differs by more than is allowed."""
        return [what for what, difference, allowed in self.checks if not difference <= allowed]

    def plain(self) -> dict[str, Any]:
        """All rows, for JSON."""
        return {
            "checks": self.checks, "differing": self.differing, "figures": self.figures, "notes": self.notes,
            "left": self.left, "failures": self.failures,
        }  # fmt: skip

    def _write(self) -> None:
        if self.path is not None:
            write_text(self.path, json.dumps(self.plain()))


def waited(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def seconds(work: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """The median time of a call, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        waited(device)
        start = time.perf_counter()
        work()
        waited(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def images(n: int, shape: tuple[int, ...], classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise around one random pattern for each class, in float32, and labels."""
    draw, labels = torch_generator(0, "gpu benchmark"), torch.arange(n) % classes
    return torch.randn(classes, *shape, generator=draw)[labels] + torch.randn(n, *shape, generator=draw), labels


def landscape(model: str, n: int, device: str, dtype: str, shape: tuple[int, ...] = IMAGE) -> Landscape:
    """A network after some steps of SGD on the CPU, and its images."""
    x, y = images(n, shape)
    net = build_model(model, seed=0, input_shape=shape, classes=10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[:64]), y[:64]).backward()
        optimizer.step()
    return Landscape(net, (x, y), device=device, dtype=dtype)


@dataclass(frozen=True)
class Job:
    """A federation's shapes.

    Attributes:
        model: network by name.
        shape: of an image, uint8.
        classes: of the labels.
        sizes: images of each client.
        per_round: clients sampled each round.
        batch, epochs: of local work.
        augment: flip and crop.
    """

    model: str
    shape: tuple[int, int, int]
    classes: int
    sizes: Sequence[int]
    per_round: int
    batch: int
    epochs: int = 1
    augment: bool = False

    @property
    def steps(self) -> int:
        """Local steps of a round of clients of equal sizes."""
        return self.per_round * self.epochs * -(-self.sizes[0] // self.batch)

    def samples(self) -> Samples:
        """The images, the same in every process."""
        n, channels = sum(self.sizes), (self.shape[0], 1, 1)
        if n > 5_000:  # for timings alone: any pixels do
            draw = torch_generator(0, "gpu timings")
            x = torch.randint(0, 256, (n, *self.shape), generator=draw, dtype=torch.uint8)
            y = torch.arange(n) % self.classes
        else:
            floats, y = images(n, self.shape, self.classes)
            x = (60 * floats + 128).clamp(0, 255).byte()
        return Samples(x, y, mean=torch.full(channels, 128.0), std=torch.full(channels, 64.0))

    def federation(
        self,
        algorithm: Algorithm,
        parts: Parts,
        executor: str,
        device: str,
        dtype: PrecisionName,
        samples: Samples | None = None,
    ) -> Federation:
        """A federation of these shapes; ``samples`` where they are on the device already.

        Raises:
            FedscapeError: the executor cannot do it.
        """
        place, precision = torch.device(device), Precision(dtype)
        module = build_model(self.model, seed=0, input_shape=self.shape, classes=self.classes)
        flat = FlatModule(module, place, precision.dtype)
        held = (samples or self.samples()).to(place)
        split = Partition(tuple(np.split(np.arange(sum(self.sizes)), np.cumsum(self.sizes)[:-1])))
        work = LocalWork(
            self.epochs, self.batch, 1e-3, "flip-crop" if self.augment else "none", 0, clip=10.0, parts=parts,
            precision=precision,
        )  # fmt: skip
        settings = Settings(clients=len(self.sizes), per_round=self.per_round, lr=0.05)
        if executor == "graphs":
            record = None if place.type == "cuda" else Again.record
            made: SequentialExecutor = GraphsExecutor(flat, held, split, algorithm, work, record)
        else:
            kinds = {"sequential": SequentialExecutor, "batched": BatchedExecutor}
            made = kinds[executor](flat, held, split, algorithm, work)
        statistics = BatchStatistics(flat.module).read().to(place)
        return Federation(algorithm, made, settings, flat.buffer.clone(), parts, statistics)
