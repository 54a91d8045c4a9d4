"""What a round costs: our executors beside bare PyTorch, FL-Simulator and JAX, on one thread.

    python benchmarks/federation.py                                      # everything but the peers; some minutes
    python benchmarks/federation.py --parts steps --models digits_mlp --jax
    python benchmarks/federation.py --parts steps --models digits_mlp digits_cnn --dropout 0.5
    python benchmarks/federation.py --parts round --fl-simulator FOLDER  # a checkout of FL-Simulator
    python benchmarks/federation.py --parts steps --models digits_mlp --flower PYTHON  # an interpreter that has Flower

Parts: ``steps`` is the time of a local step of one client, by executor and algorithm; ``round`` that of a round of
``lenet_fed`` with an evaluation on 10,000 test images, in float32 and bfloat16; ``clients`` that of a round as
the number of clients grows from 10 to 100,000.  Times are CPU times (process time), medians of repeats that take turns;
the figures that count are the ratios of one run.  Flower works in processes of its own, so that its time is the
clock's, of rounds after its start-up.  Beside each figure is the peak of the process's resident memory while it was
measured (Linux; of Flower that of all its processes).  Where other work keeps the machine busy nothing is measured
(``--busy`` measures all the same, and says so).
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import federation_peers
import numpy as np
import torch
import tyro
from torch import nn

from landscape import Partition, Samples, build_model
from landscape.autograd.flat import FlatModule
from landscape.compute.memory import keep_freed_memory
from landscape.compute.precision import Precision
from trainers import FedAvg, FedSAM, FedSMOO, Parts, Scaffold, Settings
from trainers.algorithm import Algorithm
from trainers.federation import BatchedExecutor, Federation, LocalWork, SequentialExecutor

Part = Literal["steps", "round", "clients"]
Model = Literal["digits_mlp", "digits_cnn", "lenet_fed"]
SHAPES: dict[Model, tuple[int, int, int]] = {
    "digits_mlp": (1, 8, 8), "digits_cnn": (1, 8, 8), "lenet_fed": (3, 32, 32)
}  # fmt: skip
BATCH: dict[Model, int] = {"digits_mlp": 32, "digits_cnn": 32, "lenet_fed": 50}
ALGORITHMS: dict[str, Algorithm] = {
    "fedavg": FedAvg(), "fedsam": FedSAM(), "fedsmoo": FedSMOO(), "scaffold": Scaffold()
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What is measured."""

    parts: tuple[Part, ...] = ("steps", "round", "clients")
    """which parts"""
    models: tuple[Model, ...] = ("digits_mlp", "digits_cnn", "lenet_fed")
    """the nets of the steps"""
    dropout: float = 0.0
    """dropout with this p behind each ReLU of digits_mlp and digits_cnn"""
    clients: int = 20
    """sampled clients of the steps, all at once where they can be"""
    repeats: int = 5
    """timings, of which the median counts"""
    threads: int = 1
    """CPU threads"""
    jax: bool = False
    """JAX's vmap over clients and scan over steps too, for digits_mlp"""
    flower: Path | None = None
    """an interpreter that has flwr[simulation] and torch: Flower's FedAvg rounds too, for digits_mlp"""
    fl_simulator: Path | None = None
    """a checkout of FL-Simulator, whose own client classes then train lenet_fed"""
    busy: bool = False
    """measure although other work keeps the machine busy"""
    json: Path | None = None
    """write the figures there"""


def data(shape: tuple[int, int, int], count: int) -> Samples:
    """Images of noise with random labels, the same in every run."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, *shape), generator=draw, dtype=torch.uint8)
    channels = (shape[0], 1, 1)
    targets = torch.randint(0, 10, (count,), generator=draw)
    return Samples(images, targets, mean=torch.full(channels, 128.0), std=torch.full(channels, 64.0))


def net(model: Model, dropout: float) -> nn.Module:
    """A net by name, with dropout behind each ReLU where it is asked for."""
    module = build_model(model, seed=0, input_shape=SHAPES[model], classes=10)
    if not dropout or not isinstance(module, nn.Sequential):
        return module
    layers = [[layer, nn.Dropout(dropout)] if isinstance(layer, nn.ReLU) else [layer] for layer in module]
    return nn.Sequential(*(layer for some in layers for layer in some))


def federation(
    model: Model,
    executor: type[SequentialExecutor],
    algorithm: Algorithm,
    clients: int,
    each: int,
    *,
    per_round: int | None = None,
    epochs: int = 2,
    dtype: Literal["float32", "bf16"] = "float32",
    augment: Literal["none", "flip-crop"] = "none",
    dropout: float = 0.0,
) -> Federation:
    """A federation of clients with so many images each."""
    samples = data(SHAPES[model], clients * each)
    flat = FlatModule(net(model, dropout), torch.device("cpu"), torch.float32)
    split = Partition(tuple(np.split(np.arange(clients * each), clients)))
    work = LocalWork(epochs, BATCH[model], 1e-3, augment, 0, precision=Precision(dtype))
    settings = Settings(clients=clients, per_round=per_round or clients)
    made = executor(flat, samples, split, algorithm, work)
    return Federation(algorithm, made, settings, flat.buffer.clone(), Parts())


def medians(work: dict[str, Callable[[], float]], repeats: int, memory: dict[str, float]) -> dict[str, float]:
    """The median of each, in turns; each gives its own measure of the seconds since the stopwatch began.

    ``memory`` gets the process's peak in GB during the first one of each, which counts for no time.
    """
    for name, one in work.items():
        federation_peers.forget_peak()
        one()
        memory[name] = federation_peers.peak_memory()
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, one in work.items():
            found[name].append(one())
    return {name: statistics.median(values) for name, values in found.items()}


def step_time(made: Federation) -> Callable[[], float]:
    """Seconds a local step of one client in a round, all of the round counted."""

    def one() -> float:
        start = time.process_time()
        record = made.step()
        return (time.process_time() - start) / record.steps

    return one


def steps(options: Options) -> list[dict[str, Any]]:
    """The time of a local step by model, algorithm and executor, beside a bare loop of PyTorch."""
    rows = []
    for model in options.models:
        each = 3 * BATCH[model]
        at_once = () if model == "lenet_fed" else (("batched", BatchedExecutor),)
        clients = 4 if model == "lenet_fed" else options.clients
        for name, algorithm in ALGORITHMS.items():
            work = {
                label: step_time(federation(model, kind, algorithm, clients, each, dropout=options.dropout))
                for label, kind in (("sequential", SequentialExecutor), *at_once)
            }
            if name == "fedavg":
                module = net(model, options.dropout)
                work["PyTorch"] = federation_peers.bare_sgd(module, data(SHAPES[model], each), BATCH[model])
            if model == "digits_mlp" and name == "fedavg" and options.jax:
                work["JAX vmap + scan"] = federation_peers.jax_clients(clients, each, BATCH[model])
            memory: dict[str, float] = {}
            found = medians(work, options.repeats, memory)
            if model == "digits_mlp" and name == "fedavg" and options.flower is not None:
                seconds, memory["Flower"] = federation_peers.flower(
                    options.flower, clients, each, BATCH[model], options.repeats
                )
                found["Flower"] = seconds
            rows.append({"model": model, "algorithm": name, "clients": clients, "seconds": found, "peak GB": memory})
            told = ", ".join(f"{label} {1e6 * s:,.0f} ({memory[label]:.2f} GB)" for label, s in found.items())
            ratios = ", ".join(
                f"sequential/{label} {found['sequential'] / seconds:.2f}"
                for label, seconds in found.items() if label != "sequential"
            )  # fmt: skip
            print(f"{model}, {name}, {clients} clients, μs a step: {told}; {ratios}")
    return rows


def rounds(options: Options) -> dict[str, Any]:
    """A round of ``lenet_fed``, 10 clients of 50 images, 2 epochs, with a test on 10,000 images."""
    from landscape import Landscape

    test = data(SHAPES["lenet_fed"], 10_000)
    found: dict[str, Any] = {}
    work: dict[str, Callable[[], float]] = {}
    for dtype in ("float32", "bf16"):
        made = federation("lenet_fed", SequentialExecutor, FedAvg(), 10, 50, dtype=dtype, augment="flip-crop")
        module = build_model("lenet_fed", seed=0, input_shape=SHAPES["lenet_fed"], classes=10)
        evaluate = Landscape(module, test, device="cpu").evaluator(bf16=dtype == "bf16")

        def train(made: Federation = made) -> float:
            start = time.process_time()
            made.step()
            return time.process_time() - start

        def measure(evaluate: Any = evaluate, made: Federation = made) -> float:
            start = time.process_time()
            evaluate(made.server.w)
            return time.process_time() - start

        work |= {f"training, {dtype}": train, f"test, {dtype}": measure}
    if options.fl_simulator is not None:
        work |= federation_peers.fl_simulator(options.fl_simulator, data(SHAPES["lenet_fed"], 500), test)
    memory: dict[str, float] = {}
    found = medians(work, max(3, options.repeats // 2), memory)
    for name, seconds in found.items():
        print(f"lenet_fed, a round of 10 clients, {name}: {seconds:.2f} s, peak memory {memory[name]:.2f} GB")
    return {"seconds": found, "peak GB": memory}


def growing(options: Options) -> list[dict[str, Any]]:
    """A round of 10 sampled clients as the clients become more: ``digits_mlp``, FedSMOO, 4 images each."""
    rows = []
    for clients in (10, 100, 1_000, 10_000, 100_000):
        federation_peers.forget_peak()
        made = federation("digits_mlp", BatchedExecutor, FedSMOO(), clients, 4, per_round=10)
        made.step()
        times = []
        for _ in range(3 * options.repeats):
            start = time.process_time()
            made.step()
            times.append(time.process_time() - start)
        memory = federation_peers.peak_memory()
        rows.append({"clients": clients, "seconds": statistics.median(times), "peak GB": memory})
        print(f"{clients:,} clients: {1e3 * rows[-1]['seconds']:.2f} ms a round of 10, peak memory {memory:.2f} GB")
    return rows


def main(options: Options) -> None:
    """Measure, print, write."""
    load = os.getloadavg()[0]
    if load > 1.5 and not options.busy:
        raise SystemExit(f"the load is {load:.1f}: other work is running; wait, or give --busy to measure all the same")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} threads, load {load:.1f}"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{machine}, {versions}")
    figures: dict[str, Any] = {"machine": machine, "versions": versions}
    if "steps" in options.parts:
        figures["steps"] = steps(options)
    if "round" in options.parts:
        figures["round"] = rounds(options)
    if "clients" in options.parts:
        figures["clients"] = growing(options)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Options))
