"""README, CONTRIBUTING and docs do what they say."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import trainers.algorithm
from tests.trainers import naive
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import FedASAM, Settings, train
from trainers.__main__ import read

REPOSITORY = Path(__file__).resolve().parents[1]


def blocks(file, language):
    return re.findall(rf"```{language}\n(.*?)```", (REPOSITORY / file).read_text(encoding="utf-8"), re.S)


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(FedASAM(), Settings(rounds=1, clients=5, per_round=2), out="runs/fedasam")
    (code,) = blocks("README.md", "python")
    code = code.replace("top=10, density=True", "top=2, density=True, samples=40").replace(
        "points=25", "points=3, samples=40"
    )
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert len(names["along"]) == 3


def test_python_of_the_migration_page_runs(capsys):
    names = {}
    for code in blocks("docs/migrating-from-pyhessian.md", "python"):
        exec(compile(code, "migrating-from-pyhessian.md", "exec"), names)
    assert names["direction"].keys() == dict(names["model"].named_parameters()).keys()
    assert "PyHessian" in capsys.readouterr().out


def test_training_commands_of_the_readme_parse():
    lines = "\n".join(blocks("README.md", "sh")).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    commands = [c[3:] for c in commands if c[:3] == ["python", "-m", "trainers"] and "--help" not in c]
    assert len(commands) == 2
    for command in commands:
        assert read(command).output.out is not None


def test_notebook_script_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    names = {"__name__": "explore"}
    exec(compile((REPOSITORY / "docs" / "explore.py").read_text(encoding="utf-8"), "explore.py", "exec"), names)
    assert names["report"].density is not None


def feddyn():
    """The worked example of CONTRIBUTING.md, as it stands there."""
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "class FedDyn" in block)
    names = {"dataclass": dataclass, "torch": torch, "Algorithm": trainers.algorithm.Algorithm}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    return names["FedDyn"]


def test_the_worked_example_is_its_pseudo_code():
    """Acar et al., ICLR 2021, Algorithm 1, full-batch steps, in plain loops."""
    alpha, ours, clients = 0.3, federation(feddyn()(0.3)), naive.Clients()
    w, duals = clients.start(), [[torch.zeros_like(t) for t in clients.start()] for _ in SIZES]
    h = [torch.zeros_like(t) for t in w]
    for number in range(5):
        sampled, lr, locals_ = ours.step().clients, SETTINGS["lr"] * SETTINGS["lr_decay"] ** number, []
        for i in sampled:
            wi = [t.clone() for t in w]
            for _ in range(naive.EPOCHS):
                g = clients.gradient(i, wi)
                wi = [a - lr * (b - u + alpha * (a - s)) for a, b, u, s in zip(wi, g, duals[i], w, strict=True)]
            duals[i] = [u - alpha * (a - s) for u, a, s in zip(duals[i], wi, w, strict=True)]
            locals_.append(wi)
        moved = [sum(m[j] - w[j] for m in locals_) / len(SIZES) for j in range(len(w))]  # (1/N) Σ over the sampled
        h = [a - alpha * b for a, b in zip(h, moved, strict=True)]
        w = [a - b / alpha for a, b in zip(naive.mean(locals_, [1.0] * len(sampled)), h, strict=True)]
    flat = torch.cat([t.reshape(-1) for t in w])
    assert ((ours.server.w - flat).norm() / flat.norm()).item() < 1e-11
    assert ours.step().bytes_down == 3 * ours.server.w.nbytes


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_are_linked_exist(file):
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert all((REPOSITORY / link).exists() for link in links), links


def test_changelog_and_readme_name_every_algorithm():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in trainers.ALGORITHMS)
