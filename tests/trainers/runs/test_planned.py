"""Runs by what decides their result: keys, states, resumption, failures, locks."""

import json
import re
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch

import landscape.version
from landscape import Checkpoint, FedscapeError
from landscape.storage.lock import LockedError, sole_writer
from tests.processes import start_process
from trainers import ALGORITHMS, MAN, SAM, SWA, FedAvg, FedProx, FedSAM, Parts, Settings
from trainers.federation.federation import Federation
from trainers.flags import FLAGS
from trainers.runs import PlannedRun, RunStore
from trainers.runs.planned import is_real

SHORT = Settings(rounds=4, clients=4, per_round=2, local_epochs=1, save_every=2)


def test_the_key_of_a_default_run_is_pinned():
    """Whoever changes it on purpose raises SCHEMA, or everybody's runs are made again."""
    assert PlannedRun(FedAvg()).key == "680849c438a748e5"


OTHERS = {
    "algorithm": PlannedRun(FedProx(), SHORT),
    "hyper-parameter": PlannedRun(FedSAM(0.2), SHORT),
    "part": PlannedRun(FedSAM(0.1), SHORT, Parts(man=MAN(0.1))),
    "part's value": PlannedRun(FedSAM(0.1), SHORT, Parts(man=MAN(0.2))),
    "seed": PlannedRun(FedSAM(0.1), SHORT).seeded(1),
    "rate": PlannedRun(FedSAM(0.1), replace(SHORT, lr=0.05)),
    "rounds": PlannedRun(FedSAM(0.1), replace(SHORT, rounds=5)),
    "kept models": PlannedRun(FedSAM(0.1), replace(SHORT, save_every=1)),
    "data": PlannedRun(FedSAM(0.1), replace(SHORT, data="cifar10")),
    "itself": PlannedRun(FedSAM(0.1), SHORT),
}


def test_whatever_decides_the_result_changes_the_key():
    assert len({run.key for run in OTHERS.values()}) == len(OTHERS)
    assert len({run.name for run in OTHERS.values()}) == len(OTHERS)


@dataclass(frozen=True)
class Listed(FedAvg):
    """One of a user's own."""

    rates: tuple[float, ...] = ()


WHOLE = {
    "hyper-parameter": [PlannedRun(FedSAM(rho=rho), SHORT) for rho in (1, 1.0)],
    "settings": [PlannedRun(FedAvg(), replace(SHORT, lr=lr, weight_decay=decay)) for lr, decay in ((1, 2), (1.0, 2.0))],
    "parts": [PlannedRun(FedAvg(), SHORT, Parts(ascent=SAM(a), man=MAN(b))) for a, b in ((1, 2), (1.0, 2.0))],
    "list": [PlannedRun(Listed(rates=rates), SHORT) for rates in ((1, 0.5), (1.0, 0.5))],
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_number_for_a_real_one_is_that_real_one(name, tmp_path):
    run, same = WHOLE[name]
    assert (run, run.name, hash(run)) == (same, same.name, hash(same))
    assert same.earlier_name == same.name  # as written before, such runs keep their folders
    store = RunStore(tmp_path)
    assert store.path(run) == store.path(same) == tmp_path / run.name
    (tmp_path / run.earlier_name).mkdir()
    assert store.path(run) == tmp_path / run.earlier_name != tmp_path / run.name  # made when keys told 1 from 1.0
    (tmp_path / run.name).mkdir()
    assert store.path(run) == store.path(same)


def test_no_other_numbers_are_changed():
    run = PlannedRun(FedAvg(), replace(SHORT, batch_size=16, local_steps=3), Parts(cutout=2, swa=SWA(cycle=2)))
    assert run.name == run.earlier_name
    assert [type(run.content["settings"][name]) for name in ("batch_size", "local_steps", "seed")] == [int] * 3


def test_real_fields_are_those_that_the_types_say():
    parts = {kind for flag in FLAGS for kind in flag.kinds.values()}
    classes = {Settings, *parts, *(kind for _, kind in ALGORITHMS.items())}
    told = {}
    for kind in classes:
        hints = get_type_hints(kind)
        for each in fields(kind):
            mentioned = list(_mentioned(hints[each.name]))
            told[kind.__name__, each.name] = is_real(each.type) == (float in mentioned and int not in mentioned)
    assert len(told) > 100
    assert [name for name, agrees in told.items() if not agrees] == []


def _mentioned(hint):
    yield hint
    for inner in get_args(hint):
        yield from _mentioned(inner)


@pytest.mark.parametrize("change", [{"device": "cuda:1"}, {"data_dir": "elsewhere"}, {"client_store": "disk"}])
def test_where_a_run_computes_does_not_change_its_key(change):
    run = PlannedRun(FedSAM(0.1), replace(SHORT, **change))
    assert (run, hash(run)) == (OTHERS["itself"], hash(OTHERS["itself"]))


def test_package_versions_do_not_change_the_key(monkeypatch):
    monkeypatch.setattr(landscape.version, "__version__", "99")
    monkeypatch.setattr(torch, "__version__", "99")
    assert PlannedRun(FedSAM(0.1), SHORT).key == OTHERS["itself"].key


def test_a_name_says_algorithm_and_parts():
    run = PlannedRun(FedAvg(), SHORT, Parts(ascent=SAM(0.1), swa=SWA(cycle=2)))
    assert run.name == f"fedavg-ascent-swa-{run.key}"


def test_states_from_missing_over_partial_to_done_and_an_interrupted_run_ends_as_one_that_was_not(
    tmp_path, monkeypatch
):
    run, store, whole = OTHERS["itself"], RunStore(tmp_path / "a"), RunStore(tmp_path / "b")
    assert store.state(run) == "missing"
    step = Federation.step

    def interrupted(federation):
        if federation.round == 2:
            raise KeyboardInterrupt
        return step(federation)

    monkeypatch.setattr(Federation, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.make(run, device="cpu")
    assert (store.state(run), store.failure(run)) == ("partial", None)
    rounds = []
    monkeypatch.setattr(Federation, "step", lambda federation: rounds.append(federation.round) or step(federation))
    ended = store.make(run, device="cpu")
    assert store.state(run) == "done"
    assert rounds == [2, 3]
    assert without_times(ended) == without_times(whole.make(run, device="cpu"))
    assert torch.equal(model(store.path(run)), model(whole.path(run)))


def without_times(run):
    return [{name: value for name, value in r.items() if not name.startswith("seconds")} for r in run.metrics]


def model(path):
    return torch.cat([p.reshape(-1) for p in Checkpoint.load(path / "ckpt.pt").parameters.values()])


def test_what_is_done_is_not_trained_again(tmp_path, monkeypatch):
    store = RunStore(tmp_path)
    first = store.make(OTHERS["itself"], device="cpu")
    monkeypatch.setattr("trainers.runs.planned.train", None)  # would fail if it were called
    again = store.make(replace(OTHERS["itself"], settings=replace(SHORT, client_store="disk")), device="cuda:7")
    assert again.metrics == first.metrics


def test_a_run_that_diverged_is_done(tmp_path):
    run, store = PlannedRun(FedAvg(), replace(SHORT, lr=1e30)), RunStore(tmp_path)
    assert store.make(run, device="cpu").status == "diverged"
    assert store.state(run) == "done"


def test_a_failure_is_kept_with_its_reason_until_the_next_attempt_has_begun(tmp_path, monkeypatch):
    run, store = OTHERS["itself"], RunStore(tmp_path)
    monkeypatch.setattr(Federation, "step", lambda federation: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.make(run, device="cpu")
    failure = store.failure(run)
    assert store.state(run) == "failed"
    assert re.fullmatch(r"ZeroDivisionError: division by zero \(test_planned\.py, line \d+\)", failure)
    kept = json.loads((store.path(run) / "failure.json").read_text(encoding="utf-8"))
    assert kept["content"]["algorithm"] == {"name": "fedsam", **run.algorithm.hyper_parameters()}

    def interrupted(federation):
        raise KeyboardInterrupt

    monkeypatch.setattr(Federation, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.make(run, device="cpu")
    assert (store.state(run), store.failure(run)) == ("partial", None)  # what is over is not told any more
    monkeypatch.undo()
    store.make(run, device="cpu")
    assert (store.state(run), store.failure(run)) == ("done", None)


def test_bad_settings_fail_with_their_sentence(tmp_path):
    run, store = PlannedRun(FedAvg(), replace(SHORT, data="no/such.npz")), RunStore(tmp_path)
    with pytest.raises(FedscapeError, match="no/such"):
        store.make(run, device="cpu")
    assert store.state(run) == "failed"
    assert "no/such.npz" in store.failure(run)


def test_removing_a_run_removes_that_run_only(tmp_path):
    store, kept = RunStore(tmp_path), PlannedRun(FedAvg(), SHORT)
    for run in (OTHERS["itself"], kept):
        store.make(run, device="cpu")
    store.remove(OTHERS["itself"])
    assert (store.state(OTHERS["itself"]), store.state(kept)) == ("missing", "done")


def hold(file, seconds):
    """Have the lock of a run."""
    with sole_writer(Path(file)):
        print("locked", flush=True)
        time.sleep(seconds)


def test_a_run_that_another_process_makes_is_refused_and_not_a_failure(tmp_path):
    run, store = OTHERS["itself"], RunStore(tmp_path)
    store.path(run).mkdir(parents=True)
    other = start_process(hold, str(store.path(run) / "run"), 600)
    try:
        assert other.lines.readline() == "locked\n"
        with pytest.raises(LockedError, match=r"process \d+ on host .* is making .*: wait until"):
            store.make(run, device="cpu")
        assert (store.state(run), store.failure(run)) == ("missing", None)
    finally:
        other.kill()
    assert store.make(run, device="cpu").status == "finished"  # the system released the lock of the killed one


def test_what_another_process_made_in_the_meantime_is_not_made_again(tmp_path, monkeypatch):
    run, store = OTHERS["itself"], RunStore(tmp_path)
    monkeypatch.setattr("trainers.runs.planned.sole_writer", lambda path, *words: _Meanwhile(path))
    assert store.make(run, device="cpu").result == {"status": "finished"}


class _Meanwhile:
    """A lock that is got when the other process has just written its result."""

    def __init__(self, path):
        self.folder = path.parent

    def __enter__(self):
        config = {"algorithm": {"name": "fedsam"}, "settings": {}}
        (self.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        (self.folder / "result.json").write_text('{"status": "finished"}', encoding="utf-8")

    def __exit__(self, *_):
        pass
