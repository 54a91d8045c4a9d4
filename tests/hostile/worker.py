"""A process that reads one file after the other and says how it went: ``python -m tests.hostile.worker KIND``.

On stdin a path a line; on stdout a JSON line each: ``verdict`` (``read``, ``refused``, ``traceback``), what was said,
seconds, and how much memory it took at most beyond what the process had.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path

ROOM = 6 << 30
"""Bytes of address space beyond what the process begins with: a net below the limit of the campaign."""


def _peak() -> int:
    """The most memory that was resident since :func:`_reset`, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def _reset() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def judged(read: object, path: Path) -> dict[str, object]:
    """Read one file."""
    from landscape import FedscapeError

    _reset()
    before, start, said = _peak(), time.monotonic(), ""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            read(path)  # type: ignore[operator]
        verdict = "read"
    except FedscapeError as error:
        verdict, said = "refused", str(error)
    except BaseException:
        verdict, said = "traceback", traceback.format_exc()[-3000:]
    return {"verdict": verdict, "said": said, "seconds": time.monotonic() - start, "memory": _peak() - before}


def main() -> None:
    """Answer until stdin ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    import torch

    from tests.hostile.kinds import JUDGED, KINDS

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    read = {**KINDS, **JUDGED}[sys.argv[1]].read
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(judged(read, Path(line.rstrip("\n")))), file=out, flush=True)


if __name__ == "__main__":
    main()
