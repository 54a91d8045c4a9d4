"""Ranks on this machine, started and waited for by one command, as ``torchrun`` does it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist

from landscape.errors import FedscapeError
from landscape.terminal.stopping import ask_to_stop, deferring
from trainers.ranks.links import GRACE

STARTED = "FEDSCAPE_RANKS_STARTED"
"""In the environment of ranks that :func:`launch` has started."""
_EXIT_LOST = 2
_POLL = 0.02


def to_launch(ranks: int) -> bool:
    """Whether this process is to start so many ranks, and not one of them.

    Raises:
        FedscapeError: below one, or torchrun has started ranks already.
    """
    if ranks < 1:
        raise FedscapeError(f"--ranks is {ranks}: give at least 1")
    if STARTED in os.environ or ranks == 1:
        return False
    if "RANK" in os.environ:
        raise FedscapeError(f"this is a rank that something else has started: leave out --ranks {ranks}")
    return True


def launch(ranks: int, module: str, arguments: Sequence[str]) -> int:
    """Run ``python -m MODULE ARGUMENTS`` as so many ranks, each with one CPU thread unless OMP_NUM_THREADS says more.

    Signals are passed on to the first rank, which stops all after their round.

    Returns:
        The exit code: that of the first rank that has not ended well; 2 where one was killed.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(ranks), STARTED: "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "fedscape",
    }  # fmt: skip
    if Path("/sys/class/net/lo").exists():
        common = {"GLOO_SOCKET_IFNAME": "lo", **common}  # whether or not the machine's name has an address
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            environment = {"OMP_NUM_THREADS": "1", **os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            # Sessions of their own: a terminal's Ctrl-C reaches this process alone, which passes it on once.
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", module, *arguments],
                    env=environment,
                    stdin=subprocess.DEVNULL if rank else subprocess.PIPE,
                    start_new_session=True,
                )
            )
        return _waited_for(started)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()


def _waited_for(started: Sequence[subprocess.Popen[bytes]]) -> int:
    """Their common exit code, once all have ended; signals are passed on while they work."""
    failed: float | None = None
    passed_on = False
    with deferring() as stop:
        while None in [process.poll() for process in started]:
            try:
                time.sleep(_POLL)
            except KeyboardInterrupt:
                stop.asked = signal.SIGINT
            if stop.asked is not None and not passed_on:
                _tell(started[0], stop.asked)
                passed_on = True
            if failed is None and any(process.returncode for process in started):
                failed = time.monotonic()
            if failed is not None and time.monotonic() - failed > 3 * GRACE:
                _say_who(started)
                break
    codes = [code for process in started if (code := process.poll())]
    if any(code < 0 for code in codes):
        return _EXIT_LOST
    return codes[0] if codes else 0


def _say_who(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """The ranks that are left have not met yet, or they would have told themselves that one is gone."""
    gone = next(rank for rank, process in enumerate(started) if process.returncode)
    code = started[gone].returncode
    how = f"was ended by signal {-code}" if code < 0 else f"has ended with code {code}"
    print(f"error: rank {gone} of {len(started)} {how}, and the others wait for it: all are ended", file=sys.stderr)


def _tell(process: subprocess.Popen[bytes], number: int) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(f"{number}\n".encode())
        process.stdin.flush()
    except OSError:
        return  # it has ended


def obey_launcher() -> None:
    """In the first rank that :func:`launch` has started: stop as the launcher is asked to, and if it is gone."""
    if STARTED in os.environ and os.environ.get("RANK") == "0":
        threading.Thread(target=_obey, args=(threading.main_thread(),), daemon=True).start()


def _obey(main: threading.Thread) -> None:
    told = os.read(0, 100).decode().split()
    number = int(told[0]) if told else signal.SIGTERM
    if number == signal.SIGINT or not ask_to_stop(number):
        assert main.ident is not None
        signal.pthread_kill(main.ident, number)
