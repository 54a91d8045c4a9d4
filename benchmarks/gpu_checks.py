"""The sections of benchmarks/gpu.py that compare a device with the CPU."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_lines import LINES, read
from gpu_report import EXECUTORS, IMAGE, QUICK_NET, Job, Report, images, landscape

from analysis import HessianReport, measure_hessian, measure_surface
from landscape import FedscapeError, Landscape, build_model
from landscape.autograd.flat import FlatModule
from landscape.autograd.recorded import RecordedProducts
from landscape.compute.devices import on_device
from landscape.compute.graphs import Again, CudaGraph, Record, captured
from landscape.compute.precision import PrecisionName
from trainers import Algorithm, Parts, train
from trainers import Settings as Training
from trainers.federation import Federation
from trainers.federation.graphs import refusal

FLOAT64, SPECTRAL, LOSS = 1e-9, 1e-6, 1e-6
"""Allowed relative differences in float64, of traces and densities in it, of losses in float32."""
PARAMETERS: dict[PrecisionName, float] = {"float64": FLOAT64, "float32": 2e-3}
"""Allowed relative differences of parameters after two rounds."""
HESSIAN = {"float64": 1e-8, "float32": 1e-4, "tf32": 2e-2}
"""Allowed relative differences of eigenvalues."""
ASKED: dict[str, Any] = {"trace_probes": 3, "density": True, "density_probes": 2, "density_steps": 5}
"""Of a Hessian, beside two eigenvalues."""
SMALL = Job("digits_mlp", (1, 8, 8), 10, (40, 25, 60, 33, 16, 50), per_round=3, batch=16)
PICTURES = Job("lenet_fed", (3, 32, 32), 10, (30, 22, 41, 16), per_round=3, batch=10, augment=True)


def _record(report: Report) -> Record:
    return partial(CudaGraph, device=torch.device(report.device)) if report.cuda else Again.record


def recording(report: Report) -> None:
    """What the graphs executor stands on: a recorded pass of a network, copies to the device, memory."""
    device = torch.device(report.device)
    model, shape = QUICK_NET if report.quick else ("lenet_fed", IMAGE)
    with report.trial("pinned copy to the device"):
        numbers = torch.arange(1000)
        report.check("pinned copy to the device", on_device(numbers, device), numbers, 0.0)
    for dtype in (torch.float64, torch.float32):
        with report.trial(f"{dtype}: recording"):
            _recorded_steps(report, model, shape, dtype)
    for k in (1, 4):
        with report.trial(f"recorded products with {k} vectors"):
            there = landscape(model, 100, report.device, "float64", shape)
            products = RecordedProducts(there._flat, there.loss, there._batches, there.weights, _record(report))
            v = torch.stack([there.weights.roll(i) for i in range(k)])
            report.check(f"recorded products with {k} vectors", products(v), there.hvp(None, v), FLOAT64)
    if report.cuda:
        with report.trial("memory of graphs"):
            algorithm, parts = read("fedgloss --warmup 100")  # whose steps are recorded anew in each round
            ours, taken = PICTURES.federation(algorithm, parts, "graphs", report.device, "float32"), []
            for _ in range(6):
                ours.step()
                taken.append(torch.cuda.memory_reserved(report.device) / 2**20)
            more = taken[-1] - taken[1]
            report.figure("memory that six rounds with new graphs add after the second", more, "MiB", 64.0)


def _recorded_steps(report: Report, model: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    device = torch.device(report.device)
    x, y = (part.to(device) for part in images(50, shape))
    flat = FlatModule(build_model(model, seed=0, input_shape=shape, classes=10), device, dtype)
    w, batch = flat.buffer.clone(), x.to(dtype)

    def step() -> None:
        flat.load(w)
        w.sub_(flat.gradient(torch.nn.functional.cross_entropy(flat.module(batch), y)), alpha=0.1)

    before = w.clone()
    recorded = captured(step, [w], _record(report))
    report.check(f"{dtype}: recording changes nothing", w, before, 0.0)
    for _ in range(5):
        recorded.replay()
    replayed = w.clone()
    w.copy_(before)
    for _ in range(5):
        step()
    report.check(f"{dtype}: five replays, five steps", replayed, w, 1e-9 if dtype == torch.float64 else 1e-5)


def _after(made: Federation, rounds: int = 2) -> tuple[torch.Tensor, list[float]]:
    losses = [made.step().train_loss for _ in range(rounds)]
    return made.server.w, losses


def executors(report: Report, dtype: PrecisionName) -> None:
    """Two rounds of every algorithm by every executor, beside one client after the other on the CPU in float64."""
    for line in (*LINES[:2], "fedsmoo", "fedgloss --warmup 3") if report.quick else LINES:
        what = f"{line}, {dtype}"
        if report.over(what):
            continue
        with report.trial(what):
            algorithm, parts = read(line)
            if parts.dp is not None and parts.dp.noise:
                report.note(f"{line}: left out: its noise is drawn on the CPU, other numbers in each type")
                continue
            job = replace(SMALL, sizes=(sum(SMALL.sizes),), per_round=1) if algorithm.pooled else SMALL
            _beside(report, what, job, algorithm, parts, dtype)


def pictures(report: Report) -> None:
    """As :func:`executors`, of convolutions on augmented images."""
    for dtype in PARAMETERS:
        for line in ("fedavg", "fedsmoo --mixup", "scaffold --cutout --cutout-size 8"):
            what = f"images, {line}, {dtype}"
            if not report.over(what):
                with report.trial(what):
                    _beside(report, what, PICTURES, *read(line), dtype)


def _beside(report: Report, what: str, job: Job, algorithm: Algorithm, parts: Parts, dtype: PrecisionName) -> None:
    truth, losses = _after(job.federation(algorithm, parts, "sequential", "cpu", "float64"))
    for executor in EXECUTORS:
        with report.trial(f"{what}: {executor}"):
            try:
                made = job.federation(algorithm, parts, executor, report.device, dtype)
            except FedscapeError as error:
                report.note(f"{what}: {executor} refused: {error}")
                continue
            if executor == "graphs":
                inner = made.executor
                if reason := refusal(inner._model, inner._data, algorithm, inner._local):  # type: ignore[attr-defined]
                    report.note(f"{what}: graphs refused: {reason}")
                    continue
            found, told = _after(made)
            if dtype == "float64" or job.model == "digits_mlp":  # max pooling turns rounding into other gradients
                report.check(f"{what}: {executor}", found, truth, PARAMETERS[dtype])
            report.check(f"{what}: {executor}, losses", torch.tensor(told), torch.tensor(losses), PARAMETERS[dtype])


def hessians(report: Report) -> None:
    """Eigenvalues, trace and density of networks in every type; products, gradients and streamed samples beside.

    Few images: what takes long is the truth, in float64 on the CPU.
    """
    nets = [(*QUICK_NET, 64), ("resnet20_gn", IMAGE, 8), ("lenet_fed", IMAGE, 16)]
    nets = nets[:1] if report.quick else nets
    for model, shape, n in nets:
        if report.over(model):
            continue
        with report.trial(f"{model}: the truth"):
            exact = landscape(model, n, "cpu", "float64", shape)
            truth = measure_hessian(exact, 2, **ASKED)
            for dtype, allowed in HESSIAN.items():
                if dtype != "tf32" or report.cuda:
                    with report.trial(f"{model} {dtype}"):
                        there = landscape(model, n, report.device, dtype, shape)
                        _hessian_beside(report, f"{model} {dtype}", there, exact, truth, allowed)


def _hessian_beside(
    report: Report, what: str, there: Landscape, exact: Landscape, truth: HessianReport, allowed: float
) -> None:
    v = exact.weights / exact.weights.norm()
    report.check(f"{what}: gradient", there.gradient(), exact.gradient(), allowed)
    report.check(f"{what}: product", there.hvp(None, v.to(there.weights)), exact.hvp(None, v), allowed)
    found = measure_hessian(there, 2, **ASKED)
    report.check(f"{what}: eigenvalues", found.eigen.values, truth.eigen.values, allowed)
    if there.precision == "float64":  # the same probes, drawn on the CPU
        pairs = [(one.trace, one.density) for one in (found, truth)]
        traces = [trace.value for trace, _ in pairs if trace]
        moments = [density.moment(2) for _, density in pairs if density]
        report.check(f"{what}: trace", *traces, SPECTRAL)
        report.check(f"{what}: second moment of the density", *moments, SPECTRAL)


def surfaces(report: Report) -> None:
    """Losses and accuracies over a grid."""
    model, shape = QUICK_NET if report.quick else ("lenet_fed", IMAGE)
    for dtype, allowed in (("float64", FLOAT64), ("float32", LOSS)):
        with report.trial(f"{model} {dtype}: surface"):
            found = [
                measure_surface(landscape(model, 64, device, dtype, shape), points=3, workers=1)
                for device in (report.device, "cpu")
            ]
            report.check(f"{model} {dtype}: surface", *(one.loss for one in found), allowed)


def faults(report: Report) -> None:
    """What happens seldom: memory that runs out, samples that stay in host memory, runs that go on elsewhere."""
    seldom = {
        "streamed samples": _streaming, "streamed training": _streamed_training, "resuming": _resuming,
        "layers of their own kind": _layers,
    }  # fmt: skip
    if report.cuda:
        seldom |= {"memory that runs out": _out_of_memory}
    else:
        report.note("memory that runs out is tried on CUDA only")
    for what, tried in seldom.items():
        if not report.over(what):
            with report.trial(what):
                tried(report)


class _Recurrent(torch.nn.Module):
    """A recurrent network, of which cuDNN has no second derivatives."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = torch.nn.LSTM(8, 6, batch_first=True), torch.nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.cell(x[:, 0])[0][:, -1])
        return found


def _layers(report: Report) -> None:
    """Layers that CUDA computes by other kernels than the CPU: recurrent ones, images with the channels last."""
    torch.manual_seed(0)
    x, y = images(40, (1, 8, 8))
    normalised = [torch.nn.Conv2d(1, 4, 3), torch.nn.GroupNorm(2, 4), torch.nn.Tanh(), torch.nn.Flatten()]
    nets = {"LSTM": _Recurrent(), "channels last": torch.nn.Sequential(*normalised, torch.nn.Linear(144, 10))}
    for name, net in nets.items():
        with report.trial(name):
            given = x.contiguous(memory_format=torch.channels_last) if name == "channels last" else x
            here, there = (Landscape(net, (given, y), device=at, dtype="float64") for at in ("cpu", report.device))
            report.check(f"{name}: loss", there.value(), here.value(), FLOAT64)
            report.check(f"{name}: gradient", there.gradient(), here.gradient(), FLOAT64)
            v = here.weights.to(there.weights)
            report.check(f"{name}: product", there.hvp(None, v), here.hvp(None, here.weights), FLOAT64)


def _streaming(report: Report) -> None:
    x, y = images(100, (3, 32, 32))
    net = build_model("lenet_fed", seed=0, input_shape=(3, 32, 32), classes=10)
    here, there = (
        Landscape(net, (x, y), device=report.device, dtype="float64", batch_size=32, stream=stream)
        for stream in (False, True)
    )
    report.check("streamed samples: gradient", there.gradient(), here.gradient(), 1e-12)
    report.check("streamed samples: product", there.hvp(None, here.weights), here.hvp(None, here.weights), 1e-12)


def _streamed_training(report: Report) -> None:
    (algorithm, parts), truth = read("fedavg"), []
    for samples in (PICTURES.samples(), PICTURES.samples().streamed(report.device)):
        made = PICTURES.federation(algorithm, parts, "sequential", report.device, "float64")
        made.executor._data = samples.to(report.device) if not truth else samples  # type: ignore[attr-defined]
        if truth:
            held = made.executor._indices  # type: ignore[attr-defined]
            made.executor._indices = [one.cpu() for one in held]  # type: ignore[attr-defined]
        truth.append(_after(made, 1)[0])
    report.check("streamed samples: a round of training", truth[1], truth[0], 1e-12)


def _resuming(report: Report) -> None:
    """Half of a run on one device and by one executor, the rest on another, beside a whole one on the CPU."""
    ways = [("sequential", "batched"), ("batched", "sequential")]
    ways += [("graphs", "sequential"), ("batched", "graphs")] if report.cuda else []
    algorithm, _ = read("fedsmoo")
    with tempfile.TemporaryDirectory() as folder:
        # Data of its own: the embedded ones are scikit-learn's, which may be missing.
        x, y = (part.numpy() for part in images(240, (1, 8, 8)))
        np.savez(Path(folder) / "data.npz", x_train=x[:200], y_train=y[:200], x_test=x[200:], y_test=y[200:])
        settings = Training(
            model="digits_mlp", clients=6, per_round=3, rounds=4, local_epochs=1, eval_every=0, dtype="float64",
            executor="sequential", device="cpu", data=str(Path(folder) / "data.npz"),
        )  # fmt: skip

        def weights(run: Any) -> torch.Tensor:
            return Landscape.from_checkpoint(run.checkpoint, device="cpu", dtype="float64").weights

        truth = weights(train(algorithm, settings, out=Path(folder) / "whole"))
        for first, then in ways:
            out = Path(folder) / f"{first}-{then}"
            # Graphs are on the device; the other half is on the CPU, unless both halves are on the device.
            places = ["cpu" if then == "graphs" else report.device, report.device if then == "graphs" else "cpu"]
            train(algorithm, replace(settings, rounds=2, executor=first, device=places[0]), out=out)
            run = train(algorithm, replace(settings, executor=then, device=places[1]), out=out, resume=True)
            report.check(f"{first} on {places[0]}, then {then} on {places[1]}", weights(run), truth, FLOAT64)


@contextmanager
def _little_memory(report: Report, more: int) -> Iterator[list[warnings.WarningMessage]]:
    """Inside, this process may take so many bytes more; the warnings of micro-batches that are halved."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(report.device).total_memory
    held = torch.cuda.memory_reserved(report.device)
    index = torch.device(report.device).index  # of "cuda" none, the current device; the word itself is refused here
    torch.cuda.set_per_process_memory_fraction((held + more) / total, index)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            yield told
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, index)


def _out_of_memory(report: Report) -> None:
    """Derivatives whose micro-batch is halved until they fit, beside those of small micro-batches."""
    small = landscape("resnet20_gn", 2048, report.device, "float32")
    few = Landscape(small.model(), small.data, device=report.device, batch_size=64)
    v = few.weights
    wanted = {"gradient": few.gradient(), "product": few.hvp(None, v)}
    tried: dict[str, Callable[[Landscape], torch.Tensor]] = {
        "gradient": lambda tight: tight.gradient(),
        "product": lambda tight: tight.hvp(None, v),
        "recorded product": lambda tight: tight.hessian(recorded=True)(v),  # while a graph is recorded, too
    }
    for what, computed in tried.items():
        with report.trial(f"memory ran out: {what}"):
            with _little_memory(report, 600 << 20) as told:
                found = computed(Landscape(small.model(), small.data, device=report.device, batch_size=2048))
            report.check(f"memory ran out: {what}", found, wanted[what.split()[-1]], 1e-4)
            report.figure(f"halvings of the micro-batch: {what}", len(told), "warnings")
            if not told:
                report.note(f"the memory did not run out: nothing was halved for a {what}")
