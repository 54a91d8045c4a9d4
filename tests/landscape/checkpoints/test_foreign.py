"""Weights from elsewhere: state dicts in every wrapping, safetensors, models of every kind."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from analysis.source import Source
from analysis.surface import measure_surface
from figures.comparison import compare
from landscape import Checkpoint, Dataset, FedscapeError, Landscape, build_model, load_dataset, make_dataset
from landscape.checkpoints.foreign import WRAPPERS, open_checkpoint
from tests.landscape.checkpoints.checkpoints import KWARGS, checkpoint
from tests.landscape.checkpoints.state_dicts import DIGITS, flat, mlp, network, own

safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


class TestWrappings:
    """Whatever it is wrapped in, the landscape stands at the weights that were saved."""

    def assert_loads(self, path, **options):
        landscape = Landscape.from_checkpoint(path, **DIGITS, device="cpu", **options)
        assert torch.equal(landscape.weights, flat(network()))
        return landscape

    def test_a_plain_state_dict(self, path):
        torch.save(network().state_dict(), path)
        landscape = self.assert_loads(path, split="test")
        train = load_dataset("digits").test.batch(slice(None), torch.float32)
        expected = nn.functional.cross_entropy(network()(train[0]), train[1]).item()
        assert landscape.value() == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("zipped", [True, False])
    @pytest.mark.parametrize("name", ["net.pt", "net.pth", "net.tar", "net"])
    def test_whatever_the_file_is_called_and_in_torchs_old_format(self, path, name, zipped):
        torch.save(network().state_dict(), path.with_name(name), _use_new_zipfile_serialization=zipped)
        self.assert_loads(path.with_name(name))

    def test_parameters_with_gradients(self, path):
        torch.save(dict(network().named_parameters()), path)
        self.assert_loads(path)
        assert not any(p.requires_grad for p in open_checkpoint(path, **DIGITS).parameters.values())

    @pytest.mark.parametrize("key", WRAPPERS)
    def test_a_state_dict_under_a_key_among_other_things(self, path, key):
        others = {"epoch": 3, "optimizer": {"state": {0: {"momentum": torch.ones(3)}}}, "best": 0.9, "arch": "mlp"}
        torch.save({**others, key: network().state_dict()}, path)
        self.assert_loads(path)

    @pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
    @pytest.mark.parametrize("wrapper", [None, "state_dict"])
    def test_prefixes_of_data_parallel_and_compile(self, path, prefix, wrapper):
        state = {prefix + name: tensor for name, tensor in network().state_dict().items()}
        torch.save(state if wrapper is None else {wrapper: state}, path)
        self.assert_loads(path)

    def test_what_torch_itself_writes_of_wrapped_modules(self, path):
        torch.save(nn.DataParallel(network()).state_dict(), path)
        self.assert_loads(path)
        torch.save(torch.compile(network()).state_dict(), path)
        self.assert_loads(path)
        partly = network()
        partly[1] = torch.compile(partly[1])
        assert "1._orig_mod.weight" in partly.state_dict()
        torch.save(partly.state_dict(), path)
        self.assert_loads(path)

    def test_a_models_own_module_keeps_its_name(self, path, monkeypatch):
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.module = network()

            def forward(self, x):
                return self.module(x)

        options = own(monkeypatch, Outer)
        for model in (Outer(), nn.DataParallel(Outer())):
            torch.save(model.state_dict(), path)
            assert torch.equal(Landscape.from_checkpoint(path, **options, device="cpu").weights, flat(model))

    def test_two_names_that_become_one_are_not_merged(self, path):
        state = network().state_dict()
        torch.save({**state, "module.1.bias": torch.zeros(64)}, path)
        with pytest.raises(FedscapeError, match=r"unexpected: module\.1\.bias$"):
            open_checkpoint(path, **DIGITS)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_precision_is_kept_or_raised_to_float32(self, path, dtype):
        saved = network().to(dtype)
        torch.save(saved.state_dict(), path)
        landscape = Landscape.from_checkpoint(path, **DIGITS, device="cpu")
        assert landscape.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert torch.equal(landscape.weights, flat(saved).to(landscape.dtype))

    def test_a_safetensors_file(self, path):
        path = path.with_suffix(".safetensors")
        safetensors.save_file(network().state_dict(), path)
        self.assert_loads(path)
        state = {f"module.{name}": tensor.half() for name, tensor in network().state_dict().items()}
        safetensors.save_file(state, path)
        assert open_checkpoint(path, **DIGITS).parameters["5.bias"].dtype == torch.float32


class TestModelsOfAnyKind:
    def test_running_statistics(self, path, monkeypatch):
        def build():
            return mlp(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))

        model = build()
        model(torch.randn(40, 64) * 3 + 1)
        torch.save(model.state_dict(), path)
        opened = open_checkpoint(path, **own(monkeypatch, build))
        assert set(opened.buffers) == {"2.running_mean", "2.running_var", "2.num_batches_tracked"}
        data = load_dataset("digits").train.batch(slice(None), torch.float32)
        expected = nn.functional.cross_entropy(model.eval()(data[0]), data[1]).item()
        assert Landscape.from_checkpoint(opened, device="cpu").value() == pytest.approx(expected, rel=1e-5)

    def test_the_batches_batch_norm_has_seen_may_be_absent_its_statistics_may_not(self, path, monkeypatch):
        options = own(monkeypatch, lambda: mlp(nn.Linear(64, 10), nn.BatchNorm1d(10)))
        state = mlp(nn.Linear(64, 10), nn.BatchNorm1d(10)).state_dict()
        del state["2.num_batches_tracked"]
        torch.save(state, path)
        assert open_checkpoint(path, **options).buffers["2.num_batches_tracked"] == 0
        del state["2.running_var"]
        torch.save(state, path)
        with pytest.raises(FedscapeError, match=r"missing: 2\.running_var$"):
            open_checkpoint(path, **options)

    @staticmethod
    def tied() -> nn.Module:
        model = mlp(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
        model[2].weight = model[1].weight
        return model

    def test_tied_tensors_under_either_name_or_both(self, path, monkeypatch):
        options, model = own(monkeypatch, self.tied), self.tied()
        whole = model.state_dict()
        for left_out in ((), ("1.weight",), ("2.weight",)):
            torch.save({name: t for name, t in whole.items() if name not in left_out}, path)
            assert torch.equal(Landscape.from_checkpoint(path, **options, device="cpu").weights, flat(model))
        safetensors.save_model(model, path.with_suffix(".safetensors"))
        opened = open_checkpoint(path.with_suffix(".safetensors"), **options)
        assert torch.equal(opened.parameters["1.weight"], model[1].weight)

    def test_tied_tensors_that_differ_in_the_file_are_refused(self, path, monkeypatch):
        options, state = own(monkeypatch, self.tied), self.tied().state_dict()
        torch.save({**state, "2.weight": state["1.weight"] + 1}, path)
        with pytest.raises(FedscapeError, match=r"1\.weight and 2\.weight are one tensor in the model and differ"):
            open_checkpoint(path, **options)

    def test_frozen_parameters_and_buffers_that_are_not_saved(self, path, monkeypatch):
        def build():
            model = network()
            model[1].weight.requires_grad_(False)
            model.register_buffer("scale", torch.full((3,), 7.0), persistent=False)
            return model

        torch.save(network(5).state_dict(), path)
        opened = open_checkpoint(path, **own(monkeypatch, build))
        assert opened.buffers["scale"].tolist() == [7, 7, 7]
        assert torch.equal(opened.parameters["1.weight"], network(5)[1].weight)
        assert Landscape.from_checkpoint(opened, device="cpu").dimension == 6570 - 64 * 64
        torch.save({**network(5).state_dict(), "scale": torch.zeros(3)}, path)  # saved by an older version
        assert open_checkpoint(path, **own(monkeypatch, build)).buffers["scale"].tolist() == [0, 0, 0]


class TestWhatItBecomes:
    """A checkpoint like any other."""

    @pytest.fixture
    def opened(self, path):
        torch.save(network().state_dict(), path)
        return open_checkpoint(path, **DIGITS)

    def test_it_says_what_is_known(self, opened, path):
        assert opened.title == "net.pth, digits_mlp on digits"
        assert opened.foreign
        assert (opened.algorithm, opened.round, opened.path) == ({"name": "unknown"}, 0, path)
        assert opened.model == {"name": "digits_mlp", "kwargs": KWARGS}

    def test_saved_again_it_is_a_fedscape_checkpoint(self, opened, tmp_path):
        opened.save(tmp_path / "ckpt.pt")
        again = Checkpoint.verify(tmp_path / "ckpt.pt")
        assert again.digest() == opened.digest()
        assert Landscape.from_checkpoint(tmp_path / "ckpt.pt", device="cpu").value() > 0
        json.dumps([again.model, again.data, again.algorithm])

    def test_shape_and_classes_are_the_data_sets(self, path, tmp_path):
        draw = torch.Generator().manual_seed(0)
        images, labels = torch.rand(12, 6, 6, 3, generator=draw).numpy(), (torch.arange(12) % 4).numpy()
        np.savez(tmp_path / "mine.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
        model = build_model("digits_cnn", seed=0, input_shape=(3, 6, 6), classes=4)
        torch.save(model.state_dict(), path)
        opened = open_checkpoint(path, "digits_cnn", str(tmp_path / "mine.npz"))
        assert opened.model["kwargs"] == {"input_shape": [3, 6, 6], "classes": 4}
        assert torch.equal(Landscape.from_checkpoint(opened, device="cpu").weights, flat(model))

    def test_the_data_are_loaded_once_and_their_folder_is_remembered(self, path, monkeypatch, tmp_path):
        asked = []

        def loader(folder) -> Dataset:
            asked.append(folder)
            digits = load_dataset("digits").train
            pair = digits.inputs.numpy(), digits.targets.numpy()
            return make_dataset("mine", pair, pair)

        monkeypatch.setattr("tests.landscape.checkpoints.test_foreign.loader", loader, raising=False)
        torch.save(network().state_dict(), path)
        name = "tests.landscape.checkpoints.test_foreign:loader"
        around = Landscape.from_checkpoint(path, model="digits_mlp", data=name, data_dir=tmp_path, device="cpu")
        assert asked == [tmp_path]
        assert around.title == f"net.pth, digits_mlp on {name}"
        opened = open_checkpoint(path, "digits_mlp", name, tmp_path)
        with pytest.raises(FedscapeError, match="would import and run code"):
            opened.load_dataset()
        assert len(opened.load_dataset(name=name).train) == 1442

    def test_a_surface_is_measured_and_compared_with_another(self, opened, path, tmp_path):
        surface = measure_surface(path, 3, store=tmp_path / "s.h5", samples=20, device="cpu", **DIGITS)
        assert surface.loss[1, 1] == Landscape.from_checkpoint(opened, samples=20, device="cpu").value()
        assert (surface.provenance.algorithm, surface.provenance.round) == ("a model", None)
        again = measure_surface(opened, 3, store=tmp_path / "s.h5", samples=20, device="cpu")
        assert (again.loss == surface.loss).all()

    @pytest.mark.slow
    def test_the_comparison_sheet_names_the_files(self, opened, path, tmp_path):
        safetensors.save_file(network(4).state_dict(), tmp_path / "other.safetensors")
        (tmp_path / "metrics.jsonl").write_text("somebody else's\n")
        result = compare(
            [path, tmp_path / "other.safetensors"], tmp_path / "out", top=2, points=3, probes=2, steps=3,
            trace_tolerance=1.0, source=Source(samples=20, device="cpu", **DIGITS),
        )  # fmt: skip
        assert [s.label for s in result.subjects] == ["net.pth", "other.safetensors"]
        assert result.subjects[0].report.title == "net.pth, digits_mlp on digits"

    def test_it_knows_no_clients(self, path, opened):
        with pytest.raises(FedscapeError, match="the checkpoint has no partition, so it knows no clients"):
            Landscape.from_checkpoint(opened, clients=[1])


class TestFedscapesOwn:
    def test_a_checkpoint_is_opened_as_it_is(self, path):
        checkpoint().save(path)
        for options in ({}, DIGITS, {"model": "no such", "data": "thing"}):
            opened = open_checkpoint(path, **options)
            assert (opened.title, opened.round) == ("fedavg, round 7, digits_mlp on digits", 7)
            assert not opened.foreign
        assert open_checkpoint(opened) is opened

    def test_a_damaged_one_is_not_taken_for_somebody_elses(self, path):
        for contents in ({"format": "fedscape/2", "state_dict": network().state_dict()}, {"format": "fedscape/1"}):
            torch.save(contents, path)
            with pytest.raises(FedscapeError, match=r"another checkpoint format|is damaged: it holds an object"):
                open_checkpoint(path, **DIGITS)

    def test_the_strict_reader_stays_strict(self, path):
        torch.save(network().state_dict(), path)
        with pytest.raises(FedscapeError, match="is not a Fedscape checkpoint"):
            Checkpoint.load(path)

    def test_a_parameter_may_be_called_format(self, path, monkeypatch):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.format = nn.Parameter(torch.ones(64, 10))

            def forward(self, x):
                return x.flatten(1) @ self.format

        torch.save(Net().state_dict(), path)
        assert open_checkpoint(path, **own(monkeypatch, Net)).parameters["format"].shape == (64, 10)
