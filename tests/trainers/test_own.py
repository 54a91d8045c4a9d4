"""An algorithm of the user's own by ``package.module:Class``: its options, its record, its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from landscape import Checkpoint, FedscapeError, Landscape
from landscape.terminal.command import run
from tests.conftest import REPOSITORY
from trainers import Algorithm, FedAvg, Settings, train
from trainers.__main__ import main, read
from trainers.own import own_running
from trainers.runs import read_runs
from trainers.tables import report

MINE = '''
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainers import Algorithm


@dataclass(frozen=True)
class SignSGD(Algorithm):
    """Steps along the signs of gradients."""

    scale: float = 0.1
    """length of a step in each coordinate, in units of the rate"""
    share: Literal["none", "half"] = "none"
    """share of the coordinates"""

    def __post_init__(self):
        self.require(self.scale > 0, "a scale above 0")

    def direction(self, w, gradient, client, server, round):
        return self.scale * gradient(w).sign()


@dataclass(frozen=True)
class Needy(Algorithm):
    """Has an option without a default."""

    size: int
    """a size"""


class Bare(SignSGD):
    more: float = 1.0


@dataclass(frozen=True)
class Greedy(Algorithm):
    lr: float = 1.0


@dataclass(frozen=True)
class Nameless(Algorithm):
    name: str = "mine"


@dataclass(frozen=True)
class Vague(Algorithm):
    scale: "Undefined" = 1.0


@dataclass(frozen=True)
class Filed(Algorithm):
    file: Path = Path("here")


number = 3
'''
FAILING = '''
from dataclasses import dataclass

import numpy as np

import helping
from trainers import Algorithm


@dataclass(frozen=True)
class Failing(Algorithm):
    """Fails where it is told to."""

    at: str = "nowhere"
    """where"""

    def __post_init__(self):
        if self.at == "init":
            {}["key"]  # line 19

    def server_state(self, w):
        if self.at == "server_state":
            np.linalg.inv(np.zeros((2, 2)))  # line 23
        return {}

    def direction(self, w, gradient, client, server, round):
        if self.at == "direction":
            return client.nothing  # line 28
        if self.at == "helper":
            helping.fail()
        if self.at == "none":
            return None
        if self.at == "one":
            return gradient(w)[:1]
        return gradient(w)

    def server_step(self, server, mean, round):
        if self.at == "server_step":
            server.w = server.w + mean.delta[:3]  # line 39
        super().server_step(server, mean, round)
'''
SHORT = "--clients 4 --per-round 2 --local-steps 1 --device cpu --quiet"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the file, as the current one; nothing of it stays imported."""
    (tmp_path / "my_work").mkdir()
    (tmp_path / "my_work" / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("1 / 0\n", encoding="utf-8")
    (tmp_path / "lacking.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    (tmp_path / "failing.py").write_text(FAILING, encoding="utf-8")
    (tmp_path / "helping.py").write_text("def fail():\n    raise ValueError('two\\nlines')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path and Path(path).resolve() != tmp_path.resolve()])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("my_work", "broken", "lacking", "failing", "helping"):
            del sys.modules[name]


def test_help_shows_its_fields_and_all_else(here, capsys):
    with pytest.raises(SystemExit) as end:
        main(["my_work.mine:SignSGD", "--help-all"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Steps along the signs of gradients." in text
    assert "--scale FLOAT length of a step in each coordinate, in units of the rate (default: 0.1)" in text
    assert "--share {none,half} share of the coordinates (default: none)" in text
    for option in ("ascent", "local-optimizer", "lr-schedule", "out"):
        assert f"--{option} " in text


def test_it_trains_as_its_arithmetic_says_and_resumes(here, capsys):
    line = f"my_work.mine:SignSGD --scale 0.5 --rounds 1 --save-every 1 {SHORT}"
    assert run(lambda: main([*line.split(), "--out", "run"])) == 0
    assert "my_work.mine:SignSGD, 1 rounds: train loss" in capsys.readouterr().out
    config = json.loads(Path("run/config.json").read_text())
    assert config["algorithm"] == {"name": "my_work.mine:SignSGD", "scale": 0.5, "share": "none"}
    before, after = (Checkpoint.load(f"run/rounds/0000{n}.pt") for n in (0, 1))
    assert after.algorithm["name"] == "my_work.mine:SignSGD"
    steps = torch.cat([(after.parameters[name] - before.parameters[name]).reshape(-1) for name in after.parameters])
    assert steps.abs().max() == pytest.approx(0.1 * 0.5, rel=1e-4)  # η · scale, where both clients' signs agree
    assert run(lambda: main([*line.replace("--rounds 1", "--rounds 2").split(), "--resume", "--out", "run"])) == 0
    (recorded,) = read_runs(["run"])
    assert (recorded.rounds, report([recorded]).rows[0][1]) == (2, "my_work.mine:SignSGD")


def test_its_run_goes_into_a_folder_that_every_system_can_name(here):
    assert run(lambda: main(f"my_work.mine:SignSGD --rounds 0 {SHORT}".split())) == 0
    assert Path("runs/my_work.mine.SignSGD/ckpt.pt").exists()


def test_its_checkpoint_is_opened_without_its_code(here):
    assert run(lambda: main([*f"my_work.mine:SignSGD --rounds 1 {SHORT}".split(), "--out", "run"])) == 0
    for name in [name for name in sys.modules if name.startswith("my_work")]:
        del sys.modules[name]
    (here / "my_work" / "mine.py").write_text("raise SystemExit('this code must not run')\n", encoding="utf-8")
    around = Landscape.from_checkpoint("run/ckpt.pt", "test", device="cpu")
    assert around.value() == Checkpoint.load("run/ckpt.pt").metrics["test_loss"]
    assert report(read_runs(["run"])).rows[0][1] == "my_work.mine:SignSGD"
    with pytest.raises(FedscapeError, match=r"name was my_work\.mine:SignSGD and is fedavg"):
        train(FedAvg(), Settings(), out="run", resume=True)
    assert not [name for name in sys.modules if name.startswith("my_work")]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "nowhere:SignSGD",
            "there is no module nowhere for the algorithm nowhere:SignSGD: it must be in this folder, ",
        ),
        ("my_work.other:SignSGD", "there is no module my_work.other for the algorithm my_work.other:SignSGD"),
        (
            "broken:SignSGD",
            "SignSGD fails: ZeroDivisionError: division by zero (broken.py, line 1)",
        ),
        ("lacking:X", "importing lacking for the algorithm lacking:X fails: No module named 'nothing_of_this_name'"),
        ("my_work.mine:SignSDG", "my_work.mine has no SignSDG: its algorithms are SignSGD, Needy, Bare"),
        (
            "my_work.mine:number",
            "my_work.mine:number is no algorithm, a subclass of trainers.Algorithm: its algorithms",
        ),
        ("my_work.mine:Algorithm", "my_work.mine:Algorithm is no algorithm"),
        ("json:JSONDecoder", "json:JSONDecoder is no algorithm, a subclass of trainers.Algorithm: there is none in it"),
        ("my_work.mine:Bare", "my_work.mine:Bare needs the decorator @dataclass(frozen=True)"),
        ("my_work.mine:Greedy", "my_work.mine:Greedy has a hyper-parameter lr, a name that a setting or record of"),
        ("my_work.mine:Nameless", "my_work.mine:Nameless has a hyper-parameter name, a name that"),
        ("my_work.mine:Vague", "the types of my_work.mine:Vague's fields cannot be read: name 'Undefined' is not"),
        ("my_work.mine:Needy", "--size INT"),
        ("my_work.mine:SignSGD --scale -1", "SignSGD needs a scale above 0, not scale=-1.0"),
        ("my_work.mine:SignSGD --share all", "invalid choice 'all'"),
        ("my_work.mine:", "an algorithm of your own is package.module:Class, not my_work.mine:"),
        (":SignSGD", "an algorithm of your own is package.module:Class, not :SignSGD"),
        ("my_work/mine.py:SignSGD", "an algorithm of your own is package.module:Class, not my_work/mine.py:SignSGD"),
    ],
)
def test_what_is_no_algorithm_is_one_sentence(line, sentence, here, capsys):
    assert run(lambda: main([*line.split(), "--quiet", "--out", "run"])) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        ("init", "the algorithm 'failing:Failing' fails: KeyError: 'key' (failing.py, line 19)"),
        ("server_state", "the algorithm 'failing:Failing' fails: LinAlgError: Singular matrix (failing.py, line 23)"),
        (
            "direction",
            "the algorithm 'failing:Failing' fails: AttributeError: 'State' object has no attribute 'nothing' "
            "(failing.py, line 28)",
        ),
        ("helper", "the algorithm 'failing:Failing' fails: ValueError: two (helping.py, line 2)"),
        ("server_step", " at non-singleton dimension 0 (failing.py, line 39)"),
        ("none", "the direction that Failing returns is no tensor: None: return one of w's shape, [6570]"),
        ("one", "the direction that Failing returns is of shape [1]: return one of w's shape, [6570]"),
    ],
)
def test_what_its_code_raises_is_one_sentence_with_its_line(at, sentence, here, capsys):
    line = f"failing:Failing --at {at} --rounds 1 {SHORT}"
    assert run(lambda: main([*line.split(), "--out", "run"])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: the ")
    assert error.endswith(f"{sentence}\n")
    assert error.count("\n") == 1


def test_an_error_that_is_not_its_own_stays_one_with_all_its_lines(here, monkeypatch):
    """Such as a mistake of ours, or a disk that is full; and what PyTorch says of memory is told elsewhere."""

    def full(*arguments, **more):
        raise OSError("no space left on device")

    monkeypatch.setattr("trainers.__main__.train", full)
    with pytest.raises(OSError, match="no space left"):
        main([*f"failing:Failing --rounds 1 {SHORT}".split(), "--out", "run"])
    for error in (torch.OutOfMemoryError("out of memory"), MemoryError(), FedscapeError("a sentence")):
        with pytest.raises(type(error)) as raised, own_running(_Raising):
            _Raising.now(error)
        assert raised.value is error
    with (
        pytest.raises(FedscapeError, match=rf"{__name__}:_Raising' fails: OSError: full") as told,
        own_running(_Raising),
    ):
        _Raising.now(OSError("full"))
    assert isinstance(told.value.__cause__, OSError)  # with its traceback


class _Raising(Algorithm):
    @staticmethod
    def now(error):
        raise error


@pytest.mark.slow
def test_what_its_code_raises_on_several_ranks_is_told_once(here):
    line = f"failing:Failing --at direction --rounds 1 --ranks 2 {SHORT} --out run"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "trainers", *line.split()]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.count("AttributeError: 'State' object has no attribute 'nothing' (failing.py, line 28)") == 1
    assert "Traceback" not in ended.stderr


def test_a_hyper_parameter_that_no_file_can_hold_is_refused(here, capsys):
    assert run(lambda: main(["my_work.mine:Filed", "--quiet", "--out", "run"])) == 2
    assert "Filed's file is a PosixPath: hyper-parameters must be numbers" in capsys.readouterr().err.replace(
        "WindowsPath", "PosixPath"
    )
    assert not Path("run").exists()


def test_ours_by_module_and_class_is_ours():
    assert read(["trainers:FedProx", "--mu", "0.5"]) == read(["fedprox", "--mu", "0.5"])
    assert read(["trainers.algorithms.fedprox:FedProx"]) == read(["fedprox"])
