"""Hand files to a process of their own, which may crash, hang or eat memory."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.hostile.kinds import JUDGED, KINDS

SECONDS = 30
MEMORY = 2 << 30


@dataclass(frozen=True)
class Verdict:
    """How reading a file went: ``read``, ``refused``, ``traceback``, ``crashed`` or ``hung``."""

    kind: str
    said: str = ""
    seconds: float = 0.0
    memory: int = 0

    @property
    def fault(self) -> str | None:
        """What is wrong with it, or ``None``."""
        if self.kind not in ("read", "refused"):
            return f"{self.kind}: {self.said}"
        if self.seconds > SECONDS:
            return f"took {self.seconds:.0f} s"
        return f"took {self.memory / 1e9:.1f} GB" if self.memory > MEMORY else None


class Judge:
    """A process that reads files of one kind; started again where it died."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix="fedscape-hostile-")
        self.path = {**KINDS, **JUDGED}[kind].make(Path(self._folder.name))
        self.valid = self.path.read_bytes()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def of(self, raw: bytes) -> Verdict:
        """How reading these bytes goes."""
        self.path.write_bytes(raw)
        process = self._process or self._begin()
        assert process.stdin is not None
        process.stdin.write(f"{self.path}\n")
        process.stdin.flush()
        try:
            line = self._lines.get(timeout=SECONDS + 10)
        except queue.Empty:
            self._end()
            return Verdict("hung", f"more than {SECONDS} s", SECONDS)
        if not line:
            code = process.wait()
            self._process = None
            return Verdict("crashed", f"exit status {code}")
        told = json.loads(line)
        return Verdict(told["verdict"], told["said"], told["seconds"], told["memory"])

    def _begin(self) -> subprocess.Popen[str]:
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.worker", self.kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        lines = self._lines

        def pump() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=pump, daemon=True).start()
        if lines.get(timeout=300).strip() != "ready":
            raise RuntimeError("the process that reads files did not start")
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
