"""Costs of one gradient and one Hessian-vector product, curvlinops' too, and of the trace, on one net."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from hessian_nets import Model, network
from torch import nn

from analysis import Hessian, estimate_trace, largest_eigenpairs
from analysis.hessian.spectrum.trace import rademacher
from landscape import Landscape
from landscape.compute.randomness import torch_generator


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


def curvlinops_product(around: Landscape, model_name: Model, repeats: int, unit: float) -> str:
    """What one product costs in curvlinops, where it is installed, has one for this net, and the product is right."""
    if importlib.util.find_spec("curvlinops") is None:
        return "not installed"
    from curvlinops import HessianLinearOperator

    model, (x, y) = network(model_name).to(around.device), around.data.batch(slice(None), around.dtype)
    model.load_state_dict(around.model().state_dict())
    size, x = around.batch_size, x.contiguous()
    data = [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]
    options = {"progressbar": False, "check_deterministic": False}
    theirs = HessianLinearOperator(model, nn.CrossEntropyLoss(), list(model.parameters()), data, **options)
    v = torch.randn(around.dimension, generator=torch_generator(1, "vectors")).to(around.weights)
    try:
        apart = (theirs @ v - around.hvp(None, v)).norm() / around.hvp(None, v).norm()
        return f"{seconds(lambda: theirs @ v, repeats) / unit:.3f}, {apart:.1e} from ours"
    except (NotImplementedError, RuntimeError) as error:
        return f"has none: {str(error).partition(chr(10))[0]}"


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


def measure(around: Landscape, model: Model, repeats: int) -> dict[str, Any]:
    """All of it, printed."""
    print(f"\n{model}, {around.dimension:,} parameters, {around.samples} images")
    print("products, in gradients of the plain module")
    costs = products(around, repeats)
    for name, value in costs.items():
        print(f"  {name:<32}{value:8.3f}")
    theirs = curvlinops_product(around, model, repeats, costs["gradient seconds"])
    print(f"  curvlinops: {theirs}")
    traces = trace(around)
    print("\ntrace to a standard error of 1 %")
    for name, value in traces.items():
        print(f"  {name:<36}{value:10.4g}")
    return {"products": costs, "curvlinops": theirs, "trace": traces}
