"""Local models in checkpoints: kept on request, what they are, and nothing else changes."""

import json

import pytest
import torch

from landscape import Checkpoint, FedscapeError, Landscape, Partition
from tests.trainers.federations import federation
from trainers import FedAvg, FedSAM, Scaffold, Settings, train

SHORT = {"clients": 6, "per_round": 3, "rounds": 3, "save_every": 1, "device": "cpu", "dtype": "float64"}


def flat(checkpoint):
    return torch.cat([p.reshape(-1) for p in checkpoint.parameters.values()])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(FedAvg(), Settings(**SHORT, save_clients=True), out=tmp_path_factory.mktemp("kept") / "run")


def test_their_mean_by_samples_is_the_server_model_of_fedavg(run):
    sizes = Partition.load(run.path / "partition.npz").sizes
    assert len(set(sizes)) > 1, "weights must differ for this to prove anything"
    for record in run.metrics:
        checkpoint = Checkpoint.load(run.path / "rounds" / f"{record['round']:05d}.pt")
        assert list(checkpoint.clients) == record["clients"]
        total = sum(sizes[client] for client in checkpoint.clients)
        mean = sum(sizes[client] / total * w for client, w in checkpoint.clients.items())
        torch.testing.assert_close(mean, flat(checkpoint), rtol=1e-12, atol=1e-14)


def test_their_distance_from_the_server_model_is_the_drift_on_record(run):
    for record in run.metrics:
        checkpoint = Checkpoint.load(run.path / "rounds" / f"{record['round']:05d}.pt")
        apart = [(w - flat(checkpoint)).square().sum().item() for w in checkpoint.clients.values()]
        assert sum(apart) / len(apart) == pytest.approx(record["drift"], rel=1e-10)


def test_file_loads_weights_only_and_holds_one_vector_a_client_with_no_more_than_its_numbers(run):
    contents = torch.load(run.checkpoint, weights_only=True)
    assert contents["round"] == 3
    assert sorted(contents["clients"]) == run.metrics[-1]["clients"]
    dimension = Landscape.from_checkpoint(run.checkpoint, "test", device="cpu").dimension
    for client, w in contents["clients"].items():
        assert type(client) is int
        assert w.shape == (dimension,)
        assert w.untyped_storage().nbytes() == w.nbytes
        assert not w.requires_grad


def test_initial_model_has_none_and_without_the_setting_no_checkpoint_has(run, tmp_path):
    assert Checkpoint.load(run.path / "rounds" / "00000.pt").clients == {}
    plain = train(FedAvg(), Settings(**SHORT), out=tmp_path)
    for file in [plain.checkpoint, *(plain.path / "rounds").iterdir()]:
        assert "clients" not in torch.load(file, weights_only=True)


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold(), FedSAM()], ids=["fedavg", "scaffold", "fedsam"])
def test_keeping_them_changes_no_number_of_the_run(algorithm, tmp_path):
    runs = [train(algorithm, Settings(**SHORT, save_clients=keep), out=tmp_path / str(keep)) for keep in (True, False)]
    kept, plain = ([{k: v for k, v in r.items() if not k.startswith("seconds")} for r in run.metrics] for run in runs)
    assert kept == plain
    kept, plain = (Checkpoint.load(run.checkpoint) for run in runs)
    assert kept.digest() == plain.digest()
    states = [torch.load(run.path / "state.pt", weights_only=True) for run in runs]
    assert states[0]["server"].keys() == states[1]["server"].keys()
    assert all(torch.equal(states[0]["server"][name], states[1]["server"][name]) for name in states[0]["server"])


def test_each_is_the_model_its_client_ended_at():
    """The federation's models against the executor's own results, for clients of 1 to 20 samples."""
    keeping, watching = federation(FedAvg(), save_clients=True), federation(FedAvg())
    for _ in range(2):
        results = {}
        work = watching.executor.work

        def watched(*arguments, work=work, results=results):
            for result in work(*arguments):
                results[result.client] = result.model.clone()
                yield result

        watching.executor.work = watched
        keeping.step(), watching.step()
        watching.executor.work = work
        assert keeping.local_models.keys() == results.keys()
        assert all(torch.equal(keeping.local_models[client], results[client]) for client in results)
    assert watching.local_models == {}


def test_may_be_switched_on_when_a_run_is_resumed_even_one_of_before_the_setting_was(tmp_path):
    train(FedAvg(), Settings(**{**SHORT, "rounds": 1}), out=tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["settings"]["save_clients"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    resumed = train(FedAvg(), Settings(**SHORT, save_clients=True), out=tmp_path, resume=True)
    assert Checkpoint.load(tmp_path / "rounds" / "00001.pt").clients == {}
    assert sorted(Checkpoint.load(resumed.checkpoint).clients) == resumed.metrics[-1]["clients"]


def test_a_run_that_diverges_ends_with_the_local_models_of_its_last_good_round(tmp_path, monkeypatch):
    settings = Settings(**{**SHORT, "rounds": 5}, save_clients=True)
    plain = FedAvg.server_step
    monkeypatch.setattr(
        FedAvg,
        "server_step",
        lambda self, server, mean, round: (
            plain(self, server, mean, round)
            if round.number < 3
            else setattr(server, "w", torch.full_like(server.w, torch.nan))
        ),
    )
    run = train(FedAvg(), settings, out=tmp_path)
    checkpoint = Checkpoint.load(run.checkpoint)
    assert (run.status, checkpoint.round) == ("diverged", 2)
    assert sorted(checkpoint.clients) == run.metrics[-1]["clients"]
    same = Checkpoint.load(tmp_path / "rounds" / "00002.pt")
    assert all(torch.equal(checkpoint.clients[client], w) for client, w in same.clients.items())


def test_a_checkpoint_with_a_local_model_that_is_no_tensor_is_refused(run, tmp_path):
    contents = torch.load(run.checkpoint, weights_only=True)
    torch.save({**contents, "clients": {0: [1.0, 2.0]}}, tmp_path / "ckpt.pt")
    with pytest.raises(FedscapeError, match=r"clients\.0 is a list of 2, not a tensor"):
        Checkpoint.load(tmp_path / "ckpt.pt")
