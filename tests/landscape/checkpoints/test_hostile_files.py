"""Files that are no checkpoints, damaged ones, and ones that would run code: one sentence, no code run."""

import pickle
import sys
import warnings

import pytest
import torch
from torch import nn

from landscape import Checkpoint, FedscapeError, Landscape
from landscape.storage.files import save_torch
from tests.landscape.checkpoints.checkpoints import KWARGS, checkpoint
from tests.landscape.storage.files import TouchesAFile

D = sum(tensor.numel() for tensor in checkpoint().parameters.values())


@pytest.fixture
def path(tmp_path):
    """A good checkpoint, to be spoilt."""
    checkpoint().save(tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


def contents(path) -> dict:
    return torch.load(path, weights_only=True)


def test_the_unspoilt_file_is_accepted(path):
    assert Checkpoint.verify(path).round == 7


def test_a_missing_file_a_folder_and_a_path_below_a_file_are_told_apart(path):
    with pytest.raises(FedscapeError, match=r"there is no file .*none\.pt"):
        Checkpoint.load(path.with_name("none.pt"))
    with pytest.raises(FedscapeError, match=r"cannot read .*: Is a directory"):
        Checkpoint.load(path.parent)
    with pytest.raises(FedscapeError, match=r"cannot read .*ckpt\.pt/x: Not a directory"):
        Checkpoint.load(path / "x")


class TestDamage:
    """One sentence and no warning: torch has things to say about the pickle protocol of random bytes."""

    NOT_ONE = r"ckpt\.pt is not a checkpoint or is damaged: torch cannot read it$"

    def refuse(self, path, raw: bytes) -> None:
        path.write_bytes(raw)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with pytest.raises(FedscapeError, match=self.NOT_ONE):
                Checkpoint.load(path)
        assert not said

    def test_bytes_of_another_kind_are_refused(self, path):
        draw = torch.Generator().manual_seed(0)
        texts = [b"", b"\n", b"hello, world\n" * 50, b"PK", b"PK\3\4", b"\x80\x02", b"\x80\xfe."]
        noise = [bytes(torch.randint(256, (n,), generator=draw).tolist()) for n in range(1, 400, 7)]
        for raw in texts + noise:
            self.refuse(path, raw)

    def test_a_file_cut_short_is_refused_at_every_length(self, path):
        whole = path.read_bytes()
        lengths = [*range(0, 70, 9), 500, 1000, len(whole) // 2, *(len(whole) - n for n in (1000, 100, 22, 1))]
        for length in lengths:
            self.refuse(path, whole[:length])

    def test_a_flipped_bit_is_seen_in_the_description_and_in_the_weights(self, path):
        """torch.load does not look at the archive's check sums: it would load the second file with another weight."""
        whole = path.read_bytes()
        weight = checkpoint().parameters["1.weight"].numpy().tobytes()[4000:4040]
        for place in (whole.index(b"digits_mlp"), whole.index(weight) + 2):
            flipped = bytearray(whole)
            flipped[place] ^= 4
            self.refuse(path, bytes(flipped))

    def test_the_old_format_cut_short_or_altered_is_refused(self, path):
        torch.save(contents(path), path, _use_new_zipfile_serialization=False)
        whole = path.read_bytes()
        assert Checkpoint.verify(path).round == 7
        storage = whole.index(b"cpuq") - 30
        for raw in (whole[:-3], whole[:-4001], whole[:300], whole[:storage] + b"\xff" * 20 + whole[storage + 20 :]):
            self.refuse(path, raw)


class TestCode:
    UNSAFE = r"ckpt\.pt holds objects that would run code when loaded, and was not loaded"

    @pytest.mark.parametrize("protocol", range(6))
    def test_a_pickle_is_refused_and_its_code_is_not_run(self, path, tmp_path, protocol):
        evil = pickle.dumps(TouchesAFile(tmp_path / "ran"), protocol)
        path.write_bytes(evil)
        with pytest.raises(FedscapeError, match=self.UNSAFE if protocol < 4 else TestDamage.NOT_ONE):
            Checkpoint.load(path)
        assert not (tmp_path / "ran").exists()
        pickle.loads(evil)
        assert (tmp_path / "ran").exists()  # the pickle was a dangerous one

    @pytest.mark.parametrize("zipped", [True, False])
    def test_an_object_in_a_torch_file_is_refused_and_its_code_is_not_run(self, path, tmp_path, zipped):
        evil = {**contents(path), "metrics": {"loss": TouchesAFile(tmp_path / "ran")}}
        torch.save(evil, path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(FedscapeError, match=self.UNSAFE):
            Checkpoint.load(path)
        assert not (tmp_path / "ran").exists()
        torch.load(path, weights_only=False)
        assert (tmp_path / "ran").exists()

    def test_a_whole_module_is_refused(self, path):
        torch.save(nn.Linear(2, 2), path)
        with pytest.raises(FedscapeError, match=self.UNSAFE):
            Checkpoint.load(path)

    @pytest.mark.parametrize("group", ["model", "data"])
    @pytest.mark.parametrize("name", ["os:system", "own_code:make"])
    def test_code_that_a_file_names_is_neither_imported_nor_called(self, path, tmp_path, monkeypatch, group, name):
        witness = self.own_code(tmp_path, monkeypatch)
        spoilt = contents(path)
        spoilt[group] = {**spoilt[group], "name": name}
        save_torch(path, spoilt)
        option = "--model" if group == "model" else "--data"
        with pytest.raises(
            FedscapeError, match=rf"'{name}', which would import and run code: .* same {option} yourself"
        ):
            Landscape.from_checkpoint(path)
        assert "own_code" not in sys.modules
        assert not witness.exists()

    def test_code_that_the_user_names_is_used(self, path, tmp_path, monkeypatch):
        witness = self.own_code(tmp_path, monkeypatch)
        save_torch(path, {**contents(path), "model": {"name": "own_code:make", "kwargs": KWARGS}})
        landscape = Landscape.from_checkpoint(path, model="own_code:make", device="cpu")
        assert torch.equal(landscape.weights, torch.cat([p.flatten() for p in checkpoint().parameters.values()]))
        assert witness.exists()

    @staticmethod
    def own_code(folder, monkeypatch):
        """A module ``own_code`` whose import and whose ``make`` leave a file behind; returns that file."""
        witness = folder / "called"
        touch = f"import pathlib; pathlib.Path({str(witness)!r}).touch()"
        (folder / "own_code.py").write_text(
            f"{touch}\nfrom landscape.models import digits_mlp\ndef make(**kwargs):\n    return digits_mlp(**kwargs)\n"
        )
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "own_code", raising=False)
        return witness


class TestContents:
    """Files that torch reads and that are no whole checkpoints."""

    @pytest.mark.parametrize("value", [{"0.weight": torch.ones(2)}, {"state_dict": {}}, torch.ones(3), [1], None, {}])
    def test_something_else_of_torchs_is_refused(self, path, value):
        torch.save(value, path)
        with pytest.raises(FedscapeError, match="is not a Fedscape checkpoint: it does not say format 'fedscape/1'"):
            Checkpoint.load(path)

    @pytest.mark.parametrize("value", ["fedscape/2", "", None, 1, torch.ones(1)])
    def test_another_format_is_refused(self, path, value):
        save_torch(path, {**contents(path), "format": value})
        with pytest.raises(FedscapeError, match="has another checkpoint format: this version reads 'fedscape/1'"):
            Checkpoint.load(path)

    @pytest.mark.parametrize(
        "key", ["model", "data", "algorithm", "round", "seed", "parameters", "buffers", "metrics", "versions"]
    )
    def test_a_missing_or_mistyped_entry_is_named(self, path, key):
        whole = contents(path)
        for spoilt in ({k: v for k, v in whole.items() if k != key}, {**whole, key: "text"}, {**whole, key: None}):
            save_torch(path, spoilt)
            with pytest.raises(FedscapeError, match=rf"ckpt\.pt is damaged: .*\b{key}\b"):
                Checkpoint.load(path)

    @pytest.mark.parametrize(
        ("group", "entry", "reason"),
        [
            ("parameters", {"1.weight": 3.0}, r"parameters\.1\.weight is 3\.0, not a tensor"),
            ("parameters", {5: torch.ones(1)}, r"parameters\.its key is 5, not a text"),
            ("buffers", {"x": [1]}, r"buffers\.x is a list of 1, not a tensor"),
            ("buffers", {(): torch.ones(1)}, r"buffers\.its key is a list of 0, not a text"),
            ("clients", {"3": torch.ones(1)}, r"clients\.its key is '3', not a whole number from 0"),
            ("clients", {-3: torch.ones(1)}, r"clients\.its key is -3, not a whole number from 0"),
            ("clients", {3: None}, r"clients\.3 is None, not a tensor"),
        ],
    )
    def test_groups_hold_named_tensors_only(self, path, group, entry, reason):
        whole = contents(path)
        save_torch(path, {**whole, group: {**whole[group], **entry}})
        with pytest.raises(FedscapeError, match=reason):
            Checkpoint.load(path)

    @pytest.mark.parametrize(
        ("entry", "reason"),
        [
            (None, "work is None, not an object"),
            ({}, "work is an object of 0 entries, not one with received"),
            ({"received": 3.0}, r"work\.received is 3\.0, not a tensor"),
            (
                {"received": torch.ones(5)},
                r"the model that the clients received is a tensor of shape \(5\): a vector of",
            ),
            ({"received": torch.ones(D).long()}, "the model that the clients received is of integer numbers"),
            ({"received": torch.ones(1).expand(D)}, "the model that the clients received is overlapping in memory"),
            (
                {"received": torch.ones(D, 1)},
                rf"is a tensor of shape \({D}, 1\): a vector of the model's {D:,} parameters",
            ),
            (
                {"received": torch.ones(D), "uphill": 1},
                r"work\.'uphill' is 1, not one of received, starts, perturbations",
            ),
            ({"received": torch.ones(D), "perturbations": [1]}, r"work\.perturbations is a list of 1, not an object"),
            ({"received": torch.ones(D), "perturbations": {-1: torch.ones(D)}}, "its key is -1, not a whole number"),
            ({"received": torch.ones(D), "perturbations": {7: "x"}}, r"work\.perturbations\.7 is 'x', not a tensor"),
            (
                {"received": torch.ones(D), "perturbations": {7: torch.ones(2)}},
                "the perturbation of client 7 is a tensor",
            ),
            ({"received": torch.ones(D), "starts": {7: torch.ones(D).bool()}}, "the start of client 7 is of boolean"),
            (
                {"received": torch.ones(D), "server_model": torch.ones(())},
                r"before the round is a tensor of shape \(\)",
            ),
            ({"received": torch.ones(D), "server_perturbation": torch.ones(D).to_sparse()}, "perturbation is sparse"),
        ],
    )
    def test_what_clients_received_and_used_is_vectors_of_the_models_parameters(self, path, entry, reason):
        torch.save({**contents(path), "work": entry}, path)
        with pytest.raises(FedscapeError, match=reason) as told:
            Checkpoint.load(path)
        assert "\n" not in str(told.value)

    @pytest.mark.parametrize(
        ("entry", "reason"),
        [
            ({"1.weight": torch.ones(64, 63)}, "do not fit the model 'digits_mlp': 1.weight missing, unknown or of"),
            ({"9.weight": torch.ones(1)}, "do not fit the model 'digits_mlp': 9.weight missing, unknown or of"),
            ({"1.weight": torch.full((64, 64), torch.nan)}, "'1.weight' holds values that are not finite"),
            ({"5.bias": torch.full((10,), torch.inf)}, "'5.bias' holds values that are not finite"),
        ],
    )
    def test_parameters_that_do_not_fit_or_are_not_finite_fail_verification(self, path, entry, reason):
        checkpoint(parameters={**checkpoint().parameters, **entry}).save(path)
        with pytest.raises(FedscapeError, match=reason):
            Checkpoint.verify(path)

    def test_missing_parameters_are_named_a_few_at_a_time(self, path):
        checkpoint(parameters={}).save(path)
        with pytest.raises(FedscapeError, match=r"1\.bias, 1\.weight, 3\.bias, 3\.weight, 5\.bias … missing"):
            Checkpoint.verify(path)

    def test_parameters_that_are_no_floating_point_numbers_are_refused(self, path):
        checkpoint(parameters={name: p.long() for name, p in checkpoint().parameters.items()}).save(path)
        with pytest.raises(FedscapeError, match=r"'1\.weight' is of integer numbers \(int64\)"):
            Checkpoint.load(path)

    @pytest.mark.parametrize(
        ("model", "reason"),
        [
            ({"name": "digits_mpl", "kwargs": KWARGS}, "unknown model 'digits_mpl': did you mean 'digits_mlp'"),
            ({"name": "digits_mlp", "kwargs": {}}, "the model 'digits_mlp' is not described fully"),
            ({"name": "digits_mlp"}, "the model 'digits_mlp' is not described fully"),
            ({"name": "digits_mlp", "kwargs": {**KWARGS, "seed": 1}}, "is not described fully"),
            ({"name": "digits_mlp", "kwargs": {**KWARGS, "imports": True}}, "is not described fully"),
            ({"name": "digits_mlp", "kwargs": {**KWARGS, "depth": 3}}, "the model 'digits_mlp' cannot be built"),
            (
                {"name": "digits_mlp", "kwargs": {**KWARGS, "classes": -1}},
                "model.kwargs.classes is -1, not a",
            ),
            (
                {"name": "digits_mlp", "kwargs": {**KWARGS, "input_shape": 5}},
                "kwargs.input_shape is 5, not a list",
            ),
            ({"name": "digits_mlp", "kwargs": {**KWARGS, "input_shape": [1 << 20] * 4}}, "cannot be built|do not fit"),
            ({"name": "digits_mlp", "kwargs": {**KWARGS, "classes": 1 << 20}}, "do not fit the model 'digits_mlp'"),
        ],
    )
    def test_a_model_that_cannot_be_built_is_refused(self, path, model, reason):
        checkpoint(model=model).save(path)
        with pytest.raises(FedscapeError, match=reason):
            Checkpoint.verify(path)

    @pytest.mark.parametrize("group", ["model", "data"])
    @pytest.mark.parametrize(
        ("entry", "reason"),
        [
            ({}, " is an object of 0 entries, not one with name"),
            ({"name": 3}, ".name is 3, not a text"),
            ({"name": "digits", "kwargs": None}, ".kwargs is None, not an object"),
            ({"name": "x", "kwargs": [1]}, ".kwargs is a list of 1, not an object"),
        ],
    )
    def test_a_model_or_data_set_without_name_or_kwargs_is_refused(self, path, group, entry, reason):
        save_torch(path, {**contents(path), group: entry})
        with pytest.raises(FedscapeError, match=f"is damaged: {group}{reason}"):
            Checkpoint.load(path)

    @pytest.mark.parametrize("round", [-4, 1.0, True, 10**400])
    def test_a_round_that_is_none_is_refused(self, path, round):
        save_torch(path, {**contents(path), "round": round})
        with pytest.raises(FedscapeError, match=r"is damaged: round is .*, not a (whole )?number"):
            Checkpoint.load(path)

    def test_a_data_folder_that_is_not_there_is_told(self, path):
        folder = "/nowhere"
        checkpoint(data={**checkpoint().data, "name": "cifar10", "kwargs": {"data_dir": folder}}).save(path)
        with pytest.raises(FedscapeError, match=f"cifar10 is not in {folder}: .* must hold cifar-10-batches-py/"):
            Checkpoint.load(path).load_dataset()
        assert len(Checkpoint.load(path).load_dataset(name="digits").train) == 1442
