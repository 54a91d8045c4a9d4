"""Seconds of a gradient, a forward pass and a Hessian product on one core, for the table of ``figures/graph/cost.py``.

    python benchmarks/figures_speed.py [MODEL ...]

prints a line of that table for each network: seconds of a local step whatever its batch, and seconds a sample of its
gradient, of evaluation and of a product, on random inputs of the size that its paper has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from landscape import Landscape, build_model
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.data.samples import Samples
from landscape.tasks import Task
from trainers.federation.local import Batch, LocalWork, draw
from trainers.parts.parts import Parts

SIZES = {
    "digits_mlp": ((1, 8, 8), 10), "digits_cnn": ((1, 8, 8), 10), "lenet_fed": ((3, 32, 32), 10),
    "convnet_tiny": ((3, 64, 64), 200), "cnn_emnist": ((1, 28, 28), 62), "resnet18_gn": ((3, 32, 32), 10),
    "resnet18_gn_cifar": ((3, 32, 32), 10), "resnet20_gn": ((3, 32, 32), 10),
    "mobilenet_v2_gn": ((3, 224, 224), 2028), "bisenet_v2_gn": ((3, 512, 1024), 19),
}  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """The least of seven, because other work makes each longer and none shorter; of what takes long one is enough."""
    times: list[float] = []
    while len(times) < 7 and sum(times) < 5:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def step_of(module: torch.nn.Module, data: Samples, task: Task, few: int, many: int) -> tuple[float, float]:
    """Seconds of a local step whatever its batch, and of each sample's gradient: the share of one in a large batch, and
    what a small batch takes more than its share."""
    model = FlatModule(module, torch.device("cpu"), torch.float32)
    local = LocalWork(1, None, 0.0, "none", 0, None, "keep", 0.0, "direction", "average", Parts(), task)
    w, random, statistics = model.buffer.clone(), torch.Generator(), BatchStatistics(model.module)

    def step(size: int) -> Callable[[], object]:
        def one() -> object:
            drawn = draw(data, torch.arange(size), local, random, model.dtype)
            return w - 0.1 * Batch(model, drawn, local, statistics).gradient(w)

        return one

    short, long = seconds(step(few)), seconds(step(many))
    sample = long / many
    return max(short - few * sample, 0.0), sample


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"which of {', '.join(SIZES)} (default: all)")
    models = parser.parse_args().models
    if unknown := [name for name in models if name not in SIZES]:
        parser.error(f"there is no size for '{unknown[0]}': give some of {', '.join(SIZES)}")
    torch.set_num_threads(1)
    for name in models or SIZES:
        shape, classes = SIZES[name]
        segments = name.startswith("bisenet")
        few, many = (1, 2) if shape[1] > 64 else (8, 64) if name.startswith("res") else (8, 256)
        many = 1024 if name.startswith("digits") else many
        targets = torch.randint(classes, (many, *shape[1:]) if segments else (many,))
        data = Samples(torch.randn(many, *shape), targets)
        task: Task = "segmentation" if segments else "classification"
        module = build_model(name, seed=0, input_shape=list(shape), classes=classes)
        step, gradient = step_of(module, data, task, few, many)
        landscape = Landscape(module, data, task=task, device="cpu")
        v = torch.randn(landscape.dimension)
        forward = seconds(lambda at=landscape: at.value()) / many
        operator = landscape.hessian()  # it keeps the gradients' graphs between products
        operator(v)
        product = seconds(lambda of=operator, v=v: of(v)) / many
        print(f'    "{name}": Speed({shape}, {step:.1e}, {gradient:.1e}, {forward:.1e}, {product:.1e}),', flush=True)


if __name__ == "__main__":
    main()
