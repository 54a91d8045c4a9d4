"""A run directory is ours, empty or refused; one process at a time trains in it; signals leave a run that goes on."""

import json
import os
import signal
import socket
import time

import pytest
import torch

from landscape import Checkpoint, FedscapeError
from landscape.storage.lock import LockedError
from landscape.terminal.command import run
from tests.processes import start_process
from trainers import FedAvg, Settings, train
from trainers.__main__ import command_line, main
from trainers.runs import read_runs

SHORT = {"clients": 6, "per_round": 2, "rounds": 2, "device": "cpu", "local_epochs": 1}
LONG = ["fedavg", "--clients", "6", "--per-round", "2", "--device", "cpu", "--quiet", "--resume", "--rounds"]


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def command(words, out):
    """The command as the console script has it, with its exit code."""
    import sys

    sys.argv = ["python -m trainers", *words, "--out", str(out)]
    sys.exit(command_line())


def wait_for_rounds(training, out, rounds):
    """Until so many rounds are recorded, or the process has ended."""
    metrics = out / "metrics.jsonl"
    while training.process.is_alive() and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= rounds):
        time.sleep(0.002)
    assert training.process.is_alive(), training.lines.read()


@pytest.mark.parametrize("name", ["ckpt.pt", "metrics.jsonl", "notes.txt", ".draft.12.tmp", "rounds/mine.pt"])
def test_a_folder_with_something_else_is_refused_and_untouched(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    (tmp_path / ".ckpt.pt.999999999.tmp").write_text("of a killed run")
    before = contents(tmp_path)
    with pytest.raises(FedscapeError, match=r"holds .* and no run: give an empty or new folder as --out, or --force"):
        train(FedAvg(), Settings(**SHORT), out=tmp_path)
    assert contents(tmp_path) == before


def test_a_config_of_another_program_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"learning_rate": 0.1}')
    with pytest.raises(FedscapeError, match=r"holds config\.json and no run"):
        train(FedAvg(), Settings(**SHORT), out=tmp_path, resume=True)
    assert contents(tmp_path) == {"config.json": b'{"learning_rate": 0.1}'}


def test_with_force_other_files_stay_beside_the_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert run(lambda: main([*LONG, "1", "--force", "--out", str(tmp_path)])) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert Checkpoint.load(tmp_path / "ckpt.pt").round == 1


def test_only_what_a_killed_run_was_writing_is_cleaned_up(tmp_path):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 1}), out=tmp_path)
    dead, alive = 999_999_999, os.getppid()
    gone = [f".ckpt.pt.{dead}.tmp", f"rounds/.00001.pt.{dead}.tmp", f".metrics.jsonl.{os.getpid()}.tmp"]
    kept = [".notes.tmp", f".notes.txt.{dead}.tmp", f".ckpt.pt.{alive}.tmp", f"mine/.ckpt.pt.{dead}.tmp", ".a.b.tmp"]
    (tmp_path / "mine").mkdir()
    for name in [*gone, *kept]:
        (tmp_path / name).write_text("half")
    train(FedAvg(), Settings(**SHORT), out=tmp_path, resume=True)
    assert [name for name in [*gone, *kept] if (tmp_path / name).exists()] == kept


def test_what_fails_before_the_first_file_leaves_no_folder(tmp_path):
    with pytest.raises(FedscapeError, match="unknown model"):
        train(FedAvg(), Settings(**SHORT, model="nothing"), out=tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []


def test_a_second_process_is_told_who_trains_and_changes_nothing(tmp_path):
    out = tmp_path / "run"
    first = start_process(command, [*LONG, "100000"], out)
    try:
        wait_for_rounds(first, out, 2)
        with pytest.raises(LockedError) as told:
            train(FedAvg(), Settings(**SHORT), out=out, resume=True)
        who = f"process {first.process.pid} on host {socket.gethostname()} is training in {out}"
        assert str(told.value) == f"{who}: wait until it has ended, or give another --out"
        assert run(lambda: main([*LONG, "100000", "--out", str(out)])) == 2
    finally:
        first.kill()
    rounds = [record["round"] for record in read_runs([out])[0].metrics]
    assert rounds == list(range(1, len(rounds) + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_schedulers_signal_ends_after_a_round_and_the_run_goes_on_to_the_same_parameters(tmp_path, number):
    out, rounds = tmp_path / "run", 12
    training = start_process(command, [*LONG, "100000"], out)
    wait_for_rounds(training, out, 3)
    os.kill(training.process.pid, number)
    said, code = training.lines.read(), training.wait()
    state = torch.load(out / "state.pt", weights_only=True)
    assert code == 75
    hint = f"the rounds done so far are in {out}: the same command with --resume continues"
    assert said == f"stopped by {number.name} after round {state['round']}: {hint}\n"
    assert Checkpoint.load(out / "ckpt.pt").round == state["round"] == read_runs([out])[0].rounds
    assert not list(tmp_path.rglob(".*.tmp")) + list(tmp_path.rglob(".*.lock"))
    rounds = state["round"] + 2
    for place in (out, tmp_path / "whole"):
        assert run(lambda place=place: main([*LONG, str(rounds), "--out", str(place)])) == 0
    resumed, whole = (Checkpoint.load(place / "ckpt.pt").parameters for place in (out, tmp_path / "whole"))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def twice(out):
    """Give the rounds of a run twice, in the order in which two processes may have written them."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    others = [{**record, "seconds": 99.0} for record in lines]
    mixed = [lines[0], lines[2], others[0], others[1], lines[1], others[2]]
    (out / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in mixed))
    return [others[0], lines[1], others[2]]  # the last of each round


def test_rounds_that_two_processes_wrote_are_read_once_and_told(tmp_path, capsys):
    run_path = train(FedAvg(), Settings(**{**SHORT, "rounds": 3}), out=tmp_path / "r").path
    last = twice(run_path)
    (read,) = read_runs([run_path])
    assert (read.metrics, read.repeated) == (last, 3)
    assert run(lambda: main(["report", str(run_path)])) == 0
    assert "warning: r had 3 rounds twice, as two processes had resumed it at once" in capsys.readouterr().err
    again = train(FedAvg(), Settings(**{**SHORT, "rounds": 4}), out=run_path, resume=True)
    assert "had 3 rounds twice" in capsys.readouterr().err
    assert again.metrics[:3] == last
    assert [record["round"] for record in again.metrics] == [1, 2, 3, 4]
    assert read_runs([run_path])[0].repeated == 0
