"""Other ways to train the same clients, for ``benchmarks/federation.py``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from landscape import Samples


def forget_peak() -> None:
    """Let the peak of the process's resident memory count anew from now on (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float:
    """GB of resident memory that the process had at most since :func:`forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20


def flower(python: Path, clients: int, each: int, size: int, repeats: int, epochs: int = 2) -> tuple[float, float]:
    """Seconds a step of one client in Flower's simulation, on the clock, and GB of all its processes.

    Raises:
        SystemExit: the interpreter has no Flower, or the simulation failed; what it said is shown.
    """
    words = [str(number) for number in (clients, each, size, epochs, repeats + 1)]
    program = str(Path(__file__).with_name("flower_rounds.py"))
    done = subprocess.run([str(python), program, *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{python} {program} failed:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    steps = clients * epochs * -(-each // size)
    return statistics.median(told["seconds"]) / steps, told["peak GB"]


def bare_sgd(module: nn.Module, samples: Samples, size: int, epochs: int = 2) -> Callable[[], float]:
    """Seconds a step of ``torch.optim.SGD`` on one client's images, normalised before."""
    inputs, targets = samples.batch(slice(None), torch.float32)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=1e-3)

    def one() -> float:
        start, count = time.process_time(), 0
        for _ in range(epochs):
            for rows in torch.randperm(len(targets)).split(size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(inputs[rows]), targets[rows]).backward()
                optimizer.step()
                count += 1
        return (time.process_time() - start) / count

    return one


def jax_clients(clients: int, each: int, size: int, epochs: int = 2) -> Callable[[], float]:
    """Seconds a step of one client where JAX compiles ``vmap`` over clients around ``scan`` over steps.

    The net of ``digits_mlp`` (64-64-32-10, ReLU), SGD with weight decay, the mean of the models at the end.
    """
    import jax
    import jax.numpy as jnp

    widths = (64, 64, 32, 10)
    random = np.random.default_rng(0)
    start = [(jnp.asarray(random.normal(size=(a, b)) / a**0.5, jnp.float32), jnp.zeros(b)) for a, b in pairwise(widths)]
    inputs = jnp.asarray(random.normal(size=(clients, each, 64)), jnp.float32)
    targets = jnp.asarray(random.integers(0, 10, (clients, each)))
    count = epochs * each // size

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        for weight, bias in parameters[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        logits = x @ parameters[-1][0] + parameters[-1][1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()

    def client(parameters: Any, x: Any, y: Any, order: Any) -> Any:
        def step(parameters: Any, rows: Any) -> Any:
            slopes = jax.grad(loss)(parameters, x[rows], y[rows])
            return jax.tree.map(lambda w, g: w - 0.1 * (g + 1e-3 * w), parameters, slopes), None

        return jax.lax.scan(step, parameters, order)[0]

    @jax.jit
    def round_(parameters: Any, orders: Any) -> Any:
        models = jax.vmap(client, in_axes=(None, 0, 0, 0))(parameters, inputs, targets, orders)
        return jax.tree.map(lambda w: w.mean(axis=0), models)

    def one() -> float:
        begun = time.process_time()
        orders = np.stack([
            np.concatenate([random.permutation(each) for _ in range(epochs)]).reshape(count, size)
            for _ in range(clients)
        ])  # fmt: skip
        jax.block_until_ready(round_(start, jnp.asarray(orders)))
        return (time.process_time() - begun) / (count * clients)

    return one


def fl_simulator(folder: Path, train: Samples, test: Samples) -> dict[str, Callable[[], float]]:
    """Seconds of the local work of ten clients by FL-Simulator's own FedAvg client, and of its own test.

    Its classes are taken as they are, with their LeNet, data loaders and clipping; 10 clients of 50 images each, two
    epochs of batches of 50, flipped and cropped.

    Raises:
        SystemExit: the folder is no checkout of it.
    """
    if not (folder / "client" / "fedavg.py").exists():
        raise SystemExit(f"{folder} is no checkout of FL-Simulator: there is no client/fedavg.py")
    # It imports torchvision for downloads and ResNets, which are not used here, and for turning arrays into tensors.
    for name in ("torchvision", "torchvision.models", "torchvision.transforms"):
        sys.modules.setdefault(name, ModuleType(name))
    torchvision = sys.modules["torchvision"]
    for name in ("models", "transforms"):
        if not hasattr(torchvision, name):
            setattr(torchvision, name, sys.modules[f"torchvision.{name}"])
    transforms = sys.modules["torchvision.transforms"]
    if not hasattr(transforms, "Compose"):
        transforms.ToTensor = lambda: lambda image: torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))
        transforms.Compose = lambda steps: steps[0]
    sys.path.insert(0, str(folder))
    try:
        import models
        from client.fedavg import fedavg
        from server.server import Server
    finally:
        sys.path.remove(str(folder))
    models.F = nn.functional  # its import is commented out, and LeNet needs it
    client_model = models.client_model
    inputs, targets = (tensor.contiguous().numpy() for tensor in train.batch(slice(None), torch.float32))
    seen, labels = (tensor.contiguous().numpy() for tensor in test.batch(slice(None), torch.float32))
    args = SimpleNamespace(dataset="CIFAR10", batchsize=50, local_epochs=2, weight_decay=1e-3)
    model = client_model("LeNet", 10)
    received = {"Params_list": torch.cat([p.detach().reshape(-1) for p in model.parameters()])}
    host = torch.device("cpu")

    def local() -> float:
        start = time.process_time()
        for client in range(10):
            rows = slice(50 * client, 50 * (client + 1))
            mine = inputs[rows], targets[rows][:, None]
            fedavg(host, lambda: client_model("LeNet", 10), received, mine, 0.1, args).train()
        return time.process_time() - start

    server = Server.__new__(Server)  # its constructor makes the clients' folders
    server.server_model, server.device, server.args = model, host, args
    server.server_model_params_list = received["Params_list"]

    def tested() -> float:
        start = time.process_time()
        server._validate_((seen, labels[:, None]))
        return time.process_time() - start

    return {"training, FL-Simulator": local, "test, FL-Simulator": tested}
