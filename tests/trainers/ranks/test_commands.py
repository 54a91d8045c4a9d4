"""``--ranks`` beside the other options of the command: the ranks read the same file, and the first one writes."""

import json
import re

import pytest

from tests.trainers.ranks.test_ends import PATIENCE, launched
from tests.trainers.ranks.worlds import contents, differing, run
from trainers import SAM, Parts, Scaffold
from trainers.__main__ import command_line, read

CONFIG = """algorithm = "scaffold"
clients = 7
per_round = 4
local_steps = 2
batch_size = 8
rounds = 3
executor = "sequential"
device = "cpu"
ascent = "sam"
rho = 0.05
ranks = 2
"""
OF_TORCH = re.compile(r"USDT:|ERROR:\S+ \S+ \S+ DeviceProperties\.cpp:")
"""What its profiler says: the second where it was built for CUDA and there is no GPU."""


def trained(folder, *words):
    """What the command printed of a run with the options of a file."""
    (folder / "options.toml").write_text(CONFIG)
    with launched(["--config", str(folder / "options.toml"), "--quiet", "--out", str(folder / "run"), *words]) as job:
        printed, said = job.communicate(timeout=PATIENCE)
    of_ours = [line for line in said.splitlines() if not OF_TORCH.match(line)]
    assert (job.returncode, of_ours) == (0, [])
    run((Scaffold(), Parts(ascent=SAM(0.05)), {"rounds": 3}), folder / "alone")
    assert differing(contents(folder / "run"), contents(folder / "alone")) == []
    return printed


def test_ranks_are_given_the_same_file(tmp_path, monkeypatch):
    """Told without processes; the next test has some."""
    started = []
    monkeypatch.setattr("trainers.__main__.launch", lambda *how: started.append(how) or 0)
    (tmp_path / "options.toml").write_text(CONFIG)
    words = ["--config", str(tmp_path / "options.toml"), "--rho", "0.1"]
    assert command_line(words) == 0
    assert started == [(2, "trainers", words)]
    assert read(words).parts.ascent == SAM(0.1)


@pytest.mark.slow
def test_ranks_take_the_options_of_a_file_and_the_first_is_profiled(tmp_path):
    printed = trained(tmp_path, "--profile", str(tmp_path / "profile"))
    assert printed.count("scaffold, 3 rounds: train loss") == 1
    found = json.loads((tmp_path / "profile" / "profile.json").read_text())
    assert {"gradients", "waiting for other ranks"} <= found["parts"].keys()
    assert found["count"] == 2


@pytest.mark.slow
def test_the_first_rank_alone_writes_tensorboards_events(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    trained(tmp_path, "--log", "tensorboard")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1


def test_a_profile_of_too_few_rounds_starts_no_ranks(tmp_path, capsys):
    words = ["fedavg", "--ranks", "2", "--rounds", "1", "--profile", str(tmp_path / "profile")]
    assert command_line(words) == 2
    assert capsys.readouterr().err == "error: --profile leaves out the first round: give --rounds 2 or more\n"
