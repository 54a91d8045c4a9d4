"""Averaging of server models: the cyclic rate, what is captured, the mean, and its files."""

import copy

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, update_bn

from landscape import Checkpoint, FedscapeError, Landscape, ParameterSpace, build_model, load_dataset
from tests.trainers.federations import federation, net
from trainers import FedAvg, Scaffold, Settings, train
from trainers.federation.federation import Federation
from trainers.parts.parts import Parts
from trainers.parts.server_optimizers import Momentum
from trainers.parts.swa import SWA

SHORT = {"clients": 6, "per_round": 2, "local_epochs": 1, "save_every": 1, "device": "cpu", "dtype": "float64"}


def flat(parameters):
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def test_the_rate_falls_in_each_cycle_after_the_start_to_the_lowest():
    """Algorithm 1 and eq. 7 with γ1 = 1, γ2 = 0.2, c = 4, T = 16 and start at t = 8, by hand for t = 0, ..., 15."""
    swa = SWA(start=0.5, cycle=4, lr=0.2)
    by_hand = [1.0] * 9 + [0.6, 0.4, 0.2] + [0.8, 0.6, 0.4, 0.2]
    assert [swa.rate(number, 16, 1.0) for number in range(1, 17)] == pytest.approx(by_hand, rel=1e-14)
    assert [number for number in range(1, 17) if swa.captures(number, 16)] == [12, 16]


@pytest.mark.parametrize("rounds", [40, 100, 1000])
def test_defaults_are_the_papers(rounds):
    """From 75 % on, c = 10, γ2 = 1e-4; captured exactly where the rate is lowest."""
    swa = SWA()
    rates = {number: swa.rate(number, rounds, 0.01) for number in range(1, rounds + 1)}
    first = rounds * 3 // 4 + 1  # of the averaged phase: its t is 0.75 T
    assert all(rates[number] == 0.01 for number in range(1, first + 1))
    assert rates[first + 1] < 0.01
    captured = [number for number in rates if swa.captures(number, rounds)]
    assert captured == [number for number in rates if number >= first and rates[number] == pytest.approx(1e-4)]
    assert captured == list(range(-(-first // 10) * 10, rounds + 1, 10))


def test_an_inexact_product_of_share_and_rounds_shifts_nothing():
    """0.55 · 100 is above 55 in floating point, 0.29 · 100 below 29."""
    for start, first in ((0.55, 57), (0.29, 31)):  # t > 55 and t > 29
        swa = SWA(start, 1, 0.1)
        assert min(n for n in range(1, 101) if swa.captures(n, 100)) == first
        assert min(n for n in range(1, 101) if swa.rate(n, 100, 1.0) < 1) == first


def test_the_cycles_rate_starts_from_the_decayed_one_and_is_what_clients_step_with():
    swa, changes = SWA(0.4, 2, 0.01), {"rounds": 5, "per_round": 7, "local_epochs": 1}
    ours = federation(FedAvg(), Parts(swa=swa), **changes)
    for number in range(1, 6):
        before, plain = ours.server.w.clone(), 0.3 * 0.9 ** (number - 1)
        expected = {4: 0.01, 5: 0.5 * plain + 0.005}.get(number, plain)  # t = 3 ends a cycle, t = 4 is half of one
        slope = Landscape(net(), ours.executor._data, device="cpu").gradient(before)  # all clients, one full batch
        record = ours.step()
        assert record.lr == pytest.approx(expected, rel=1e-14)
        torch.testing.assert_close(ours.server.w, before - expected * slope, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold()], ids=["fedavg", "scaffold"])
def test_the_running_mean_is_that_of_all_captured_models(algorithm):
    parts = Parts(swa=SWA(0.25, 3, 0.05))
    ours = federation(algorithm, parts, rounds=20)  # t = 5 is the start, and would end a cycle if there were one
    space, module, averaged, captured = ParameterSpace.of(net()), net(), None, []
    for number in range(1, 21):
        record = ours.step()
        if number in (9, 12, 15, 18):
            assert record.lr == pytest.approx(0.05, rel=1e-14)
            captured.append(ours.server.w.clone())
            module.load_state_dict(space.unflatten(ours.server.w))
            averaged = averaged or AveragedModel(module)
            averaged.update_parameters(module)
        assert ours.averaged.count == len(captured)
    torch.testing.assert_close(ours.averaged.value, sum(captured) / 4, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ours.averaged.value, flat(averaged.module.parameters()), rtol=1e-9, atol=1e-12)
    assert (ours.averaged.value - ours.server.w).norm() > 1e-3


def test_the_mean_does_not_move_the_server():
    """A cycle of one round at the rate there is anyway leaves the rate as it is."""
    ours, plain = (federation(FedAvg(), parts, rounds=6, lr_decay=1.0) for parts in (Parts(swa=SWA(0.0, 1, 0.3)), None))
    for _ in range(6):
        ours.step(), plain.step()
    assert torch.equal(ours.server.w, plain.server.w)
    assert ours.averaged.count == 5
    assert plain.averaged.value is None


@pytest.mark.parametrize("stop", [3, 6, 7, 9])
def test_resumed_before_within_and_after_a_cycle_it_is_the_same(stop):
    parts = Parts(swa=SWA(0.5, 3, 0.05), server_optimizer=Momentum(0.5))
    whole, first, second = (federation(FedAvg(), parts, rounds=12) for _ in range(3))
    for _ in range(12):
        whole.step()
    for _ in range(stop):
        first.step()
    second.restore(copy.deepcopy(first.export()))
    for _ in range(12 - stop):
        second.step()
    assert torch.equal(second.averaged.value, whole.averaged.value)
    assert torch.equal(second.server.w, whole.server.w)
    assert second.averaged.count == whole.averaged.count == 2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = Settings(**SHORT, rounds=8)
    return train(FedAvg(), settings, Parts(swa=SWA(0.5, 2, 0.01)), out=tmp_path_factory.mktemp("swa") / "run")


def test_the_file_holds_the_mean_of_the_captured_rounds(run):
    kept = [Checkpoint.load(run.path / "rounds" / f"{number:05d}.pt") for number in (6, 8)]
    averaged = Checkpoint.verify(run.path / "swa.pt")
    mean = sum(flat(c.parameters.values()) for c in kept) / 2
    torch.testing.assert_close(flat(averaged.parameters.values()), mean, rtol=1e-12, atol=1e-14)
    assert averaged.round == 8
    assert averaged.algorithm["parts"]["swa"] == {
        "name": "swa",
        "start": 0.5,
        "cycle": 2,
        "lr": 0.01,
        "variant": "paper",
    }
    assert averaged.model == kept[1].model
    assert not torch.equal(flat(averaged.parameters.values()), flat(kept[1].parameters.values()))


def test_the_mean_is_evaluated_from_the_first_capture_on(run):
    test = Landscape.from_checkpoint(run.path / "swa.pt", "test", device="cpu")
    found = test.evaluate()
    last = run.metrics[-1]
    assert (last["swa_test_loss"], last["swa_test_accuracy"]) == (found.loss, found.accuracy)
    assert last["swa_test_loss"] != last["test_loss"]
    assert [r["round"] for r in run.metrics if "swa_test_loss" in r] == [6, 7, 8]
    once = next(r for r in run.metrics if r["round"] == 6)
    assert once["swa_test_loss"] == pytest.approx(once["test_loss"], rel=1e-12)


def test_without_it_there_is_no_file(tmp_path):
    plain = train(FedAvg(), Settings(**SHORT, rounds=1), out=tmp_path)
    assert not (plain.path / "swa.pt").exists()


def test_a_run_resumed_between_two_captures_ends_with_the_same_file(run, tmp_path, monkeypatch):
    step = Federation.step

    def dies_in_round_eight(self):
        if self.round == 7:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Federation, "step", dies_in_round_eight)
    settings, parts = Settings(**SHORT, rounds=8), Parts(swa=SWA(0.5, 2, 0.01))
    with pytest.raises(KeyboardInterrupt):
        train(FedAvg(), settings, parts, out=tmp_path)
    monkeypatch.undo()
    resumed = train(FedAvg(), settings, parts, out=tmp_path, resume=True)
    ours, whole = (Checkpoint.load(path / "swa.pt") for path in (resumed.path, run.path))
    assert ours.digest() == whole.digest()


@pytest.mark.parametrize(
    ("rounds", "parts", "sentence"),
    [
        (9, Parts(swa=SWA(0.5, 2, 0.01)), "rounds was 8 and is 9"),  # its schedule hangs on their number
        (8, Parts(swa=SWA(0.5, 2, 0.02)), "swa was"),
        (8, Parts(), "swa was"),
    ],
)
def test_another_schedule_is_not_resumed(run, rounds, parts, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        train(FedAvg(), Settings(**SHORT, rounds=rounds), parts, out=run.path, resume=True)


def test_batchnorms_statistics_are_computed_anew_for_the_mean(tmp_path):
    settings = Settings(**SHORT, rounds=4, model="tests.trainers.user_code:normalised")
    run = train(FedAvg(), settings, Parts(swa=SWA(0.0, 2, 0.01)), out=tmp_path)
    averaged = Checkpoint.load(run.path / "swa.pt")
    train_data = load_dataset("digits").train
    module = build_model(settings.model, seed=0, input_shape=[1, 8, 8], classes=10).double()
    module.load_state_dict(averaged.parameters, strict=False)
    images = train_data.prepare(train_data.inputs, torch.float64)
    update_bn([(x,) for x in images.split(256)], module)
    for name in ("running_mean", "running_var"):
        expected = getattr(module[2], name)
        torch.testing.assert_close(averaged.buffers[f"2.{name}"], expected, rtol=1e-10, atol=1e-12)
        server = Checkpoint.load(run.checkpoint).buffers[f"2.{name}"]
        assert (server - expected).norm() > 1e-2 * expected.norm()
    test = Landscape.from_checkpoint(run.path / "swa.pt", "test", model=settings.model, device="cpu")
    assert test.value() == run.metrics[-1]["swa_test_loss"]


@pytest.mark.parametrize("rounds", [1, 9])
def test_a_run_that_would_capture_nothing_is_refused(rounds, tmp_path):
    with pytest.raises(FedscapeError, match=r"no cycle of 10 rounds ends after 75% of .* rounds, so SWA"):
        train(FedAvg(), Settings(**SHORT, rounds=rounds), Parts(swa=SWA()), out=tmp_path)


@pytest.mark.parametrize(
    "bad", [{"start": 1.0}, {"start": -0.1}, {"cycle": 0}, {"lr": 0.0}, {"start": float("nan")}], ids=str
)
def test_schedules_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="SWA needs a start from 0 to below 1"):
        SWA(**bad)
