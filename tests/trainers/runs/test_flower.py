"""Flower's real simulation, recorded as the documentation shows: its files hold what federated averaging gives.

Flower wants an environment of its own beside the pins of ours: FLOWER_PYTHON names its interpreter.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from landscape import Checkpoint, build_model, load_dataset, make_partition
from tests.conftest import REPOSITORY
from tests.pages import blocks
from trainers.runs import read_runs

PYTHON = os.environ.get("FLOWER_PYTHON", sys.executable)


def averaged(rounds):
    """Naive federated averaging of what docs/recording.md says: ten steps of rate 0.1 on all samples of each of six."""
    digits = load_dataset("digits")
    parts = make_partition("dirichlet:0.3", digits.train.targets.numpy(), clients=6, seed=0).clients
    whole = build_model("digits_mlp", seed=0, input_shape=(1, 8, 8), classes=10)
    for _ in range(rounds):
        locals_ = []
        for part in parts:
            x, y = digits.train.batch(torch.tensor(part), torch.float32)
            weights = {name: p.detach().clone().requires_grad_() for name, p in whole.named_parameters()}
            for _ in range(10):
                loss = F.cross_entropy(torch.func.functional_call(whole, weights, x), y)
                gradients = torch.autograd.grad(loss, list(weights.values()))
                steps = zip(weights.items(), gradients, strict=True)
                weights = {name: (w - 0.1 * g).detach().requires_grad_() for (name, w), g in steps}
            locals_.append(weights)
        shares = np.array([len(part) for part in parts]) / sum(len(part) for part in parts)
        with torch.no_grad():
            for name, p in whole.named_parameters():
                p.copy_(sum(share * each[name] for share, each in zip(shares, locals_, strict=True)))
    return whole, locals_


@pytest.mark.slow
def test_the_simulation_of_the_page_records_global_and_local_models(tmp_path):
    if subprocess.run([PYTHON, "-c", "import flwr.simulation, ray, tyro"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has not flwr[simulation] and what Fedscape needs: name one in FLOWER_PYTHON")
    (script,) = blocks("docs/recording.md", "py")
    (tmp_path / "flower_loop.py").write_text(script, encoding="utf-8")
    told = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run([PYTHON, "flower_loop.py"], cwd=tmp_path, env=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    (run,) = read_runs([tmp_path / "runs" / "flower"])
    rounds = int(re.search(r"num_rounds=(\d+)", script)[1])
    assert (run.status, run.algorithm, len(run.metrics)) == ("finished", "Flower's FedAvg", rounds)
    kept = Checkpoint.verify(run.path / "ckpt.pt")
    whole, locals_ = averaged(rounds)
    for name, p in whole.named_parameters():
        torch.testing.assert_close(kept.parameters[name], p.detach(), rtol=1e-4, atol=1e-5)
    assert sorted(kept.clients) == list(range(6))
    for client, weights in enumerate(locals_):
        for name, w in kept.of_client(client).parameters.items():
            torch.testing.assert_close(w, weights[name].detach(), rtol=1e-4, atol=1e-5)
    assert kept.metrics["test_accuracy"] > 0.5
    partition = kept.partition(load_dataset("digits"))
    assert sum(len(part) for part in partition.clients) == len(load_dataset("digits").train)
    weights = json.loads((run.path / "weights.json").read_text())["objective"]
    np.testing.assert_allclose(weights, partition.sizes / partition.sizes.sum())
