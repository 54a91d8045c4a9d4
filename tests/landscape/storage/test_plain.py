"""Tensors in checkpoints that are no plain numbers are refused by name, in our own files as in others'."""

import warnings

import pytest
import torch

from analysis.hessian.__main__ import command_line
from landscape import Checkpoint, FedscapeError, Landscape, build_model
from landscape.checkpoints.foreign import open_checkpoint
from landscape.storage.files import save_torch
from landscape.storage.plain import require_plain
from tests.landscape.checkpoints.checkpoints import checkpoint
from tests.landscape.checkpoints.state_dicts import DIGITS, network

W = torch.linspace(-1, 1, 64 * 64).reshape(64, 64)


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(W, 0.1, 0, torch.qint8)


KINDS = {
    "complex": (lambda: W + 1j * W, r"of complex numbers \(complex64\)"),
    "integer": (lambda: (9 * W).long(), r"of integer numbers \(int64\)"),
    "boolean": (lambda: W > 0, r"of boolean numbers \(bool\)"),
    "sparse": (lambda: W.to_sparse(), r"sparse \(sparse_coo\)"),
    "compressed": (lambda: W.to_sparse_csr(), r"sparse \(sparse_csr\)"),
    "meta": (lambda: W.to("meta"), "without values"),
    "quantised": (quantised, r"quantised \(qint8\)"),
    "eight bits": (lambda: W.to(torch.float8_e4m3fn), r"of floating-point numbers \(float8_e4m3fn\)"),
    "nested": (lambda: torch.nested.nested_tensor([W[0], W[0, :3]]), "nested"),
    "expanded": (lambda: W[:1].expand(64, 64), r"overlapping in memory \(of shape \(64, 64\), strides \(0, 1\)\)"),
    "overlapping": (lambda: torch.arange(127.0).as_strided((64, 64), (1, 1)), "overlapping in memory"),
}


@pytest.mark.parametrize("name", KINDS)
class TestRefusals:
    def made(self, name):
        make, reason = KINDS[name]
        return make(), reason

    def save(self, path, value):
        """A kind that torch saves but refuses to load, or cannot save, has no file."""
        try:
            torch.save(value, path)
            torch.load(path, weights_only=True)
        except Exception as error:
            return type(error).__name__
        return None

    def test_by_name_where_it_is_looked_at(self, name):
        tensor, reason = self.made(name)
        with pytest.raises(
            FedscapeError, match=f"^'w' is {reason}.*: a plain tensor of floating-point numbers is needed$"
        ):
            require_plain(tensor, "'w'", weights=True)

    def test_in_our_own_checkpoint(self, name, tmp_path, capsys, monkeypatch):
        tensor, reason = self.made(name)
        path = tmp_path / "ckpt.pt"
        checkpoint().save(path)
        contents = torch.load(path, weights_only=True)
        contents["parameters"]["1.weight"] = tensor
        unreadable = self.save(path, contents)
        wanted = "is not a checkpoint or is damaged|would run code" if unreadable else rf"'1\.weight' is {reason}"
        with pytest.raises(FedscapeError, match=wanted):
            Landscape.from_checkpoint(path)
        monkeypatch.setattr("sys.argv", ["hessian", str(path), "--quiet"])
        assert command_line() == 2
        told = capsys.readouterr().err
        # What would run code is told with the two lines that save its weights alone.
        assert told.count("\n") == (3 if "would run code" in told else 1)

    def test_in_a_file_from_elsewhere(self, name, tmp_path):
        tensor, reason = self.made(name)
        path = tmp_path / "net.pth"
        unreadable = self.save(path, {**network().state_dict(), "1.weight": tensor})
        wanted = "is not a checkpoint or is damaged|would run code" if unreadable else rf"1\.weight'? is {reason}"
        with pytest.raises(FedscapeError, match=wanted):
            open_checkpoint(path, **DIGITS)


def test_most_kinds_can_be_in_a_file_at_all(tmp_path):
    """So that the refusals above are of the tensors: torch itself keeps out only a few."""
    readable = [name for name in KINDS if TestRefusals().save(tmp_path / "x", KINDS[name][0]()) is None]
    assert {"complex", "integer", "boolean", "sparse", "expanded", "overlapping", "meta"} <= set(readable)


@pytest.mark.parametrize(
    "tensor",
    [W, W.t(), W.double(), W.half(), W.bfloat16(), W[::2, ::3], W[:, :1].expand(64, 1),
     torch.ones(0, 3), torch.tensor(1.0),
     torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), torch.ones(3, 1).expand(3, 1)],
)  # fmt: skip
def test_numbers_in_any_order_in_memory_are_plain(tensor):
    require_plain(tensor, "w", weights=True)


def test_clients_models_and_buffers_are_looked_at_too(tmp_path):
    path = tmp_path / "ckpt.pt"
    whole = {
        **{k: v for k, v in vars(checkpoint()).items() if k not in ("path", "client", "work")},
        "format": "fedscape/1",
    }
    save_torch(path, {**whole, "clients": {3: torch.ones(4, dtype=torch.complex64)}})
    with pytest.raises(FedscapeError, match="the local model of client 3 is of complex numbers"):
        Checkpoint.load(path)
    save_torch(path, {**whole, "buffers": {"mask": torch.eye(3).to_sparse()}})
    with pytest.raises(FedscapeError, match="'mask' is sparse"):
        Checkpoint.load(path)


def test_a_buffer_has_the_kind_of_numbers_of_the_models():
    model = {"name": "tests.trainers.user_code:normalised", "kwargs": {"input_shape": [1, 8, 8], "classes": 10}}

    net = build_model(model["name"], seed=0, **model["kwargs"])
    buffers = dict(net.named_buffers())
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    good = checkpoint(model=model, parameters=parameters, buffers=buffers)
    assert good.build_model(model["name"]) is not None
    for name, other, words in (
        (
            "2.running_var",
            buffers["2.running_var"] + 0j,
            r"of complex numbers \(complex64\), and the model's of floating",
        ),
        (
            "2.num_batches_tracked",
            torch.tensor(1.5),
            r"of floating-point numbers \(float32\), and the model's of integer",
        ),
    ):
        spoilt = checkpoint(model=model, parameters=parameters, buffers={**buffers, name: other})
        with pytest.raises(FedscapeError, match=f"'{name}' is {words}"):
            spoilt.build_model(model["name"])
