"""Small runs and measurements that continue from a file."""

from __future__ import annotations

import shutil
from pathlib import Path

from analysis.hessian.spectrum import resume
from analysis.hessian.spectrum.eigen import extreme_eigenpairs
from analysis.hessian.spectrum.operators import Report
from analysis.surface.directions import Directions
from landscape import Checkpoint, ParameterSpace
from tests.analysis.hessian.spectrum.spectra import matrix
from tests.conftest import REPOSITORY
from trainers import SAM, FedAvg, Momentum, Parts, Scaffold, Settings, train
from trainers.runs.planned import PlannedRun, RunStore

STORED = REPOSITORY / "tests" / "stored" / "2026-11"


def begin(folder: Path, parts: bool) -> Path:
    """A run of two rounds; returns its folder."""
    _train(folder, 2, parts, resume=False)
    return folder


def go_on(folder: Path, parts: bool) -> None:
    """Continue a copy of it by a round."""
    copy = folder.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    _train(copy, 3, parts, resume=True)


def _train(folder: Path, rounds: int, parts: bool, *, resume: bool) -> None:
    chosen = Parts(ascent=SAM(0.05), server_optimizer=Momentum(0.9)) if parts else Parts()
    settings = Settings(
        rounds=rounds, evaluated_model="all-clients-mean" if parts else "server", clients=4, per_round=2, local_steps=1,
        device="cpu", save_every=0, client_store="disk" if parts else "host",
    )  # fmt: skip
    train(FedAvg() if parts else Scaffold(), settings, chosen, out=folder, resume=resume)


class _Stopped(Exception):
    """In the middle of a measurement."""


def half_done_eigenvalues(path: Path) -> Path:
    """The file of eigenvalues that were stopped after some products."""
    resume._KEEP_SECONDS, resume._COST_SHARE = 0.0, 1e9

    def stop(products: int, error: float) -> None:
        if products == 15:
            raise _Stopped

    try:
        eigenvalues(path, stop)
    except _Stopped:
        return path
    raise AssertionError("it was not stopped")


def eigenvalues(path: Path, report: Report | None = None) -> None:
    """Eigenvalues that go on from the file."""
    operator, _ = matrix("spread")
    extreme_eigenpairs(operator, 2, which="both", tolerance=1e-6, state=path, report=report)


def read_directions(path: Path) -> None:
    """Directions for the model of a stored checkpoint."""
    space = ParameterSpace.of(Checkpoint.load(STORED / "scaffold" / "ckpt.pt").build_model())
    str(Directions.load(path, space))


def failure(path: Path) -> None:
    """The reason of a run that failed."""
    store = RunStore(path.parent / "runs")
    run = PlannedRun(Scaffold(), Settings(rounds=1))
    store.path(run).mkdir(parents=True, exist_ok=True)
    shutil.copy(path, store.path(run) / "failure.json")
    str(store.failure(run))
