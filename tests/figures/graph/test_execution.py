"""Executions: shared work, failures and what they block, what is made again, processes side by side."""

import re
import shutil

import pytest

from figures.graph import Measure, Place, RunModel, Store, execute
from figures.graph.kinds import KINDS
from figures.graph.nodes import with_runs
from figures.graph.store import DIED
from landscape import FedscapeError
from landscape.storage.lock import sole_writer
from tests.figures.graph.small import FAILING, Killed, planned, results, spectrum, surface
from trainers import FedAvg, FedSAM

CPU = Place("cpu")
RUNS = [planned(FedAvg()), planned(FedSAM(0.1)), planned(FedAvg(), seed=1)]
NODES = with_runs([*map(spectrum, RUNS), surface(RUNS[0])])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All nodes, made one after another in this process."""
    store = Store(tmp_path_factory.mktemp("whole"))
    outcome = execute(NODES, store, CPU)
    assert (outcome.made, len(outcome.done), outcome.failed, outcome.blocked, outcome.busy) == (7, 7, {}, {}, {})
    return store


@pytest.fixture
def made(whole, tmp_path):
    """A copy of it to spoil."""
    shutil.copytree(whole.folder, tmp_path / "made")
    return Store(tmp_path / "made")


@pytest.fixture
def seen(monkeypatch):
    """The names of the nodes that are begun."""
    names, make = [], Store.make
    monkeypatch.setattr(
        Store, "make", lambda store, node, *rest, **more: names.append(node.name) or make(store, node, *rest, **more)
    )
    return names


def test_runs_are_made_before_what_needs_them_and_shared(tmp_path, seen):
    outcome = execute([spectrum(RUNS[0]), surface(RUNS[0]), spectrum(RUNS[0])], Store(tmp_path), CPU)
    assert seen == [RUNS[0].name, spectrum(RUNS[0]).name, surface(RUNS[0]).name]
    assert outcome.made == 3


def test_each_end_is_told_at_once_with_its_reason(tmp_path):
    """In this process a measurement follows its run, so that a figure can be drawn before the last run is made."""
    broken, told = planned(FedAvg(), **FAILING), []
    store = Store(tmp_path)
    store.make(RUNS[0], CPU)
    nodes = [spectrum(RUNS[0]), spectrum(broken), spectrum(RUNS[1])]
    execute(nodes, store, CPU, ended=lambda node, reason: told.append((node, reason)))
    assert [node for node, _ in told] == [RUNS[0], nodes[0], broken, nodes[1], RUNS[1], nodes[2]]
    assert [reason is None for _, reason in told] == [True, True, False, False, True, True]
    assert "no-such-file.npz" in told[2][1]
    assert told[3][1] == f"it needs {broken.name}, which was not made"


@pytest.mark.parametrize("place", [CPU, Place("cpu", batch_size=16), Place("cpu", stream=True), Place("auto")])
def test_speed_options_make_nothing_again(made, seen, place):
    outcome = execute(NODES, made, place)
    assert (outcome.made, len(outcome.done), seen) == (0, len(NODES), [])


@pytest.mark.parametrize("node", [RUNS[0], RUNS[1], spectrum(RUNS[0]), surface(RUNS[0])])
def test_what_is_deleted_is_made_again_and_nothing_else(whole, made, seen, node):
    made.remove(node)
    execute(NODES, made, CPU)
    assert seen == [node.name]
    assert results(made, NODES) == results(whole, NODES)


def test_a_changed_hyper_parameter_makes_what_depends_on_it_and_nothing_else(made, seen):
    changed = planned(FedSAM(0.2))
    execute([*NODES, spectrum(changed)], made, CPU)
    assert seen == [changed.name, spectrum(changed).name]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_failed_run_blocks_what_depends_on_it_and_leaves_the_others(tmp_path, jobs):
    broken, store = planned(**FAILING), Store(tmp_path)
    both = Measure("surface", (RunModel(RUNS[0]), RunModel(broken)), {"plane": "line", "points": 3})
    outcome = execute([spectrum(broken), spectrum(RUNS[0]), both], store, CPU, jobs=jobs)
    assert outcome.failed.keys() == {broken}
    assert "no-such-file.npz" in outcome.failed[broken]
    assert outcome.blocked == {spectrum(broken): broken, both: broken}
    assert set(outcome.done) == {RUNS[0], spectrum(RUNS[0])}
    assert (store.state(broken), store.state(both)) == ("failed", "missing")
    assert "no-such-file.npz" in store.failure(broken)


def test_a_failed_measurement_leaves_the_others(tmp_path):
    lost = Measure("evaluation", (RunModel(RUNS[0], 3),))  # a round whose model is not kept
    outcome = execute([lost, spectrum(RUNS[0])], Store(tmp_path), CPU)
    assert outcome.failed.keys() == {lost}
    assert set(outcome.done) == {RUNS[0], spectrum(RUNS[0])}


def test_what_failed_is_tried_again(tmp_path, monkeypatch):
    store, node = Store(tmp_path), spectrum(RUNS[0])
    kind = KINDS["hessian"]

    def broken(*_):
        raise OSError("no space left")

    monkeypatch.setitem(KINDS, "hessian", type(kind)(1, "json", broken, kind.read))
    ((failed, reason),) = execute([node], store, CPU).failed.items()
    assert failed == node
    assert re.fullmatch(r"OSError: no space left \(test_execution\.py, line \d+\)", reason)  # as of a user's own code
    monkeypatch.undo()
    outcome = execute([node], store, CPU)
    assert (outcome.made, outcome.failed) == (1, {})


def test_what_another_process_makes_is_busy_and_blocks_what_depends_on_it(tmp_path):
    store = Store(tmp_path)
    folder = store.runs.path(RUNS[0])
    folder.mkdir(parents=True)
    with sole_writer(folder / "run"):  # a lock of an open file: this process is another one to itself
        outcome = execute([spectrum(RUNS[0]), RUNS[1]], store, CPU)
    assert outcome.busy.keys() == {RUNS[0]}
    assert (outcome.failed, outcome.blocked) == ({}, {spectrum(RUNS[0]): RUNS[0]})
    assert outcome.done == [RUNS[1]]
    assert store.state(RUNS[0]) == "missing"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"jobs": 0}, "--jobs is 0"),
        ({"jobs": 2, "ray": "local"}, "--jobs and --ray are both given"),
        ({"place": Place("cpu", gpus=0.5)}, "--gpus is a share for Ray's tasks"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, options, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        execute([], Store(tmp_path), **options)


@pytest.mark.slow
def test_two_jobs_give_the_results_of_one(whole, tmp_path):
    store = Store(tmp_path)
    outcome = execute(NODES, store, CPU, jobs=2)
    assert (outcome.made, outcome.failed) == (len(NODES), {})
    assert results(store, NODES) == results(whole, NODES)


@pytest.mark.slow
def test_a_run_whose_process_is_killed_fails_alone(whole, tmp_path):
    store, killed = Store(tmp_path), planned(Killed())
    outcome = execute([killed, spectrum(killed), *NODES], store, CPU, jobs=2)
    assert outcome.failed == {killed: DIED}
    assert outcome.blocked == {spectrum(killed): killed}
    assert results(store, NODES) == results(whole, NODES)
