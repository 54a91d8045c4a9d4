"""Client by client: against landscapes of one client's data, at the global and at the local models."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import Hessian, largest_eigenpairs
from analysis.hessian.client_results import ClientCurves
from analysis.hessian.clients import client_curves, client_eigenvalues, consistency, rounds_of
from landscape import Checkpoint, FedscapeError, Landscape
from tests.landscape.checkpoints.checkpoints import CLIENTS, checkpoint, partition
from trainers import FedAvg, Settings, train

CPU = {"device": "cpu", "dtype": "float64"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = Settings(clients=6, per_round=3, rounds=4, save_every=2, save_clients=True, device="cpu")
    return train(FedAvg(), settings, out=tmp_path_factory.mktemp("clients") / "run")


@pytest.fixture(scope="module")
def all_clients(run):
    return client_eigenvalues(run.checkpoint, top=2, tolerance=1e-8, **CPU)


def test_of_the_global_model_are_those_of_the_landscape_of_one_clients_data(run, all_clients):
    assert all_clients.clients.tolist() == list(range(6))
    assert all_clients.samples.sum() == 1442
    for i in range(6):
        alone = Landscape.from_checkpoint(run.checkpoint, clients=[i], **CPU)
        exact = largest_eigenpairs(Hessian(alone), 2, tolerance=1e-10).values
        np.testing.assert_allclose(all_clients.values[i], exact, rtol=1e-7)
        assert all_clients.losses[i] == pytest.approx(alone.value(), rel=1e-12)
        assert all_clients.accuracies[i] == alone.accuracy()
        assert all_clients.samples[i] == len(alone.data)
    assert len(np.unique(all_clients.largest)) == 6, "clients must differ for this to prove anything"
    assert all_clients.consistency is None
    assert all_clients.converged.all()


def test_of_local_models_are_taken_at_each_clients_own_model_on_its_own_data(run):
    saved = Checkpoint.load(run.checkpoint)
    found = client_eigenvalues(run.checkpoint, local=True, tolerance=1e-8, **CPU)
    assert found.clients.tolist() == run.metrics[-1]["clients"]
    for i, client in enumerate(found.clients):
        alone = Landscape.from_checkpoint(run.checkpoint, clients=[int(client)], **CPU)
        w = saved.clients[int(client)].double()
        exact = largest_eigenpairs(Hessian(alone, w), 1, tolerance=1e-10).values[0]
        assert found.largest[i] == pytest.approx(exact, rel=1e-7)
        assert found.losses[i] == pytest.approx(alone.value(w), rel=1e-12)
        assert found.accuracies[i] == alone.accuracy(w)
        assert found.losses[i] < alone.value(), "local work fits a client's own data better"
    assert found.consistency == pytest.approx(run.metrics[-1]["drift"], rel=1e-5)


def test_in_float32_bounds_hold_for_the_float64_hessian_and_the_noise_is_told(run):
    """Without the product in float64 they would not: the bounds know nothing of the products' rounding."""
    found = client_eigenvalues(run.checkpoint, [1, 4], top=2, tolerance=1e-5, device="cpu", dtype="float32")
    true = client_eigenvalues(run.checkpoint, [1, 4], top=2, tolerance=1e-10, **CPU)
    assert (np.abs(found.values - true.values) <= found.bounds).all()
    assert (found.noise > 0).all()
    assert (true.noise == 0).all()
    plain = client_eigenvalues(
        run.checkpoint, [1, 4], top=2, tolerance=1e-5, refine=False, device="cpu", dtype="float32"
    )
    assert found.hvps == plain.hvps + 2 * (2 + 1)  # of each client two in float64, and one in float32 for the noise
    lost = replace(found, noise=np.array([0.0, 1.0 + found.largest[1]]), converged=np.array([[True] * 2, [False] * 2]))
    (_, _, one, *_), (_, _, other, *_), (_, _, mean, *_), _ = lost.summary().rows
    assert one == f"{found.bounds[0, 0]:.1e}"
    assert ", NOT CONVERGED, below the noise of float32 products (" in other
    assert mean == f"{found.bounds[:, 0].mean():.1e}, 1 NOT CONVERGED"


def test_mean_and_deviation_have_bounds_that_hold_whatever_the_errors_are(all_clients):
    rng = np.random.default_rng(0)
    bounds = rng.random((6, 2)) * 0.01 * all_clients.mean
    doubtful = replace(all_clients, bounds=bounds)
    for _ in range(200):
        off = replace(all_clients, values=all_clients.values + rng.choice([-1, 1], (6, 2)) * bounds)
        assert abs(off.mean - all_clients.mean) <= doubtful.mean_error * (1 + 1e-12)
        assert abs(off.deviation - all_clients.deviation) <= doubtful.deviation_error


def test_mean_and_deviation_are_over_clients_each_as_one(all_clients):
    values = [float(v) for v in all_clients.values[:, 0]]
    mean = sum(values) / 6
    assert all_clients.mean == pytest.approx(mean)
    assert all_clients.deviation == pytest.approx((sum((v - mean) ** 2 for v in values) / 6) ** 0.5)
    numbers = all_clients.to_dict()
    assert json.loads(json.dumps(numbers)) == numbers
    assert (numbers["mean"], numbers["deviation"]) == (all_clients.mean, all_clients.deviation)
    assert numbers["loss_mean"] == pytest.approx(np.mean(numbers["losses"]))
    assert numbers["accuracy_deviation"] == pytest.approx(np.std(numbers["accuracies"]))
    text = str(all_clients)
    assert "the global model" in text
    assert f"{all_clients.mean:.6g}" in text


def test_chosen_clients_come_in_the_order_asked_for_and_each_once(run, all_clients):
    some = client_eigenvalues(run.checkpoint, [4, 1, 4], top=2, tolerance=1e-8, **CPU)
    assert some.clients.tolist() == [4, 1]
    np.testing.assert_allclose(some.values, all_clients.values[[4, 1]], rtol=1e-7)


def test_a_subset_of_a_clients_samples_is_that_of_the_landscape_and_fewer_are_taken_whole(run):
    found = client_eigenvalues(run.checkpoint, [2], samples=50, tolerance=1e-8, **CPU)
    alone = Landscape.from_checkpoint(run.checkpoint, clients=[2], samples=50, **CPU)
    assert found.samples.tolist() == [50]
    assert found.losses[0] == pytest.approx(alone.value(), rel=1e-12)
    assert client_eigenvalues(run.checkpoint, [2], samples=10_000, **CPU).samples[0] == 240


def test_rounds_of_a_run_are_sorted_by_number(run, tmp_path):
    assert [file.name for file in rounds_of(run.path)] == ["00000.pt", "00002.pt", "00004.pt"]
    (tmp_path / "rounds").mkdir()
    for name in ("00010.pt", "100000.pt", "00009.pt", "notes.pt", ".00011.pt.77.tmp"):
        (tmp_path / "rounds" / name).touch()
    assert [file.name for file in rounds_of(tmp_path)] == ["00009.pt", "00010.pt", "100000.pt"]
    with pytest.raises(FedscapeError, match="is no run directory"):
        rounds_of(tmp_path / "rounds")


def test_over_the_rounds_each_is_the_checkpoints_own(run, all_clients):
    told = []
    curves = client_curves(rounds_of(run.path), tolerance=1e-8, told=lambda *now: told.append(now), **CPU)
    assert curves.rounds.tolist() == [0, 2, 4]
    assert curves.clients.tolist() == list(range(6))
    table = curves.table()
    assert table.shape == (3, 6)
    np.testing.assert_allclose(table[2], all_clients.largest, rtol=1e-7)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert json.loads(json.dumps(curves.to_dict()))["rounds"] == [0, 2, 4]
    assert len(curves.summary().rows) == 3


def test_local_models_over_the_rounds_leave_out_what_was_not_sampled(run):
    sampled = {record["round"]: record["clients"] for record in run.metrics}
    curves = client_curves(rounds_of(run.path)[::-1], local=True, **CPU)
    assert curves.rounds.tolist() == [2, 4]
    assert curves.clients.tolist() == sorted({*sampled[2], *sampled[4]})
    for row, number in zip(curves.table(), curves.rounds, strict=True):
        assert curves.clients[~np.isnan(row)].tolist() == sampled[number]
    one = sampled[4][0]
    only = client_curves(rounds_of(run.path), [one], local=True, **CPU)
    assert only.clients.tolist() == [one]
    assert 4 in only.rounds


def test_plots_show_every_client(run, all_clients, tmp_path):
    figure = all_clients.plot(tmp_path / "clients.png")
    points = figure.axes[0].containers[0].lines[0]
    np.testing.assert_array_equal(points.get_ydata(), all_clients.largest)
    curves = client_curves(rounds_of(run.path), device="cpu")
    figure = curves.plot(tmp_path / "curves.svg")
    low, high, mean = figure.axes[0].lines
    np.testing.assert_allclose(low.get_ydata(), curves.table().min(axis=1))
    np.testing.assert_allclose(high.get_ydata(), curves.table().max(axis=1))
    np.testing.assert_allclose(mean.get_ydata(), curves.table().mean(axis=1))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg: mean over 6 clients"]
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("clients.png", "curves.svg"))


def test_plots_tell_what_has_not_converged(all_clients):
    wrong = replace(all_clients, converged=np.arange(6)[:, None] != np.array([[4, 6]]))
    figure = wrong.plot()
    (crosses,) = (line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert list(crosses.get_ydata()) == [wrong.largest[4]]
    assert "crosses: NOT CONVERGED" in figure.get_supxlabel()
    assert "1 of 12 values have NOT CONVERGED" in ClientCurves((all_clients, wrong)).plot().get_supxlabel()


def test_consistency_is_the_mean_squared_distance():
    w = torch.tensor([1.0, 2.0])
    assert consistency(w, [w, w + 3, torch.tensor([1.0, 0.0])]) == pytest.approx((0 + 18 + 4) / 3)


def test_a_checkpoint_made_by_hand_is_measured_too_with_its_partition_drawn_again():
    found = client_eigenvalues(checkpoint(clients={}), [7], **CPU)
    assert found.samples.tolist() == [len(partition().clients[7])]
    assert client_eigenvalues(checkpoint(clients={}), device="cpu").clients.tolist() == list(range(CLIENTS))


@pytest.mark.parametrize(
    ("changes", "arguments", "sentence"),
    [
        ({}, {"clients": [10]}, "there is no client 10: the run has clients 0 to 9"),
        ({}, {"clients": [-1]}, "there is no client -1"),
        ({}, {"clients": []}, "no client is asked for"),
        ({}, {"split": "test"}, "clients hold training data only"),
        ({}, {"top": 0}, "0 eigenvalues are asked for: give a number from 1 to 6570"),
        ({}, {"samples": 0}, "0 samples are asked for"),
        ({"clients": {}}, {"local": True}, "carries no local models: train with --save-clients"),
        ({}, {"local": True, "clients": [2]}, "no local model of client 2: it has those of 3, the clients sampled in"),
        ({}, {"local": True}, "vector of 6570 parameters, not"),
        ({"data": {"name": "digits", "kwargs": {}}}, {}, "no partition, so it knows no clients"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(changes, arguments, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        client_eigenvalues(checkpoint(**changes), **{"device": "cpu", **arguments})


def test_a_local_model_that_is_not_finite_and_a_run_without_local_models_are_told():
    with pytest.raises(FedscapeError, match="the loss of client 3 is nan"):
        client_eigenvalues(checkpoint(clients={3: torch.full((6570,), torch.nan)}), local=True, device="cpu")
    with pytest.raises(FedscapeError, match="none of the checkpoints carries a local model"):
        client_curves([checkpoint(clients={})], local=True)
