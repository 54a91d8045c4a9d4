"""Loss surfaces against tomgoldstein/loss-landscape and the plain loader loop, in one run.

    python benchmarks/surface.py                                      # a lenet_fed trained here; some minutes
    git clone https://github.com/tomgoldstein/loss-landscape peer
    python benchmarks/surface.py --peer peer --checkpoint runs/fedavg/ckpt.pt --data-dir DATA --json result.json

All measure the mean cross-entropy and the accuracy over the same images at the same points, with all the machine's
cores.  The loader loop is ours, in the manner of tomgoldstein's: a ``DataLoader`` with two workers and batches of 128
over images that are converted and normalised one by one, as torchvision's ``ToTensor`` and ``Normalize`` do (without
Pillow's images in between: faster than theirs).  With ``--peer`` the same loader goes into their own
``evaluation.eval_loss``, and their own ``net_plotter.set_weights`` moves the model.  Both run in a process of their
own, with one thread or all, whichever is faster, for some of the points (``--peer-points``); their time for a surface
is that of a point times their number.  Rounds alternate; the ratio of the medians counts.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from analysis.surface import Surface, measure_surface
from analysis.surface.planes import random_plane, uniform
from landscape import Checkpoint, Landscape, Samples
from landscape.compute.randomness import numpy_generator, torch_generator
from trainers.__main__ import main as train


@dataclass(frozen=True)
class Settings:
    """What is timed."""

    checkpoint: Path | None = None
    """the model; unless given, one is trained on images made here"""
    data_dir: str | None = None
    """where the checkpoint's data lie, if not where they lay"""
    model: str = "lenet_fed"
    """the network to train where no checkpoint is given"""
    rounds: int = 10
    """of that training"""
    samples: int = 1000
    """images that the loss is the mean over"""
    points: int = 51
    """along each axis"""
    span: float = 1.0
    """farthest step"""
    seed: int = 0
    """of the directions"""
    tolerance: float = 0.005
    """of the adaptive surface"""
    peer: Path | None = None
    """folder of tomgoldstein/loss-landscape"""
    peer_points: int = 5
    """points of a round, of the peers"""
    repeats: int = 3
    """rounds"""
    bf16: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """time bfloat16 products too"""
    exact: bool = True
    """measure every point too, which tells the adaptive surface's true error"""
    device: str = "auto"
    """auto, cpu or cuda"""
    folder: Path | None = None
    """keep the model and the exact surface there, which a second run then has"""
    json: Path | None = None
    """write the figures there"""


class OneByOne(Dataset[tuple[Tensor, int]]):
    """Images converted and normalised when they are asked for, as torchvision's transforms do."""

    def __init__(self, data: Samples) -> None:
        self.images = data.inputs.permute(0, 2, 3, 1).contiguous().numpy()
        self.targets = data.targets.tolist()
        scale = 1.0 if data.inputs.is_floating_point() else 255.0
        assert data.mean is not None
        assert data.std is not None
        self.scale, self.mean, self.std = scale, data.mean / scale, data.std / scale

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, k: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.images[k]).permute(2, 0, 1).contiguous()
        return image.to(torch.float32).div(self.scale).sub_(self.mean).div_(self.std), self.targets[k]


class LoaderLoop:
    """Loss and accuracy in percent at points w + x d₁ + y d₂: the plain way, or by tomgoldstein's own code."""

    def __init__(
        self, module: nn.Module, data: Samples, plane: tuple[Tensor, Tensor], device: str, peer: Path | None
    ) -> None:
        self.module, self.cuda, self.peer = module.to(device).eval(), device == "cuda", peer
        self.weights = [p.detach().clone() for p in self.module.parameters()]
        sizes = [w.numel() for w in self.weights]
        self.directions = [
            [part.view_as(w) for part, w in zip(d.to(device).split(sizes), self.weights, strict=True)] for d in plane
        ]
        # As by default on Linux, but not in a process that was spawned: to spawn workers would take seconds.
        self.loader = DataLoader(OneByOne(data), batch_size=128, num_workers=2, multiprocessing_context="fork")
        if peer is not None:
            sys.path.insert(0, str(peer))
            sys.modules["model_loader"] = types.ModuleType("model_loader")  # of their own nets; it wants torchvision

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        if self.peer is not None:
            import evaluation
            import net_plotter

            net_plotter.set_weights(self.module, self.weights, self.directions, (x, y))
            return evaluation.eval_loss(self.module, nn.CrossEntropyLoss(), self.loader, self.cuda)
        place, loss, correct = torch.device("cuda" if self.cuda else "cpu"), 0.0, 0
        with torch.no_grad():
            for p, w, d, e in zip(self.module.parameters(), self.weights, *self.directions, strict=True):
                p.copy_(w + x * d + y * e)
            for images, targets in self.loader:
                inputs, wanted = images.to(place), targets.to(place)
                outputs = self.module(inputs)
                loss += nn.functional.cross_entropy(outputs, wanted).item() * len(wanted)
                correct += int((outputs.argmax(dim=1) == wanted).sum())
        count = len(self.loader.dataset)  # type: ignore[arg-type]
        return loss / count, 100 * correct / count


_loops: dict[str, LoaderLoop] = {}
_threads: dict[str, int] = {}


def begin(settings: Settings, checkpoint: Path, device: str) -> None:
    """In the peers' process: the same model, images and directions, and the number of threads that is the faster."""
    threads = torch.get_num_threads()
    function = Landscape.from_checkpoint(checkpoint, samples=settings.samples, device="cpu", data_dir=settings.data_dir)
    first, second = random_plane(function, settings.seed).directions
    for name, peer in (("loader loop", None), ("tomgoldstein", settings.peer)):
        if name == "loader loop" or peer is not None:
            module = Checkpoint.load(checkpoint).build_model()
            _loops[name] = LoaderLoop(module, function.data, (first, second), device, peer)
            seconds = {}
            for _threads[name] in (1, threads):
                measure_there(name, [(0.0, 0.0)])
                seconds[_threads[name]] = measure_there(name, [(0.1, 0.0), (0.2, 0.0)])[1]
            _threads[name] = min(seconds, key=seconds.__getitem__)


def measure_there(name: str, places: list[tuple[float, float]]) -> tuple[list[tuple[float, float]], float]:
    """Values at the places, and the seconds that they took."""
    torch.set_num_threads(_threads[name])
    start = time.perf_counter()
    values = [_loops[name](*place) for place in places]
    return values, time.perf_counter() - start


def trained(settings: Settings, folder: Path) -> Path:
    """A checkpoint of a net trained by FedAvg on noise around one random pattern a class."""
    draw = torch_generator(0, "benchmark")
    labels = torch.arange(2 * settings.samples) % 10
    patterns = torch.randn(10, 3, 32, 32, generator=draw)
    images = 128 + 25 * (patterns[labels] + 2 * torch.randn(len(labels), 3, 32, 32, generator=draw))
    pixels = images.clamp(0, 255).to(torch.uint8).numpy()
    half = settings.samples
    np.savez(
        folder / "images.npz",
        x_train=pixels[:half], y_train=labels[:half].numpy(),
        x_test=pixels[half:], y_test=labels[half:].numpy(),
    )  # fmt: skip
    options = {"data": folder / "images.npz", "model": settings.model, "rounds": settings.rounds, "out": folder / "run",
               "clients": 10, "partition": "dirichlet:0.6", "lr": 0.03, "eval-every": 0, "save-every": 0}  # fmt: skip
    train(["fedavg", *(str(part) for key, value in options.items() for part in (f"--{key}", value)), "--quiet"])
    return folder / "run" / "ckpt.pt"


def ours(settings: Settings, checkpoint: Path, points: int, **options: Any) -> Surface:
    """Our surface, by all the machine's cores."""
    options = {"tolerance": settings.tolerance, "data_dir": settings.data_dir, "device": settings.device, **options}
    return measure_surface(checkpoint, points, settings.span, settings.seed, samples=settings.samples, **options)


def rates(
    settings: Settings, checkpoint: Path, pool: ProcessPoolExecutor, names: list[str], exact: Surface | None
) -> dict[str, Any]:
    """Points per second, medians of alternating rounds, and how far the peers' values are from ours."""
    line = uniform(settings.points, settings.span)
    chosen = numpy_generator(0, "places").choice(settings.points, (settings.repeats, settings.peer_points, 2))
    seconds: dict[str, list[float]] = {}
    apart = dict.fromkeys(names, 0.0)
    for places in chosen:
        for name in names:
            values, spent = pool.submit(measure_there, name, [(line[i], line[j]) for j, i in places]).result()
            seconds.setdefault(name, []).append(spent / len(places))
            for (j, i), (loss, _) in zip(places, values, strict=True):
                if exact is not None:
                    apart[name] = max(apart[name], abs(loss / exact.loss[j, i] - 1))
        kinds = {"ours": False, "ours, bfloat16": True} if settings.bf16 else {"ours": False}
        for name, bf16 in kinds.items():
            surface = ours(settings, checkpoint, 9, exact=True, bf16=bf16)
            seconds.setdefault(name, []).append(surface.seconds / 81)
            apart[name] = surface.notes.get("rounding", {}).get("train_loss", 0.0)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        name: {"points/s": 1 / spent, "ratio": medians["tomgoldstein" if settings.peer else "loader loop"] / spent,
               "loss apart": apart[name]}
        for name, spent in medians.items()
    }  # fmt: skip


def main(settings: Settings) -> None:
    """Measure, print, write."""
    folder = settings.folder or Path(tempfile.mkdtemp(prefix="fedscape-benchmark-"))
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = settings.checkpoint or trained(settings, folder)
    device = "cuda" if settings.device != "cpu" and torch.cuda.is_available() else "cpu"
    names = ["loader loop", *(["tomgoldstein"] if settings.peer else [])]
    figures: dict[str, Any] = {"samples": settings.samples, "points": settings.points, "device": device}
    title = Checkpoint.load(checkpoint).title
    print(f"{title}, {settings.samples} images, {device}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    # Spawned, so that nothing of ours, such as how freed memory is kept, is in the peers' process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, begin, (settings, checkpoint, device)) as pool:
        pool.submit(os.getpid).result()
        if settings.exact:
            exact = ours(settings, checkpoint, settings.points, exact=True, store=folder / "exact.h5", progress=True)
            figures["exact seconds"] = exact.seconds
        figures["rates"] = rates(settings, checkpoint, pool, names, exact if settings.exact else None)
    adaptive = ours(settings, checkpoint, settings.points)
    assert adaptive.computed is not None
    figures["adaptive"] = {
        "seconds": adaptive.seconds,
        "points": int(adaptive.computed.sum()),
        "estimated error": adaptive.estimated_error or 0.0,
    }
    if settings.exact:
        figures["adaptive"]["true error"] = float(np.abs(adaptive.loss / exact.loss - 1).max())
        figures["adaptive"]["times less than exact"] = exact.seconds / adaptive.seconds
    for name in names:
        whole = settings.points**2 / figures["rates"][name]["points/s"]
        figures["adaptive"][f"times less than {name}"] = whole / adaptive.seconds
    print("\nexact evaluation")
    for name, row in figures["rates"].items():
        rate = f"{row['points/s']:9.2f} points/s, {row['ratio']:.2f} times {names[-1]}"
        print(f"  {name:<16}{rate}, loss within {row['loss apart']:.1e}")
    print(f"\na surface of {settings.points} x {settings.points} points to {settings.tolerance:.1%}")
    for name, value in figures["adaptive"].items():
        print(f"  {name:<32}{value:10.4g}")
    if settings.json is not None:
        settings.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(tyro.cli(Settings))
