"""Layers, sharpness, clients and rounds on the Hessian command."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import measure_hessian
from analysis.hessian.__main__ import main
from analysis.hessian.clients import client_eigenvalues
from analysis.hessian.layers import layer_eigenvalues
from analysis.hessian.options import Supplements
from analysis.hessian.sharpness import sam_sharpness
from analysis.hessian.supplements import measure_supplements
from analysis.source import Source
from landscape import Landscape
from landscape.activations import MAN
from landscape.terminal.command import run
from trainers import FedAvg, FedSAM, Settings, train

FAST = ["--top", "1", "--samples", "60", "--no-trace", "--quiet"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs whose checkpoints carry local models."""
    folder = tmp_path_factory.mktemp("runs")
    settings = Settings(rounds=4, clients=4, per_round=2, save_every=2, save_clients=True, device="cpu")
    return [train(a, settings, out=folder / n).path for n, a in (("plain", FedAvg()), ("sharp", FedSAM(0.1)))]


def numbers_of(line, tmp_path):
    assert run(lambda: main([*line, *FAST, "--json", str(tmp_path / "h.json")])) == 0
    return json.loads((tmp_path / "h.json").read_text())


def test_layers_are_those_of_the_api(runs, tmp_path, capsys):
    found = numbers_of([str(runs[0] / "ckpt.pt"), "--layers"], tmp_path)
    around = Landscape.from_checkpoint(runs[0] / "ckpt.pt", samples=60, device="cpu")
    np.testing.assert_allclose(found["layers"]["values"], layer_eigenvalues(around).values)
    assert found["layers"]["norm_product"]["value"] > 0
    assert set(found["activations"]["outputs"]) == {"1", "3"}
    printed = capsys.readouterr().out
    assert "norm product" in printed
    assert "mean a²" in printed


def test_the_layers_table_tells_what_has_not_converged_and_the_norms_of_every_weight_matrix(monkeypatch, tmp_path):
    net = torch.nn.LSTM(2, 2, batch_first=True)
    there = Landscape(net, (torch.randn(4, 3, 2), torch.randn(4, 3, 2)), lambda out, y: (out[0] - y).square().mean())
    wrong = replace(layer_eigenvalues(there), converged=np.array([[False]]))
    monkeypatch.setattr("analysis.hessian.supplements.layer_eigenvalues", lambda *_, **__: wrong)
    monkeypatch.setattr(Landscape, "from_checkpoint", lambda *_, **__: there)
    (table, _) = measure_supplements(Supplements(layers=True), tmp_path, Source())
    (row,) = table.table.rows
    assert row[3].endswith(", NOT CONVERGED")
    norms = [torch.linalg.matrix_norm(w, 2).item() for w in (net.weight_ih_l0, net.weight_hh_l0)]
    assert row[4] == " / ".join(f"{norm:.4g}" for norm in norms)


def test_sharpness_is_that_of_the_api(runs, tmp_path):
    found = numbers_of([str(runs[0] / "ckpt.pt"), "--sharpness", "0.05"], tmp_path)
    around = Landscape.from_checkpoint(runs[0] / "ckpt.pt", samples=60, device="cpu")
    assert found["sharpness"]["SAM"]["value"] == sam_sharpness(around, 0.05).value
    assert {"adaptive", "average direction", "gradient_noise"} <= found["sharpness"].keys()


def test_the_sharpness_table_says_of_what_each_number_is_and_over_what_its_error(runs, tmp_path):
    (table,) = measure_supplements(Supplements(sharpness=0.05), runs[0] / "ckpt.pt", Source(samples=60))
    around = Landscape.from_checkpoint(runs[0] / "ckpt.pt", samples=60, device="cpu")
    assert table.title == f"sharpness at ρ = 0.05 (loss {around.value():.6g}, mean over 60 samples)"
    how = {row[0]: row[2:] for row in table.table.rows}
    assert how["rise of the loss, SAM"] == (None, "one gradient step, from below")
    assert how["rise of the loss, m = 60"][1] == "one gradient step, from below, for each of 1 batches"
    assert how["rise of the loss, average direction"][1] == "over 20 pairs of random directions"
    assert how["variance of the gradient of 60 samples"][1] == "over 50 random batches"
    assert all(error is not None for name, (error, _) in how.items() if "average" in name or "variance" in name)


def test_layers_and_clients_are_drawn_of_all_checkpoints(runs, tmp_path, capsys):
    lines = [str(run / "ckpt.pt") for run in runs]
    numbers_of([*lines, "--layers", "--per-client", "--clients", "1", "2", "--out", str(tmp_path)], tmp_path)
    printed = capsys.readouterr().out
    for name in ("layers.png", "clients.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert f"plot: {tmp_path / name}" in printed


def test_with_a_penalty_layers_sharpness_and_clients_are_of_the_sum(runs, tmp_path):
    line = [str(runs[0] / "ckpt.pt"), "--man", "0.5", "--layers", "--sharpness", "0.05", "--per-client"]
    found = numbers_of(line, tmp_path)
    around = Landscape.from_checkpoint(runs[0] / "ckpt.pt", samples=60, device="cpu", penalty=MAN(0.5))
    np.testing.assert_allclose(found["layers"]["values"], layer_eigenvalues(around).values)
    assert found["sharpness"]["SAM"]["value"] == sam_sharpness(around, 0.05).value
    expected = client_eigenvalues(runs[0] / "ckpt.pt", samples=60, penalty=MAN(0.5))
    np.testing.assert_allclose(found["clients"]["values"], expected.values)
    assert found["clients"]["title"].endswith("+ 0.5 MAN")
    assert found["clients"]["losses"] != client_eigenvalues(runs[0] / "ckpt.pt", samples=60).losses.tolist()


@pytest.mark.parametrize("local", [False, True])
def test_clients_are_those_of_the_api(runs, local, tmp_path):
    line = [str(runs[0] / "ckpt.pt"), "--per-client", *(["--local"] if local else [])]
    found = numbers_of(line, tmp_path)["clients"]
    expected = client_eigenvalues(runs[0] / "ckpt.pt", local=local, samples=60)
    np.testing.assert_allclose(found["values"], expected.values)
    assert len(found["clients"]) == (2 if local else 4)


def test_rounds_measure_every_kept_checkpoint_of_each_run(runs, tmp_path):
    line = [str(runs[0]), str(runs[1] / "ckpt.pt"), "--rounds", "--out", str(tmp_path)]
    found = numbers_of(line, tmp_path)["checkpoints"]
    assert [n["checkpoint"] for n in found] == [str(r / "rounds" / f"{n:05d}.pt") for r in runs for n in (0, 2, 4)]
    last = measure_hessian(runs[1] / "ckpt.pt", 1, samples=60, trace=False)
    assert found[-1]["eigenvalues"][0] == pytest.approx(last.eigen.values[0])
    assert (tmp_path / "hessian.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--local"], "--local says where clients are measured: give --per-client too"),
        (["--sharpness", "-1"], "radius"),
        (["--rounds"], "is no run directory"),
    ],
)
def test_bad_input_is_one_sentence(runs, options, sentence, tmp_path, capsys):
    alone = tmp_path / "alone.pt"
    alone.write_bytes((runs[0] / "ckpt.pt").read_bytes())
    assert run(lambda: main([str(alone), *options, *FAST])) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
