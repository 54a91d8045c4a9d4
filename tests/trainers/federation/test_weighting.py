"""Weights of clients in the mean: by samples or uniform, asked for or as the algorithm has it; and the dtype."""

import numpy as np
import pytest
import torch

from landscape import Checkpoint, Partition
from tests.trainers.federations import SIZES, federation
from trainers import ALGORITHMS, FedAvg, FedSAM, Scaffold, Settings, train


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


@pytest.mark.parametrize(
    ("algorithm", "own"), [(FedAvg(), "samples"), (FedSAM(0.3), "uniform")], ids=["fedavg", "fedsam"]
)
def test_is_the_algorithms_own_unless_asked_for(algorithm, own):
    auto, asked = federation(algorithm), federation(algorithm, weighting=own)
    for _ in range(3):
        auto.step(), asked.step()
    assert torch.equal(auto.server.w, asked.server.w)


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


def test_control_variates_have_plain_means_whatever_the_weights_of_models():
    ours = federation(Scaffold(), weighting="samples", per_round=4)
    for _ in range(5):
        ours.step()
    mean = sum(ours.store.fetch(client).c for client in range(len(SIZES))) / len(SIZES)
    torch.testing.assert_close(ours.server.c, mean, rtol=1e-10, atol=1e-12)


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
