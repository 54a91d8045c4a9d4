"""The model that is evaluated and saved: the server's, or a mean of local models, against naive means."""

import pytest
import torch

from landscape import Checkpoint, Landscape, Partition
from tests.trainers.federations import SIZES, federation
from trainers import FedAvg, Scaffold, Settings, train
from trainers.algorithms.feddyn import FedDyn

MODES = ["server", "sampled-mean", "all-clients-mean", "last-two-mean"]


def flat(checkpoint):
    return torch.cat([p.reshape(-1) for p in checkpoint.parameters.values()])


def weighted(models, sizes):
    return sum(sizes[i] * w for i, w in models.items()) / sum(sizes[i] for i in models)


def naive(mode, ours, latest, before):
    if mode == "server":
        return ours.server.w
    if mode == "last-two-mean":  # FedExP's authors: after the first round that round's model itself
        return ours.server.w if ours.round == 1 else 0.5 * (before + ours.server.w)
    models = ours.local_models if mode == "sampled-mean" else latest
    return weighted(models, SIZES if ours.settings.weighting == "samples" else [1] * len(SIZES))


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("mode", MODES)
def test_is_the_mean_it_says(mode, weighting):
    """Means with the clients' weights; a client never sampled counts with the initial model."""
    ours = federation(FedDyn(0.3), evaluated_model=mode, weighting=weighting, save_clients=True)
    start = ours.server.w.clone()
    assert torch.equal(ours.model, start)
    latest = dict.fromkeys(range(len(SIZES)), start)
    seen = set()
    for _ in range(8):
        before = ours.server.w
        ours.step()
        latest |= ours.local_models
        seen |= ours.local_models.keys()
        torch.testing.assert_close(ours.model, naive(mode, ours, latest, before), rtol=1e-12, atol=1e-14)
        if mode != "server" and ours.round > 1:
            assert (ours.model - ours.server.w).norm() > 1e-3
    assert len(seen) == len(SIZES)
    assert ours.model.shape == start.shape


def test_all_clients_count_before_they_were_sampled():
    ours = federation(FedAvg(), evaluated_model="all-clients-mean", per_round=1, save_clients=True)
    start = ours.server.w.clone()
    ours.step()
    (only,) = ours.local_models.values()
    (client,) = ours.local_models
    share = SIZES[client] / sum(SIZES)
    torch.testing.assert_close(ours.model, share * only + (1 - share) * start, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_the_sampled_mean_of_fedavg_is_the_servers_model(weighting):
    ours = federation(FedAvg(), evaluated_model="sampled-mean", weighting=weighting)
    for _ in range(3):
        ours.step()
        torch.testing.assert_close(ours.model, ours.server.w, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold()], ids=["fedavg", "scaffold"])
def test_training_goes_its_own_way(mode, algorithm):
    ours, plain = federation(algorithm, evaluated_model=mode), federation(algorithm)
    for _ in range(4):
        assert ours.step().drift == plain.step().drift
    assert torch.equal(ours.server.w, plain.server.w)


@pytest.mark.parametrize("mode", MODES)
def test_resuming_changes_nothing(mode):
    whole, first, second = (federation(FedDyn(0.3), evaluated_model=mode) for _ in range(3))
    for _ in range(6):
        whole.step()
    for _ in range(3):
        first.step()
    second.restore(first.export())
    assert torch.equal(second.model, first.model)
    for _ in range(3):
        second.step()
    assert torch.equal(second.model, whole.model)


@pytest.mark.parametrize("mode", MODES)
def test_is_what_a_run_saves_and_tests(mode, tmp_path):
    """Worked out from the local models in the kept rounds alone."""
    settings = Settings(
        clients=5,
        per_round=2,
        rounds=4,
        save_every=1,
        save_clients=True,
        local_epochs=1,
        device="cpu",
        dtype="float64",
        evaluated_model=mode,
    )
    run = train(FedDyn(0.3), settings, out=tmp_path)
    kept = [Checkpoint.load(run.path / "rounds" / f"{number:05d}.pt") for number in range(5)]
    latest, sizes = dict.fromkeys(range(5), flat(kept[0])), Partition.load(run.path / "partition.npz").sizes
    servers = []
    for checkpoint in kept[1:]:
        latest |= checkpoint.clients
        server = torch.load(run.path / "state.pt", weights_only=True)["server"]["w"]
        if mode == "sampled-mean":
            expected = weighted(checkpoint.clients, sizes)
        elif mode == "all-clients-mean":
            expected = weighted(latest, sizes)
        elif mode == "last-two-mean":  # the first is the server's model, which then tells each next one
            servers.append(2 * flat(checkpoint) - servers[-1] if servers else flat(checkpoint))
            expected = (servers[-2] + server) / 2 if checkpoint is kept[-1] else flat(checkpoint)
        else:
            expected = server if checkpoint is kept[-1] else flat(checkpoint)
        torch.testing.assert_close(flat(checkpoint), expected, rtol=1e-12, atol=1e-14)
    test = Landscape.from_checkpoint(run.checkpoint, "test", device="cpu")
    assert test.value() == run.metrics[-1]["test_loss"]
    assert torch.equal(flat(Checkpoint.load(run.checkpoint)), flat(kept[-1]))
