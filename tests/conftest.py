"""Fixtures for every test folder."""

import gc
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # the networks are tiny: on a busy machine two threads mostly wait for each other

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, in which Ctrl-C could not be tried
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parents[1]
REAL_DATA = REPOSITORY.parent / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def quick_collections() -> Iterator[None]:
    """What is imported is left out of garbage collections, of which recordings and tests ask for many (0.1 s each)."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def real_data() -> Iterator[Callable[[str], Path]]:
    """``real_data("cifar10")`` -> the folder to give as ``--data-dir``; skips where the images are absent.

    Names: ``cifar10``, ``cifar100`` (a fifth of its training set), ``fashion_mnist``.
    """
    with tempfile.TemporaryDirectory(prefix="fedscape-real-data-") as folder:
        unpacked: set[str] = set()

        def unpack(name: str) -> Path:
            script = REAL_DATA / "unpack.py"
            if not script.is_file():
                pytest.skip(f"the real images are not on this machine: there is no {script}")
            if name not in unpacked:
                subprocess.run(
                    [sys.executable, script, folder, name.replace("_", "-")], check=True, stdout=subprocess.DEVNULL
                )
                unpacked.add(name)
            return Path(folder)

        yield unpack
