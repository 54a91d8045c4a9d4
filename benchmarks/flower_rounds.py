"""FedAvg rounds by Flower's simulation, for ``benchmarks/federation.py --flower PYTHON``.

Run by an interpreter that has flwr[simulation] and torch, and nothing of ours:

    PYTHON benchmarks/flower_rounds.py CLIENTS SAMPLES_EACH BATCH EPOCHS ROUNDS

The net of ``digits_mlp`` (64-64-32-10, ReLU) on noise, SGD with weight decay, one actor with one CPU thread.  The last
line is a JSON object: seconds on the clock of each round after the first, and the peak memory of all its processes.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

CLIENTS, EACH, BATCH, EPOCHS, ROUNDS = (int(word) for word in sys.argv[1:6])


def net() -> nn.Module:
    """The dense net of ``digits_mlp``."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def weights(module: nn.Module) -> list[np.ndarray]:
    """Its parameters, as Flower sends them."""
    return [value.detach().numpy().copy() for value in module.state_dict().values()]


class Client(NumPyClient):  # type: ignore[misc]
    """A client's local epochs of plain SGD."""

    def __init__(self, number: int) -> None:
        torch.set_num_threads(1)
        draw = torch.Generator().manual_seed(number)
        self.inputs = torch.randn(EACH, 64, generator=draw)
        self.targets = torch.randint(0, 10, (EACH,), generator=draw)

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """The local model, and how many samples it is of."""
        module = net()
        names = module.state_dict().keys()
        module.load_state_dict({k: torch.from_numpy(v) for k, v in zip(names, parameters, strict=True)})
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(EACH).split(BATCH):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(self.inputs[rows]), self.targets[rows]).backward()
                optimizer.step()
        return weights(module), EACH, {}


def peak_memory() -> float:
    """GB of this process and all below it, the sum of each one's peak."""
    below: dict[int, list[int]] = {}
    peaks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "status").read_text().splitlines()
        except OSError:  # it has ended meanwhile
            continue
        facts = dict(line.split(":", 1) for line in lines)
        if "VmHWM" in facts:
            peaks[int(folder.name)] = int(facts["VmHWM"].split()[0])
            below.setdefault(int(facts["PPid"]), []).append(int(folder.name))
    mine, found = [int(Path("/proc/self").resolve().name)], 0
    while mine:
        process = mine.pop()
        found += peaks.get(process, 0)
        mine += below.get(process, [])
    return found / 2**20


def main() -> None:
    """Run the rounds; print when each was over."""
    over: list[float] = []
    memory = [0.0]

    def evaluate(number: int, parameters: list[np.ndarray], config: dict[str, Any]) -> None:
        over.append(time.perf_counter())
        if number == ROUNDS:
            memory[0] = peak_memory()

    strategy = FedAvg(
        fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=CLIENTS, min_available_clients=CLIENTS,
        initial_parameters=ndarrays_to_parameters(weights(net())), evaluate_fn=evaluate,
    )  # fmt: skip

    def components(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS))

    def client(context: Context) -> Any:
        return Client(int(context.node_config["partition-id"])).to_client()

    run_simulation(
        server_app=ServerApp(server_fn=components),
        client_app=ClientApp(client_fn=client),
        num_supernodes=CLIENTS,
        backend_config={"init_args": {"num_cpus": 1}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    # The first of these is the initial model; the first round starts the actor.
    seconds = [after - before for before, after in pairwise(over[1:])]
    print(json.dumps({"seconds": seconds, "peak GB": memory[0]}))


if __name__ == "__main__":
    main()
