# ruff: noqa: NPY002 - the draws of the code that is replayed
"""FL-Simulator's sampler: its own loop in NumPy's global numbers, and its counts of CIFAR-10's classes."""

from pathlib import Path

import numpy as np
import pytest

from landscape import FedscapeError, make_partition

LABELS = Path(__file__).resolve().parents[4] / "shared" / "data" / "cifar10" / "labels.npz"


def dataset_py(train_y, n_client, n_cls, seed, rule, rule_arg):
    """FL-Simulator's dataset.py:155-227, with positions in the place of images."""
    np.random.seed(seed)
    rand_perm = np.random.permutation(len(train_y))
    train_x, train_y = rand_perm, train_y[rand_perm]
    client_data_list = np.ones(n_client, dtype=int) * int(len(train_y) / n_client)
    diff = np.sum(client_data_list) - len(train_y)
    if diff != 0:
        for client_i in range(n_client):
            if client_data_list[client_i] > diff:
                client_data_list[client_i] -= diff
                break
    if rule == "Dirichlet":
        prior_cumsum = np.cumsum(np.random.dirichlet(alpha=[rule_arg] * n_cls, size=n_client), axis=1)
    else:
        c = int(rule_arg)
        a = np.ones([n_client, n_cls])
        a[:, c::] = 0
        [np.random.shuffle(i) for i in a]
        prior_cumsum = a.copy()
        for i in range(prior_cumsum.shape[0]):
            for j in range(prior_cumsum.shape[1]):
                if prior_cumsum[i, j] != 0:
                    prior_cumsum[i, j] = a[i, 0 : j + 1].sum() / c * 1.0
    idx_list = [np.where(train_y == i)[0] for i in range(n_cls)]
    cls_amount = [len(idx_list[i]) for i in range(n_cls)]
    client_x = [[] for _ in range(n_client)]
    while np.sum(client_data_list) != 0:
        curr_client = np.random.randint(n_client)
        if client_data_list[curr_client] <= 0:
            continue
        client_data_list[curr_client] -= 1
        curr_prior = prior_cumsum[curr_client]
        while True:
            cls_label = np.argmax(np.random.uniform() <= curr_prior)
            if cls_amount[cls_label] <= 0:
                cls_amount[cls_label] = len(idx_list[cls_label])
                continue
            cls_amount[cls_label] -= 1
            client_x[curr_client].append(train_x[idx_list[cls_label][cls_amount[cls_label]]])
            break
    return client_x


@pytest.mark.parametrize(("spec", "rule", "value"), [
    ("fl-simulator:0.2", "Dirichlet", 0.2), ("fl-simulator-pathological:2", "Pathological", 2),
])  # fmt: skip
@pytest.mark.parametrize("seed", [0, 20])
def test_the_clients_are_those_of_its_loop_sample_by_sample(spec, rule, value, seed):
    labels = np.random.RandomState(3).randint(0, 5, size=203)
    theirs = dataset_py(labels, 8, 5, seed, rule, value)
    ours = make_partition(spec, labels, clients=8, seed=seed)
    for mine, them in zip(ours.clients, theirs, strict=True):
        np.testing.assert_array_equal(mine, np.sort(them))
    assert max(np.bincount(np.concatenate(ours.clients))) > 1  # some class was refilled


@pytest.mark.skipif(not LABELS.exists(), reason="the labels of CIFAR-10 are not in ../shared/data")
def test_at_seed_20_it_has_the_counts_of_classes_that_the_code_prints():
    labels = np.load(LABELS)["y_train"].astype(int)
    partition = make_partition("fl-simulator:0.1", labels, clients=100, seed=20)
    counts = partition.label_counts(labels, 10).sum(axis=0)
    assert counts.tolist() == [6119, 5752, 5607, 4156, 5041, 4836, 6272, 3957, 3249, 5011]
    assert set(partition.sizes.tolist()) == {500}


@pytest.mark.parametrize(
    ("spec", "seed", "sentence"),
    [
        ("fl-simulator:0.1+replacement", 0, "has replacement and equal sizes already"),
        ("fl-simulator:0.1", -1, "takes a seed from 0"),
        ("fl-simulator-pathological:9", 0, "9 classes a client are more than the 5"),
        ("fl-simulator:0", 0, "needs a positive number"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(spec, seed, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        make_partition(spec, np.arange(50) % 5, clients=5, seed=seed)


def test_a_class_without_samples_is_refused_before_it_is_drawn_for_ever():
    with pytest.raises(FedscapeError, match="class 0 has none"):
        make_partition("fl-simulator:1000", np.ones(20, dtype=int), clients=2, seed=0)
