"""Hessian-vector products, top eigenvalues and trace against PyHessian, SciPy's eigsh and curvlinops, in one run.

    python benchmarks/hessian.py                       # the GroupNorm CNN, 128 images, top 10; some minutes
    python benchmarks/hessian.py --samples 512 --top 50 --model resnet18_gn --json result.json

All do the same work: the Hessian of the mean cross-entropy over the same images at the same weights, those of a
net trained to a low loss (--steps 40: far from a minimum).  Times are medians; the figures that count are the ratios
of one run.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import nn

from analysis import Hessian, estimate_trace, largest_eigenpairs
from analysis.hessian.pyhessian import pyhessian_report
from analysis.hessian.spectrum.trace import rademacher
from landscape import Landscape, build_model
from landscape.compute.randomness import torch_generator


@dataclass(frozen=True)
class Settings:
    """What is timed."""

    model: Literal["cnn", "resnet18_gn"] = "cnn"
    """cnn: the GroupNorm CNN with 274 k parameters"""
    samples: int = 128
    """images, 3x32x32"""
    top: int = 10
    """eigenvalues"""
    steps: int = 160
    """steps of SGD before the measurement: 160 end near a minimum, 40 far from one"""
    repeats: int = 3
    """timings of a product, of which the median counts"""
    threads: int = 1
    """CPU threads"""
    device: str = "cpu"
    """cpu or cuda"""
    pyhessian: bool = True
    """run PyHessian (the slowest part)"""
    pyhessian_tolerance: tuple[float, ...] = (1e-3, 1e-4, 1e-5)
    """its stopping rule: the first is its default, smaller ones follow until all values are right within 1e-3"""
    json: Path | None = None
    """write the figures there"""


def cnn() -> nn.Module:
    """Five 3x3 convolutions with GroupNorm, two dense layers; 273,962 parameters."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64), *block(64, 64), nn.MaxPool2d(2),
        *block(64, 128), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def network(settings: Settings) -> nn.Module:
    """The net before training."""
    torch.manual_seed(0)
    return (
        cnn() if settings.model == "cnn" else build_model(settings.model, seed=0, input_shape=(3, 32, 32), classes=10)
    )


def landscape(settings: Settings) -> Landscape:
    """A trained net and its images: noise around one random pattern a class."""
    draw = torch_generator(0, "benchmark")
    labels = torch.arange(settings.samples) % 10
    patterns = torch.randn(10, 3, 32, 32, generator=draw)
    images = patterns[labels] + 2 * torch.randn(settings.samples, 3, 32, 32, generator=draw)
    model = network(settings)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(settings.steps):
        batch = torch.arange(32 * step, 32 * step + 32) % settings.samples
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimiser.step()
    return Landscape(model, (images, labels), device=settings.device, batch_size=128)


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median time of a call, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def products(around: Landscape, repeats: int) -> dict[str, float]:
    """Costs in units of one plain gradient over the same images: PyTorch's, in its default layout."""
    model, (x, y) = around.model(), around.data.batch(slice(None), around.dtype)
    plain = x.contiguous()
    parameters = list(model.parameters())

    def gradient() -> None:
        for first in range(0, len(x), around.batch_size):
            part = slice(first, first + around.batch_size)
            torch.autograd.grad(nn.functional.cross_entropy(model(plain[part]), y[part]), parameters)

    unit = seconds(gradient, repeats)
    v = torch.randn(8, around.dimension, generator=torch_generator(1, "vectors")).to(around.weights)
    kept = around.hessian()
    return {
        "gradient seconds": unit,
        "our gradient": seconds(around.gradient, repeats) / unit,
        "one product": seconds(lambda: around.hvp(None, v[0]), repeats) / unit,
        "one product, graph kept": seconds(lambda: kept(v[0]), repeats) / unit,
        "each of 8 products": seconds(lambda: around.hvp(None, v), repeats) / unit / 8,
        "each of 8 products, graph kept": seconds(lambda: kept(v), repeats) / unit / 8,
    }


def curvlinops_product(around: Landscape, settings: Settings, unit: float) -> str:
    """What one product costs in curvlinops, where it is installed, has one for this net, and the product is right."""
    if importlib.util.find_spec("curvlinops") is None:
        return "not installed"
    from curvlinops import HessianLinearOperator

    model, (x, y) = network(settings).to(around.device), around.data.batch(slice(None), around.dtype)
    model.load_state_dict(around.model().state_dict())
    size, x = around.batch_size, x.contiguous()
    data = [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]
    options = {"progressbar": False, "check_deterministic": False}
    theirs = HessianLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), data, **options)
    v = torch.randn(around.dimension, generator=torch_generator(1, "vectors")).to(around.weights)
    try:
        apart = (theirs @ v - around.hvp(None, v)).norm() / around.hvp(None, v).norm()
        return f"{seconds(lambda: theirs @ v, settings.repeats) / unit:.3f}, {apart:.1e} from ours"
    except (NotImplementedError, RuntimeError) as error:
        return f"has none: {str(error).partition(chr(10))[0]}"


def eigenvalues(around: Landscape, settings: Settings) -> dict[str, dict[str, float]]:
    """Products, seconds and the worst relative error of each method; the truth is eigsh at full tolerance."""
    truth_operator, k = Hessian(around), settings.top

    def multiply(v: np.ndarray) -> np.ndarray:
        return (truth_operator @ torch.from_numpy(v.ravel().copy()).to(around.weights)).cpu().numpy()

    d = around.dimension
    as_scipy = LinearOperator((d, d), multiply, dtype=np.float32)
    truth = eigsh(as_scipy, k=k, which="LA", tol=1e-6, return_eigenvectors=False)[::-1]
    results = {}

    def record(name: str, values: np.ndarray, count: int, start: float) -> None:
        error = float(np.abs(np.sort(values)[::-1] / truth - 1).max())
        results[name] = {"products": count, "seconds": time.perf_counter() - start, "worst relative error": error}

    start, hessian = time.perf_counter(), Hessian(around)
    found = largest_eigenpairs(hessian, k)
    record("fedscape", found.values, found.products, start)
    start, truth_operator.products = time.perf_counter(), 0
    record("eigsh, tol 1e-3", eigsh(as_scipy, k=k, which="LA", tol=1e-3, return_eigenvectors=False),
           truth_operator.products, start)  # fmt: skip
    for tolerance in settings.pyhessian_tolerance if settings.pyhessian else ():
        name = f"PyHessian, tol {tolerance:.0e}"
        report = pyhessian_report(around, k, trace=False, tolerance=tolerance, max_iterations=1000)
        record(name, report.eigen.values, report.hvps, time.perf_counter())
        results[name]["seconds"] = report.seconds
        if results[name]["worst relative error"] <= 1e-3:
            break
    return results


def trace(around: Landscape) -> dict[str, float]:
    """Products to a standard error of 1 %: ours counted, Hutchinson's from the spread of 40 of its samples."""
    found = estimate_trace(Hessian(around), tolerance=0.01, max_probes=2000)
    eigen = largest_eigenpairs(Hessian(around), 10)
    after = estimate_trace(Hessian(around), eigen.krylov, tolerance=0.01, max_probes=2000)
    z = rademacher(around.dimension, 40, torch_generator(2, "hutchinson")).to(around.weights)
    samples = (z.double() * Hessian(around).matmat(z).double()).sum(dim=0).cpu().numpy()
    spread = float(samples.std(ddof=1)) / abs(found.value)
    hutchinson = (spread / 0.01) ** 2
    low, high = found.interval()
    return {
        "loss": around.value(), "trace": found.value, "95 % from": low, "95 % to": high,
        "Hutchinson's mean of 40": float(samples.mean()), "spread of one of its samples": spread,
        "our products to 1 %": found.products, "of these Lanczos steps": found.deflated,
        "our products after 10 eigenvalues": after.products, "Hutchinson's products to 1 %": hutchinson,
        "ratio": hutchinson / found.products, "ratio after 10 eigenvalues": hutchinson / after.products,
    }  # fmt: skip


def main(settings: Settings) -> None:
    """Measure, print, write."""
    torch.set_num_threads(settings.threads)
    around = landscape(settings)
    print(f"{settings.model}, {around.dimension:,} parameters, {settings.samples} images, {settings.threads} threads, "
          f"{settings.device}, torch {torch.__version__}")  # fmt: skip
    figures: dict[str, Any] = {"parameters": around.dimension, "samples": settings.samples, "model": settings.model}
    figures["products"] = products(around, settings.repeats)
    print("\nproducts, in gradients of the plain module")
    for name, value in figures["products"].items():
        print(f"  {name:<32}{value:8.3f}")
    theirs = curvlinops_product(around, settings, figures["products"]["gradient seconds"])
    figures["curvlinops"] = theirs
    print(f"  curvlinops: {theirs}")
    figures["eigenvalues"] = eigenvalues(around, settings)
    print(f"\ntop {settings.top} eigenvalues")
    ours = figures["eigenvalues"]["fedscape"]
    for name, row in figures["eigenvalues"].items():
        times = row["products"] / ours["products"], row["seconds"] / ours["seconds"]
        cost = f"{row['products']:6.0f} products {row['seconds']:9.2f} s"
        ratio = f"{times[0]:.1f} and {times[1]:.1f} times ours"
        print(f"  {name:<22}{cost}  error {row['worst relative error']:.1e}  ({ratio})")
    figures["trace"] = trace(around)
    print("\ntrace to a standard error of 1 %")
    for name, value in figures["trace"].items():
        print(f"  {name:<36}{value:10.4g}")
    if settings.json is not None:
        settings.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main(tyro.cli(Settings))
