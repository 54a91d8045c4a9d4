"""The sections of benchmarks/gpu.py that measure speed, beside the targets of issue 17."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from gpu_report import EXECUTORS, IMAGE, QUICK_NET, Job, Report, landscape, seconds, waited
from torch import nn

from analysis import Hessian, largest_eigenpairs
from landscape import Landscape, build_model
from landscape.compute.devices import reproducible_arithmetic
from landscape.compute.precision import PrecisionName
from trainers import FedAvg, FedSMOO, Parts
from trainers.algorithm import Algorithm
from trainers.federation import Federation

CIFAR10 = Job("resnet18_gn", IMAGE, 10, (500,) * 100, per_round=10, batch=50, epochs=5)
CIFAR100 = Job("resnet18_gn", IMAGE, 100, (100,) * 500, per_round=10, batch=20)
QUICK = Job(*QUICK_NET, 10, (20,) * 6, per_round=2, batch=10, epochs=2)
DIGITS = Job("digits_mlp", (1, 8, 8), 10, (72,) * 20, per_round=20, batch=32, epochs=2)
TARGETS = {"fedavg": 0.5, "fedsmoo": 1.0}
"""Seconds a round of 10 clients × 500 images × 5 epochs (an A100 took 13.3 and 23.5 in FedSMOO's paper; the fastest
published simulator, BlazeFL, about 10,900 samples a second, which is 2.3)."""
CIFAR100_ROUND = 600 / 4000
"""4,000 rounds in ten minutes (FLUTE: 1 h 42 min)."""
SAVING: tuple[PrecisionName, ...] = ("float32", "tf32", "bf16")


def _round(report: Report, made: Federation) -> float:
    """Seconds of the second round; the first starts kernels and records graphs."""
    made.step()
    waited(report.device)
    start = time.perf_counter()
    made.step()
    waited(report.device)
    return time.perf_counter() - start


def _precisions(report: Report) -> tuple[PrecisionName, ...]:
    return SAVING if report.cuda else ("float32", "bf16")


def rounds(report: Report) -> None:
    """A round in every executor and precision: CIFAR-10 shapes, the digits, CIFAR-100 with 500 clients."""
    job = QUICK if report.quick else CIFAR10
    samples = job.samples().to(report.device)
    algorithms: dict[str, Algorithm] = {"fedavg": FedAvg(), "fedsmoo": FedSMOO()}
    for executor in ("graphs", "sequential"):
        for dtype in _precisions(report):
            for name, algorithm in algorithms.items():
                what = f"{job.model}, {name}, {executor}, {dtype}"
                if not report.over(what):
                    with report.trial(what):
                        made = job.federation(algorithm, Parts(), executor, report.device, dtype, samples)
                        report.figure(what, _round(report, made), f"s a round of {job.steps} steps", TARGETS[name])
    for executor in EXECUTORS:
        for name, algorithm in algorithms.items():
            what = f"digits_mlp, {name}, {executor}"
            if not report.over(what):
                with report.trial(what):
                    spent = _round(report, DIGITS.federation(algorithm, Parts(), executor, report.device, "float32"))
                    report.figure(what, 1e6 * spent / DIGITS.steps, "μs a client's step")
    many = QUICK if report.quick else CIFAR100
    samples = many.samples().to(report.device)
    for dtype in _precisions(report):
        for executor in ("graphs", "sequential"):
            what = f"{len(many.sizes)} clients, fedavg, {executor}, {dtype}"
            if not report.over(what):
                with report.trial(what):
                    made = many.federation(FedAvg(), Parts(), executor, report.device, dtype, samples)
                    report.figure(what, _round(report, made), "s a round", CIFAR100_ROUND)


def spectrum(report: Report) -> None:
    """A product in gradients, and the largest eigenvalues over all images of CIFAR-10's number."""
    (model, shape), n = (QUICK_NET, 64) if report.quick else (("resnet18_gn", IMAGE), 1024)
    types = ("float32", "tf32") if report.cuda else ("float32",)
    each = float("inf")
    for dtype in types:
        if not report.over(f"{model}, {dtype}"):
            with report.trial(f"{model}, {dtype}"):
                there = landscape(model, n, report.device, dtype, shape)
                gradient, again = _products(report, model, there)
                each = again / n
                if report.cuda:
                    _recorded(report, there, f"{model}, {dtype}", gradient)
    if report.cuda:
        with report.trial(f"{QUICK_NET[0]}, recorded"):
            small = landscape(QUICK_NET[0], 1024, report.device, "float32", QUICK_NET[1])
            _recorded(report, small, QUICK_NET[0], seconds(small.gradient, report.device))
    k, whole = (3, 64) if report.quick else (50, 50_000)
    if each * whole * 3 * k > report.until - time.perf_counter():
        report.note(f"the top {k} of {whole} images would take about {3 * k * each * whole:.0f} s: left out")
        return
    with report.trial(f"the top {k}"):
        operator = Hessian(landscape(model, whole, report.device, types[-1], shape))
        start = time.perf_counter()
        largest_eigenpairs(operator, k)
        report.figure(f"{model}, {whole} images, {types[-1]}: top {k}", time.perf_counter() - start, "s", 60.0)
        report.figure("products that it took", operator.products, "products")


def _products(report: Report, model: str, there: Landscape) -> tuple[float, float]:
    """Seconds of a gradient, and of a product with a kept graph; products are told in gradients.

    What is kept fills a quarter of the memory, and is freed at the end.
    """
    v, what = there.weights / there.weights.norm(), f"{model}, {there.precision}"
    gradient, kept = seconds(there.gradient, report.device), there.hessian()
    once, again = seconds(lambda: there.hvp(None, v), report.device), seconds(lambda: kept(v), report.device)
    report.figure(f"{what}, {there.samples} images: gradient", gradient, "s")
    report.figure(f"{what}: product", once / gradient, "gradients", 2.0)
    report.figure(f"{what}: product, graph kept", again / gradient, "gradients", 2.0)
    return gradient, again


def _recorded(report: Report, there: Landscape, what: str, gradient: float) -> None:
    v, plain, recorded = there.weights, there.hessian(graph_memory=0), there.hessian(recorded=True)
    report.figure(f"{what}: product, eager", seconds(lambda: plain(v), report.device) / gradient, "gradients")
    report.figure(
        f"{what}: product, recorded", seconds(lambda: recorded(v), report.device) / gradient, "gradients", 2.0
    )


def precisions(report: Report) -> None:
    """The training loss of each precision after some rounds on the same batches."""
    job = QUICK if report.quick else Job("lenet_fed", IMAGE, 10, (200,) * 10, per_round=5, batch=50, epochs=2)
    for dtype in ("float64", *_precisions(report)):
        for executor in ("sequential", "graphs"):
            what = f"{job.model}, {dtype}, {executor}"
            if not report.over(what):
                with report.trial(what):
                    made = job.federation(FedAvg(), Parts(), executor, report.device, dtype)
                    losses = [made.step().train_loss for _ in range(5)]
                    report.figure(f"{what}: loss after 5 rounds", losses[-1], "nats")


def layouts(report: Report) -> None:
    """What deterministic convolutions in PyTorch's default layout cost a step: bare PyTorch in each way."""
    model = "convnet_tiny" if report.quick else "resnet18_gn"
    device = torch.device(report.device)
    for dtype in _precisions(report):
        for layout in (torch.contiguous_format, torch.channels_last):
            for free in (False, True):
                what = f"{model}, {dtype}, {str(layout)[6:]}, {'free' if free else 'deterministic'} cuDNN"
                if report.over(what):
                    continue
                with report.trial(what):
                    with reproducible_arithmetic(dtype == "tf32"):
                        if report.cuda:
                            torch.backends.cudnn.benchmark = free
                            torch.backends.cudnn.deterministic = not free
                        spent = seconds(
                            _bare_step(model, device, layout, dtype == "bf16"), report.device, 2 if report.quick else 10
                        )
                    report.figure(what, 1e3 * spent, "ms a step of 50")


def _bare_step(model: str, device: torch.device, layout: torch.memory_format, bf16: bool) -> Callable[[], None]:
    net: nn.Module = build_model(model, seed=0, input_shape=(3, 32, 32), classes=10).to(device)
    net = net.to(memory_format=layout)  # type: ignore[call-overload]
    x = torch.randn(50, 3, 32, 32, device=device).to(memory_format=layout)
    y, optimizer = torch.arange(50, device=device) % 10, torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            outputs = net(x)
        nn.functional.cross_entropy(outputs.float(), y).backward()
        optimizer.step()

    return step
