"""Peak memory of a large federation by where its clients' states are kept.

    python benchmarks/client_store.py --folder /tmp      # 1,000 clients of FedSMOO on lenet_fed, states on disk
    python benchmarks/client_store.py --where host --clients 200

A real run on random images in which every client takes part in every round, so that all states are written, read back
and written again.  On disk the files take clients × size twice, and are removed at the end.
"""

from __future__ import annotations

import json
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

from landscape.storage.files import write_json
from trainers import ALGORITHMS, train
from trainers import Settings as RunSettings
from trainers.federation.client_store import Where


@dataclass(frozen=True)
class Settings:
    """What is run."""

    algorithm: str = "fedsmoo"
    """with its default hyper-parameters; FedSMOO's clients keep two vectors"""
    model: str = "lenet_fed"
    """797,962 parameters"""
    clients: int = 1000
    """N, number of clients, all sampled in each round"""
    images: int = 10
    """3x32x32 images a client holds: one local step"""
    rounds: int = 2
    """communication rounds"""
    where: Where = "disk"
    """auto, device, host or disk"""
    folder: Path | None = None
    """for the run, in a new folder in it; the system's folder for temporary files unless given"""
    json: Path | None = None
    """write the figures there"""


def peak_mb() -> float:
    """The largest resident memory of this process until now, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure(settings: Settings, folder: Path) -> dict[str, object]:
    """Run, and say what it took."""
    random = np.random.default_rng(0)
    n = settings.clients * settings.images
    images = {"x_train": random.integers(0, 256, (n, 3, 32, 32), np.uint8), "y_train": np.arange(n) % 10}
    np.savez(folder / "data.npz", **images, x_test=images["x_train"][:100], y_test=images["y_train"][:100])
    before = peak_mb()
    run = train(
        ALGORITHMS.get(settings.algorithm)(),
        RunSettings(
            data=str(folder / "data.npz"),
            model=settings.model,
            partition="iid",
            clients=settings.clients,
            per_round=settings.clients,
            rounds=settings.rounds,
            local_epochs=1,
            batch_size="full",
            lr=0.01,
            eval_every=0,
            save_every=0,
            client_store=settings.where,
            device="cpu",
        ),
        out=folder / "run",
        progress=True,
    )
    states = [file.stat().st_size for file in (run.path / "clients").glob("*.pt")]
    return {
        "status": run.status,
        "peak_memory_MB": peak_mb(),
        "before_the_run_MB": before,
        "states_on_disk": len(states),
        "states_on_disk_MB": sum(states) / 1e6,
        "seconds_per_round": [record["seconds"] for record in run.metrics],
        "of_which_local": [record["seconds_local"] for record in run.metrics],
        "of_which_aggregation": [record["seconds_aggregation"] for record in run.metrics],
    }


def main(settings: Settings) -> None:
    """Measure in a folder of its own, which is removed."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="client-store-", dir=settings.folder) as folder:
        figures = measure(settings, Path(folder))
    print(json.dumps(figures, indent=2))
    if settings.json is not None:
        write_json(settings.json, figures)


if __name__ == "__main__":
    main(tyro.cli(Settings))
