"""``kill -9`` of ``python -m figures make`` at random: the same command then finishes, with the same results."""

import random
import time
from pathlib import Path

import pytest

import figures.commands.options
from figures.__main__ import main
from figures.graph import Store
from figures.graph.nodes import with_runs
from figures.recipes import Asked
from tests.figures.graph.small import paper, results
from tests.processes import start_process


def make(out, *more):
    """The command, whose only paper is the small one."""
    figures.commands.options.PAPERS = (paper(),)
    raise SystemExit(main(["make", "small", "--out", out, "--device", "cpu", *more]))


def written(out: Path) -> dict[str, str]:
    """The numbers that were written."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted((out / "smoke" / "small").glob("*.csv"))}


def files(folder: Path) -> int:
    """How many there are."""
    return sum(1 for _ in folder.rglob("*"))


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--jobs", "2"]])
def test_a_command_that_is_killed_at_random_finishes_when_it_is_given_again(tmp_path, more):
    nodes = with_runs(node for recipe in paper().recipes.values() for node in recipe.content(Asked()).nodes())
    whole = start_process(make, str(tmp_path / "whole"))
    printed = whole.lines.read()
    assert whole.wait() == 0, printed
    moments, struck = random.Random(0), 0
    for _ in range(6):  # after a few files more, and then at any moment: a clock would say nothing on a busy machine
        command = start_process(make, str(tmp_path / "killed"), *more)
        wanted = files(tmp_path / "killed") + moments.randint(1, 6)
        while command.process.is_alive() and files(tmp_path / "killed") < wanted:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.05))
        struck += command.process.is_alive()
        command.kill()
    last = start_process(make, str(tmp_path / "killed"), *more)
    printed = last.lines.read()
    assert last.wait() == 0, printed
    assert struck > 0
    assert len(written(tmp_path / "whole")) == 2
    assert written(tmp_path / "killed") == written(tmp_path / "whole")
    stores = [Store(tmp_path / name / "store") for name in ("killed", "whole")]
    assert results(stores[0], nodes) == results(stores[1], nodes)
    assert not list(tmp_path.rglob("*.failed.json")) + list(tmp_path.rglob("failure.json"))


@pytest.mark.slow
def test_processes_of_jobs_do_not_outlive_a_killed_command(tmp_path):
    """Else they would hold the locks of what the next command makes."""
    command = start_process(long, str(tmp_path))
    children = [int(word) for word in command.lines.readline().split()]
    assert len(children) == 2
    command.kill()
    end = time.monotonic() + 300
    while alive := [child for child in children if Path(f"/proc/{child}").exists()]:
        assert time.monotonic() < end, f"{alive} are still there"
        time.sleep(0.1)


def long(folder):
    """Two processes busy for long; prints their numbers."""
    from figures.graph.execution import _pool

    pool = _pool(2)
    files = [Path(folder) / name for name in "ab"]
    for file in files:
        pool.submit(nap, str(file))
    while not all(file.exists() and file.read_text() for file in files):
        time.sleep(0.05)
    print(*(file.read_text() for file in files), flush=True)
    time.sleep(600)


def nap(file):
    import os

    Path(file).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)
