"""The local rate over the rounds: against PyTorch's schedulers, in runs, and over a resume."""

import json

import pytest
import torch
from torch.optim import lr_scheduler

from landscape import Checkpoint, FedscapeError
from tests.trainers.federations import federation
from trainers import FedAvg, Settings, train
from trainers.__main__ import read
from trainers.parts.schedules import Schedule

ROUNDS, RATE = 17, 0.3
SHORT = {"clients": 4, "per_round": 2, "local_steps": 1, "device": "cpu", "save_every": 2}


def torchs(schedule):
    """The rates of PyTorch's schedulers, an epoch a round."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    warmup = schedule.warmup
    after = {
        "constant": lambda: lr_scheduler.ConstantLR(optimizer, factor=1.0),
        "exponential": lambda: lr_scheduler.ExponentialLR(optimizer, schedule.decay),
        "step": lambda: lr_scheduler.StepLR(optimizer, schedule.every, schedule.decay),
        "cosine": lambda: lr_scheduler.CosineAnnealingLR(optimizer, ROUNDS - warmup, schedule.lowest),
    }[schedule.name]
    if warmup:
        rise = lr_scheduler.LinearLR(optimizer, 1 / (warmup + 1), total_iters=warmup)
        whole = lr_scheduler.SequentialLR(optimizer, [rise, after()], milestones=[warmup])
    else:
        whole = after()
    rates = []
    for _ in range(ROUNDS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        whole.step()
    return rates


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # of SequentialLR itself
@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize(
    "shape",
    [
        {"name": "constant"},
        {"decay": 0.9},
        {"name": "step", "decay": 0.5, "every": 4},
        {"name": "cosine"},
        {"name": "cosine", "lowest": 0.02},
    ],
    ids=str,
)
def test_rates_are_those_of_torchs_schedulers(shape, warmup):
    schedule = Schedule(**shape, warmup=warmup)
    ours = [schedule.rate(number, ROUNDS, RATE) for number in range(1, ROUNDS + 1)]
    assert ours == pytest.approx(torchs(schedule), rel=1e-12)
    assert min(ours) > 0


def test_a_cosine_by_hand():
    """Five rounds, the first of them warm-up: η/2, then η (1 + cos(π t/4))/2 for t = 0, …, 3."""
    schedule, root = Schedule("cosine", warmup=1), 2**-0.5
    expected = [0.5, 1.0, (1 + root) / 2, 0.5, (1 - root) / 2]
    assert [schedule.rate(number, 5, 1.0) for number in range(1, 6)] == pytest.approx(expected, rel=1e-14)


def test_a_rounds_steps_have_its_rate():
    ours = federation(FedAvg(), lr=0.2, lr_decay=1.0, lr_schedule="cosine", rounds=4, local_epochs=1, per_round=7)
    plain = [federation(FedAvg(), lr=rate, lr_decay=1.0, local_epochs=1, per_round=7) for rate in (0.2, 0.1)]
    record, same = ours.step(), plain[0].step()
    assert (record.lr, same.lr) == (0.2, 0.2)
    assert torch.equal(ours.server.w, plain[0].server.w)
    assert [ours.step().lr for _ in range(2)] == pytest.approx([0.1 * (1 + 2**-0.5), 0.1], rel=1e-14)


def test_the_command_line_records_its_schedule_and_resumes_with_it(tmp_path):
    settings = Settings(**SHORT, rounds=6, lr=0.2, lr_schedule="step", lr_step=2, lr_decay=0.5, lr_warmup=1)
    shape = "--lr 0.2 --lr-schedule step --lr-step 2 --lr-decay 0.5 --lr-warmup 1"
    line = f"fedavg {shape} --rounds 6 --clients 4 --per-round 2 --local-steps 1 --save-every 2 --device cpu"
    assert read(line.split()).settings == settings
    whole = train(FedAvg(), settings, out=tmp_path / "whole")
    train(FedAvg(), Settings(**{**vars(settings), "rounds": 3}), out=tmp_path / "parts")
    parts = train(FedAvg(), settings, out=tmp_path / "parts", resume=True)
    rates = [0.1, 0.2, 0.2, 0.1, 0.1, 0.05]
    assert [record["lr"] for record in whole.metrics] == pytest.approx(rates, rel=1e-14)
    assert Checkpoint.load(parts.checkpoint).digest() == Checkpoint.load(whole.checkpoint).digest()
    recorded = json.loads((parts.path / "config.json").read_text())["settings"]
    assert [recorded[f"lr_{name}"] for name in ("schedule", "step", "decay", "warmup")] == ["step", 2, 0.5, 1]
    assert Checkpoint.load(parts.checkpoint).algorithm["training"]["lr_schedule"] == "step"


def test_a_cosine_is_not_resumed_with_another_number_of_rounds(tmp_path):
    settings = {**SHORT, "lr_schedule": "cosine"}
    train(FedAvg(), Settings(**settings, rounds=2), out=tmp_path)
    with pytest.raises(FedscapeError) as error:
        train(FedAvg(), Settings(**settings, rounds=3), out=tmp_path, resume=True)
    assert "(rounds was 2 and is 3, and the rates of --lr-schedule cosine depend on it): give" in str(error.value)
    assert len(train(FedAvg(), Settings(**settings, rounds=2), out=tmp_path, resume=True).metrics) == 2


def test_a_run_from_before_there_were_schedules_is_resumed(tmp_path):
    train(FedAvg(), Settings(**SHORT, rounds=1, lr_decay=0.5), out=tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("schedule", "step", "min", "warmup"):
        del config["settings"][f"lr_{name}"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    run = train(FedAvg(), Settings(**SHORT, rounds=3, lr_decay=0.5), out=tmp_path, resume=True)
    assert [record["lr"] for record in run.metrics] == [0.1, 0.05, 0.025]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"schedule": "cosine", "decay": 0.9}, "--lr-decay has no effect with --lr-schedule cosine: leave it out"),
        ({"schedule": "constant", "decay": 0.9}, "--lr-decay has no effect with --lr-schedule constant"),
        ({"schedule": "step", "decay": 0.9}, "--lr-schedule step needs --lr-step"),
        ({"schedule": "step", "decay": 0.9, "step": 0}, "--lr-schedule step needs --lr-step"),
        ({"schedule": "step", "step": 2}, "--lr-schedule step needs --lr-decay, the factor of a drop, and 1 is none"),
        ({"step": 3}, "--lr-step is an option of --lr-schedule step: give that too"),
        ({"min": 0.01}, "--lr-min is an option of --lr-schedule cosine: give that too"),
        ({"schedule": "cosine", "min": -1.0}, "--lr-min is -1.0: give 0 or more"),
        ({"schedule": "cosine", "min": 0.1}, "--lr-min is 0.1: give less than --lr, 0.1"),
        ({"schedule": "linear"}, "--lr-schedule linear is unknown: give one of constant, exponential, cosine, step"),
        ({"warmup": -1}, "--lr-warmup is -1: give 0 (none) or more"),
        ({"schedule": "cosine", "warmup": 30}, "the cosine needs rounds after it, and --rounds is 30"),
        ({"decay": float("nan")}, "--lr-decay is nan: it must be above 0"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(bad, sentence):
    with pytest.raises(FedscapeError) as error:
        Settings(**{f"lr_{name}": value for name, value in bad.items()})
    assert sentence in str(error.value)
