"""Every command of README and the pages is run, in the order of its page, but for the sizes: a round, a few samples.

``tests/test_documentation.py`` reads them with all their options as they stand; here what they name is there.
"""

import glob
import importlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedscape
from landscape import build_model
from tests.pages import PAGES, as_module, blocks, lines
from trainers import FedASAM, FedAvg, FedSAM, Settings, train
from trainers.__main__ import COMMANDS as TRAINERS

pytestmark = pytest.mark.slow
ELSEWHERE = {
    "pip": "tests/test_installed.py installs the archives that a release has",
    "python3 start.py": "it sets up an environment and runs the demo, or these tests",
    "python -m build": "tests/test_installed.py",
    "mkdocs build": "tests/test_site.py",
    "jupyter lab": "an editor; tests/figures/test_notebook.py runs the notebooks",
    "torchrun": "tests of analysis.hessian and trainers.ranks start ranks by it",
    "sbatch": "tests/test_slurm_script.py",
    "fedscape demo": "tests/figures/test_demo.py",
    "python -m benchmarks": "some ten minutes; what it gave is in docs/local-against-global.md",
    "python benchmarks/": "minutes to hours each; what they gave is in benchmarks/records",
    "echo": "writes the file for the PyHessian user's checkpoint",
    "fedscape train fedsmoo --protocol fl-simulator": "an hour a round; tests of trainers.protocols run its options",
    "python -m analysis.hessian checkpoints/net.pkl": "tests/landscape/checkpoints/test_pyhessians_checkpoint.py",
    "python -m analysis.hessian resnet.pth": "as the one of docs/foreign.md, with another network",
    "fedscape data fetch emnist": "it asks the network; tests/landscape/data/test_fetch.py has a server in its place",
    "fedscape data verify cifar10": "it wants the published archives",
    "fedscape corruptions runs/fedavg runs/fedasam --data-dir data": "it wants CIFAR-10-C, 2.9 GB",
    "fedscape figures make flat-minima --jobs 4": "a whole paper",
    "fedscape figures gallery": "whole papers",
    "fedscape figures make flat-minima/F1 --scale small": "an hour and more; docs/small-scale.md shows what it gave",
    "fedscape figures make flat-minima/F5 --scale small": "an hour and more",
    "fedscape figures make flat-minima/F1 flat-minima/F5": "hours",
    "fedscape figures make fedsmoo/F3 --scale small": "an hour and more",
    "fedscape figures make man/F4b --scale small": "an hour and more",
}
"""What is not run here, by how its line begins, and why."""
LITTLE = ["--samples", "40", "--device", "cpu", "--quiet"]
SKETCH = ["--points", "3", "--top", "2", "--probes", "2", "--steps", "4", "--trace-probes", "4"]
ROUGH = ["--trace-tolerance", "0.5"]
SMALLER = {
    "trainers": ["--device", "cpu", "--quiet"],
    "analysis.hessian": [*LITTLE, "--force", *ROUGH],
    "analysis.surface": [*LITTLE, "--force", "--points", "3"],
    "analysis.corruptions": [*LITTLE, "--force", "--severities", "1"],
    "analysis.alignment": [*LITTLE, "--force", "--top", "1", "--probes", "2", "--tolerance", "0.1", *ROUGH],
    "figures compare": [*LITTLE, "--force", *SKETCH],
    "figures report": [*LITTLE, "--force", *SKETCH],
    "figures sweep": ["--device", "cpu", "--quiet"],
    "figures make": ["--device", "cpu", "--quiet", "--rounds", "1"],
}
MODULE = """
import torch
from landscape import load_dataset

class MyNet(torch.nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))

def loader(split):
    data = getattr(load_dataset("digits"), split)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data.batch(slice(0, 50), torch.float32)), 25)
"""


def reason(words):
    """Why a line is not run here; ``None`` of one that is."""
    line = " ".join(words)
    return next((why for begun, why in ELSEWHERE.items() if line.startswith(begun)), None)


EVERY = {file: lines(file) for file in PAGES if lines(file)}
RUN = [file for file, found in EVERY.items() if any(reason(words) is None for words in found)]


def test_what_is_not_run_is_there_and_has_its_reason():
    every = [" ".join(words) for found in EVERY.values() for words in found]
    assert [begun for begun in ELSEWHERE if not any(line.startswith(begun) for line in every)] == []
    assert sum(reason(words) is None for found in EVERY.values() for words in found) > 50


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs that pages speak of without training them, and the files of a user's own."""
    folder = tmp_path_factory.mktemp("named")
    for algorithm in (FedAvg(), FedASAM(), FedSAM()):
        settings = Settings(rounds=2, clients=5, per_round=5, device="cpu", save_every=1, save_clients=True)
        train(algorithm, settings, out=folder / "runs" / type(algorithm).__name__.lower(), progress=False)
    shutil.copytree(folder / "runs" / "fedavg", folder / "runs" / "flower")
    (folder / "mymodule.py").write_text(MODULE, encoding="utf-8")
    ema = {"1.weight": torch.randn(10, 64), "1.bias": torch.zeros(10)}
    torch.save({"ema": {"model": ema}, "epoch": 3}, folder / "wrapped.pt")
    torch.save(ema, folder / "plain.pt")
    draw = np.random.default_rng(0)
    parts = {"train": 60, "test": 20}
    arrays = {f"x_{part}": draw.integers(0, 255, (n, 8, 8)).astype("uint8") for part, n in parts.items()}
    arrays |= {f"y_{part}": np.arange(n) % 10 for part, n in parts.items()}
    np.savez(folder / "mydata.npz", **arrays)
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """A copy of that folder, in which a page's commands are run."""
    shutil.copytree(trained, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    (mifa,) = (block for block in blocks("CONTRIBUTING.md", "python") if "class MIFA" in block)
    data, mine, halfway = blocks("docs/own.md", "python")
    for name, text in (("mifa", mifa), ("mine", mine), ("halfway", halfway)):
        Path(f"{name}.py").write_text(text, encoding="utf-8")
    exec(compile(data, "own.md", "exec"), {})
    grid = blocks("docs/sweep.md", "toml")[0].replace("rounds = 100", "rounds = 1")
    Path("grid.toml").write_text(grid.replace("steps = 3", "steps = 2").replace("to = 2}", "to = 1}"), encoding="utf-8")
    yield
    for name in ("mifa", "mine", "halfway", "mymodule"):
        sys.modules.pop(name, None)


def kind(module, words):
    """Which row of ``SMALLER`` a command's is."""
    if module == "figures" and words:
        return f"figures {words[0]}"
    return module if module != "trainers" or words[0] not in TRAINERS else ""


def smaller(words, module):
    """The same command with little to do."""
    words = [name for word in words for name in (sorted(glob.glob(word)) if "*" in word else [word])]
    little = dict(zip(*[iter(pairs(SMALLER.get(kind(module, words), [])))] * 2, strict=True))
    if "--dry-run" in words:
        little = {}
    elif "--replot" in words:
        little = {"--quiet": None, "--force": None}
    if kind(module, words) == "trainers":
        little["--rounds"] = "8" if {"--swa", "--lr-warmup"} & {*words} else "1"
        little |= {"--swa-cycle": "2"} if "--swa" in words else {}
    if "--top" in words:
        little["--top"] = "2"
    if "resnet20_gn" in words:
        little["--samples"] = "8"
    for option, value in little.items():
        if option in words and value is not None:
            words[words.index(option) + 1] = value
        elif option not in words:
            words += [option] if value is None else [option, value]
    return words


def pairs(words):
    """Options and their values, ``None`` for a flag."""
    for place, word in enumerate(words):
        if word.startswith("--"):
            yield word
            following = words[place + 1 : place + 2]
            yield following[0] if following and not following[0].startswith("--") else None


@pytest.mark.parametrize("file", RUN)
def test_commands_of_a_page_do_their_work(file, here, request, capsys):
    for words in EVERY[file]:
        if reason(words) is not None:
            continue
        if "--data-dir" in words:
            words = [*words]
            words[words.index("--data-dir") + 1] = str(request.getfixturevalue("real_data")("cifar10"))
        if "weights.pt" in words:
            Path("weights.pt").write_bytes(Path("wrapped.pt" if "--key" in words else "plain.pt").read_bytes())
        if "resnet20_gn" in words:
            net = build_model("resnet20_gn", seed=0, input_shape=(3, 32, 32), classes=10)
            for name in ("resnet.pth", "ours.pt", "theirs.pt"):
                torch.save(net.state_dict(), name)
        module, *rest = as_module(words) or ["fedscape", *words[1:]]
        little = smaller(rest, module) if rest and "--help" not in rest else rest
        if kind(module, rest) == "trainers" and "--out" in rest:
            shutil.rmtree(rest[rest.index("--out") + 1], ignore_errors=True)  # the page makes it anew
        command = fedscape.main if module == "fedscape" else importlib.import_module(f"{module}.__main__").main
        try:
            code = command(little)
        except SystemExit as end:  # --help
            code = end.code
        alone = "--help" not in rest and not rest  # a command alone says what it does, with exit code 2
        assert (code or 0) == (2 if alone else 0), (words, little, capsys.readouterr())
