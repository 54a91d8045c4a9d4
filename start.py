#!/usr/bin/env python3
"""Set up Fedscape in its own virtual environment (.venv) and run one thing with it.

    python3 start.py demo      train two algorithms on the embedded digits, analyse and compare them
    python3 start.py test      check style and types, run the fast tests
    python3 start.py setup     only set up

Needs Python 3.10 or newer, its venv module and pip's package index; touches nothing outside this folder.
Words after the name go to the command behind it: python3 start.py demo --out somewhere
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE / ".venv"
PYTHON = HOME / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = HOME / "fedscape-setup"


def call(*command: object) -> None:
    """Run a command in this folder; stop with its exit code where it fails."""
    code = subprocess.run([str(word) for word in command], cwd=HERE).returncode
    if code:
        sys.exit(code)


def set_up() -> None:
    """Make .venv with Fedscape and its tested dependencies, unless it is there and up to date."""
    recipe = b"".join((HERE / name).read_bytes() for name in ("setup.py", "constraints.txt"))
    python = "{}.{}".format(*sys.version_info)
    wanted = hashlib.sha256(recipe + f"{HERE} {python}".encode()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        sys.exit(
            f"{sys.executable} has no venv module: install it (on Debian and Ubuntu: apt install python{python}-venv)"
        )
    print(f"setting up {HOME} (once; a few minutes where PyTorch has to be downloaded)", flush=True)
    there = HOME / "pyvenv.cfg"
    other = there.exists() and f"version = {python}." not in there.read_text()
    call(sys.executable, "-m", "venv", *(["--clear"] if other else []), HOME)
    call(PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", "constraints.txt", "-e", ".[test]")
    STAMP.write_text(wanted)


def main() -> None:
    """Set up, then run what was asked for."""
    if sys.version_info < (3, 10):  # noqa: UP036  (this script alone may meet an older Python)
        sys.exit(f"Fedscape needs Python 3.10 or newer, this is {sys.version.split()[0]}: try python3.11 start.py ...")
    name, rest = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if name not in ("demo", "test", "setup"):
        sys.exit((__doc__ or "").strip())
    set_up()
    if name == "demo":
        # Idle threads sleep: threads that spin take several times as long where other work keeps the cores busy.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        call(PYTHON.with_name("fedscape"), "demo", *rest)
    elif name == "test":
        call(PYTHON, "-m", "ruff", "check", ".")
        call(PYTHON, "-m", "ruff", "format", "--check", ".")
        call(PYTHON, "-m", "mypy")
        # One thread a process: two of them beat one process with two threads.
        os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="Agg")
        call(PYTHON, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", "not slow", *rest)


if __name__ == "__main__":
    main()
