"""SIGTERM to commands that keep what they have measured: one sentence, exit code 75, and the same command goes on."""

import os
import signal
import sys
import time

import pytest

import analysis.corruptions.__main__ as corruptions
import analysis.corruptions.measure
import analysis.surface.__main__ as surface
import figures.__main__ as figures
from landscape.storage.lock import process_runs
from tests.processes import start_process
from trainers import FedAvg, Settings, train

PATIENCE = 300.0
SHORT = Settings(rounds=1, clients=4, per_round=2, local_steps=1, device="cpu")
COMMANDS = {module.__name__: module for module in (corruptions, surface, figures)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return train(FedAvg(), SHORT, out=tmp_path_factory.mktemp("trained") / "run").checkpoint


def command(name, words):
    sys.argv = [name, *map(str, words)]
    sys.exit(COMMANDS[name].command_line())


def pausing(words):
    """The command of corruptions, which waits for a signal once it has kept two lines: it would soon have ended."""
    keep, kept = analysis.corruptions.measure.append_line, []

    def pause(*arguments):
        keep(*arguments)
        kept.append(arguments)
        if len(kept) == 2:
            time.sleep(PATIENCE)

    analysis.corruptions.measure.append_line = pause
    command(corruptions.__name__, words)


def children(process):
    """The numbers of all processes that descend from one."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    found, todo = set(), {process}
    while todo:
        todo = {child for child, parent in parents.items() if parent in todo}
        found |= todo
    return found


def until(condition, process):
    start = time.monotonic()
    while not condition():
        assert process.is_alive(), "it ended before it was stopped"
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.005)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_surface_keeps_its_points(checkpoint, tmp_path, workers):
    store = tmp_path / "s.h5"
    words = [checkpoint, "--points", 301, "--exact", "--workers", workers, "--out", store, "--quiet", "--device", "cpu"]
    measuring = start_process(command, surface.__name__, words)
    until(lambda: store.exists() and (workers == 1 or len(children(measuring.process.pid)) >= 2), measuring.process)
    others = children(measuring.process.pid)
    os.kill(measuring.process.pid, signal.SIGTERM)
    said, code = measuring.lines.read(), measuring.wait()
    assert code == 75, said
    assert f"stopped by SIGTERM: the points measured so far are in {store}: the same command continues\n" in said
    assert "Traceback" not in said
    until(lambda: not any(map(process_runs, others)), ALIVE)


class _Alive:
    def is_alive(self):
        return True


ALIVE = _Alive()


def test_corruptions_keep_what_was_evaluated(checkpoint, tmp_path):
    out = tmp_path / "out"
    words = [checkpoint, "--generate", "--out", out, "--quiet", "--device", "cpu"]
    measuring = start_process(pausing, words)
    state = out / "corruptions.jsonl"
    until(lambda: state.exists() and state.read_bytes().count(b"\n") > 1, measuring.process)
    os.kill(measuring.process.pid, signal.SIGUSR1)
    said, code = measuring.lines.read(), measuring.wait()
    assert code == 75, said
    assert said.endswith(f"stopped by SIGUSR1: what was measured so far is in {state}: the same command continues\n")
    assert os.listdir(out) == ["corruptions.jsonl"]
    assert state.read_bytes().endswith(b"]\n")


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_figures_end_with_all_their_processes(tmp_path, jobs):
    out = tmp_path / "out"
    words = ["make", "man/F1", "--rounds", 100_000, "--jobs", jobs, "--out", out, "--quiet", "--device", "cpu"]
    making = start_process(command, figures.__name__, words)
    until(lambda: len(list(out.rglob("metrics.jsonl"))) >= jobs, making.process)
    others = children(making.process.pid)
    os.kill(making.process.pid, signal.SIGTERM)
    said, code = making.lines.read(), making.wait()
    assert code == 75, said
    assert f"what was made so far is in {out / 'store'}: the same command continues\n" in said
    assert said.count("\n") == 1
    until(lambda: not any(map(process_runs, others)), ALIVE)
