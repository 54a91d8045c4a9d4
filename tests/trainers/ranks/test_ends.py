"""Ranks end together: one that is killed, fails or is stopped is named in one sentence, and the run goes on later."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.processes import as_rank, free_port, start_process
from tests.trainers.ranks.worlds import contents, differing, json_lines, run, train_all
from trainers import FedDyn, Parts, Scaffold
from trainers.__main__ import command_line
from trainers.ranks import launch

PATIENCE = 300.0
WORDS = ["--clients", "7", "--per-round", "4", "--local-steps", "2", "--batch-size", "8", "--device", "cpu", "--quiet"]
ENDLESS = [*WORDS, "--rounds", "1000000"]


def slowly(value):
    return pytest.param(value, marks=pytest.mark.slow)


def started(world, arguments, **environment):
    """The command on so many ranks, as torchrun would start it; each rank's process."""
    port = free_port()
    return [start_process(as_rank, rank, world, port, command, arguments, environment) for rank in range(world)]


def command(arguments, environment):
    os.environ.update(environment)
    sys.exit(command_line(arguments))


def ended(ranks):
    """What each printed, and how it ended."""
    said = [rank.lines.read() for rank in ranks]
    return said, [rank.wait() for rank in ranks]


def wait_for_rounds(out, rounds=2):
    begin = time.monotonic()
    while not (out / "metrics.jsonl").exists() or len((out / "metrics.jsonl").read_bytes().splitlines()) < rounds:
        assert time.monotonic() - begin < PATIENCE
        time.sleep(0.01)


@pytest.mark.parametrize("killed", [slowly(0), 1, slowly(2)])
def test_a_killed_rank_is_named_in_one_sentence_and_the_run_goes_on(tmp_path, killed):
    out = tmp_path / "run"
    ranks = started(3, ["scaffold", *ENDLESS, "--out", str(out)])
    wait_for_rounds(out)
    begin = time.monotonic()
    ranks[killed].process.kill()
    said, codes = ended(ranks)
    took = time.monotonic() - begin
    survivors = [rank for rank in range(3) if rank != killed]
    assert [codes[rank] for rank in survivors] == [2, 2]
    sentences = [line for text in said for line in text.splitlines()]
    process = ranks[killed].process.pid
    assert len(sentences) == 1, sentences
    assert re.fullmatch(
        rf"error: rank {killed} of 3 \(process {process} on host \S+\) has ended without a word, as if it was killed: "
        "the last checkpoint is whole, and the same command with --resume goes on from it",
        sentences[0],
    )
    assert took < 60  # seconds on an idle machine, where GRACE would be over
    goes_on_like_one(tmp_path, out)


def goes_on_like_one(tmp_path, out):
    """The run in ``out``, continued in this process, ends as one that was never killed."""
    rounds = torch.load(out / "state.pt")["round"] + 1
    case = (Scaffold(), Parts(), {"rounds": rounds, "executor": "sequential"})
    run(case, out, resume=True)
    run(case, tmp_path / "alone")
    assert differing(contents(out), contents(tmp_path / "alone")) == []


@pytest.mark.slow
def test_a_rank_that_fails_is_named_and_all_end(tmp_path):
    words = ["fedavg", *ENDLESS, "--model", "tests.trainers.ranks.worlds:broken_net", "--out", str(tmp_path / "run")]
    said, codes = ended(started(3, words))
    assert codes[:2] == [2, 2]
    assert codes[2] == 1
    assert "ZeroDivisionError: broken on purpose" in said[2]  # its traceback
    assert re.fullmatch(r"error: rank 2: ZeroDivisionError: broken on purpose \(worlds\.py, line \d+\)\n", said[0])
    assert said[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--resume"], ["--lr", "0.2"]])
def test_what_the_first_rank_refuses_is_said_once(tmp_path, words):
    out = tmp_path / "run"
    run((Scaffold(), Parts(), {"rounds": 1}), out)
    said, codes = ended(started(2, ["fedavg", *WORDS, *words, "--out", str(out)]))
    assert codes == [2, 2]
    assert said[0].startswith(f"error: {out} ")
    assert said[0].count("\n") == 1
    assert said[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_signal_to_any_rank_stops_all_after_the_same_round(tmp_path, stopped):
    out = tmp_path / "run"
    ranks = started(2, ["scaffold", *ENDLESS, "--out", str(out)])
    wait_for_rounds(out)
    os.kill(ranks[stopped].process.pid, signal.SIGUSR1)
    said, codes = ended(ranks)
    assert codes == [75, 75]
    rounds = torch.load(out / "state.pt")["round"]
    assert said == [
        f"stopped by SIGUSR1 after round {rounds}: the rounds done so far are in {out}: the same command with --resume "
        "continues\n",
        "",
    ]
    assert json_lines(out / "metrics.jsonl")[-1]["round"] == rounds
    goes_on_like_one(tmp_path, out)


@pytest.mark.slow
def test_a_rank_that_is_interrupted_ends_all(tmp_path):
    out = tmp_path / "run"
    ranks = started(2, ["scaffold", *ENDLESS, "--out", str(out)])
    wait_for_rounds(out)
    os.kill(ranks[1].process.pid, signal.SIGINT)
    said, codes = ended(ranks)
    assert codes == [130, 130]
    assert said[0].startswith("interrupted: the rounds done so far are in")
    assert said[1] == ""


@pytest.mark.slow
def test_a_straggling_rank_is_waited_for(tmp_path):
    """A rank that is asleep for longer than any grace is not taken for dead."""
    out = tmp_path / "run"
    ranks = started(2, ["scaffold", *ENDLESS, "--out", str(out)])
    wait_for_rounds(out)
    os.kill(ranks[1].process.pid, signal.SIGSTOP)
    time.sleep(7)
    before = len(json_lines(out / "metrics.jsonl"))
    os.kill(ranks[1].process.pid, signal.SIGCONT)
    wait_for_rounds(out, before + 2)
    os.kill(ranks[0].process.pid, signal.SIGTERM)
    assert ended(ranks)[1] == [75, 75]
    goes_on_like_one(tmp_path, out)


@pytest.mark.slow
def test_the_files_of_all_ranks_are_those_that_the_manifest_names(tmp_path):
    """Versions that nobody needs any more are removed, each by its owner, also where there are fewer ranks now."""
    case = (FedDyn(), Parts(), {"client_store": "disk", "rounds": 3})
    train_all({"run": case}, tmp_path / "runs", 3)
    named = torch.load(tmp_path / "runs" / "run" / "state.pt")["clients"]
    there = {file.name for file in (tmp_path / "runs" / "run" / "clients").iterdir()}
    assert there == {f"{client:06d}-{version}.pt" for client, version in named.items()}
    assert len(named) > 4


@pytest.mark.slow
def test_a_missing_state_of_another_rank_is_named(tmp_path):
    out = tmp_path / "run"
    case = (FedDyn(), Parts(), {"client_store": "disk", "rounds": 2, "executor": "sequential"})
    run(case, out)
    odd = next(client for client in torch.load(out / "state.pt")["clients"] if client % 2)
    for file in (out / "clients").glob(f"{odd:06d}-*"):
        file.unlink()
    words = ["feddyn", *WORDS, "--rounds", "3", "--client-store", "disk", "--resume", "--out", str(out)]
    said, codes = ended(started(2, words))
    assert codes == [2, 2]
    assert said[0].startswith(f"error: rank 1: the state of client {odd} is missing: there is no file ")
    assert said[1] == ""


@pytest.mark.slow
def test_clients_at_once_that_keep_a_state_are_refused(tmp_path):
    words = ["scaffold", *WORDS, "--executor", "batched", "--out", str(tmp_path / "run")]
    said, codes = ended(started(2, words))
    assert codes == [2, 2]
    assert said[0].startswith("error: --executor batched on several ranks would compute other clients at once on each")
    assert said[1] == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("differs", "what"),
    [("--seed", "clients"), ("--model", "an initial model and data")],
)
def test_ranks_with_other_data_or_another_model_are_refused(tmp_path, differs, what):
    """As where each machine has data and code of its own."""
    port, value = free_port(), {"--seed": ("0", "1"), "--model": ("digits_mlp", "digits_cnn")}[differs]
    words = ["fedavg", *WORDS, "--out", str(tmp_path / "run")]
    ranks = [start_process(as_rank, r, 2, port, command, [*words, differs, value[r]], {}) for r in (0, 1)]
    said, codes = ended(ranks)
    assert codes == [2, 2]
    assert re.fullmatch(rf"error: rank 1 \(process \d+ on host \S+\) has {what} with the digest .+\n", said[0])
    assert said[1] == ""


def launched(arguments, **more):
    line = [sys.executable, "-m", "trainers", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(line, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_one_command_starts_ranks_here_and_a_signal_to_it_stops_them(tmp_path, number):
    out = tmp_path / "run"
    with launched(["scaffold", *ENDLESS, "--ranks", "2", "--out", str(out)]) as job:
        wait_for_rounds(out)
        job.send_signal(number)
        printed, said = job.communicate(timeout=PATIENCE)
    assert (job.returncode, printed) == (75 if number == signal.SIGUSR1 else 130, "")
    assert said.startswith("stopped by SIGUSR1 after round " if number == signal.SIGUSR1 else "interrupted: the rounds")
    assert said.count("\n") == 1
    goes_on_like_one(tmp_path, out)


@pytest.mark.slow
def test_ranks_end_with_the_command_that_started_them(tmp_path):
    out = tmp_path / "run"
    with launched(["scaffold", *ENDLESS, "--ranks", "2", "--out", str(out)]) as job:
        wait_for_rounds(out)
        job.kill()
        job.communicate(timeout=PATIENCE)  # whose pipes the ranks hold
    goes_on_like_one(tmp_path, out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "0"], "error: --ranks is 0: give at least 1\n"),
        (["--ranks", "2", "--rounds", "-1"], "error: --rounds is -1: give 0 or more\n"),
    ],
)
def test_a_wrong_command_line_starts_no_ranks(capsys, words, said):
    assert command_line(["fedavg", *words]) == 2
    assert capsys.readouterr().err == said


@pytest.mark.slow
def test_a_rank_that_ends_before_the_ranks_have_met_ends_all(capfd):
    assert launch(2, "tests.trainers.ranks.unmet", []) == 7
    said = "error: rank 1 of 2 has ended with code 7, and the others wait for it: all are ended\n"
    assert capfd.readouterr().err == said


@pytest.mark.slow
def test_all_ranks_tell_that_a_run_diverged(tmp_path):
    said, codes = ended(started(2, ["fedavg", *WORDS, "--lr", "1e30", "--out", str(tmp_path / "run")]))
    assert codes == [3, 3]
    assert said[0].startswith("fedavg diverged in round ")
    assert said[1] == ""


def test_ranks_within_ranks_are_refused(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert command_line(["fedavg", "--ranks", "2"]) == 2
    assert "this is a rank that something else has started: leave out --ranks 2\n" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_are_killed_at_any_moment_leave_a_run_that_goes_on(tmp_path, seed):
    """Ten times one of 2 to 4 ranks is killed, with states on disk; the end is that of a run that was never killed."""
    draw = random.Random(seed)
    out, rounds, kills = tmp_path / "run", 0, 0
    words = ["scaffold", *ENDLESS, "--client-store", "disk", "--executor", "sequential", "--save-every", "0"]
    while kills < 10:
        ranks = started(draw.choice((2, 3, 4)), [*words, "--out", str(out), "--resume"])
        # Ranks that have not met yet are their launcher's to end, so that the kill comes after a round of this start.
        wait_for_rounds(out, rounds + draw.choice((1, 2, 5)))
        time.sleep(draw.random() * 0.3)
        victim = draw.choice(ranks)
        victim.process.kill()
        said, codes = ended(ranks)
        assert all(code in (2, -9) for code in codes), said
        lines = [line for text in said for line in text.splitlines()]
        assert len([line for line in lines if line.startswith(f"error: rank {ranks.index(victim)}")]) >= 1, lines
        kills += 1
        rounds = torch.load(out / "state.pt")["round"]
        kept = (out / "metrics.jsonl").read_text().splitlines(keepends=True)[:rounds]
        (out / "metrics.jsonl").write_text("".join(kept))  # as the resumed run does first
    case = (Scaffold(), Parts(), {"rounds": rounds + 1, "client_store": "disk", "save_every": 0})
    run(case, out, resume=True)
    run(case, tmp_path / "alone")
    assert differing(contents_by_value(out), contents_by_value(tmp_path / "alone")) == []


def contents_by_value(path: Path):
    """The contents without the numbers of the versions, which count the rounds that were lost."""
    return {name: value for name, value in contents(path).items() if not name.startswith("/state/clients")}
