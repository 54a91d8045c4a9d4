"""README, CONTRIBUTING and docs do what they say."""

import csv
import importlib
import re
import sys
from dataclasses import fields
from pathlib import Path

import h5py
import pytest
import torch

import analysis.hessian.__main__ as hessian
import analysis.surface.__main__ as surface
import figures.__main__
import figures.commands.gallery
import figures.commands.options
import trainers
from analysis import measure_hessian
from figures.graph.grid import read_grid
from landscape import MODELS, Checkpoint, build_model
from landscape.checkpoints import ClientWork
from landscape.terminal.command import read as parsed
from tests.conftest import REPOSITORY
from tests.pages import MAINS, PAGES, as_module, blocks, commands_of, lines, text
from tests.pages import read as read_command
from tests.trainers.algorithms import naive, test_contract
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import FedASAM, FedAvg, Mean, Settings, State, train
from trainers.__main__ import COMMANDS as trainers_commands
from trainers.__main__ import main
from trainers.algorithms.combination import Combination
from trainers.commands import report

SHRUNK = (
    ("top=10, density=True", "top=2, density=True, samples=40"),
    ("points=25", "points=3, samples=40"),
    ("spectrum()", "spectrum(top=2, samples=40)"),
    ("spectrum(density=False)", "spectrum(top=2, samples=40, density=False)"),
    ('compare("runs/fedavg")', 'compare("runs/fedavg", top=2, points=3, samples=40)'),
)
EXECUTED = (
    "README.md",
    "docs/index.md",
    "docs/ideas.md",
    "docs/formats.md",
    "docs/python.md",
    "docs/recording.md",
    "docs/figures.md",
)
"""Pages whose Python is run as it stands, but for the sizes above."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with what the pages speak of: two runs, a surface, a report."""
    folder = tmp_path_factory.mktemp("pages")
    for algorithm in (FedAvg(), FedASAM()):
        out = folder / "runs" / type(algorithm).__name__.lower()
        train(algorithm, Settings(rounds=1, clients=5, per_round=2, device="cpu"), out=out)
    fedavg = str(folder / "runs" / "fedavg")
    small = ["--samples", "40", "--device", "cpu", "--quiet"]
    report_of = ["--top", "1", "--no-trace", "--out", str(folder / "figures-of-fedavg")]
    assert hessian.main([fedavg, *small, *report_of]) == 0
    grid = ["--points", "3", "--workers", "1", "--plot", str(folder / "surface.png")]
    assert surface.main([fedavg, *small, *grid]) == 0
    return folder


def executed(file, names=None):
    """The names that the Python of a page leaves."""
    code = "\n".join(blocks(file, "python"))
    for whole, little in SHRUNK:
        code = code.replace(whole, little)
    names = {} if names is None else names
    exec(compile(code, file, "exec"), names)
    return names


@pytest.mark.parametrize("file", EXECUTED)
def test_python_of_the_pages_runs(file, runs, monkeypatch):
    monkeypatch.chdir(runs)
    names = executed(file)
    if file == "docs/python.md":
        assert len(names["along"]) == 3
        assert names["fedasam"].folder == Path("runs/fedasam/measurements")
    elif file == "docs/ideas.md":
        around, w, v = names["around"], names["w"], names["v"]
        inputs, labels = names["digits"].train.batch(slice(0, 256), torch.float32)

        def loss(flat):
            outputs = torch.func.functional_call(names["net"], around.space.unflatten(flat), inputs)
            return torch.nn.functional.cross_entropy(outputs, labels)

        product = torch.func.jvp(torch.func.grad(loss), (w,), (v,))[1]
        assert float(names["curvature"]) == pytest.approx(float(v @ product), rel=1e-4)
        assert names["loss"] == pytest.approx(float(loss(w)), rel=1e-5)
    elif file == "docs/recording.md":
        assert sorted(path.name for path in Path("runs/own/rounds").iterdir())[-1] == "00100.pt"


def test_what_is_shrunk_is_there():
    every = "".join("".join(blocks(file, "python")) for file in EXECUTED)
    assert [whole for whole, _ in SHRUNK if whole not in every] == []


def test_every_python_block_is_run_by_some_test():
    """Those of CONTRIBUTING are the worked algorithm and paper below; Flower's is run by tests of trainers.runs."""
    told = {file for file in PAGES if blocks(file, "python")}
    assert told == {*EXECUTED, "CONTRIBUTING.md", "docs/migrating-from-pyhessian.md", "docs/own.md"}
    assert {file for file in PAGES if blocks(file, "py")} == {"docs/train.md", "docs/recording.md"}
    assert all("class MIFA" in block or "OURS = Paper" in block for block in blocks("CONTRIBUTING.md", "python"))
    known = "sh|python|py|toml|text|mermaid"
    for file in PAGES:
        fences = re.findall(r"^```(.*)$", text(file), re.MULTILINE)
        assert [fence for fence in fences[::2] if not re.fullmatch(known, fence)] == [], file
        assert not any(fences[1::2]), file


def test_formats_say_what_the_files_have(runs, monkeypatch):
    monkeypatch.chdir(runs)
    names = executed("docs/formats.md")
    page = text("docs/formats.md")

    def told(heading):
        table = page.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
        rows = [line.split("|")[1] for line in table.splitlines()[2:]]
        return {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert told("key") == {*names["saved"], "clients", "work"}  # these with --save-clients alone
    assert told("key in `work`") == {each.name for each in fields(ClientWork)}
    assert told("in `metrics.jsonl`") == set(names["rounds"][0])
    state = re.search(r"`state\.pt` is what.*?```", page, re.DOTALL).group()
    assert set(names["state"]) <= set(re.findall(r"`(\w+)`", state))
    with h5py.File("surface.h5") as file:
        assert {name for name in file if not name.startswith("test_")} - {"train_acc_stderr"} <= told("array")
    assert names["measured"].all()
    assert names["loss"].shape == (3, 3)
    assert set(names["samples"]) == set(range(5))
    exact = measure_hessian("runs/fedavg/ckpt.pt", top=1, trace=False, samples=40, device="cpu").eigen.values[0]
    assert names["first"] == pytest.approx(float(exact), rel=1e-3)


def test_own_model_data_and_algorithm_of_the_page_train_and_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    data, model, algorithm = blocks("docs/own.md", "python")
    exec(compile(data, "own.md", "exec"), {})
    for name, code in (("mine", model), ("halfway", algorithm)):
        Path(f"{name}.py").write_text(code, encoding="utf-8")
    training, measuring = (words[1:] for words in commands_of("docs/own.md"))
    training[training.index("--rounds") + 1] = "2"
    try:
        assert main([*training, "--quiet", "--device", "cpu"]) == 0
        assert hessian.main([*measuring, "--quiet", "--device", "cpu"]) == 0
        kind = sys.modules["halfway"].Halfway
        server = State(w=torch.tensor([1.0]))
        kind(share=0.5).server_step(server, Mean(delta=torch.tensor([4.0])), None)
        assert server.w.tolist() == [3.0]
    finally:
        for name in ("mine", "halfway"):
            sys.modules.pop(name, None)
    assert "halfway:Halfway, 2 rounds" in capsys.readouterr().out


def test_combination_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/train.md", "py")
    exec(compile(code.replace("rounds=200", "rounds=8").replace("SWA()", "SWA(cycle=2)"), "train.md", "exec"), {})
    assert Path("runs/mixed/swa.pt").exists()


@pytest.mark.slow
def test_python_of_the_migration_page_runs(capsys):
    names = {}
    for code in blocks("docs/migrating-from-pyhessian.md", "python"):
        assert "range(100)" in code or names
        exec(compile(code.replace("range(100)", "range(40)"), "migrating-from-pyhessian.md", "exec"), names)
    assert names["direction"].keys() == dict(names["model"].named_parameters()).keys()
    assert "PyHessian" in capsys.readouterr().out


MODEL = r"^\| (`\w+`(?:, `\w+`)*) \| ([\d,]+) \| (\d+)×(\d+)×(\d+), (\d+) \|"


def test_models_of_the_page_are_all_there_are_with_their_parameters():
    rows = re.findall(MODEL, text("docs/models.md"), re.M)
    told = {name: (count, *map(int, sizes)) for names, count, *sizes in rows for name in re.findall(r"\w+", names)}
    assert told.keys() == set(MODELS)
    for name, (count, *shape, classes) in told.items():
        model = build_model(name, seed=0, input_shape=shape, classes=classes)
        assert f"{sum(p.numel() for p in model.parameters()):,}" == count, name


@pytest.mark.parametrize(
    ("file", "module", "number"),
    [
        ("README.md", "analysis", 2),
        ("docs/measure.md", "analysis", 7),
        ("docs/corruptions.md", "analysis", 2),
        ("docs/alignment.md", "analysis", 2),
        ("docs/migrating-from-pyhessian.md", "analysis", 2),
        ("docs/train.md", "trainers", 8),
        ("docs/figures.md", "figures", 8),
        ("docs/sweep.md", "figures", 3),
    ],
)
def test_pages_have_the_commands_that_are_looked_at(file, module, number):
    found = [words for words in commands_of(file) if words[0].split(".")[0] == module and "--help" not in words]
    assert len(found) >= number


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A folder with the modules and files that commands of the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "class MIFA" in block)
    for name, text_ in (("mifa", code), ("halfway", blocks("docs/own.md", "python")[2])):
        Path(f"{name}.py").write_text(text_, encoding="utf-8")
    Path("grid.toml").write_text(blocks("docs/sweep.md", "toml")[0], encoding="utf-8")
    yield
    for name in ("mifa", "halfway"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("file", [file for file in PAGES if lines(file)])
def test_every_line_of_the_shell_blocks_is_a_command_with_its_options(file, beside):
    for words in lines(file):
        ours = as_module(words)
        if ours is None or words == ["fedscape"]:
            assert_known(words)
        elif "--help" in ours:
            with pytest.raises(SystemExit) as end:
                read_command(ours[0], ours[1:])
            assert end.value.code == 0
        elif not ours[1:] and ours[0] in MAINS:
            assert words == ["fedscape", *words[1:]]  # what it does, with three examples
        elif (command := read_command(ours[0], ours[1:])) and ours[0] in MAINS:
            assert command.runs if ours[0] == "analysis.alignment" else command.checkpoints or command.replot, words
        elif ours[0] == "trainers" and ours[1] not in trainers_commands:
            assert command.output.out is not None or "mifa:MIFA" in words or "--show" in words


def assert_known(words):
    """A line of a shell block that is no command of ours: of pip, of this repository's scripts, of named programs."""
    if words[0] == "pip":
        assert words[1] in {"install", "wheel"}, words
        for extra in re.findall(r"\[(\w+)\]", " ".join(words)):
            assert f'"{extra}": [' in text("setup.py"), words
    elif words == ["python", "-m", "build"]:
        return  # tests/test_installed.py runs it
    elif words[0] == "python3":
        assert words[1] == "start.py"
        assert f'"{words[2]}"' in text("start.py"), words
    elif words[0] == "python":
        place, given = (words[2].replace(".", "/") + ".py", words[3:]) if words[1] == "-m" else (words[1], words[2:])
        script = text(place)
        for option in [word for word in given if word.startswith("--") and word != "--help"]:
            assert option[2:].replace("-", "_") in script, words
    else:
        assert words[0] in {"fedscape", "jupyter", "mkdocs", "git", "echo"}, words


def test_the_grid_of_the_page_is_one_and_its_tables_parse(tmp_path):
    (grid_text,) = blocks("docs/sweep.md", "toml")
    (tmp_path / "grid.toml").write_text(grid_text, encoding="utf-8")
    grid = read_grid(tmp_path / "grid.toml")
    algorithms = [each.options["algorithm"] for each in grid.runs]
    assert [algorithms.count(name) for name in ("fedavg", "fedsam", "fedsmoo")] == [6, 18, 12]
    found = [words[1:] for words in commands_of("docs/sweep.md") if words[:2] == ["trainers", "report"]]
    assert len(found) == 2
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
    assert "mifa:MIFA" in "".join(blocks("docs/train.md", "sh"))
    line = "mifa:MIFA --server-lr 0.8 --ascent sam --rounds 1 --quiet --out run"
    assert main(line.split()) == 0
    assert "mifa:MIFA, 1 rounds" in capsys.readouterr().out


@pytest.mark.parametrize("file", [*PAGES, "CHANGELOG.md", "ARCHITECTURE.md"])
def test_files_that_are_linked_exist(file):
    links = [link for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text(file)) if "://" not in link]
    assert all((REPOSITORY / file).parent.joinpath(link).exists() for link in links), links


def test_changelog_and_readme_name_every_algorithm():
    assert all(f"`{name}`" in text("README.md") for name in trainers.ALGORITHMS)
    assert len(text("README.md").splitlines()) <= 120


def test_the_page_names_the_algorithms_with_parts_and_those_that_refuse_a_local_optimizer():
    page = " ".join(text("docs/train.md").split())

    def told(between):
        return {name.lower() for name in re.findall(r"[A-Z]\w+", re.search(between, page)[1])} & set(
            trainers.ALGORITHMS
        )

    kinds = dict(trainers.ALGORITHMS.items())
    named = told(r"\(\[client-level.*?is DP-FedSAM\)\.(.*?) are names for an algorithm")
    assert named == {name for name, kind in kinds.items() if issubclass(kind, Combination)}
    refusing = {name for name, kind in kinds.items() if "local_optimizer" in kind().excludes}
    assert told(r"end and not how\.(.*?): these refuse it") - {"fedlesam"} == refusing
    assert "local_optimizer" in trainers.FedLESAM(base="scaffold").excludes
