"""A campaign of hostile files of every kind that is read: each is read or refused in a sentence, in 30 s and 2 GB.

The slow test draws thousands of them with Hypothesis, which makes a failing one small; the fast one takes a few of each
kind.  Files are read in a process of their own, which may crash.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.hostile.campaign import hostile
from tests.hostile.judge import Judge
from tests.hostile.kinds import KINDS

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="memory is measured on Linux")
FEW, MANY = 3, 300
FAST = ("checkpoint",)
"""The kinds that the fast test takes; the others are in the slow one too."""


def check(judge: Judge, seed: int) -> None:
    verdict = judge.of(hostile(judge.kind, judge.valid, seed))
    assert verdict.fault is None, f"{judge.kind}, seed {seed}: {verdict.fault}"


@pytest.mark.parametrize("kind", FAST)
def test_a_few_files_of_each_kind_are_read_or_refused_in_a_sentence(kind):
    with Judge(kind) as judge:
        valid = judge.of(judge.valid)
        assert valid.kind == "read", valid
        for seed in range(FEW):
            check(judge, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_files_are_read_or_refused_in_a_sentence(kind):
    with Judge(kind) as judge:
        valid = judge.of(judge.valid)
        assert valid.kind == "read", valid

        @settings(
            max_examples=MANY,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.integers(0, 2**32))
        def campaign(seed: int) -> None:
            check(judge, seed)

        campaign()


@pytest.mark.slow
def test_the_judge_sees_tracebacks_crashes_hangs_and_memory(monkeypatch):
    """Otherwise the campaign proves nothing."""
    with Judge("judged") as judge:
        assert judge.of(b"raise ValueError").kind == "traceback"
        assert judge.of(b"raise FedscapeError('no')").kind == "refused"
        assert judge.of(b"list(range(10_000_000))").memory > 3e8
        assert judge.of(b"import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").kind == "crashed"
        assert judge.of(b"pass").kind == "read"
        with monkeypatch.context() as patched:
            patched.setattr("tests.hostile.judge.SECONDS", -5)  # plus ten of grace
            assert judge.of(b"while True: pass").kind == "hung"
        assert judge.of(b"pass").kind == "read"
