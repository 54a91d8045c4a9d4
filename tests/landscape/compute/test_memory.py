"""Freed memory stays with the process: counted in pages that the system had to clear."""

import pytest

from tests.processes import python, run_process

PASSES = """
import os, resource, sys
import torch
from landscape import Landscape
from landscape.compute.memory import KEEP, keep_freed_memory, release_freed_memory

os.environ[KEEP] = sys.argv[1]
Landscape(torch.nn.Linear(2, 2), (torch.eye(2), torch.arange(2)), device="cpu").value()
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16_000_000)  # 64 MB
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
release_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(16_000_000)
released = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults[1:]), released, keep_freed_memory())
"""


def faults(keep: str) -> tuple[int, int, bool]:
    """Pages cleared for a block that comes and goes after a landscape was evaluated, and after memory was released, and
    whether memory is kept."""
    status, printed = run_process(python, PASSES, keep)
    assert status == 0, printed
    count, released, kept = printed.split()
    return int(count), int(released), kept == "True"


def test_after_a_landscapes_first_value_a_block_that_comes_and_goes_is_cleared_once_unless_told_not_to():
    few, released, kept = faults("1")
    if not kept:
        pytest.skip("the C library is not glibc")
    many, _, kept = faults("0")
    assert not kept
    assert few < many / 10
    assert few < released / 10, "what was kept was given back"
