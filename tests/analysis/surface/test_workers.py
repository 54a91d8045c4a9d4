"""Points measured by several processes are those of one, and no process is left behind or waited for in vain."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import analysis.surface.workers
from analysis.surface import Surface, measure_surface, points
from analysis.surface.planes import random_plane
from analysis.surface.points import Points
from analysis.surface.workers import Workers, workers_for
from landscape import FedscapeError, Landscape
from tests.analysis.surface.test_store import assert_same, save_checkpoint
from tests.conftest import REPOSITORY
from tests.processes import group_of, python, run_process, run_ranks, start_process

CPU = torch.device("cpu")
PLACES = [(0.25 * k, -1.0 * k) for k in range(23)]
LONG = 600.0
"""Seconds, which nobody waits for unless something is wrong: a loaded machine takes its time."""


@pytest.fixture
def spawned(monkeypatch):
    """As on a system that cannot fork."""
    monkeypatch.setattr(analysis.surface.workers.sys, "platform", "darwin")


class Told:
    """Measures what it is told."""

    names = ("value", "process")
    device = CPU

    def __init__(self, what=lambda x, y: x + y) -> None:
        self.what = what

    def measure(self, x: float, y: float) -> dict[str, float]:
        return {"value": self.what(x, y), "process": float(os.getpid())}


def found(told: Told, processes: int) -> dict[int, dict[str, float]]:
    with Workers(told, processes).started() as crew:
        pairs = list(crew.measure(PLACES))
    assert len(pairs) == len(PLACES)
    return dict(pairs)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_place_is_measured_once_with_its_own_values(processes):
    together, met = multiprocessing.get_context("fork").Barrier(processes), []

    def meeting(x, y):
        if not met:  # the first of this process: all have one
            met.append(together.wait(LONG))
        return 10 * x + y

    values = found(Told(meeting), processes)
    assert {k: row["value"] for k, row in values.items()} == {k: 10 * x + y for k, (x, y) in enumerate(PLACES)}
    measuring = {row["process"] for row in values.values()}
    assert (
        measuring == {os.getpid()} if processes == 1 else (len(measuring) == processes and os.getpid() not in measuring)
    )


def test_what_is_raised_in_a_process_is_raised_here():
    def refuse(x, y):
        raise FedscapeError(f"no value at {x}")

    with pytest.raises(FedscapeError, match="no value at 0"):
        found(Told(refuse), 2)


def test_a_process_that_was_killed_is_told_in_a_sentence():
    def die(x, y):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(FedscapeError, match=r"a worker process was killed.*fewer --workers"):
        found(Told(die), 2)


def test_an_interrupt_waits_for_no_point():
    def interrupted():
        with Workers(Told(lambda x, y: time.sleep(LONG * (x > 0)) or x), 2).started() as crew:
            next(iter(crew.measure(PLACES)))
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - start < LONG


def tell(x: float, y: float) -> None:
    os.write(1, f"{os.getpid()}\n".encode())  # at once: print may write the line and its end in turn
    time.sleep(2 * LONG)  # each process has a place


ORPHANS = """
import analysis.surface.workers
from tests.analysis.surface.test_workers import Told, tell

with analysis.surface.workers.Workers(Told(tell), 2).started() as crew:
    list(crew.measure([(0.0, 0.0), (1.0, 1.0)]))
"""
SPAWNED = "import analysis.surface.workers; analysis.surface.workers._can_fork = lambda: False"
EITHER_WAY = pytest.mark.parametrize(
    "before", [pytest.param("", id="forked"), pytest.param(SPAWNED, id="spawned", marks=pytest.mark.slow)]
)


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@EITHER_WAY
def test_no_process_outlives_a_parent_that_was_killed(before):
    parent = start_process(python, before + ORPHANS)
    children = [int(parent.lines.readline()) for _ in range(2)]
    assert all(alive(child) for child in children)
    parent.kill()
    end = time.monotonic() + LONG
    while any(alive(child) for child in children) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(alive(child) for child in children)


@EITHER_WAY
def test_an_interrupt_from_the_terminal_is_told_once(before):
    """It goes to all processes: those that measure leave it to their parent."""
    script = ORPHANS.replace("with ", "try:\n  with ").replace("    list(", "      list(")
    # What a shell starts in the background may have been told to ignore interrupts.
    own = "import os, signal; os.setsid(); signal.signal(signal.SIGINT, signal.default_int_handler); "
    # In Python's own Condition.wait an interrupt may come out as what leaving its lock raises meanwhile.
    caught = "except BaseException as e:\n  kinds = type(e), type(e.__context__)\n"
    told = "  print('interrupted' if KeyboardInterrupt in kinds else repr(e))\n"
    parent = start_process(python, own + before + script + caught + told)
    for _ in range(2):
        parent.lines.readline()
    os.killpg(parent.process.pid, signal.SIGINT)
    assert parent.lines.read() == "interrupted\n"
    assert parent.wait() == 0


def test_number_of_processes(monkeypatch):
    assert workers_for(CPU) == torch.get_num_threads()
    assert workers_for(CPU, 3) == 3
    assert workers_for(torch.device("cuda")) == 1
    for device, wanted, sentence in ((CPU, 0, "give 1 or more"), (torch.device("cuda"), 2, "with torchrun")):
        with pytest.raises(FedscapeError, match=sentence):
            workers_for(device, wanted)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        assert workers_for(CPU, 3) == 3
        assert workers_for(CPU, gradients=True) == 1
        with pytest.raises(FedscapeError, match="cannot measure λ_max on a machine with a GPU"):
            workers_for(CPU, 3, gradients=True)
    monkeypatch.setattr(analysis.surface.workers.sys, "platform", "darwin")
    assert workers_for(CPU) == 1
    assert workers_for(CPU, 2) == 2


def total(x: float, y: float) -> float:
    return 10 * x + y


def die(x: float, y: float) -> float:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_where_no_process_can_be_forked_they_are_spawned(spawned, monkeypatch):
    monkeypatch.delattr(os, "fork")
    values = found(Told(total), 2)
    assert {k: row["value"] for k, row in values.items()} == {k: total(x, y) for k, (x, y) in enumerate(PLACES)}
    assert os.getpid() not in {row["process"] for row in values.values()}
    with pytest.raises(FedscapeError, match=r"a worker process was killed.*fewer --workers"):
        found(Told(die), 2)
    with pytest.raises(FedscapeError, match=r"2 workers are asked for, and what is measured cannot be sent.*leave out"):
        found(Told(lambda x, y: x), 2)


@pytest.mark.slow
def test_a_script_that_cannot_be_spawned_from_is_told_so(tmp_path):
    """Spawned processes run the script too, up to what only the first one may do."""
    (tmp_path / "script.py").write_text(f"{SPAWNED}\n{ORPHANS}")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, tmp_path / "script.py"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith("put it there, or leave out workers\n")
    assert "FedscapeError: the worker processes could not start: each reads the script" in ended.stderr
    assert ended.stderr.count("Traceback") == 1  # the processes themselves say nothing


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"points": 21}, {"points": 5, "exact": True, "test": True}])
def test_surface_is_the_same_where_processes_are_spawned(tmp_path, spawned, options, monkeypatch):
    monkeypatch.delattr(os, "fork")  # spawning does without on Windows, and needs no more than a C call elsewhere
    checkpoint = save_checkpoint(tmp_path / "ckpt.pt")
    one, two = (measure_surface(checkpoint, workers=n, samples=200, **options) for n in (None, 2))
    assert_same(one, two)
    assert (one.notes["workers"], two.notes["workers"]) == (1, 2)


@pytest.mark.parametrize("batchnorm", ["frozen", "recalculated"])
def test_points_are_what_they_were_when_they_are_sent(batchnorm):
    """The module's parameters are views of one vector, which a pickle does not know; folded layers share them."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 3))
    function = Landscape(net, (torch.randn(9, 1, 8, 8), torch.arange(9) % 3), device="cpu", batch_size=4)
    points = Points({"train": function}, random_plane(function), batchnorm=batchnorm)
    points.keep()
    here = [points.measure(x, 0.2) for x in (0.0, 0.3)]
    sent = pickle.loads(pickle.dumps(points))
    assert [sent.measure(x, 0.2) for x in (0.0, 0.3)] == here
    assert here[0] != here[1]


@pytest.mark.parametrize("options", [{}, {"exact": True, "test": True}, {"lambda_max": True, "samples": 40}])
def test_surface_is_the_same_whatever_the_number_of_processes(tmp_path, options):
    checkpoint = save_checkpoint(tmp_path / "ckpt.pt")
    options = {"points": 21 if not options else 5, "batch_size": 64, "samples": 200, **options}
    one, three = (measure_surface(checkpoint, workers=n, **options) for n in (1, 3))
    assert_same(one, three)
    assert (one.notes["workers"], three.notes["workers"]) == (1, 3)
    if one.lambda_max is not None:
        np.testing.assert_array_equal(one.lambda_max, three.lambda_max)


KILLED = """
import os, signal, sys, types, itertools
import analysis.surface.store
from analysis.surface.store import SurfaceStore
from analysis.surface import measure_surface

checkpoint, path = sys.argv[1:]
put, calls = SurfaceStore.put, itertools.count(1)

def deadly(*arguments):
    put(*arguments)
    if next(calls) == 60:
        os.kill(os.getpid(), signal.SIGKILL)

SurfaceStore.put = deadly
analysis.surface.store.time = types.SimpleNamespace(monotonic=itertools.count().__next__)
measure_surface(checkpoint, points=11, samples=200, store=path, workers=2, exact=True)
"""


def test_measurement_killed_with_its_processes_goes_on(tmp_path):
    checkpoint, path = save_checkpoint(tmp_path / "ckpt.pt"), tmp_path / "s.h5"
    status, printed = run_process(python, KILLED, checkpoint, path)
    assert status == -signal.SIGKILL, printed
    done = int(Surface.load(path).measured.sum())
    assert 20 < done < 121
    options = {"points": 11, "samples": 200, "exact": True}
    resumed = measure_surface(checkpoint, store=path, workers=2, **options)
    assert_same(resumed, measure_surface(checkpoint, workers=1, **options))


def rank(number: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    with group_of(number, world, f"{folder}/store"):
        with pytest.raises(FedscapeError, match="under torchrun"):
            workers_for(CPU, 2)
        seen = []

        class Watched(Told):
            def measure(self, x: float, y: float) -> dict[str, float]:
                seen.append((x, y))
                return super().measure(x, y)

        values = found(Watched(), workers_for(CPU))
        assert 0 < len(seen) < len(PLACES)
        assert [values[k]["value"] for k in range(len(PLACES))] == [x + y for x, y in PLACES]
        options = {"points": 11, "samples": 200, "batch_size": 64}
        store = Path(folder) / "s.h5"
        surface = measure_surface(Path(folder) / "ckpt.pt", store=store, **options)
        torch.save(
            {"loss": torch.from_numpy(surface.loss), "done": torch.from_numpy(surface.computed)},
            f"{folder}/{number}.pt",
        )


def test_ranks_take_turns_at_the_points(tmp_path):
    checkpoint = save_checkpoint(tmp_path / "ckpt.pt")
    run_ranks(rank, 2, str(tmp_path), seconds=LONG)
    alone = measure_surface(checkpoint, points=11, samples=200, batch_size=64)
    for number in range(2):
        own = torch.load(tmp_path / f"{number}.pt", weights_only=True)
        np.testing.assert_array_equal(own["loss"].numpy(), alone.loss)
        np.testing.assert_array_equal(own["done"].numpy(), alone.computed)
    np.testing.assert_array_equal(Surface.load(tmp_path / "s.h5").loss, alone.loss)


def test_largest_eigenvalue_at_each_point_is_that_of_the_dense_hessian(tmp_path, monkeypatch):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, y = torch.randn(12, 3, dtype=torch.float64), torch.arange(12) % 2
    function = Landscape(net, (x, y), device="cpu")
    surface = measure_surface(function, points=3, lambda_max=True, weight_decay=0.1, store=tmp_path / "s.h5")
    names = [name for name, _ in net.named_parameters()]
    plane = random_plane(function)
    for j, i in np.ndindex(3, 3):
        w = plane.point(surface.x[i], surface.y[j])

        def loss(w: torch.Tensor) -> torch.Tensor:
            parts = dict(zip(names, w.split([p.numel() for p in net.parameters()]), strict=True))
            parts = {name: parts[name].view(p.shape) for name, p in net.named_parameters()}
            return nn.functional.cross_entropy(torch.func.functional_call(net, parts, x), y) + 0.05 * w @ w

        dense = torch.autograd.functional.hessian(loss, w)
        assert surface.lambda_max[j, i] == pytest.approx(torch.linalg.eigvalsh(dense)[-1].item(), rel=1e-2)
    np.testing.assert_array_equal(Surface.load(tmp_path / "s.h5").lambda_max, surface.lambda_max)
    assert surface.facts()["λ_max at the centre"].endswith(" (± 1% at most)")
    assert surface.to_dict()["lambda_max_relative_error_bound"] == 0.01
    assert np.isnan(points._largest_eigenvalue(function, torch.full_like(function.weights, torch.inf)))
    found = points.largest_eigenpairs(points.Hessian(function), 1, max_products=1)
    monkeypatch.setattr(points, "largest_eigenpairs", lambda *_, **__: found)
    assert np.isnan(points._largest_eigenvalue(function, function.weights)), "one product is not enough to know it"
    with pytest.raises(FedscapeError, match=r"differs in lambda max \(True there, False here\)"):
        measure_surface(function, points=3, weight_decay=0.1, store=tmp_path / "s.h5")
