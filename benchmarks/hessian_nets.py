"""Nets to measure, and the time of their eigenvalues: ours, eigsh's on the same products, peers'."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from hessian_methods import Answer, eigenthings, ours, pyhessian, relative_error, scipy
from torch import nn

from landscape import Landscape, build_model, load_dataset
from landscape.compute.randomness import torch_generator

Model = Literal["cnn", "lenet_fed", "digits_mlp", "resnet20_gn", "resnet18_gn"]
IMAGES: dict[Model, int] = {"cnn": 128, "lenet_fed": 128, "digits_mlp": 1442, "resnet20_gn": 64, "resnet18_gn": 16}
LARGE: tuple[Model, ...] = ("resnet18_gn",)
"""Nets of which five eigenvalues are measured, once, and never by PyHessian."""
_BATCH = 32


def cnn() -> nn.Module:
    """Five 3x3 convolutions with GroupNorm, two dense layers; 273,962 parameters."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU()]

    return nn.Sequential(
        *block(3, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64), *block(64, 64), nn.MaxPool2d(2),
        *block(64, 128), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def network(model: Model) -> nn.Module:
    """The net before training."""
    if model == "cnn":
        torch.manual_seed(0)
        return cnn()
    shape = (1, 8, 8) if model == "digits_mlp" else (3, 32, 32)
    return build_model(model, seed=0, input_shape=shape, classes=10)


def images(model: Model, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The digits for their net, and for others noise around one random pattern a class."""
    if model == "digits_mlp":
        return load_dataset("digits").train.batch(slice(0, count), torch.float32)
    draw = torch_generator(0, "benchmark")
    labels = torch.arange(count) % 10
    patterns = torch.randn(10, 3, 32, 32, generator=draw)
    return patterns[labels] + 2 * torch.randn(count, 3, 32, 32, generator=draw), labels


def landscape(model: Model, steps: int, device: str, count: int | None = None) -> Landscape:
    """A net trained by so many steps of SGD, and its images."""
    x, y = images(model, count or IMAGES[model])
    net = network(model)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    for step in range(steps):
        batch = torch.arange(_BATCH * step, _BATCH * step + _BATCH) % len(x)
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimiser.step()
    return Landscape(net, (x, y), device=device)


def time_eigenvalues(model: Model, steps: int, device: str, repeats: int, peers: bool, slow: bool) -> dict[str, Any]:
    """Products, seconds and the worst relative error of each method on one net; prints a line for each.

    The truth is eigsh's at a tolerance of 1e-6.  Each repeat has another start, ours and eigsh take turns, and
    medians count.

    Args:
        model: the net.
        steps: of SGD before.
        device: of the net.
        repeats: of ours and eigsh, each from another start.
        peers: whether hessian-eigenthings is timed too.
        slow: whether PyHessian is, on all but the largest nets.
    """
    large = model in LARGE
    around, k = landscape(model, steps, device), 5 if large else 10
    truth = scipy(around, k, seed=repeats, tolerance=1e-6).values
    title = f"{model}, {around.dimension:,} parameters, {around.samples} images, loss {around.value():.3g}, top {k}"
    print(f"\n{title}\n  {'':<34}{'products':>9}{'seconds':>9}  worst relative error")
    rows: dict[str, Any] = {}

    def record(name: str, answers: Sequence[Answer]) -> None:
        def median(of: Callable[[Answer], float]) -> float:
            return statistics.median(of(answer) for answer in answers)

        rows[name] = {
            "products": median(lambda answer: answer.products),
            "searched": median(lambda answer: answer.searched),
            "seconds": median(lambda answer: answer.seconds),
            "worst relative error": max(relative_error(answer.values, truth) for answer in answers),
        }
        row = rows[name]
        search = f"  {row['searched']:.0f} of the products search for copies" if row["searched"] else ""
        cost = f"{row['products']:9.0f}{row['seconds']:9.2f}"
        print(f"  {name:<34}{cost}  {row['worst relative error']:.1e}{search}", flush=True)

    seeds = range(1 if large else repeats)
    ours(around, 1, seed=0)  # the first products of a process are slower
    pairs = [(ours(around, k, seed), scipy(around, k, seed)) for seed in seeds]
    record("fedscape", [mine for mine, _ in pairs])
    record("eigsh, tol 0.001", [theirs for _, theirs in pairs])
    for name, answer in eigenthings(around, k, truth) if peers else ():
        record(name, [answer])
    for name, answer in pyhessian(around, k, truth) if slow and not large else ():
        record(name, [answer])
    shares = {
        "with the search": [mine.seconds / theirs.seconds for mine, theirs in pairs],
        "search apart": [mine.apart / theirs.seconds for mine, theirs in pairs if mine.apart is not None],
    }
    ratios = {name: statistics.median(values) for name, values in shares.items()}
    verdicts = [f"{ratio:.2f} {name} ({'met' if ratio <= 1 else 'missed'})" for name, ratio in ratios.items()]
    print(f"  seconds, ours/eigsh: {', '.join(verdicts)}")
    return {"net": title, "model": model, "k": k, "methods": rows, "seconds to eigsh": ratios}
