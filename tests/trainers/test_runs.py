"""Run directories: what they hold, and that a killed run ends as one that was not."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import trainers.run
from landscape import Checkpoint, FedscapeError, Landscape
from trainers import FedAvg, FedSAM, Scaffold, Settings, train

SHORT = {"clients": 6, "per_round": 2, "rounds": 6, "save_every": 2, "device": "cpu", "local_epochs": 1}


def parameters(run):
    checkpoint = Checkpoint.load(run / "ckpt.pt")
    return torch.cat([p.reshape(-1) for p in checkpoint.parameters.values()])


def test_directory_holds_what_it_promises(tmp_path):
    run = train(FedSAM(0.1), Settings(**SHORT), out=tmp_path / "run")
    assert run.status == "finished"
    names = {p.name for p in run.path.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "ckpt.pt", "rounds", "state.pt", "partition.npz"}
    assert sorted(p.name for p in (run.path / "rounds").iterdir()) == [f"{n:05d}.pt" for n in (0, 2, 4, 6)]
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [r["round"] for r in records] == [1, 2, 3, 4, 5, 6]
    wanted = {
        "round",
        "train_loss",
        "test_loss",
        "test_accuracy",
        "clients",
        "drift",
        "seconds",
        "bytes_up",
        "bytes_down",
    }
    assert all(wanted <= r.keys() and len(r["clients"]) == 2 for r in records)
    with np.load(run.path / "partition.npz") as arrays:
        assert sorted(arrays) == [f"client_{i:05d}" for i in range(6)]
        assert sorted(np.concatenate([arrays[name] for name in arrays])) == list(range(1442))
    config = json.loads((run.path / "config.json").read_text())
    assert config["algorithm"] == {"name": "fedsam", "rho": 0.1}


def test_checkpoint_describes_itself(tmp_path):
    run = train(FedSAM(0.1), Settings(**SHORT, lr=0.2), out=tmp_path / "run")
    checkpoint = Checkpoint.verify(run.checkpoint)
    assert (checkpoint.algorithm["name"], checkpoint.algorithm["rho"]) == ("fedsam", 0.1)
    assert checkpoint.algorithm["training"]["lr"] == 0.2
    assert (checkpoint.round, checkpoint.seed, checkpoint.data["name"]) == (6, 0, "digits")
    test = Landscape.from_checkpoint(run.checkpoint, "test", device="cpu")
    assert test.value() == run.metrics[-1]["test_loss"] == checkpoint.metrics["test_loss"]
    assert test.accuracy() == run.metrics[-1]["test_accuracy"]


def test_no_rounds_write_the_initial_model_and_the_partition(tmp_path):
    run = train(FedAvg(), Settings(**{**SHORT, "rounds": 0}), out=tmp_path / "run")
    assert Checkpoint.load(run.checkpoint).round == 0
    assert (run.path / "rounds" / "00000.pt").exists()
    assert (run.path / "partition.npz").exists()
    assert run.metrics == []


def test_same_seed_same_run_other_seed_other_run(tmp_path):
    a, b, c = (
        train(FedAvg(), Settings(**SHORT, seed=seed), out=tmp_path / name).path
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert torch.equal(parameters(a), parameters(b))
    assert not torch.equal(parameters(a), parameters(c))


def test_batch_order_does_not_hang_on_the_global_generator(tmp_path):
    torch.manual_seed(1)
    a = train(FedAvg(), Settings(**SHORT), out=tmp_path / "a").path
    torch.manual_seed(2)
    b = train(FedAvg(), Settings(**SHORT), out=tmp_path / "b").path
    assert torch.equal(parameters(a), parameters(b))


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold()], ids=["fedavg", "scaffold"])
def test_more_rounds_later_equal_all_rounds_at_once(algorithm, tmp_path):
    whole = train(algorithm, Settings(**SHORT), out=tmp_path / "whole")
    train(algorithm, Settings(**{**SHORT, "rounds": 3}), out=tmp_path / "parts")
    parts = train(algorithm, Settings(**SHORT), out=tmp_path / "parts", resume=True)
    assert torch.equal(parameters(whole.path), parameters(parts.path))
    strip = [{k: v for k, v in r.items() if k != "seconds"} for r in whole.metrics]
    assert [{k: v for k, v in r.items() if k != "seconds"} for r in parts.metrics] == strip


COMMAND = [
    sys.executable, "-m", "trainers", "scaffold", "--clients", "10", "--rounds", "60", "--local-epochs", "4",
    "--save-every", "7", "--device", "cpu", "--quiet", "--resume", "--out",
]  # fmt: skip


def test_killed_at_any_moment_a_run_resumes_to_the_same_parameters(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*COMMAND, str(tmp_path / "whole")], check=True, capture_output=True, env=environment)
    killed, kills = tmp_path / "killed", 0
    for rounds_before_kill in (0, 9, 25, 44):
        process = subprocess.Popen(
            [*COMMAND, str(killed)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            metrics = killed / "metrics.jsonl"
            if metrics.exists() and metrics.read_bytes().count(b"\n") > rounds_before_kill:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 2, "the run must have been killed in its middle for this to prove anything"
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"round": 45, "train_lo')  # a line that a kill cut short
    subprocess.run([*COMMAND, str(killed)], check=True, capture_output=True, env=environment)
    assert torch.equal(parameters(tmp_path / "whole"), parameters(killed))
    rounds = [json.loads(line)["round"] for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert rounds == list(range(1, 61))
    for file in (tmp_path / "whole" / "rounds").iterdir():
        assert Checkpoint.load(file).digest() == Checkpoint.load(killed / "rounds" / file.name).digest()


def test_a_run_is_not_overwritten_without_resume(tmp_path):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 1}), out=tmp_path)
    before = (tmp_path / "ckpt.pt").read_bytes()
    with pytest.raises(FedscapeError, match="already holds a run: give --resume"):
        train(FedAvg(), Settings(**SHORT), out=tmp_path)
    assert (tmp_path / "ckpt.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("algorithm", "changes", "sentence"),
    [
        (FedSAM(), {}, "name was fedavg and is fedsam"),
        (FedAvg(0.5), {}, "server_lr was 1.0 and is 0.5"),
        (FedAvg(), {"lr": 0.05, "seed": 3}, "lr was 0.1 and is 0.05; seed was 0 and is 3"),
    ],
)
def test_another_run_is_not_resumed(algorithm, changes, sentence, tmp_path):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 1}), out=tmp_path)
    with pytest.raises(FedscapeError, match=sentence):
        train(algorithm, Settings(**{**SHORT, **changes}), out=tmp_path, resume=True)


def test_divergence_keeps_the_last_good_model(tmp_path):
    run = train(FedAvg(), Settings(**{**SHORT, "lr": 1e20, "rounds": 20}), out=tmp_path)
    assert run.status == "diverged"
    assert Checkpoint.verify(run.checkpoint).round == len(run.metrics)


def test_saving_a_costly_state_is_rationed_and_loses_nothing(tmp_path, monkeypatch):
    """With saving made slow, state.pt is written rarely, and resuming still ends at the same parameters."""
    whole = train(FedAvg(), Settings(**SHORT), out=tmp_path / "whole")
    saves = []
    monkeypatch.setattr(trainers.run, "_SAVING_SHARE", 0.0)
    plain = trainers.run.RunDirectory.save_latest
    monkeypatch.setattr(
        trainers.run.RunDirectory, "save_latest", lambda self, c, s: (saves.append(c.round), plain(self, c, s))
    )
    run = train(FedAvg(), Settings(**SHORT), out=tmp_path / "rare")
    assert saves == [0, 2, 4, 6]
    assert torch.equal(parameters(whole.path), parameters(run.path))


def test_full_disk_leaves_the_earlier_run_whole(tmp_path, monkeypatch):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 3}), out=tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.pt")}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FedscapeError, match="No space left on device"):
        train(FedAvg(), Settings(**SHORT), out=tmp_path, resume=True)
    monkeypatch.undo()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.pt")} == before
    assert not list(tmp_path.rglob("*.tmp"))
    resumed = train(FedAvg(), Settings(**SHORT), out=tmp_path, resume=True)
    assert len(resumed.metrics) == 6


def test_float64_runs_and_user_models(tmp_path):
    settings = Settings(**{**SHORT, "rounds": 1}, dtype="float64", model="tests.trainers.user_code:tiny")
    run = train(FedAvg(), settings, out=tmp_path)
    checkpoint = Checkpoint.load(run.checkpoint)
    assert all(p.dtype == torch.float64 for p in checkpoint.parameters.values())
    with pytest.raises(FedscapeError, match="would import and run code"):
        Landscape.from_checkpoint(run.checkpoint)
    mine = Landscape.from_checkpoint(run.checkpoint, "test", model="tests.trainers.user_code:tiny")
    assert mine.value() == pytest.approx(run.metrics[-1]["test_loss"], rel=1e-12)
