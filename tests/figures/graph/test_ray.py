"""Nodes as Ray's tasks: results, failures, workers that die."""

import builtins

import pytest

from figures.graph import Place, Store, execute
from figures.graph.store import DIED
from landscape import FedscapeError
from tests.figures.graph.small import FAILING, Killed, planned, results, spectrum, surface

CPU = Place("cpu")


def test_without_ray_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FedscapeError, match=r"--ray needs the package ray: pip install 'fedscape\[ray\]'"):
        execute([planned()], Store(tmp_path), CPU, ray="local")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto", "ray://127.0.0.1:1"])
def test_an_address_without_a_cluster_is_an_error_in_a_sentence(tmp_path, address):
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    with pytest.raises(
        FedscapeError, match=f"there is no Ray cluster at '{address}' .*give HOST:PORT of one, or local"
    ):
        execute([planned()], Store(tmp_path), CPU, ray=address)


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two CPUs on this machine."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    ray.init(address="local", num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_results_are_those_of_this_process(cluster, tmp_path):
    run = planned()
    nodes = [run, planned(seed=1), spectrum(run), surface(run)]
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    execute(nodes, here, CPU)
    outcome = execute(nodes, there, CPU, ray="local")
    assert (outcome.made, outcome.failed) == (len(nodes), {})
    assert results(there, nodes) == results(here, nodes)


@pytest.mark.slow
def test_tasks_whose_workers_die_are_tried_again_and_then_reported(cluster, tmp_path):
    marker = tmp_path / "died"
    once, always, broken, fine = planned(Killed(str(marker))), planned(Killed()), planned(**FAILING), planned()
    outcome = execute([once, always, broken, fine, spectrum(always)], Store(tmp_path / "store"), CPU, ray="local")
    assert marker.exists()
    assert set(outcome.done) == {once, fine}
    assert outcome.failed.keys() == {always, broken}
    assert outcome.failed[always] == f"{DIED}, 3 times"
    assert "no-such-file.npz" in outcome.failed[broken]
    assert outcome.blocked == {spectrum(always): always}


@pytest.mark.slow
def test_a_cluster_that_was_there_stays(cluster, tmp_path):
    execute([planned()], Store(tmp_path), CPU, ray="local")
    assert cluster.is_initialized()
