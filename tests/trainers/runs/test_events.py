"""TensorBoard's event files: the numbers of metrics.jsonl, each round once however often a run was resumed."""

import builtins
import json
from importlib.util import find_spec

import pytest

from landscape import FedscapeError
from trainers import FedAvg, Settings, train
from trainers.federation.federation import Federation

needs_tensorboard = pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
SETTINGS = Settings(rounds=5, clients=4, per_round=2, local_steps=1, device="cpu", save_every=1)


def told(folder):
    """The scalars that TensorBoard shows of a run: its values by tag and step."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    events = accumulator.EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def recorded(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check(folder, rounds):
    shown, records = told(folder), recorded(folder)
    assert [record["round"] for record in records] == list(range(1, rounds + 1))
    tags = {name for record in records for name, v in record.items() if isinstance(v, (int, float))} - {"round"}
    assert set(shown) == tags
    assert {"train_loss", "test_accuracy", "bytes_up"} <= tags
    for tag, values in shown.items():
        wanted = [(record["round"], record[tag]) for record in records if record.get(tag) is not None]
        assert [step for step, _ in values] == [step for step, _ in wanted], tag
        assert [value for _, value in values] == pytest.approx([value for _, value in wanted], rel=1e-6), tag


@needs_tensorboard
def test_events_are_the_numbers_of_metrics_jsonl(tmp_path):
    train(FedAvg(), SETTINGS, out=tmp_path, log="tensorboard")
    check(tmp_path, 5)


@pytest.mark.parametrize("first", ["tensorboard", None])
@needs_tensorboard
def test_a_resumed_run_has_each_round_once(tmp_path, monkeypatch, first):
    """Also those rounds that were trained without the log, or recorded and lost, as the state is saved after them."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    step = Federation.step

    def interrupted(federation):
        if federation.round == 3:
            raise KeyboardInterrupt
        return step(federation)

    monkeypatch.setattr(Federation, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(FedAvg(), SETTINGS, out=tmp_path, log=first)
    monkeypatch.undo()
    train(FedAvg(), SETTINGS, out=tmp_path, log="tensorboard", resume=True)
    check(tmp_path, 5)


@needs_tensorboard
def test_rounds_that_were_logged_and_lost_are_replaced(tmp_path):
    """The state is that of an earlier round than the last event: a process may be killed between the two."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    train(FedAvg(), SETTINGS, out=tmp_path, log="tensorboard")
    kept = (tmp_path / "state.pt").read_bytes()
    train(FedAvg(), Settings(**{**vars(SETTINGS), "rounds": 8}), out=tmp_path, log="tensorboard", resume=True)
    (tmp_path / "state.pt").write_bytes(kept)
    train(FedAvg(), Settings(**{**vars(SETTINGS), "rounds": 6}), out=tmp_path, log="tensorboard", resume=True)
    check(tmp_path, 6)


def test_without_the_package_the_error_says_how_to_get_it_before_any_work(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError("No module named 'tensorboard'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FedscapeError, match=r"--log tensorboard needs .* pip install 'fedscape\[tensorboard\]'"):
        train(FedAvg(), SETTINGS, out=tmp_path / "run", log="tensorboard")
    assert not (tmp_path / "run").exists()


def test_without_log_there_are_no_events(tmp_path):
    train(FedAvg(), SETTINGS, out=tmp_path)
    assert not (tmp_path / "tensorboard").exists()
