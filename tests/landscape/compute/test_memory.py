"""Freed memory stays with the process: counted in pages that the system had to clear."""

import pytest

from tests.processes import python, run_process

PASSES = """
import resource, sys
import torch
from landscape.compute.memory import keep_freed_memory

if sys.argv[1] == "keep" and not keep_freed_memory():
    print("no glibc")
    raise SystemExit
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16_000_000)  # 64 MB
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults[1:]))
"""


def faults(word: str) -> int:
    _, found = run_process(python, PASSES, word)
    if "no glibc" in found:
        pytest.skip("the C library is not glibc")
    return int(found)


def test_a_block_that_comes_and_goes_is_cleared_once():
    assert faults("keep") < faults("do not") / 10
