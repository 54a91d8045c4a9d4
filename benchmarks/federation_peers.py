"""Other ways to train the same clients, for ``benchmarks/federation.py``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from landscape import Samples


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
    import numpy as np

    widths = (64, 64, 32, 10)
    random = np.random.default_rng(0)
    start = [
        (jnp.asarray(random.normal(size=(a, b)) / a**0.5, jnp.float32), jnp.zeros(b))
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    ]
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
    """Seconds of the local work of ten clients by FL-Simulator's own FedAvg client, and of its test loop.

    Its class is taken as it is (``client/fedavg.py`` of the checkout) with its LeNet; 10 clients of 50 images each, two
    epochs of batches of 50.

    Raises:
        SystemExit: the folder is no checkout of it.
    """
    if not (folder / "client" / "fedavg.py").exists():
        raise SystemExit(f"{folder} is no checkout of FL-Simulator: there is no client/fedavg.py")
    sys.path.insert(0, str(folder))
    try:
        from client.fedavg import fedavg
        from models import client_model
    finally:
        sys.path.remove(str(folder))
    inputs, targets = (tensor.contiguous() for tensor in train.batch(slice(None), torch.float32))
    seen, labels = (tensor.contiguous() for tensor in test.batch(slice(None), torch.float32))
    args = SimpleNamespace(
        dataset="CIFAR10", batchsize=50, local_epochs=2, local_learning_rate=0.1, weight_decay=1e-3, lr_decay=1.0,
        model="LeNet", max_norm=10.0,
    )  # fmt: skip
    model = client_model("LeNet", [10, True])
    received = {"Params_list": torch.cat([p.detach().reshape(-1) for p in model.parameters()])}

    def local() -> float:
        start = time.process_time()
        for client in range(10):
            rows = slice(50 * client, 50 * (client + 1))
            mine = inputs[rows].numpy(), targets[rows].numpy()[:, None]
            made = fedavg(torch.device("cpu"), lambda name: model, received, mine, 0.1, args)
            made.train()
        return time.process_time() - start

    def tested() -> float:
        start = time.process_time()
        with torch.no_grad():
            for x, y in zip(seen.split(50), labels.split(50), strict=True):
                nn.functional.cross_entropy(model(x), y).item()
        return time.process_time() - start

    return {"training, FL-Simulator": local, "test, FL-Simulator": tested}
