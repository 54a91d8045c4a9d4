"""Clients divided over ranks, and the command on two of them: the numbers of one."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import analysis.alignment.ranks as ranks
from analysis.alignment.__main__ import command_line, main
from landscape.terminal.command import run
from tests.processes import as_rank, free_port, start_process
from trainers import FedAvg, Settings, train

LINE = ["--top", "2", "--trace-probes", "5", "--barrier-points", "3", "--device", "cpu", "--quiet", "--rounds"]


@pytest.mark.parametrize(("count", "world"), [(5, 2), (2, 3), (0, 2), (4, 1)])
def test_each_piece_is_done_by_one_rank_and_known_to_all(monkeypatch, count, world):
    done, sums = [], []
    number = torch.zeros((), dtype=torch.float64)

    def work(own):
        for i in own:
            done.append(i)
            yield [torch.tensor([i, np.nan]), torch.full((2, 2), i)]

    monkeypatch.setattr(ranks, "sum_over_ranks", lambda tensor: tensor)  # what one rank has, before the sum
    for rank in range(world):
        monkeypatch.setattr(ranks, "rank_and_world", lambda rank=rank: (rank, world))
        sums.append(ranks.divided(count, work, [(2,), (2, 2)], [number, number]))
    assert sorted(done) == list(range(count))
    for i in range(count):
        first, second = (sum(one[i][place] for one in sums) for place in range(2))
        assert first[0] == i
        assert first.isnan().tolist() == [False, True]
        assert second.tolist() == [[i, i], [i, i]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    settings = Settings(
        rounds=1,
        clients=5,
        per_round=2,
        local_steps=2,
        save_every=1,
        save_clients=True,
        device="cpu",
        model="digits_mlp",
    )
    return train(FedAvg(), settings, out=tmp_path_factory.mktemp("runs") / "run").path


def numbers(value, place=""):
    """All numbers of nested dictionaries and lists, by place."""
    if isinstance(value, dict):
        return {k: v for name, inner in value.items() for k, v in numbers(inner, f"{place}.{name}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in numbers(inner, f"{place}.{i}").items()}
    return {place: value}


def require_alike(found, expected):
    """Within 1e-6 of each number; angles within 1e-5 degrees, because a cosine has no slope at 0."""
    assert found.keys() == expected.keys()
    for place, value in expected.items():
        if isinstance(value, float):
            nearness = {"abs": 1e-5} if "angle" in place else {"rel": 1e-6, "abs": 1e-9}
            assert found[place] == pytest.approx(value, nan_ok=True, **nearness), place
        else:
            assert found[place] == value, place


def with_its_variables(words):
    port = free_port()
    started = [start_process(as_rank, rank, 2, port, main, words) for rank in range(2)]
    printed = [rank.lines.read() for rank in started]
    assert [rank.wait() for rank in started] == [0, 0], printed
    assert printed[1] == ""


def by_torchrun(words):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "analysis.alignment"]
    assert subprocess.run([*launcher, *words], capture_output=True, text=True, check=True).stdout.count("numbers:") == 1


@pytest.mark.slow
@pytest.mark.parametrize("launch", [with_its_variables, by_torchrun])
def test_two_ranks_have_the_numbers_of_one_and_go_on_from_what_was_kept(trained, tmp_path, launch):
    words = [str(trained), *LINE, "--clients", "all", "--dtype", "float64"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert run(lambda: main([*words, "--out", str(one)])) == 0
    lines = (one / "alignment.jsonl").read_text().splitlines(keepends=True)
    launch([*words, "--out", str(two)])
    expected, found = (numbers(json.loads((out / "alignment.json").read_text())["runs"]) for out in (one, two))
    require_alike(found, expected)
    half = tmp_path / "half"
    half.mkdir()
    (half / "alignment.jsonl").write_text("".join(lines[:3]) + lines[3][:50])  # killed while it wrote
    launch([*words, "--out", str(half)])
    assert (half / "alignment.jsonl").read_text().startswith("".join(lines[:3]))
    assert len((half / "alignment.jsonl").read_text().splitlines()) == len(lines)  # the damaged one was replaced
    again = numbers(json.loads((half / "alignment.json").read_text())["runs"])
    require_alike(again, expected)


def as_command(words):
    sys.argv = ["alignment", *words]
    sys.exit(command_line())


@pytest.mark.slow
def test_sigterm_ends_with_75_and_the_same_command_goes_on_to_the_same_numbers(trained, tmp_path):
    words = [str(trained), *LINE, "--clients", "all"]
    out = tmp_path / "stopped"
    measuring = start_process(as_command, [*words, "--out", str(out)])
    state = out / "alignment.jsonl"
    while not (state.exists() and state.read_bytes().count(b"\n")):
        assert measuring.process.is_alive()
        time.sleep(0.005)
    os.kill(measuring.process.pid, signal.SIGTERM)
    said, code = measuring.lines.read(), measuring.wait()
    assert code == 75, said
    assert f"what was measured so far is in {state}: the same command continues" in said
    assert "Traceback" not in said
    before = state.read_text().splitlines()
    for folder in (out, tmp_path / "whole"):
        assert run(lambda folder=folder: main([*words, "--out", str(folder)])) == 0
    assert state.read_text().splitlines()[: len(before)] == before
    resumed, whole = (json.loads((f / "alignment.json").read_text())["runs"] for f in (out, tmp_path / "whole"))
    require_alike(numbers(resumed), numbers(whole))
