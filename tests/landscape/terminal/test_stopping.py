"""Signals end a command with the promised code and one sentence, between its steps and never half-way."""

import os
import signal
import subprocess
import sys
import time

import pytest

from landscape.terminal.command import run
from landscape.terminal.stopping import EXIT_STOPPED, StoppedError, continuing, deferring, listening
from tests.conftest import REPOSITORY
from tests.processes import python, run_process, start_process

PATIENCE = 300.0
"""Seconds for what takes a few: the machine may be busy."""


def send(number):
    os.kill(os.getpid(), number)


def keeping(number):
    with continuing("it is in FILE: the same command continues"):
        send(number)


@pytest.mark.parametrize(
    ("action", "number", "code", "sentence"),
    [
        (send, signal.SIGTERM, 143, "stopped by SIGTERM"),
        (send, signal.SIGUSR1, 128 + signal.SIGUSR1, "stopped by SIGUSR1"),
        (send, signal.SIGINT, 130, "interrupted"),
        (keeping, signal.SIGTERM, 75, "stopped by SIGTERM: it is in FILE: the same command continues"),
        (keeping, signal.SIGUSR1, 75, "stopped by SIGUSR1: it is in FILE: the same command continues"),
        (keeping, signal.SIGINT, 130, "interrupted: it is in FILE: the same command continues"),
    ],
)
def test_codes_and_sentences(action, number, code, sentence, capsys):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    assert run(lambda: action(number)) == code
    assert capsys.readouterr().err == f"{sentence}\n"
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)] == before
    assert EXIT_STOPPED == os.EX_TEMPFAIL


@pytest.mark.parametrize(
    ("number", "code", "sentence"), [(signal.SIGTERM, 75, "stopped by SIGTERM"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_in_a_callback_whose_errors_python_drops_still_stops(number, code, sentence, capsys):
    class Dropped:
        def __del__(self):
            send(number)
            sum(range(1000))  # the handler runs before the destructor ends

    def work():
        with continuing("the same command continues"):
            Dropped()
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                time.sleep(0.001)  # what is raised in an empty loop passes Python 3.13's except clauses by

    hook = sys.unraisablehook
    assert run(work) == code
    assert capsys.readouterr().err == f"{sentence}: the same command continues\n"
    assert sys.unraisablehook is hook


def test_other_errors_that_python_drops_are_told_as_before(monkeypatch):
    class Dropped:
        def __del__(self):
            raise OSError("told")

    def work():
        Dropped()
        return 0

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(str(unraisable.exc_value)))
    assert run(work) == 0
    assert told == ["told"]


def test_deferred_a_signal_waits_for_the_end_of_a_step():
    done = []

    def work():
        with deferring() as stop:
            for step in range(5):
                if step == 2:
                    send(signal.SIGTERM)
                done.append(step)
                stop.now(f"after step {step}", "go on")

    with pytest.raises(StoppedError, match="stopped by SIGTERM after step 2: go on"), listening():
        work()
    assert done == [0, 1, 2]


def test_a_second_signal_ends_at_once():
    text = """
import os, signal
from landscape.terminal.command import run
from landscape.terminal.stopping import deferring
def work():
    with deferring():
        os.kill(os.getpid(), signal.SIGUSR1)
        print("goes on", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        print("not reached", flush=True)
run(work)
"""
    assert run_process(python, text) == (-signal.SIGTERM, "goes on\n")


def test_a_signal_that_the_caller_ignores_stays_ignored():
    text = """
import os, signal, sys
from landscape.terminal.command import run
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # as a script does with: trap '' USR1
sys.exit(run(lambda: os.kill(os.getpid(), signal.SIGUSR1)))
"""
    assert run_process(python, text) == (0, "")


def loaded(process, library):
    """Wait until a process has loaded a library; whether it has before its end."""
    start = time.monotonic()
    while process.poll() is None and time.monotonic() - start < PATIENCE:
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as file:
            if library in file.read():
                return True
        time.sleep(0.001)
    return False


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("trainers", "_multiarray_umath"),
        ("analysis.hessian", "libtorch_cpu"),
        *(
            pytest.param(module, library, marks=pytest.mark.slow)
            for module in ("trainers", "analysis.hessian", "analysis.surface", "figures", "landscape.data")
            for library in ("_multiarray_umath", "libtorch_cpu")
            if (module, library) not in (("trainers", "_multiarray_umath"), ("analysis.hessian", "libtorch_cpu"))
        ),
    ],
)
def test_ctrl_c_while_the_libraries_are_loaded_is_quiet(module, library):
    """Sent while NumPy, or PyTorch, is being loaded, which Python reports with a traceback unless we take care."""
    words = [sys.executable, "-m", module, "--help"]
    for _ in range(20):  # where the machine is so busy that the command has ended before the signal came
        with subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
            begun = loaded(job, library)
            job.send_signal(signal.SIGINT)
            said = job.communicate(timeout=PATIENCE)[1]
        if job.returncode != 0:
            break
    assert (begun, job.returncode, said) == (True, 130, "interrupted\n")


def test_processes_of_a_pool_hear_nothing():
    text = """
import os, signal
from landscape.terminal.stopping import deaf
deaf()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    os.kill(os.getpid(), number)
print("alive")
"""
    forked = start_process(python, text)
    assert forked.lines.read() == "alive\n"
    assert forked.wait() == 0
