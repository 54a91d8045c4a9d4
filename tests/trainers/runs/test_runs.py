"""Run directories: what they hold, and that a killed run ends as one that was not."""

import json
import os
import signal
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import trainers.runs.directory
import trainers.runs.run
from landscape import Checkpoint, FedscapeError, Landscape
from tests.processes import start_process
from tests.trainers.usual import usual
from trainers import ALGORITHMS, Centralised, FedAvg, FedSAM, FedSMOO, Settings, train
from trainers.__main__ import main
from trainers.federation import Federation
from trainers.runs import read_runs
from trainers.runs.stored import read_metrics
from trainers.tables import report

PATIENCE = 300.0
"""Seconds for what takes a few: the machine may be busy."""

SHORT = {"clients": 6, "per_round": 2, "rounds": 6, "save_every": 2, "device": "cpu", "local_epochs": 1}


def parameters(run):
    checkpoint = Checkpoint.load(run / "ckpt.pt")
    return torch.cat([p.reshape(-1) for p in checkpoint.parameters.values()])


def numbers(run):
    """What a run recorded, but for its times."""
    return [{name: value for name, value in r.items() if not name.startswith("seconds")} for r in run.metrics]


def test_directory_holds_what_it_promises(tmp_path):
    run = train(FedSAM(0.1), Settings(**SHORT), out=tmp_path / "run")
    assert run.status == "finished"
    names = {p.name for p in run.path.iterdir()}
    assert names == {
        "config.json",
        "metrics.jsonl",
        "ckpt.pt",
        "rounds",
        "state.pt",
        "partition.npz",
        "weights.json",
        "result.json",
    }
    assert json.loads((run.path / "result.json").read_text()) == {"status": "finished", "round": 6, "reason": None}
    assert sorted(p.name for p in (run.path / "rounds").iterdir()) == [f"{n:05d}.pt" for n in (0, 2, 4, 6)]
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [r["round"] for r in records] == [1, 2, 3, 4, 5, 6]
    wanted = {
        "round", "lr", "train_loss", "test_loss", "test_accuracy", "clients", "drift", "bytes_up", "bytes_down",
        "seconds", "steps", "gradients", "seconds_local", "seconds_aggregation", "seconds_evaluation",
    }  # fmt: skip
    assert all(wanted == r.keys() and len(r["clients"]) == 2 for r in records)
    for r in records:
        parts = [r[f"seconds_{part}"] for part in ("local", "aggregation", "evaluation")]
        assert min(parts) > 0
        assert sum(parts) <= r["seconds"]
    with np.load(run.path / "partition.npz") as arrays:
        assert sorted(arrays) == [f"client_{i:05d}" for i in range(6)]
        assert sorted(np.concatenate([arrays[name] for name in arrays])) == list(range(1442))
    config = json.loads((run.path / "config.json").read_text())
    assert config["algorithm"] == {"name": "fedsam", "rho": 0.1, "server_lr": 1.0}


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


@pytest.mark.parametrize("name", usual(ALGORITHMS))
def test_more_rounds_later_equal_all_rounds_at_once(name, tmp_path):
    algorithm, settings = ALGORITHMS.get(name)(), {**SHORT, "rounds": 4}
    whole = train(algorithm, Settings(**settings), out=tmp_path / "whole")
    train(algorithm, Settings(**{**settings, "rounds": 2}), out=tmp_path / "parts")
    parts = train(algorithm, Settings(**settings), out=tmp_path / "parts", resume=True)
    assert torch.equal(parameters(whole.path), parameters(parts.path))
    assert numbers(parts) == numbers(whole)


def test_client_states_on_disk_are_those_in_memory_and_a_run_may_move_between_the_two(tmp_path):
    settings = Settings(**SHORT, evaluated_model="all-clients-mean")
    host = train(FedSMOO(), replace(settings, client_store="host"), out=tmp_path / "host")
    train(FedSMOO(), replace(settings, client_store="disk", rounds=3), out=tmp_path / "disk")
    assert list((tmp_path / "disk" / "clients").iterdir())
    assert list((tmp_path / "disk" / "latest").iterdir())
    disk = train(FedSMOO(), replace(settings, client_store="disk", rounds=5), out=tmp_path / "disk", resume=True)
    moved = train(FedSMOO(), replace(settings, client_store="host"), out=tmp_path / "disk", resume=True)
    assert numbers(moved) == numbers(host)
    assert len(disk.metrics) == 5
    assert torch.equal(parameters(moved.path), parameters(host.path))
    assert not any(file.suffix == ".pt" for file in (tmp_path / "disk" / "clients").iterdir())


def command(*words):
    """The command in a process of its own, to be given the run's directory and the round it must not reach, if any."""
    line = [*words, "--clients", "10", "--save-every", "7", "--device", "cpu", "--quiet", "--resume", "--out"]
    return lambda out, end=None: start_process(waiting, [*line, str(out)], end)


def waiting(words, end):
    """The command, which waits for its end in a round: on a busy machine it could be over before it is killed."""
    step = Federation.step
    Federation.step = lambda federation: time.sleep(PATIENCE) if federation.round == end else step(federation)
    main(words)


PARTS = (
    "--client-store disk --mixup --man 0.1 --swa --swa-start 0.3 --swa-cycle 5 --evaluated-model all-clients-mean "
    "--local-optimizer adamw --local-state kept --lr 0.002 --lr-schedule cosine --lr-warmup 3"
)


@pytest.mark.parametrize(
    ("words", "rounds"),
    [
        pytest.param(["scaffold", "--local-epochs", "2"], 30, id="plain"),
        pytest.param(["fedsmoo", *PARTS.split()], 30, id="parts", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment_a_run_resumes_to_the_same_parameters(words, rounds, tmp_path):
    trained = command(*words, "--rounds", str(rounds))
    assert trained(tmp_path / "whole").wait() == 0
    killed = tmp_path / "killed"
    for done in (1, rounds // 5, 3 * rounds // 5):
        training = trained(killed, done + rounds // 5)
        metrics = killed / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < done:
            assert training.process.is_alive(), training.lines.read()
            time.sleep(0.002)
        assert training.kill() == -signal.SIGKILL
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"round": 27, "train_lo')  # a line that a kill cut short
    assert trained(killed).wait() == 0
    assert torch.equal(parameters(tmp_path / "whole"), parameters(killed))
    records = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == list(range(1, rounds + 1))
    for file in (tmp_path / "whole" / "rounds").iterdir():
        assert Checkpoint.load(file).digest() == Checkpoint.load(killed / "rounds" / file.name).digest()
    if "--swa" in words:
        means = [Checkpoint.load(run / "swa.pt").digest() for run in (tmp_path / "whole", killed)]
        assert means[0] == means[1]


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


def test_a_run_of_another_version_is_not_resumed(tmp_path):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 1}), out=tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["parts"], config["settings"]["sampling"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    del state["averaged"], state["optimizer"]
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(FedscapeError, match=r"of another version of Fedscape \(it has no optimizer, averaged\)"):
        train(FedAvg(), Settings(**SHORT), out=tmp_path, resume=True)


def poisoned(spoil, number=3):
    """FedAvg whose round ``number`` ends badly."""

    @dataclass(frozen=True)
    class Poisoned(FedAvg):
        def server_step(self, server, mean, round):
            super().server_step(server, mean, round)
            if round.number == number:
                server.w = spoil(server.w)

    return Poisoned()


@pytest.mark.parametrize(
    ("algorithm", "changes", "reason"),
    [
        (FedAvg(), {"lr": 1e20}, "the training loss is nan"),
        (poisoned(lambda w: w / 0), {}, "the server's model is no longer finite"),
        (poisoned(lambda w: torch.where(torch.arange(len(w)) == 5, torch.nan, w)), {}, "no longer finite"),
        (poisoned(lambda w: 1e30 * w), {}, "the training loss is nan"),
    ],
    ids=["rate", "infinite", "one coordinate", "huge"],
)
def test_divergence_ends_the_run_and_keeps_the_last_good_model(algorithm, changes, reason, tmp_path):
    run = train(algorithm, Settings(**{**SHORT, "rounds": 20, **changes}), out=tmp_path / "run")
    last = len(run.metrics)
    assert (run.status, last < 20) == ("diverged", True)
    assert reason in run.reason
    assert json.loads((run.path / "result.json").read_text()) == {
        "status": "diverged", "round": last + 1, "reason": run.reason,
    }  # fmt: skip
    checkpoint = Checkpoint.verify(run.checkpoint)
    assert checkpoint.round == last
    assert parameters(run.path).isfinite().all()
    for name in ("test_loss", "test_accuracy"):
        assert checkpoint.metrics.get(name) == (run.metrics[-1][name] if last else None)
    assert row_of(run)["status"] == f"diverged in round {last + 1}"


def row_of(run):
    table = report(read_runs([run.path]))
    return dict(zip(table.columns, table.rows[0], strict=True))


def test_the_last_good_model_has_its_own_batch_statistics(tmp_path):
    settings = Settings(**SHORT, model="tests.trainers.user_code:normalised", executor="sequential")
    plain = train(FedAvg(), replace(settings, rounds=2), out=tmp_path / "plain")
    run = train(poisoned(lambda w: w * torch.nan), settings, out=tmp_path / "run")
    good, bad = Checkpoint.load(plain.checkpoint), Checkpoint.load(run.checkpoint)
    assert bad.round == 2
    assert good.buffers.keys() == bad.buffers.keys()
    assert all(torch.equal(good.buffers[name], bad.buffers[name]) for name in good.buffers)


def test_resuming_forgets_how_the_run_had_ended(tmp_path, monkeypatch):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 2}), out=tmp_path)
    seen = []
    plain = trainers.runs.run.RunDirectory.append
    monkeypatch.setattr(
        trainers.runs.run.RunDirectory,
        "append",
        lambda self, record: (seen.append((self.path / "result.json").exists()), plain(self, record)),
    )
    train(FedAvg(), Settings(**{**SHORT, "rounds": 4}), out=tmp_path, resume=True)
    assert seen == [False, False]
    assert json.loads((tmp_path / "result.json").read_text())["round"] == 4


def test_a_resumed_run_reads_its_rounds_where_it_goes_on_and_at_its_end(tmp_path, monkeypatch):
    """Of tens of thousands of rounds each time takes seconds."""
    train(FedAvg(), Settings(**{**SHORT, "rounds": 1}), out=tmp_path)
    directory, read = trainers.runs.directory, []
    monkeypatch.setattr(directory, "read_metrics", lambda folder: read.append(folder) or read_metrics(folder))
    run = train(FedAvg(), Settings(**{**SHORT, "rounds": 3}), out=tmp_path, resume=True)
    assert read == [tmp_path, tmp_path]
    assert [record["round"] for record in run.metrics] == [1, 2, 3]


def test_centralised_records_what_it_used_and_sends_nothing(tmp_path):
    run = train(Centralised(), Settings(**SHORT), out=tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())["settings"]
    assert (settings["clients"], settings["per_round"], settings["partition"]) == (1, 1, "iid")
    assert Checkpoint.load(run.checkpoint).algorithm["training"]["clients"] == 1
    assert [(r["clients"], r["bytes_down"], r["bytes_up"]) for r in run.metrics] == [([0], 0, 0)] * 6
    with np.load(tmp_path / "partition.npz") as arrays:
        assert len(arrays["client_00000"]) == 1442
    assert train(Centralised(), Settings(**{**SHORT, "rounds": 7}), out=tmp_path, resume=True).status == "finished"


def test_saving_a_costly_state_is_rationed_and_loses_nothing(tmp_path, monkeypatch):
    """With saving made slow, state.pt is written rarely, and resuming still ends at the same parameters."""
    whole = train(FedAvg(), Settings(**SHORT), out=tmp_path / "whole")
    saves = []
    monkeypatch.setattr(trainers.runs.run, "_SAVING_SHARE", 0.0)
    plain = trainers.runs.run.RunDirectory.save_latest
    monkeypatch.setattr(
        trainers.runs.run.RunDirectory, "save_latest", lambda self, c, s: (saves.append(c.round), plain(self, c, s))
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
