"""Freed memory stays with the process: counted in pages that the system had to clear."""

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

PASSES = """
import resource
import torch
from landscape import Landscape
from landscape.compute.memory import keep_freed_memory

torch.set_num_threads(1)
Landscape(torch.nn.Linear(2, 2), (torch.eye(2), torch.arange(2)), device="cpu").value()
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16_000_000)  # 64 MB
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[1:]), keep_freed_memory())
"""


def faults(keep: str) -> tuple[int, bool]:
    """Pages cleared for a block that comes and goes after a landscape was evaluated, and whether memory is kept."""
    environment = {**os.environ, "FEDSCAPE_KEEP_MEMORY": keep}
    words = [sys.executable, "-c", PASSES]
    found = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True, env=environment)
    count, kept = found.stdout.split()
    return int(count), kept == "True"


def test_after_a_landscapes_first_value_a_block_that_comes_and_goes_is_cleared_once_unless_told_not_to():
    few, kept = faults("1")
    if not kept:
        pytest.skip("the C library is not glibc")
    many, kept = faults("0")
    assert not kept
    assert few < many / 10
