"""Weights from elsewhere: state dicts in every wrapping, safetensors, what does not fit, what would run code."""

import builtins
import json
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from analysis.source import Source
from analysis.surface import measure_surface
from figures.comparison import compare
from landscape import MODELS, Checkpoint, Dataset, FedscapeError, Landscape, build_model, load_dataset, make_dataset
from landscape.checkpoints.foreign import WRAPPERS, open_checkpoint
from tests.landscape.checkpoints.checkpoints import KWARGS, checkpoint
from tests.landscape.storage.files import TouchesAFile

safetensors = pytest.importorskip("safetensors.torch")
DIGITS = {"model": "digits_mlp", "data": "digits"}


def network(seed: int = 3) -> nn.Module:
    return build_model("digits_mlp", seed=seed, **KWARGS)


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters() if p.requires_grad])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


def own(monkeypatch, build) -> dict[str, str]:
    """A model of the user's, registered as ``own``."""
    monkeypatch.setitem(MODELS._table, "own", lambda input_shape, classes: build())
    return {"model": "own", "data": "digits"}


def mlp(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *layers)


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
            with pytest.raises(FedscapeError, match=r"another checkpoint format|is not a whole checkpoint"):
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


class TestRefusals:
    def message(self, path, **options) -> str:
        with pytest.raises(FedscapeError) as caught:
            open_checkpoint(path, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({}, "give --model NAME and --data NAME"),
            ({"model": "digits_mlp"}, "give --data NAME"),
            ({"data": "digits"}, "give --model NAME"),
        ],
    )
    def test_without_model_and_data_it_says_what_the_file_is(self, path, given, wanted):
        torch.save({"state_dict": network().state_dict()}, path)
        expected = f"{path} is a plain state dict (6 tensors, 6,570 numbers) and does not say what it is of: {wanted}"
        assert self.message(path, **given) == expected
        with pytest.raises(FedscapeError, match="is a plain state dict"):
            Landscape.from_checkpoint(path, **given)

    def test_missing_unexpected_and_misshapen_are_told_apart(self, path):
        state = network().state_dict()
        del state["3.bias"]
        torch.save({**state, "head.weight": torch.ones(2), "5.weight": torch.ones(100, 32)}, path)
        assert self.message(path, **DIGITS) == (
            f"{path} does not fit 'digits_mlp' on digits: missing: 3.bias; unexpected: head.weight; "
            "of the wrong shape: 5.weight (100, 32) instead of (10, 32)"
        )

    def test_five_are_named_and_the_others_counted(self, path):
        torch.save(OrderedDict((f"layer{i}.weight", torch.ones(i + 1)) for i in range(1007)), path)
        assert self.message(path, **DIGITS) == (
            f"{path} does not fit 'digits_mlp' on digits: missing: 1.weight, 1.bias, 3.weight, 3.bias, 5.weight, "
            "… and 1 more; unexpected: layer0.weight, layer1.weight, layer2.weight, layer3.weight, layer4.weight, "
            "… and 1,002 more"
        )

    def test_names_out_of_the_file_cannot_write_to_the_terminal(self, path):
        torch.save({"\x1b[2J\n" + "x" * 10_000: torch.ones(1)}, path)
        message = self.message(path, **DIGITS)
        assert message.isprintable()
        assert len(message) < 600

    @pytest.mark.parametrize(
        ("contents", "what"),
        [
            ([torch.ones(1)], "it is a list"),
            (torch.ones(1), "it is a Tensor"),
            (3, "it is a int"),
            ({}, "it is an empty dictionary"),
            ({"state_dict": {}}, "it is a dictionary of state_dict"),
            ({"weights": {"a": torch.ones(1)}, "epoch": 3}, "it is a dictionary of weights, epoch"),
            ({"1.weight": torch.ones(1), "epoch": 3}, "it is a dictionary of 1.weight, epoch"),
            ({1: torch.ones(1)}, "it is a dictionary of 1"),
        ],
    )
    def test_what_is_no_state_dict_is_described(self, path, contents, what):
        torch.save(contents, path)
        assert self.message(path, **DIGITS) == (
            f"{path} is neither a Fedscape checkpoint nor a state dict, "
            f"plain or under state_dict, model_state_dict, model, net: {what}"
        )

    def test_two_state_dicts_in_one_file_are_ambiguous(self, path):
        torch.save({"model": network().state_dict(), "net": network(4).state_dict()}, path)
        assert "holds several state dicts (model, net)" in self.message(path, **DIGITS)

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.ones(64, 64, dtype=torch.int8),
            torch.ones(64, 64, dtype=torch.complex64),
            torch.ones(64, 64).to_sparse(),
            torch.ones(64, 64, device="meta"),
        ],
        ids=["integers", "complex", "sparse", "without values"],
    )
    def test_weights_that_are_no_plain_numbers_are_refused(self, path, tensor):
        torch.save({**network().state_dict(), "1.weight": tensor}, path)
        message = self.message(path, **DIGITS)
        assert "1.weight is" in message
        assert "a state dict of plain" in message

    def test_an_unknown_model_or_data_set(self, path):
        torch.save(network().state_dict(), path)
        assert "unknown model 'digits_mpl': did you mean" in self.message(path, model="digits_mpl", data="digits")
        assert "unknown data set 'digts'" in self.message(path, model="digits_mlp", data="digts")
        assert "give --data-dir DIR" in self.message(path, model="lenet_fed", data="cifar10")


class TestHostile:
    @pytest.mark.parametrize("wrapped", [True, False])
    @pytest.mark.parametrize("zipped", [True, False])
    def test_code_in_a_torch_file_is_not_run(self, path, tmp_path, wrapped, zipped):
        state = {**network().state_dict(), "evil": TouchesAFile(tmp_path / "ran")}
        torch.save({"state_dict": state} if wrapped else state, path, _use_new_zipfile_serialization=zipped)
        self.refuse(path, tmp_path)
        torch.load(path, weights_only=False)
        assert (tmp_path / "ran").exists()  # the file was a dangerous one

    @pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
    @pytest.mark.parametrize("protocol", [0, 2, 4])
    def test_code_in_a_pickle_is_not_run(self, path, tmp_path, suffix, protocol):
        path.with_suffix(suffix).write_bytes(pickle.dumps(TouchesAFile(tmp_path / "ran"), protocol))
        self.refuse(path.with_suffix(suffix), tmp_path)

    def test_a_whole_module_is_refused(self, path, tmp_path):
        torch.save(network(), path)
        self.refuse(path, tmp_path)

    @staticmethod
    def refuse(path, folder):
        for options in ({}, DIGITS):
            with pytest.raises(FedscapeError, match=r"would run code|is damaged"):
                Landscape.from_checkpoint(path, **options)
        assert not (folder / "ran").exists()

    def test_a_name_in_the_file_decides_nothing(self, path):
        """Only the user's --model and --data are looked up."""
        state = network().state_dict()
        torch.save({"state_dict": state, "arch": "os:system", "data": {"name": "os:system"}}, path)
        assert open_checkpoint(path, **DIGITS).model["name"] == "digits_mlp"

    def test_damaged_safetensors_are_refused(self, path):
        path = path.with_suffix(".safetensors")
        whole = safetensors.save(network().state_dict())
        huge = (2**62).to_bytes(8, "little") + whole[8:]
        header = json.dumps({"1.weight": {"dtype": "F32", "shape": [64, 64], "data_offsets": [0, 10**9]}}).encode()
        lying = len(header).to_bytes(8, "little") + header + b"\0" * 100
        for raw in (b"", b"\0" * 8, whole[:7], whole[:100], whole[:-1], whole + b"\0", huge, lying, b"PK\3\4" * 9):
            path.write_bytes(raw)
            with pytest.raises(FedscapeError, match=r"is not a safetensors file or is damaged|neither"):
                open_checkpoint(path, **DIGITS)

    def test_missing_files_and_folders(self, tmp_path):
        for name in ("none.pt", "none.safetensors"):
            with pytest.raises(FedscapeError, match=rf"there is no file .*{name}"):
                open_checkpoint(tmp_path / name, **DIGITS)
        (tmp_path / "folder.safetensors").mkdir()
        with pytest.raises(FedscapeError, match=r"cannot read .*: Is a directory"):
            open_checkpoint(tmp_path / "folder.safetensors", **DIGITS)


def test_without_the_package_safetensors_one_sentence_says_so(path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.partition(".")[0] == "safetensors":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FedscapeError, match="needs the package safetensors, which is not installed: pip install"):
        open_checkpoint(path.with_suffix(".safetensors"), **DIGITS)
    torch.save(network().state_dict(), path)
    assert open_checkpoint(path, **DIGITS).foreign  # other files do without
