"""The main job on real images: trains, is analysed and compared without a flag beyond its own settings.

Skipped where the images are not at hand (the ``real_data`` fixture says so).
"""

import csv
import json

import pytest

from analysis.hessian.__main__ import main as hessian
from analysis.surface.__main__ import main as surface
from figures.__main__ import main as figures
from landscape.terminal.command import run
from trainers.__main__ import main as trainers


def main_job(folder, out, data, model, rounds, extra, samples):
    """Two algorithms through all four commands, as a user types them; the rows of the comparison."""
    line = [
        "--data",
        data,
        "--data-dir",
        str(folder),
        "--model",
        model,
        "--rounds",
        str(rounds),
        "--lr",
        "0.05",
        *extra,
    ]
    for name in ("fedavg", "fedasam"):
        assert run(lambda name=name: trainers([name, *line, "--out", str(out / name), "--quiet"])) == 0
    ckpts = [str(out / name / "ckpt.pt") for name in ("fedavg", "fedasam")]
    cheap = ["--samples", str(samples), "--quiet"]
    assert run(lambda: hessian([ckpts[0], "--top", "2", *cheap, "--out", str(out / "hessian")])) == 0
    assert run(lambda: surface([ckpts[0], "--points", "3", *cheap, "--plot", str(out / "s.png")])) == 0
    few = ["--top", "2", "--points", "3", "--probes", "2", "--steps", "4"]
    assert run(lambda: figures(["compare", *ckpts, *few, *cheap, "--out", str(out / "compare")])) == 0
    assert (out / "compare" / "compare.png").stat().st_size > 10_000
    report = json.loads((out / "hessian" / "hessian.json").read_text())
    rows = list(csv.DictReader((out / "compare" / "compare.csv").open(encoding="utf-8")))
    assert float(rows[0]["λ1"]) == pytest.approx(report["eigenvalues"][0], rel=1e-3)
    metrics = [json.loads(text) for text in (out / "fedavg" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["train_loss"] < metrics[0]["train_loss"]
    return rows


@pytest.mark.slow
def test_fashion_mnist_with_a_small_net(real_data, tmp_path):
    extra = ["--clients", "200", "--per-round", "5", "--partition", "iid", "--local-epochs", "2", "--eval-every", "0"]
    rows = main_job(real_data("fashion-mnist"), tmp_path, "fashion_mnist", "digits_cnn", 3, extra, 100)
    assert all(float(row["test accuracy"]) > 0.5 for row in rows)


@pytest.mark.slow
def test_cifar10_with_lenet_fed(real_data, tmp_path):
    extra = ["--clients", "10", "--per-round", "3", "--partition", "dirichlet:0.6", "--local-epochs", "1"]
    extra += ["--batch-size", "50", "--augment", "flip-crop"]
    rows = main_job(real_data("cifar10"), tmp_path, "cifar10", "lenet_fed", 4, extra, 100)
    assert float(rows[0]["test accuracy"]) > 0.2
    assert all(float(row["test loss"]) < 2.25 for row in rows)  # ln 10 = 2.303 is guessing
