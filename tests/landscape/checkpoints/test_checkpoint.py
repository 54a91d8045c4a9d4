"""The checkpoint file: what is saved comes back; the landscape around it is the run's."""

import numpy as np
import pytest
import torch
from torch import nn

from landscape import MODELS, Checkpoint, FedscapeError, Landscape, __version__, load_dataset
from landscape.checkpoints.checkpoint import run_files
from landscape.checkpoints.client_work import ClientWork
from tests.landscape.checkpoints.checkpoints import CLIENTS, KWARGS, checkpoint, partition


@pytest.fixture
def run(tmp_path):
    """A run directory with ``ckpt.pt``."""
    checkpoint().save(tmp_path / "ckpt.pt")
    return tmp_path


def train_inputs(indices) -> torch.Tensor:
    return load_dataset("digits").train.inputs[torch.as_tensor(indices)]


class TestContents:
    def test_round_trip_is_exact(self, run):
        saved, loaded = checkpoint(), Checkpoint.load(run / "ckpt.pt")
        for name in ("model", "data", "algorithm", "round", "seed", "metrics", "versions", "buffers"):
            assert getattr(loaded, name) == getattr(saved, name), name
        for name in ("parameters", "clients"):
            mine, theirs = getattr(saved, name), getattr(loaded, name)
            assert list(mine) == list(theirs)
            assert all(torch.equal(mine[key], theirs[key]) for key in mine)
        assert loaded.path == run / "ckpt.pt"

    def test_file_is_primitives_and_tensors_and_names_its_format_and_versions(self, run):
        contents = torch.load(run / "ckpt.pt", weights_only=True)
        assert contents["format"] == "fedscape/1"
        assert contents["versions"]["fedscape"] == __version__
        assert set(contents["versions"]) == {"fedscape", "torch", "numpy", "python"}
        assert "path" not in contents

    def test_local_models_are_optional(self, tmp_path):
        checkpoint(clients={}).save(tmp_path / "ckpt.pt")
        assert "clients" not in torch.load(tmp_path / "ckpt.pt", weights_only=True)
        assert Checkpoint.load(tmp_path / "ckpt.pt").clients == {}

    def test_what_clients_received_and_used_comes_back_and_is_optional(self, run, tmp_path):
        assert "work" not in torch.load(run / "ckpt.pt", weights_only=True)
        assert Checkpoint.load(run / "ckpt.pt").work is None
        d = sum(tensor.numel() for tensor in checkpoint().parameters.values())
        one, two, three = torch.randn(3, d)
        for work in (ClientWork(one), ClientWork(one, {3: two}, {3: three, 8: two}, two, three)):
            checkpoint(work=work).save(tmp_path / "ckpt.pt")
            found = Checkpoint.load(tmp_path / "ckpt.pt").work
            assert torch.equal(found.received, one)
            for name in ("starts", "perturbations"):
                assert getattr(found, name).keys() == getattr(work, name).keys()
                assert all(torch.equal(getattr(found, name)[i], vector) for i, vector in getattr(work, name).items())
            for name in ("server_model", "server_perturbation"):
                mine, theirs = getattr(work, name), getattr(found, name)
                assert (mine is None and theirs is None) or torch.equal(mine, theirs)
            assert torch.equal(found.before, one if work.server_model is None else two)

    def test_saving_again_replaces_the_file_and_leaves_nothing_else(self, run):
        checkpoint(round=8).save(run / "ckpt.pt")
        assert Checkpoint.load(run / "ckpt.pt").round == 8
        assert [file.name for file in run.iterdir()] == ["ckpt.pt"]

    def test_model_has_the_parameters_and_their_precision(self, run):
        double = {name: p.double() for name, p in checkpoint().parameters.items()}
        checkpoint(parameters=double).save(run / "ckpt.pt")
        model = Checkpoint.verify(run / "ckpt.pt").build_model()
        assert all(torch.equal(p, double[name]) for name, p in model.named_parameters())

    @pytest.mark.parametrize("kind", ["running statistics", "tied", "frozen", "buffer that is not persistent"])
    def test_a_model_of_any_kind_comes_back_whole(self, monkeypatch, tmp_path, kind):
        def builder(input_shape, classes):
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
            if kind == "tied":
                model[3].weight = model[1].weight
            if kind == "frozen":
                model[1].weight.requires_grad_(False)
            if kind == "buffer that is not persistent":
                model.register_buffer("scale", torch.ones(3), persistent=False)
            return model

        monkeypatch.setitem(MODELS._table, "own", builder)
        model = builder((1, 8, 8), 10).double()
        model(torch.randn(5, 64).double())  # moves the running statistics
        for buffer in model.buffers():
            buffer.mul_(3)
        parts = {"parameters": dict(model.named_parameters()), "buffers": dict(model.named_buffers())}
        checkpoint(model={"name": "own", "kwargs": KWARGS}, **parts).save(tmp_path / "ckpt.pt")
        loaded = Checkpoint.verify(tmp_path / "ckpt.pt").build_model()
        for mine, theirs in ((loaded.parameters(), model.parameters()), (loaded.buffers(), model.buffers())):
            assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
        expected = torch.cat([p.flatten() for p in model.parameters() if p.requires_grad])
        assert torch.equal(Landscape.from_checkpoint(tmp_path / "ckpt.pt", device="cpu").weights, expected)

    def test_a_buffer_that_is_not_finite_fails_verification(self, monkeypatch, tmp_path):
        monkeypatch.setitem(MODELS._table, "own", lambda input_shape, classes: nn.BatchNorm1d(2))
        model = nn.BatchNorm1d(2)
        model.running_var[1] = torch.nan
        parts = {"parameters": dict(model.named_parameters()), "buffers": dict(model.named_buffers())}
        checkpoint(model={"name": "own", "kwargs": KWARGS}, **parts).save(tmp_path / "ckpt.pt")
        with pytest.raises(FedscapeError, match="'running_var' holds values that are not finite"):
            Checkpoint.verify(tmp_path / "ckpt.pt")


class TestLandscape:
    def test_weights_are_the_checkpoints_point(self, run):
        landscape = Landscape.from_checkpoint(run / "ckpt.pt", device="cpu")
        assert torch.equal(landscape.weights, torch.cat([p.flatten() for p in checkpoint().parameters.values()]))
        assert len(landscape.data) == 1442
        model, train = checkpoint().build_model(), load_dataset("digits").train
        x, y = train.batch(slice(None), torch.float32)
        assert landscape.value() == pytest.approx(nn.functional.cross_entropy(model(x), y).item(), rel=1e-6)

    def test_a_loaded_checkpoint_serves_as_well_as_a_path(self, run):
        loaded = Landscape.from_checkpoint(Checkpoint.load(run / "ckpt.pt"), device="cpu")
        assert torch.equal(loaded.gradient(), Landscape.from_checkpoint(run / "ckpt.pt", device="cpu").gradient())

    def test_split_precision_and_micro_batch_are_as_asked(self, run):
        landscape = Landscape.from_checkpoint(run / "ckpt.pt", "test", dtype="float64", batch_size=9)
        assert torch.equal(landscape.data.inputs.cpu(), load_dataset("digits").test.inputs)
        assert (landscape.dtype, landscape.batch_size) == (torch.float64, 9)

    @pytest.mark.parametrize(
        ("clients", "wanted"),
        [([3], [3]), ([8, 0], [8, 0]), ([8, 0, 8], [8, 0]), (range(CLIENTS), range(CLIENTS))],
    )
    def test_clients_give_exactly_their_samples_once(self, run, clients, wanted):
        landscape = Landscape.from_checkpoint(run / "ckpt.pt", clients=clients, device="cpu")
        wanted = np.concatenate([partition().clients[c] for c in wanted])
        assert torch.equal(landscape.data.inputs, train_inputs(wanted))
        assert torch.equal(landscape.data.targets, load_dataset("digits").train.targets[torch.as_tensor(wanted)])

    def test_samples_are_a_fixed_random_subset(self, run):
        def inputs(**options) -> torch.Tensor:
            return Landscape.from_checkpoint(run / "ckpt.pt", device="cpu", **options).data.inputs

        chosen = inputs(samples=100)
        checkpoint(round=8, seed=9).save(run / "ckpt.pt")
        assert torch.equal(inputs(samples=100), chosen)
        assert not torch.equal(chosen, inputs()[:100])
        assert len(torch.unique(inputs(samples=1442).flatten(1), dim=0)) == len(
            torch.unique(inputs().flatten(1), dim=0)
        )
        of_client = {tuple(image.flatten().tolist()) for image in inputs(clients=[3])}
        drawn = inputs(clients=[3], samples=20)
        assert len(drawn) == 20
        assert all(tuple(image.flatten().tolist()) in of_client for image in drawn)

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"split": "validation"}, "unknown split 'validation': give train or test"),
            ({"split": "test", "clients": [0]}, "clients hold training data only"),
            ({"clients": [10]}, r"there is no client \[10\]: the run has clients 0 to 9"),
            ({"clients": [-1, 2]}, r"there is no client \[-1\]"),
            ({"clients": []}, "the run has clients 0 to 9"),
            ({"samples": 0}, "0 samples are asked for: give a number from 1 to 1442"),
            ({"samples": 356, "split": "test"}, "356 samples are asked for: give a number from 1 to 355"),
            ({"device": "abacus"}, "unknown device 'abacus'"),
            ({"dtype": "float8"}, "unknown dtype 'float8'"),
        ],
    )
    def test_a_request_that_cannot_be_met_is_refused(self, run, options, reason):
        with pytest.raises(FedscapeError, match=reason):
            Landscape.from_checkpoint(run / "ckpt.pt", **options)


class TestPartition:
    @pytest.fixture
    def drawn(self, monkeypatch) -> list[str]:
        """Grows by one each time that a partition is drawn instead of read."""
        calls: list[str] = []

        def counted(*arguments):
            calls.append(arguments[0])
            return partition()

        monkeypatch.setattr("landscape.checkpoints.checkpoint.partition_dataset", counted)
        return calls

    @staticmethod
    def of(path) -> list[np.ndarray]:
        return list(Checkpoint.load(path).partition(load_dataset("digits")).clients)

    @pytest.mark.parametrize("folder", [".", ".."], ids=["beside", "above"])
    def test_the_runs_file_is_read_beside_or_above_the_checkpoint(self, tmp_path, drawn, folder):
        (tmp_path / "checkpoints").mkdir()
        checkpoint().save(tmp_path / "checkpoints" / "round_7.pt")
        partition().save(tmp_path / "checkpoints" / folder / "partition.npz")
        found = self.of(tmp_path / "checkpoints" / "round_7.pt")
        assert all(np.array_equal(a, b) for a, b in zip(found, partition().clients, strict=True))
        assert not drawn

    def test_without_the_file_it_is_drawn_again(self, run, drawn):
        found = self.of(run / "ckpt.pt")
        assert all(np.array_equal(a, b) for a, b in zip(found, partition().clients, strict=True))
        assert drawn == ["dirichlet:0.3"]

    def test_another_runs_or_a_tampered_file_is_not_trusted(self, run, drawn):
        swapped = list(partition().clients)
        swapped[3] = np.sort(np.append(swapped[3][1:], swapped[4][0]))
        for other in (partition(seed=5), type(partition())(tuple(swapped))):
            other.save(run / "partition.npz")
            landscape = Landscape.from_checkpoint(run / "ckpt.pt", clients=[3], device="cpu")
            assert torch.equal(landscape.data.inputs, train_inputs(partition().clients[3]))
        assert len(drawn) == 2

    def test_a_partition_that_cannot_be_drawn_again_is_refused(self, tmp_path):
        data = checkpoint().data
        recipe = {**data["partition"], "digest": "0" * 64}
        checkpoint(data={**data, "partition": recipe}).save(tmp_path / "ckpt.pt")
        with pytest.raises(FedscapeError, match=r"is not the run's .*: put the run's partition\.npz beside"):
            self.of(tmp_path / "ckpt.pt")

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"partition": None}, "the checkpoint has no partition, so it knows no clients"),
            ({"partition": {"spec": "iid"}}, "does not say how its partition was drawn"),
            ({"partition": {"spec": 1, "clients": 2, "digest": "x"}}, "data.partition.spec is 1, not a text"),
            ({"partition": {"spec": "ii", "clients": 2, "digest": "x"}}, "unknown partition 'ii': did you mean 'iid'"),
        ],
    )
    def test_a_checkpoint_that_does_not_describe_its_clients_is_refused(self, tmp_path, changes, reason):
        checkpoint(data={**checkpoint().data, **changes}).save(tmp_path / "ckpt.pt")
        with pytest.raises(FedscapeError, match=reason):
            self.of(tmp_path / "ckpt.pt")


def test_files_of_the_run_are_found_from_any_of_its_checkpoints(tmp_path):
    (tmp_path / "rounds").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    for place in (tmp_path / "ckpt.pt", tmp_path / "rounds" / "00001.pt", tmp_path):
        assert run_files(place, "metrics.jsonl") == [tmp_path / "metrics.jsonl"]
        assert run_files(place, "rounds") == [tmp_path / "rounds"]
        assert run_files(place, "partition.npz") == []
    assert run_files(None, "metrics.jsonl") == []
    (tmp_path / "rounds" / "metrics.jsonl").touch()
    assert run_files(tmp_path / "rounds" / "1.pt", "metrics.jsonl")[0].parent.name == "rounds", "the nearest first"
