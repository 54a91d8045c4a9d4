"""A loop of one's own, recorded: what the files say is what the loop computed, and a stopped loop goes on."""

import json
import weakref
from contextlib import suppress

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from analysis import measure_alignment
from landscape import MODELS, Checkpoint, FedscapeError, build_model, load_dataset
from trainers import recording
from trainers.runs import read_runs

DIGITS = {"model": "digits_mlp", "data": "digits"}
HALVES = [range(700), range(700, 1400)]


def net(seed=0):
    return build_model("digits_mlp", seed=seed, input_shape=(1, 8, 8), classes=10)


def steps(module, record, numbers, **more):
    """Gradient descent on 64 images; the loss before each step."""
    x, y = load_dataset("digits").train.batch(slice(0, 64), torch.float32)
    losses = []
    for step in numbers:
        loss = F.cross_entropy(module(x), y)
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
        record(module, step, loss=loss, **more)
        losses.append(loss.item())
    return losses


def same(checkpoint, module):
    return all(torch.equal(checkpoint.parameters[name], p) for name, p in module.named_parameters())


def test_files_hold_what_the_loop_computed(tmp_path):
    module = net()
    with recording(tmp_path / "run", **DIGITS, every=2, name="gd", settings={"lr": 0.1}, seed=3) as record:
        losses = steps(module, record, range(1, 6), lr=0.1)
    (run,) = read_runs([tmp_path / "run"])
    assert (run.algorithm, run.status, run.seed, run.config["settings"]["lr"]) == ("gd", "finished", 3, 0.1)
    assert [r["round"] for r in run.metrics] == [1, 2, 3, 4, 5]
    assert run.values("train_loss") == losses
    last = Checkpoint.verify(tmp_path / "run" / "ckpt.pt")
    assert last.round == 5
    assert same(last, module)
    assert [path.name for path in sorted((tmp_path / "run" / "rounds").iterdir())] == ["00002.pt", "00004.pt"]
    kept = Checkpoint.load(tmp_path / "run" / "rounds" / "00004.pt")
    test = load_dataset("digits").test
    with torch.no_grad():
        x, y = test.batch(slice(0, len(test)), torch.float32)
        outputs = kept.build_model().eval()(x)
    assert kept.metrics["test_loss"] == pytest.approx(F.cross_entropy(outputs, y).item(), rel=1e-5)
    assert kept.metrics["test_accuracy"] == pytest.approx((outputs.argmax(1) == y).double().mean().item())


def test_own_scores_are_kept_and_the_callback_adds_others(tmp_path):
    seen = []

    def norm(model, step):
        seen.append(step)
        return {"norm": sum(p.square().sum() for p in model.parameters())}

    with recording(tmp_path, **DIGITS, every=2, callback=norm) as record:
        for step in (1, 2):
            told = record(net(), step, test_accuracy=0.25)
    assert seen == [2]
    assert told["test_accuracy"] == 0.25
    assert "test_loss" not in told
    assert told["norm"] == pytest.approx(sum(p.square().sum().item() for p in net().parameters()), rel=1e-6)


def test_a_stopped_loop_goes_on_after_its_last_kept_model(tmp_path):
    whole = net()
    with recording(tmp_path / "whole", **DIGITS, every=2) as record:
        losses = steps(whole, record, range(1, 7))
    stopped = net()
    with suppress(KeyboardInterrupt), recording(tmp_path / "run", **DIGITS, every=2) as record:
        steps(stopped, record, range(1, 4))
        raise KeyboardInterrupt
    assert read_runs([tmp_path / "run"])[0].status == "unfinished"
    resumed = net(seed=9)
    with recording(tmp_path / "run", **DIGITS, every=2, resume=True) as record:
        assert record.restore(resumed) == 2
        with pytest.raises(FedscapeError, match="step 2 comes after step 2, which is recorded: give ascending steps"):
            record(resumed, 2)
        steps(resumed, record, range(3, 7))
    (run,) = read_runs([tmp_path / "run"])
    assert run.values("train_loss") == losses
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))
    with pytest.raises(FedscapeError, match="already holds a run"), recording(tmp_path / "run", **DIGITS):
        pass
    other = pytest.raises(FedscapeError, match="holds another run, which differs in its settings")
    with other, recording(tmp_path / "run", **DIGITS, seed=1, resume=True):
        pass


def test_a_federated_loop_records_its_clients(tmp_path):
    locals_ = {0: net(1), 1: net(2).state_dict()}
    with recording(tmp_path, **DIGITS, partition=HALVES) as record:
        record(net(), 1, clients=locals_, keep=True)
    checkpoint = Checkpoint.load(tmp_path / "ckpt.pt")
    assert same(checkpoint.of_client(0), net(1))
    assert same(checkpoint.of_client(1), net(2))
    partition = checkpoint.partition(load_dataset("digits"))
    np.testing.assert_array_equal(partition.clients[1], np.arange(700, 1400))


WEIGHTS = {"samples": [0.25, 0.75], "uniform": [0.5, 0.5], (3.0, 1.0): [0.75, 0.25]}


@pytest.mark.parametrize("given", WEIGHTS)
def test_a_federated_loop_says_its_weights_and_their_losses_are_measured_with_them(tmp_path, given):
    thirds, module = [range(100), range(100, 400)], net()
    with recording(tmp_path, **DIGITS, partition=thirds, weights=given, evaluate=False) as record:
        record(module, 1, keep=True)
    told = json.loads((tmp_path / "weights.json").read_text())
    assert told == {"objective": WEIGHTS[given], "expected": None, "difference": None}
    found = measure_alignment(tmp_path, "all", parts=("gradients",), device="cpu").runs[0].rounds[0]
    x, y = load_dataset("digits").train.batch(slice(0, 400), torch.float32)
    losses = [F.cross_entropy(module(x[part]), y[part]).item() for part in thirds]
    assert found.gradients.loss == pytest.approx(np.dot(WEIGHTS[given], losses), rel=1e-5)
    with (
        pytest.raises(FedscapeError, match="holds another run, which differs in its settings"),
        recording(tmp_path, **DIGITS, partition=thirds, weights=[1, 1], resume=True),
    ):
        pass


def test_the_weights_of_a_loop_that_does_not_say_them_are_asked_for(tmp_path):
    with recording(tmp_path, **DIGITS, partition=[range(100), range(100, 400)], evaluate=False) as record:
        record(net(), 1, keep=True)
    assert not (tmp_path / "weights.json").exists()
    with pytest.raises(FedscapeError, match=r"give --weights samples .* or record a loop of your own with recording"):
        measure_alignment(tmp_path, parts=("gradients",), device="cpu")
    found = measure_alignment(tmp_path, parts=("gradients",), device="cpu", weights="samples").runs[0].rounds[0]
    assert found.shares == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("wrapped", ["data parallel", "compiled", "state dict"])
def test_weights_are_taken_out_of_what_wraps_them(tmp_path, wrapped):
    module = net()
    given = {"data parallel": nn.DataParallel, "compiled": torch.compile, "state dict": nn.Module.state_dict}[wrapped]
    with recording(tmp_path, **DIGITS) as record:
        record(given(module), 1, keep=True)
    assert same(Checkpoint.load(tmp_path / "ckpt.pt"), module)


@pytest.mark.parametrize("given", ["state dict", "module", "compiled in part", "half precision"])
def test_tied_weights_are_recorded_once_and_come_back(tmp_path, monkeypatch, given):
    """A state dict names a tied tensor twice; the checkpoint, as every checkpoint, by its first name."""

    def tied(seed=0, **_):
        torch.manual_seed(seed)
        made = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
        made[2].weight = made[1].weight
        made.register_buffer("step", torch.tensor(seed), persistent=False)
        return made

    monkeypatch.setitem(MODELS._table, "tied", tied)
    mine = tied(seed=5)
    if given == "half precision":
        mine = mine.bfloat16()
    want = {name: p.detach().float() for name, p in mine.named_parameters()}
    if given == "compiled in part":
        mine[3] = torch.compile(mine[3])
    assert ("2.weight" in want, "2.weight" in mine.state_dict()) == (False, True)
    with recording(tmp_path, model="tied", data="digits", every=1) as record:
        told = record(mine.state_dict() if given == "state dict" else mine, 1)
    kept = Checkpoint.verify(tmp_path / "ckpt.pt")
    assert kept.parameters.keys() == want.keys()
    assert all(torch.equal(kept.parameters[name], want[name]) for name in want)
    assert kept.buffers["step"] == (0 if given == "state dict" else 5)  # a state dict leaves it out
    again = tied(seed=9)
    with recording(tmp_path, model="tied", data="digits", every=1, resume=True) as record:
        record.restore(again)
    assert all(torch.equal(p, want[name]) for name, p in again.named_parameters())
    test = load_dataset("digits").test
    x, y = test.batch(slice(0, len(test)), torch.float32)
    with torch.no_grad():
        expected = F.cross_entropy(again.eval()(x), y).item()
    assert told["test_loss"] == pytest.approx(expected, rel=1e-5)


def test_a_loops_model_and_data_go_though_its_recorder_stays(tmp_path, monkeypatch):
    module, loaded = net(), []

    def load(*given):
        found = load_dataset(*given)
        loaded.extend(weakref.ref(part) for part in (found.train, found.test))
        return found

    monkeypatch.setattr("trainers.runs.recording.load_dataset", load)
    with recording(tmp_path / "ended", **DIGITS) as ended:
        ended(module, 1)
    with suppress(KeyboardInterrupt), recording(tmp_path / "stopped", **DIGITS) as stopped:
        stopped(module, 1)
        raise KeyboardInterrupt
    gone = weakref.ref(module)
    del module
    assert gone() is None
    assert len(loaded) == 4
    assert not any(each() for each in loaded)
    assert (ended.path.name, stopped.path.name) == ("ended", "stopped")


def test_an_ended_recording_takes_no_more_records(tmp_path):
    """Another process may have gone on in its directory since."""
    with recording(tmp_path, **DIGITS) as record:
        record(net(), 1)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(FedscapeError, match="has ended: call record inside of its with block"):
        record(net(), 2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    module = net(seed=1)
    assert record.restore(module) == 1
    assert torch.equal(module[1].weight, net()[1].weight)


def test_a_loop_that_diverges_keeps_its_last_good_model(tmp_path):
    with recording(tmp_path, **DIGITS, every=1, evaluate=False) as record:
        record(net(), 1, loss=2.0)
        broken = net()
        nn.init.constant_(broken[1].weight, float("nan"))
        record(broken, 2, loss=float("nan"))
    (run,) = read_runs([tmp_path])
    assert (run.status_text, Checkpoint.verify(tmp_path / "ckpt.pt").round) == ("diverged in round 2", 1)
    assert json.loads((tmp_path / "result.json").read_text())["reason"] == "the training loss is nan"
    assert run.metrics[1]["train_loss"] is None


def test_a_model_changed_after_the_last_record_is_not_called_by_its_step(tmp_path, capsys):
    module = net()
    with recording(tmp_path, **DIGITS) as record:
        record(module, 1, keep=True)
        record(module, 2)
        with torch.no_grad():
            module[1].weight += 1
    assert "the model was changed after step 2" in " ".join(capsys.readouterr().err.split())
    assert Checkpoint.load(tmp_path / "ckpt.pt").round == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda record: record(net(), 1.5), "the step is 1.5: give a whole number"),
        (lambda record: record(net(), 1, loss="low"), "loss is a str: give a number"),
        (lambda record: record(net(), 1, loss=torch.zeros(2)), "loss is a Tensor: give a number"),
        (
            lambda record: record(nn.Linear(2, 1), 1, keep=True),
            "are not those of the model 'digits_mlp': missing: 1.weight",
        ),
        (lambda record: record([1.0], 1, keep=True), "the weights are a list: give a module, or its state dict"),
        (lambda record: record({"1.weight": np.ones(2)}, 1, keep=True), "the weights are a dict: give a module"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path, call, message):
    with pytest.raises(FedscapeError, match=message), recording(tmp_path, **DIGITS, evaluate=False) as record:
        call(record)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": -1}, "every is -1: give the steps between two kept models"),
        ({"model": "no_such_net"}, "no_such_net"),
        ({"settings": {"clients": "many"}}, "clients"),
        ({"weights": "samples"}, "weights are given without their samples: give partition, too"),
        ({"weights": "size", "partition": HALVES}, "the clients' weights are 'size': give samples, uniform, or"),
        ({"weights": [1.0], "partition": HALVES}, "there are 1 weights, and the partition has 2 clients"),
        ({"weights": [1.0, -1.0], "partition": HALVES}, "not finite numbers of 0 or more, some above 0"),
        ({"weights": [0.0, 0.0], "partition": HALVES}, "not finite numbers of 0 or more, some above 0"),
        ({"weights": [0.0, float("nan")], "partition": HALVES}, "not finite numbers of 0 or more, some above 0"),
        ({"weights": ["a", 1.0], "partition": HALVES}, "a client's weight is a str: give a number"),
        ({"weights": [3.0, 1.0], "partition": [range(9), []]}, "client 1 has the weight 1 and no samples"),
    ],
)
def test_a_recording_that_cannot_begin_makes_no_folder(tmp_path, options, message):
    with pytest.raises(FedscapeError, match=message), recording(tmp_path / "run", **{**DIGITS, **options}):
        pass
    assert not (tmp_path / "run").exists()
