"""The store: states of measurements, failures, locks, and that asking for many states is quick."""

import time
from pathlib import Path

import pytest

from analysis import HessianReport, Surface
from analysis.surface.store import SurfaceStore
from figures.graph import FileModel, Measure, Place, RunModel, Store
from figures.graph.kinds import KINDS
from figures.graph.store import Unmade, attempt
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.storage.lock import LockedError
from tests.figures.graph.small import FAILING, planned, spectrum, surface
from tests.processes import start_process
from tests.trainers.runs.test_planned import hold
from trainers import FedAvg, FedSAM
from trainers.runs import PlannedRun

CPU = Place("cpu")
RUN = planned()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with the run."""
    store = Store(tmp_path_factory.mktemp("store"))
    store.make(RUN, CPU)
    return store


def test_measurements_of_each_kind_are_those_of_the_functions_that_make_them(trained):
    model = trained.runs.path(RUN) / "ckpt.pt"
    evaluation = Measure("evaluation", (RunModel(RUN),), {"split": "test"})
    for node in (spectrum(RUN), surface(RUN), evaluation):
        assert trained.state(node) == "missing"
        trained.make(node, CPU)
        assert trained.state(node) == "done"
        assert trained.seconds(node) > 0
    direct = Landscape.from_checkpoint(model, "test", device="cpu").evaluate()
    assert trained.result(evaluation)["accuracy"] == direct.accuracy
    assert isinstance(trained.result(spectrum(RUN)), HessianReport)
    assert isinstance(trained.result(surface(RUN)), Surface)
    accuracies = Measure("client-accuracy", (RunModel(RUN, "rounds"),), {"every": 8})
    trained.make(accuracies, CPU)
    assert trained.result(accuracies)["rounds"] == [0, 8]


def test_a_run_takes_what_its_rounds_took(trained):
    assert trained.seconds(RUN) == sum(r["seconds"] for r in trained.result(RUN).metrics)
    assert trained.seconds(planned(seed=9)) is None


def test_only_what_is_done_has_a_result(trained):
    with pytest.raises(FedscapeError, match="has not been made: it is missing"):
        trained.result(spectrum(RUN, top=4))


def test_a_failure_is_kept_until_the_next_attempt_has_begun(trained, monkeypatch):
    node = Measure("evaluation", (RunModel(RUN, 3),))  # this round was not kept
    with pytest.raises(FedscapeError, match="there is no file"):
        trained.make(node, CPU)
    assert trained.state(node) == "failed"
    assert "00003.pt" in trained.failure(node)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(KINDS, "evaluation", type(KINDS["evaluation"])(1, "json", interrupted, lambda file: None))
    with pytest.raises(KeyboardInterrupt):
        trained.make(node, CPU)
    assert (trained.state(node), trained.failure(node)) == ("missing", None)


def test_an_interrupted_surface_is_partial_and_continues(trained, monkeypatch):
    node = Measure("surface", (RunModel(RUN),), {"points": 3, "samples": 60, "exact": True, "workers": 1})
    put, points = SurfaceStore.put, []

    def interrupted(store, *point):
        if len(points) == 5:
            raise KeyboardInterrupt
        points.append(point)
        put(store, *point)

    monkeypatch.setattr(SurfaceStore, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained.make(node, CPU)
    assert trained.state(node) == "partial"
    points.clear()
    monkeypatch.setattr(SurfaceStore, "put", lambda store, *point: points.append(point) or put(store, *point))
    trained.make(node, CPU)
    assert len(points) == 4  # of nine
    assert trained.result(node).loss.shape == (3, 3)


def test_a_measurement_that_another_process_makes_is_busy_and_not_a_failure(trained):
    node = spectrum(RUN, top=2)
    other = start_process(hold, str(trained.file(node).parent / node.name), 600)
    try:
        trained.file(node).parent.mkdir(exist_ok=True)
        assert other.lines.readline() == "locked\n"
        with pytest.raises(LockedError):
            trained.make(node, CPU)
        told = attempt(node, trained, CPU)
        assert (told.busy, trained.state(node), trained.failure(node)) == (True, "missing", None)
    finally:
        other.kill()
    assert attempt(node, trained, CPU) is None


def test_any_error_of_a_node_is_its_own(tmp_path):
    run = planned(**FAILING)
    told = attempt(run, Store(tmp_path), CPU)
    assert isinstance(told, Unmade)
    assert "no-such-file.npz" in told.reason
    assert not told.busy


def test_removing_a_node_removes_all_of_its_files_and_no_others(tmp_path):
    store, other = Store(tmp_path), planned(seed=1)
    for node in (RUN, other, spectrum(RUN), spectrum(other)):
        store.make(node, CPU)
    store.remove(spectrum(RUN))
    assert [store.state(n) for n in (RUN, other, spectrum(RUN), spectrum(other))] == ["done", "done", "missing", "done"]
    assert not list(store.file(spectrum(RUN)).parent.glob(f"{spectrum(RUN).name}*"))
    store.remove(RUN)
    assert [store.state(n) for n in (RUN, other, spectrum(other))] == ["missing", "done", "done"]


def test_the_same_checkpoint_by_content_is_measured_once(trained, tmp_path, monkeypatch):
    source = trained.runs.path(RUN) / "ckpt.pt"
    copy = tmp_path / "copied.pt"
    copy.write_bytes(source.read_bytes())
    nodes = [
        Measure("evaluation", (FileModel(file, Checkpoint.load(file).digest()),), {"split": "test"})
        for file in (source, copy)
    ]
    store = Store(tmp_path / "store")
    store.make(nodes[0], CPU)
    monkeypatch.setitem(KINDS, "evaluation", type(KINDS["evaluation"])(1, "json", None, KINDS["evaluation"].read))
    store.make(nodes[1], CPU)
    assert store.result(nodes[0]) == store.result(nodes[1])


def test_the_states_of_fifteen_hundred_nodes_are_told_at_once(tmp_path):
    """The most that all figures need together; `list` and `status` ask for each once or twice."""
    store = Store(tmp_path)
    runs = [PlannedRun(FedSAM(k / 1000) if k % 2 else FedAvg(k + 1.0), RUN.settings) for k in range(750)]
    for run in runs[:300]:
        folder = store.runs.path(run)
        folder.mkdir(parents=True)
        for name in ("config.json", "result.json"):
            Path(folder / name).touch()
    nodes = [*runs, *map(spectrum, runs)]
    best = 10.0
    for _ in range(3):
        start = time.perf_counter()
        states = [store.state(node) for node in nodes]
        best = min(best, time.perf_counter() - start)
    assert states.count("done") == 300
    assert best < 2
