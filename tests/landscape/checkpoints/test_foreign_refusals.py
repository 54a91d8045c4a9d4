"""Files from elsewhere that are refused: what does not fit, what would run code."""

import builtins
import json
import pickle
import re
from collections import OrderedDict

import pytest
import torch

from landscape import FedscapeError, Landscape
from landscape.checkpoints.foreign import open_checkpoint
from tests.landscape.checkpoints.state_dicts import DIGITS, network
from tests.landscape.storage.files import TouchesAFile

safetensors = pytest.importorskip("safetensors.torch")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pth"


class TestRefusals:
    def message(self, path, **options) -> str:
        with pytest.raises(FedscapeError) as caught:
            open_checkpoint(path, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({}, "give --model NAME and --data NAME (in Python model=, data=)"),
            ({"model": "digits_mlp"}, "give --data NAME (in Python data=)"),
            ({"data": "digits"}, "give --model NAME (in Python model=)"),
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
            (
                {"weights": {"a": torch.ones(1)}, "epoch": 3},
                "it is a dictionary of weights, epoch; --key weights takes what is there",
            ),
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
        assert re.search(r"1\.weight'? is (of integer|of complex|sparse|without values)", message)
        assert "a plain tensor" in message

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
        with pytest.raises(FedscapeError, match=r"is a directory without ckpt\.pt"):
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
