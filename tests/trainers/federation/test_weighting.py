"""Weights of clients: by samples or uniform, in the ratio and the unbiased mean, and expected; and the dtype."""

from itertools import combinations

import numpy as np
import pytest
import torch

from landscape import Checkpoint, FedscapeError, Partition
from tests.trainers.federations import SIZES, federation
from trainers import ALGORITHMS, FedAvg, FedCM, FedSAM, MimeLite, Scaffold, Settings, train
from trainers.federation.weights import client_weights, expected_ratio


def flat(path):
    return torch.cat([p.reshape(-1) for p in Checkpoint.load(path).parameters.values()])


def weighted(models, weighting):
    weights = {client: SIZES[client] if weighting == "samples" else 1 for client in models}
    return sum(weights[client] * w for client, w in models.items()) / sum(weights.values())


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("algorithm", [FedAvg(), FedSAM(0.3)], ids=["fedavg", "fedsam"])
def test_is_the_one_asked_for(algorithm, weighting):
    ours = federation(algorithm, weighting=weighting, save_clients=True)
    other = {"samples": "uniform", "uniform": "samples"}[weighting]
    for _ in range(3):
        ours.step()
        torch.testing.assert_close(ours.server.w, weighted(ours.local_models, weighting), rtol=1e-12, atol=1e-14)
        assert (ours.server.w - weighted(ours.local_models, other)).norm() > 1e-4


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in ALGORITHMS.items()])
def test_is_by_samples_unless_asked_for(kind):
    usual, asked = federation(kind()), federation(kind(), weighting="samples")
    usual.step(), asked.step()
    assert torch.equal(usual.server.w, asked.server.w)
    np.testing.assert_allclose(usual.weights.objective, np.array(SIZES) / sum(SIZES), rtol=1e-15)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("sampling", ["exact", "bernoulli"])
def test_the_unbiased_mean_divides_by_the_probability_to_be_sampled(sampling, weighting):
    changes = {"aggregation": "unbiased", "sampling": sampling, "weighting": weighting, "save_clients": True}
    ours, n, q = federation(FedAvg(0.7), **changes), len(SIZES), 3 / len(SIZES)
    inclusion = q if sampling == "exact" else q / (1 - (1 - q) ** n)
    for _ in range(4):
        before = ours.server.w
        ours.step()
        p = [size / sum(SIZES) if weighting == "samples" else 1 / n for size in SIZES]
        change = sum(p[i] * (w - before) for i, w in ours.local_models.items()) / inclusion
        torch.testing.assert_close(ours.server.w, before + 0.7 * change, rtol=1e-12, atol=1e-14)


def test_aggregation_changes_neither_states_of_all_clients_nor_means_over_the_sampled_ones():
    """One round from one model: SCAFFOLD's c, MimeLite's m and FedCM's Δ are the same; the models are not."""
    for algorithm, name in ((Scaffold(), "c"), (MimeLite(), "momentum"), (FedCM(), "momentum")):
        ratio, unbiased = (federation(algorithm, aggregation=how, batch_size=4) for how in ("ratio", "unbiased"))
        ratio.step(), unbiased.step()
        a, b = getattr(ratio.server, name), getattr(unbiased.server, name)
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
        assert (ratio.server.w - unbiased.server.w).norm() > 1e-3


def by_enumeration(p, per_round, bernoulli):
    """E[1{i ∈ S} p_i / Σ_S p_j] over all sets S, each with its probability."""
    n, q, total, expected = len(p), per_round / len(p), 0.0, np.zeros(len(p))
    for size in range(1, n + 1) if bernoulli else [per_round]:
        for chosen in combinations(range(n), size):
            probability = q**size * (1 - q) ** (n - size) if bernoulli else 1.0
            total += probability
            for i in chosen:
                expected[i] += probability * p[i] / sum(p[j] for j in chosen)
    return expected / total


@pytest.mark.parametrize("bernoulli", [False, True])
@pytest.mark.parametrize("per_round", [1, 3, 6])
@pytest.mark.parametrize("sizes", [SIZES, (1, 100000, 3, 3, 50, 700, 1)])
def test_expected_weights_are_those_of_all_samples(sizes, per_round, bernoulli):
    p = np.array(sizes) / sum(sizes)
    found = expected_ratio(p, per_round, bernoulli=bernoulli)
    np.testing.assert_allclose(found, by_enumeration(p, per_round, bernoulli), rtol=1e-9)


def test_expected_weights_of_many_clients_are_those_of_draws():
    draw, sizes = np.random.default_rng(0), np.random.default_rng(1).lognormal(0, 1, 300)
    p, drawn = sizes / sizes.sum(), np.zeros(300)
    for _ in range(4000):
        chosen = draw.choice(300, 20, replace=False)
        drawn[chosen] += p[chosen] / p[chosen].sum() / 4000
    found = expected_ratio(p, 20, bernoulli=False)
    assert found.sum() == pytest.approx(1, rel=1e-9)
    assert np.abs(found - drawn).max() < 5 * np.sqrt(found.max() / 20 / 4000) < 0.2 * found.max()
    assert np.abs(found - p).max() > 0.01


def test_weights_are_told():
    ratio, unbiased, uniform = (
        client_weights(SIZES, Settings(clients=len(SIZES), per_round=3, **changes))
        for changes in ({}, {"aggregation": "unbiased"}, {"weighting": "uniform"})
    )
    assert ratio.bias > 0.01
    assert unbiased.bias == uniform.bias == 0
    assert "0.0156 to 0.312 in the objective" in ratio.describe()
    assert uniform.describe() == "client weights: 0.143 each in the objective, and the same expected in a round's mean"
    many = client_weights(range(1, 2501), Settings(clients=2500, per_round=3))
    assert many.expected is None
    assert "not worked out" in many.describe()


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in ALGORITHMS.items()])
def test_is_the_same_where_clients_are_equal(kind):
    equal = Partition(tuple(np.split(np.arange(63), 7)))
    ends = []
    for weighting in ("samples", "uniform"):
        ours = federation(kind(), split=equal, weighting=weighting)
        for _ in range(2):
            ours.step()
        ends.append(ours.server.w)
    torch.testing.assert_close(*ends, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold()], ids=["fedavg", "scaffold"])
def test_float32_is_float64_rounded(algorithm, tmp_path):
    settings = {"clients": 6, "per_round": 2, "rounds": 2, "local_epochs": 1, "device": "cpu"}
    ends = {}
    for dtype in ("float32", "float64"):
        run = train(algorithm, Settings(**settings, dtype=dtype), out=tmp_path / dtype)
        ends[dtype] = flat(run.checkpoint)
        assert ends[dtype].dtype == getattr(torch, dtype)
        state = torch.load(run.path / "state.pt", weights_only=True)
        tensors = [*state["server"].values(), *(t for kept in state["clients"].values() for t in kept.values())]
        assert {t.dtype for t in tensors} == {getattr(torch, dtype)}
        assert (
            run.metrics[0]["bytes_up"]
            == run.metrics[0]["bytes_down"]
            == 2 * ends[dtype].nbytes * (1 if isinstance(algorithm, FedAvg) else 2)
        )
    apart = (ends["float32"].double() - ends["float64"]).norm() / ends["float64"].norm()
    assert 1e-9 < apart < 1e-4


@pytest.mark.parametrize("changes", [{"weighting": "auto"}, {"aggregation": "mean"}])
def test_other_weights_are_refused(changes):
    with pytest.raises(FedscapeError, match="give --weighting samples or uniform"):
        Settings(**changes)
