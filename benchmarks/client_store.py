"""Memory and time of the client states of a large federation, by where they are kept.

    python benchmarks/client_store.py --folder /tmp/states   # 1,000 clients of FedSMOO on lenet_fed, on disk
    python benchmarks/client_store.py --where host --clients 200

Every client's state is changed once a round, which is more than sampling does; what is read back is checked.
On disk the files take clients × size twice, and are removed at the end.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from landscape import FedscapeError
from landscape.files import write_json
from trainers import State
from trainers.client_store import ClientStore, Where


@dataclass(frozen=True)
class Settings:
    """What is kept."""

    clients: int = 1000
    """N, number of clients"""
    vectors: int = 2
    """vectors a client keeps: 2 for FedSMOO"""
    parameters: int = 797_962
    """their length: 797,962 for lenet_fed with 10 classes"""
    rounds: int = 2
    """times that every client's state is changed"""
    where: Where = "disk"
    """auto, device, host or disk"""
    folder: Path | None = None
    """for the files of disk, in a new folder in it; the system's folder for temporary files unless given"""
    json: Path | None = None
    """write the figures there"""


def peak_mb() -> float:
    """The largest resident memory of this process until now, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(settings: Settings, folder: Path) -> dict[str, object]:
    """Change all states in each round, and time it."""
    names = [f"v{i}" for i in range(settings.vectors)]
    store = ClientStore(
        lambda: {name: torch.zeros(settings.parameters) for name in names},
        torch.device("cpu"),
        where=settings.where,
        folder=folder,
        clients=settings.clients,
    )
    print(store.describe(), flush=True)
    before, fetching, putting = peak_mb(), 0.0, 0.0
    for round in range(1, settings.rounds + 1):
        for client in range(settings.clients):
            start = time.perf_counter()
            state = store.fetch(client)
            if any(float(getattr(state, name)[-1]) != client * (round - 1) for name in names):
                raise FedscapeError(f"the state of client {client} is not what was put")
            read = time.perf_counter()
            new = State(**{name: getattr(state, name) + client for name in names})
            changed = time.perf_counter()
            store.put(client, new)
            fetching, putting = fetching + read - start, putting + time.perf_counter() - changed
        store.export()
        store.settle()
    done = settings.clients * settings.rounds
    on_disk = sum(os.stat(file).st_size for file in folder.iterdir())
    return {
        "where": store.where,
        "states_MB": settings.clients * settings.vectors * settings.parameters * 4 / 1e6,
        "peak_memory_MB": peak_mb(),
        "memory_added_MB": peak_mb() - before,
        "expected_MB": store.peak_memory / 1e6,
        "disk_MB": on_disk / 1e6,
        "fetch_ms": 1000 * fetching / done,
        "put_ms": 1000 * putting / done,
    }


def main(settings: Settings) -> None:
    """Measure in a folder of its own, which is removed."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="client-states-", dir=settings.folder))
    try:
        figures = measure(settings, folder)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(figures, indent=2))
    if settings.json is not None:
        write_json(settings.json, figures)


if __name__ == "__main__":
    main(tyro.cli(Settings))
