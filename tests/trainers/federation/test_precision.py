"""Precisions of training: bfloat16 products with float32 parameters, against a plain loop under ``torch.autocast``."""

import json

import pytest
import torch
from torch import nn

from landscape import Checkpoint, FedscapeError, Landscape, Partition, Samples, load_dataset
from landscape.autograd.flat import FlatModule
from landscape.compute.precision import Precision
from landscape.compute.randomness import torch_generator
from trainers import FedAvg, FedSAM, Settings, train
from trainers.federation import Federation, LocalWork, SequentialExecutor, batch_indices

SETTINGS = Settings(clients=1, per_round=1, lr=0.1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))


def digits() -> Samples:
    return load_dataset("digits").train.subset(range(100))


def after_an_epoch(precision: str) -> torch.Tensor:
    model = FlatModule(network(), torch.device("cpu"), torch.float32)
    work = LocalWork(1, 32, 0.0, "none", 0, precision=Precision(precision))
    everybody = Partition((torch.arange(100).numpy(),))
    executor = SequentialExecutor(model, digits(), everybody, FedAvg(), work)
    federation = Federation(FedAvg(), executor, SETTINGS, model.buffer.clone())
    federation.step()
    return federation.server.w


def by_hand() -> torch.Tensor:
    """An epoch of SGD with autocast around the network alone."""
    model, data = network(), digits()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for rows in batch_indices(100, 32, 1, torch_generator(0, "batches", 1, 0)):
        x, y = data.batch(rows, torch.float32)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(x)
        nn.functional.cross_entropy(outputs.float(), y).backward()
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_bf16_is_training_under_autocast():
    start = torch.cat([p.detach().reshape(-1) for p in network().parameters()])
    expected, found = by_hand(), after_an_epoch("bf16")
    moved = (expected - start).norm()
    assert found.dtype == torch.float32
    assert (found - expected).norm() <= 1e-5 * moved
    # Not the same as float32, so that the comparison says something.
    assert (after_an_epoch("float32") - expected).norm() > 1e-4 * moved


def test_a_run_in_bf16_is_near_one_in_float32_and_records_it(tmp_path):
    settings = {"rounds": 3, "clients": 4, "per_round": 4, "model": "digits_cnn", "device": "cpu"}
    low, high = (
        train(FedSAM(rho=0.05), Settings(**settings, dtype=dtype), out=tmp_path / dtype)
        for dtype in ("bf16", "float32")
    )
    losses = [[record["test_loss"] for record in run.metrics] for run in (low, high)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]
    config = json.loads((tmp_path / "bf16" / "config.json").read_text())
    assert (config["settings"]["dtype"], config["settings"]["executor"]) == ("bf16", "sequential")
    parameters = Checkpoint.load(low.checkpoint).parameters
    assert {tensor.dtype for tensor in parameters.values()} == {torch.float32}
    # Evaluated in bf16: near what float32 gives for the same model, and not the same.
    exact = Landscape.from_checkpoint(low.checkpoint, split="test", device="cpu").evaluate().loss
    assert losses[0][-1] == pytest.approx(exact, rel=0.02)
    assert losses[0][-1] != exact


def test_tf32_is_refused_on_a_cpu(tmp_path):
    with pytest.raises(FedscapeError, match="tf32 is a precision of CUDA devices"):
        train(FedAvg(), Settings(dtype="tf32", device="cpu"), out=tmp_path / "run")


def test_several_clients_at_once_are_not_for_bf16(tmp_path):
    with pytest.raises(FedscapeError, match="bf16 is for one client after the other"):
        train(FedAvg(), Settings(dtype="bf16", executor="batched", device="cpu"), out=tmp_path / "run")


def test_an_unknown_precision_is_told():
    with pytest.raises(FedscapeError, match="float16"):
        Precision("float16")
