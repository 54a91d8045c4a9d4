"""Accuracy client by client, on request: mean and deviation against direct evaluation with plain loops."""

import math

import numpy as np
import pytest
import torch

from landscape import Checkpoint, FedscapeError, Partition, Samples, build_model, load_dataset
from landscape.compute.precision import Precision
from landscape.datasets import Dataset
from tests.trainers.federations import net, partition, samples
from trainers import FedAvg, Settings, train
from trainers.runs.evaluation import Evaluator

NAMES = [f"client_{on}_accuracy{which}" for on in ("train", "test") for which in ("", "_deviation")]
SETTINGS = {"clients": 6, "per_round": 3, "local_epochs": 1, "save_every": 1, "device": "cpu"}


def right(module, data):
    """Whether each sample is classified right, one at a time."""
    found = []
    dtype = next(module.parameters()).dtype
    for i in range(len(data)):
        x, y = data.batch(slice(i, i + 1), dtype)
        found.append(int(module(x)[0].argmax() == y[0]))
    return found


def by_hand(module, dataset, clients, classes):
    """The four numbers, from counts in Python."""
    on_train, on_test = right(module, dataset.train), right(module, dataset.test)
    labels, test_labels = dataset.train.targets.tolist(), dataset.test.targets.tolist()
    train_accuracies, test_accuracies = [], []
    for mine in clients:
        train_accuracies.append(sum(on_train[i] for i in mine) / len(mine))
        weighted = 0.0
        for label in range(classes):
            held = sum(labels[i] == label for i in mine) / len(mine)
            of_class = [hit for hit, y in zip(on_test, test_labels, strict=True) if y == label]
            weighted += held * sum(of_class) / max(1, len(of_class))
        test_accuracies.append(weighted)
    numbers = []
    for accuracies in (train_accuracies, test_accuracies):
        mean = sum(accuracies) / len(accuracies)
        numbers += [mean, math.sqrt(sum((a - mean) ** 2 for a in accuracies) / len(accuracies))]
    return dict(zip(NAMES, numbers, strict=True))


@pytest.mark.parametrize("model", ["digits_mlp", "tests.trainers.user_code:normalised"])
def test_is_that_of_the_kept_models_on_each_clients_samples(model, tmp_path):
    run = train(FedAvg(), Settings(**SETTINGS, rounds=2, model=model, client_accuracy=1), out=tmp_path)
    clients, dataset = Partition.load(run.path / "partition.npz").clients, load_dataset("digits")
    for record in run.metrics:
        checkpoint = Checkpoint.load(run.path / "rounds" / f"{record['round']:05d}.pt")
        module = build_model(model, seed=0, input_shape=[1, 8, 8], classes=10).eval()
        module.load_state_dict(checkpoint.parameters | checkpoint.buffers)
        expected = by_hand(module, dataset, clients, 10)
        for name in NAMES:
            assert record[name] == pytest.approx(expected[name], abs=1e-12), name
        assert record["client_train_accuracy_deviation"] > 0.01
        assert record["client_test_accuracy_deviation"] > 0.01
        assert record["client_train_accuracy"] != record["client_test_accuracy"]


def test_is_weighted_by_client_and_not_by_sample():
    """Seven clients of 1 to 20 samples, and a class that the test data lack."""
    test = Samples(samples().inputs[:30], samples().targets[:30].clamp_max(1))
    dataset = Dataset("random", samples(), test, 3)
    module = net()
    w = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    found = Evaluator(module, dataset, partition(), torch.device("cpu"), Precision("float64")).by_client(
        w, w.new_zeros(0)
    )
    expected = by_hand(module, dataset, partition().clients, 3)
    assert found == pytest.approx(expected, abs=1e-12)
    assert found["client_train_accuracy"] != pytest.approx(float(np.mean(right(module, samples()))), abs=1e-3)


def test_is_that_of_the_point_asked_for():
    dataset = Dataset("random", samples(), samples(), 3)
    evaluator = Evaluator(net(), dataset, partition(), torch.device("cpu"), Precision("float64"))
    w = torch.cat([p.detach().reshape(-1) for p in net().parameters()])
    here, there, again = (evaluator.by_client(point, w.new_zeros(0)) for point in (w, -w, w))
    assert here == again != there


@pytest.mark.parametrize(("every", "rounds", "there"), [(0, 3, []), (1, 3, [1, 2, 3]), (2, 5, [2, 4, 5]), (9, 2, [2])])
def test_is_there_when_asked_for_and_after_the_last_round(every, rounds, there, tmp_path):
    settings = {**SETTINGS, "local_epochs": 1, "local_steps": 1, "per_round": 1}
    run = train(FedAvg(), Settings(**settings, rounds=rounds, client_accuracy=every, eval_every=1), out=tmp_path)
    assert [r["round"] for r in run.metrics if any(name in r for name in NAMES)] == there
    assert all(name in r for r in run.metrics for name in NAMES if r["round"] in there)
    assert all("test_accuracy" in r for r in run.metrics)


def test_asking_for_it_changes_nothing_else(tmp_path):
    runs = [train(FedAvg(), Settings(**SETTINGS, rounds=2, client_accuracy=n), out=tmp_path / str(n)) for n in (0, 1)]
    plain, asked = (
        [{k: v for k, v in r.items() if k not in NAMES and "seconds" not in k} for r in run.metrics] for run in runs
    )
    assert plain == asked
    assert Checkpoint.load(runs[0].checkpoint).digest() == Checkpoint.load(runs[1].checkpoint).digest()


class TestSplitTestData:
    def test_is_that_on_each_clients_part_of_the_test_data(self, tmp_path):
        settings = Settings(**SETTINGS, rounds=2, client_accuracy=1, client_test="split")
        run = train(FedAvg(), settings, out=tmp_path)
        dataset = load_dataset("digits")
        parts = Partition.load(run.path / "partition_test.npz")
        labels, test_labels = dataset.train.targets.numpy(), dataset.test.targets.numpy()
        counts = Partition.load(run.path / "partition.npz").label_counts(labels, 10)
        scale = (np.bincount(test_labels) / np.bincount(labels)).min()
        assert np.abs(parts.label_counts(test_labels, 10) - scale * counts).max() < 1
        for record in run.metrics:
            module = build_model("digits_mlp", seed=0, input_shape=[1, 8, 8], classes=10).eval()
            module.load_state_dict(Checkpoint.load(run.path / "rounds" / f"{record['round']:05d}.pt").parameters)
            hits = np.array(right(module, dataset.test))
            accuracies = [hits[mine].mean() for mine in parts.clients]
            assert record["client_test_accuracy"] == pytest.approx(np.mean(accuracies), abs=1e-12)
            assert record["client_test_accuracy_deviation"] == pytest.approx(np.std(accuracies), abs=1e-12)

    def test_may_be_asked_for_when_a_run_goes_on(self, tmp_path):
        train(FedAvg(), Settings(**SETTINGS, rounds=1), out=tmp_path)
        assert not (tmp_path / "partition_test.npz").exists()
        settings = Settings(**SETTINGS, rounds=2, client_accuracy=1, client_test="split")
        run = train(FedAvg(), settings, out=tmp_path, resume=True)
        assert (tmp_path / "partition_test.npz").exists()
        assert "client_test_accuracy" in run.metrics[1]

    def test_too_few_test_samples_are_refused_before_the_run_starts(self, tmp_path):
        settings = Settings(clients=400, per_round=3, rounds=1, client_accuracy=1, client_test="split")
        with pytest.raises(FedscapeError, match="355 test samples are too few to split over 400 clients"):
            train(FedAvg(), settings, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
