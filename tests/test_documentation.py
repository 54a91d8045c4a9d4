"""README, CONTRIBUTING and docs do what they say."""

import csv
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

import analysis.corruptions.__main__ as corruptions
import analysis.hessian.__main__ as hessian
import analysis.surface.__main__ as surface
import figures.__main__
import figures.commands.gallery
import figures.commands.options
import trainers
from analysis import measure_hessian
from figures.graph.grid import read_grid
from landscape import MODELS, Checkpoint, build_model
from landscape.terminal.command import read as parsed
from landscape.terminal.program import COMMANDS
from tests.conftest import REPOSITORY
from tests.trainers.algorithms import naive, test_contract
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import FedASAM, FedAvg, Settings, train
from trainers.__main__ import main, read
from trainers.commands import report


def blocks(file, language):
    return re.findall(rf"```{language}\n(.*?)```", (REPOSITORY / file).read_text(encoding="utf-8"), re.S)


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for algorithm in (FedAvg(), FedASAM()):
        train(algorithm, Settings(rounds=1, clients=5, per_round=2), out=f"runs/{type(algorithm).__name__.lower()}")
    code = "\n".join(blocks("README.md", "python"))
    for whole, little in (
        ("top=10, density=True", "top=2, density=True, samples=40"),
        ("points=25", "points=3, samples=40"),
        ("spectrum()", "spectrum(top=2, samples=40)"),
        ('compare("runs/fedavg")', 'compare("runs/fedavg", top=2, points=3, samples=40)'),
    ):
        assert whole in code
        code = code.replace(whole, little)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert len(names["along"]) == 3
    assert names["fedasam"].folder == Path("runs/fedasam/measurements")


def test_combination_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("README.md", "py")
    exec(compile(code.replace("rounds=200", "rounds=8").replace("SWA()", "SWA(cycle=2)"), "README.md", "exec"), {})
    assert Path("runs/mixed/swa.pt").exists()


def test_python_of_the_migration_page_runs(capsys):
    names = {}
    for code in blocks("docs/migrating-from-pyhessian.md", "python"):
        assert "range(100)" in code or names
        exec(compile(code.replace("range(100)", "range(40)"), "migrating-from-pyhessian.md", "exec"), names)
    assert names["direction"].keys() == dict(names["model"].named_parameters()).keys()
    assert "PyHessian" in capsys.readouterr().out


MODEL = r"^\| (`\w+`(?:, `\w+`)*) \| ([\d,]+) \| (\d+)×(\d+)×(\d+), (\d+) \|"


def test_models_of_the_readme_are_all_there_are_with_their_parameters():
    rows = re.findall(MODEL, (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.M)
    told = {name: (count, *map(int, sizes)) for names, count, *sizes in rows for name in re.findall(r"\w+", names)}
    assert told.keys() == set(MODELS)
    for name, (count, *shape, classes) in told.items():
        model = build_model(name, seed=0, input_shape=shape, classes=classes)
        assert f"{sum(p.numel() for p in model.parameters()):,}" == count, name


def commands_of(file):
    """The commands on a page as words after ``python -m``, whichever name they are called by."""
    lines = "\n".join(blocks(file, "sh")).replace("\\\n", " ").splitlines()
    found = [shlex.split(line, comments=True) for line in lines]
    named = [words[1:] for words in found if words[:1] == ["fedscape"] and len(words) > 1]
    ours = [[*COMMANDS[name].split(), *rest] for name, *rest in named if name in COMMANDS]
    return ours + [words[2:] for words in found if words[:2] == ["python", "-m"]]


def test_measuring_commands_of_the_readme_parse():
    mains = {"analysis.hessian": hessian, "analysis.surface": surface, "analysis.corruptions": corruptions}
    found = [words for words in commands_of("README.md") if words[0] in mains and words[1:] and "--help" not in words]
    assert len(found) >= 9
    for module, *words in found:
        (kind, config) = mains[module].kinds()[f"python -m {module}"]
        assert parsed(kind, f"python -m {module}", words, config).checkpoints


def test_training_commands_of_the_readme_parse():
    commands = [words[1:] for words in commands_of("README.md") if words[0] == "trainers"]
    commands = [words for words in commands if words[0] in trainers.ALGORITHMS and "--help" not in words]
    assert len(commands) == 4
    for command in commands:
        assert read(command).output.out is not None


@pytest.mark.parametrize(("file", "number"), [("README.md", 9), ("docs/figures.md", 8)])
def test_commands_of_figures_parse(file, number):
    commands = [words[1:] for words in commands_of(file) if words[0] == "figures"]
    assert len(commands) == number
    for command in commands:
        assert figures.__main__.read(command) is not None


def test_the_grid_of_the_readme_is_one_and_its_tables_parse(tmp_path):
    (text,) = blocks("README.md", "toml")
    (tmp_path / "grid.toml").write_text(text, encoding="utf-8")
    grid = read_grid(tmp_path / "grid.toml")
    algorithms = [each.options["algorithm"] for each in grid.runs]
    assert [algorithms.count(name) for name in ("fedavg", "fedsam", "fedsmoo")] == [6, 18, 12]
    found = [words[1:] for words in commands_of("README.md") if words[:2] == ["trainers", "report"]]
    assert len(found) == 3
    for words in found:
        parsed(report.Command, report.PROGRAM, words[1:])


@pytest.fixture
def ours(tmp_path, monkeypatch):
    """The worked paper of CONTRIBUTING.md, as it stands there, listed as the only one."""
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "OURS = Paper" in block)
    (tmp_path / "ours.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    paper = importlib.import_module("ours").OURS
    for module in (figures.commands.options, figures.commands.gallery):
        monkeypatch.setattr(module, "PAPERS", (paper,))
    yield paper
    del sys.modules["ours"]


def test_the_worked_figure_and_table_are_made_from_shared_runs(ours, tmp_path):
    line = [
        "make",
        "ours",
        "--rounds",
        "2",
        "--choose",
        "samples=60",
        "--device",
        "cpu",
        "--quiet",
        "--out",
        str(tmp_path / "made"),
    ]
    assert figures.__main__.main(line) == 0
    made = list((tmp_path / "made" / "store" / "runs").iterdir())
    assert sorted(run.name.split("-")[0] for run in made) == ["fedavg", "fedsam"]
    with (tmp_path / "made" / "smoke" / "ours" / "T1.csv").open(encoding="utf-8") as file:
        rows = {(row["row"], row["column"]): float(row["mean"]) for row in csv.DictReader(file)}
    for name, run in zip(("FedAvg", "FedSAM"), sorted(made), strict=True):
        exact = measure_hessian(run / "ckpt.pt", top=5, trace=False, samples=60, device="cpu").eigen.values[0]
        assert rows[name, "λ1"] == pytest.approx(float(exact))
        assert rows[name, "accuracy"] == 100 * Checkpoint.load(run / "ckpt.pt").metrics["test_accuracy"]
    caption = (tmp_path / "made" / "smoke" / "ours" / "F1.caption.txt").read_text(encoding="utf-8")
    assert "In the paper: the axis is labelled in percent and shows shares." in caption
    assert (tmp_path / "made" / "smoke" / "ours" / "F1.pdf").read_bytes().startswith(b"%PDF")


@pytest.fixture
def mifa(tmp_path, monkeypatch):
    """The worked example of CONTRIBUTING.md, as it stands there, in a file and registered."""
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "class MIFA" in block)
    (tmp_path / "mifa.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("mifa").MIFA
    monkeypatch.setitem(trainers.ALGORITHMS._table, "mifa", kind)
    yield kind
    del sys.modules["mifa"]


def test_the_worked_example_is_its_pseudo_code(mifa):
    """Gu et al., NeurIPS 2021, Algorithm 1, full-batch steps: the server has G_i = (w^t − w_i)/η of every client."""
    ours, clients = federation(mifa(0.8)), naive.Clients()
    w, latest = clients.start(), [[torch.zeros_like(t) for t in clients.start()] for _ in SIZES]
    for number in range(6):
        sampled, lr = ours.step().clients, SETTINGS["lr"] * SETTINGS["lr_decay"] ** number
        for i in sampled:
            wi = [t.clone() for t in w]
            for _ in range(naive.EPOCHS):
                wi = [a - lr * g for a, g in zip(wi, clients.gradient(i, wi), strict=True)]
            latest[i] = [(b - a) / lr for a, b in zip(wi, w, strict=True)]
        mean = [sum(p * g[j] for p, g in zip(clients.p, latest, strict=True)) for j in range(len(w))]
        w = [a - 0.8 * lr * g for a, g in zip(w, mean, strict=True)]
    flat = torch.cat([t.reshape(-1) for t in w])
    error = ((ours.server.w - flat).norm() / flat.norm()).item()
    assert error < 1e-11
    assert ours.step().bytes_down == 3 * ours.server.w.nbytes


def test_the_worked_example_serves_stacked_clients(mifa):
    test_contract.test_stacked_clients_advance_as_they_would_alone(mifa(0.8))


def test_the_worked_example_is_a_command(mifa, tmp_path, capsys):
    line = f"mifa --server-lr 0.8 --ascent sam --rounds 1 --quiet --out {tmp_path / 'run'}"
    assert main(line.split()) == 0
    assert main(["list"]) == 0
    assert re.search(
        r"mifa +u +u +1/1 +all but +server-optimizer +biased: .*Gu et al", " ".join(capsys.readouterr().out.split())
    )


def test_the_worked_example_is_a_command_of_a_users_own_file(mifa, tmp_path, monkeypatch, capsys):
    monkeypatch.delitem(trainers.ALGORITHMS._table, "mifa")
    monkeypatch.chdir(tmp_path)
    assert "mifa:MIFA" in "".join(blocks("README.md", "sh"))
    line = "mifa:MIFA --server-lr 0.8 --ascent sam --rounds 1 --quiet --out run"
    assert main(line.split()) == 0
    assert "mifa:MIFA, 1 rounds" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/figures.md"])
def test_files_that_are_linked_exist(file):
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert all((REPOSITORY / file).parent.joinpath(link).exists() for link in links), links


def test_changelog_and_readme_name_every_algorithm():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in trainers.ALGORITHMS)
