"""A GPU against the CPU: the same numbers from everything, then how fast it is, beside the targets of issue 17.

    python benchmarks/gpu.py --json record.json            # under 8 minutes; exit code 1 where something is wrong
    python benchmarks/gpu.py --device cpu --quick          # the same checks of the CPU with itself, to try the script
    python benchmarks/gpu.py --sections float64 rounds     # some of it

It makes its own data (noise around one random pattern a class) and needs no network, and of this package's requirements
neither tyro nor scikit-learn nor what draws pictures.  Each section is a process of its own with a time of its own.
First come those that compare, side by side, and when all have ended those that measure speed, one after the other, as
long as there is time.  An error of a check is recorded with the end of its traceback, and the others go on; so is what
a section leaves that crashes or does not end.  The JSON is written anew after each section, and until the end
``record.parts/`` beside it has what each has found so far, row by row.  Keep the JSON of a run as a dated file of
benchmarks/records.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gpu_checks
import gpu_lines
import gpu_times
import torch
from gpu_report import Report

from landscape import FedscapeError
from landscape.storage.files import write_text
from landscape.terminal.table import Table

_START = 30.0
"""Seconds that a section's process may take beyond its own: to start, and to end what is under way."""
_WHOLE = 450.0
"""Seconds of all: what measures speed gets what is left."""


@dataclass(frozen=True)
class Section:
    """A part of the benchmark.

    Attributes:
        run: does it.
        budget: its seconds on a GPU; what is left out then is told.
        alone: whether it measures speed, so that nothing else may run.
    """

    run: Callable[[Report], None]
    budget: float
    alone: bool = False


SECTIONS = {
    "recording": Section(gpu_checks.recording, 100),
    "float64": Section(partial(gpu_checks.executors, dtype="float64"), 130),
    "float32": Section(partial(gpu_checks.executors, dtype="float32"), 130),
    "pictures": Section(gpu_checks.pictures, 100),
    "hessians": Section(gpu_checks.hessians, 100),
    "faults": Section(gpu_checks.faults, 100),
    "surfaces": Section(gpu_checks.surfaces, 100),
    "rounds": Section(gpu_times.rounds, 90, alone=True),
    "spectrum": Section(gpu_times.spectrum, 70, alone=True),
    "precisions": Section(gpu_times.precisions, 25, alone=True),
    "layouts": Section(gpu_times.layouts, 25, alone=True),
}


@dataclass(frozen=True)
class Settings:
    """What is compared and measured.

    Attributes:
        device: that is compared with the CPU.
        quick: few algorithms and small networks.
        sections: which.
        json: all figures go there.
        apart: each section in a process of its own; always so on CUDA.
        here: all in this process, with these seconds for each: what a section's own process does.
    """

    device: str = "cuda"
    quick: bool = False
    sections: tuple[str, ...] = tuple(SECTIONS)
    json: Path | None = None
    apart: bool = False
    here: float | None = None


def read(arguments: Sequence[str]) -> Settings:
    """The command line, by ``argparse``: tyro may be missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="the device that is compared with the CPU")
    parser.add_argument("--quick", action="store_true", help="few algorithms and small networks")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=tuple(SECTIONS), metavar="SECTION")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--apart", action="store_true", help="sections in processes of their own on the CPU, too")
    parser.add_argument("--here", type=float, metavar="SECONDS", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    return Settings(given.device, given.quick, tuple(given.sections), given.json, given.apart, given.here)


def here(name: str, settings: Settings, seconds: float, path: Path | None) -> dict[str, Any]:
    """One section in this process; what it has found so far is in the file."""
    start = time.perf_counter()
    report = Report(settings.device, settings.quick, start + seconds, path)
    fault = None
    try:
        SECTIONS[name].run(report)
    except Exception:  # whatever it is, it is told, and the others go on
        fault = traceback.format_exc()
    found = {**report.plain(), "fault": fault, "seconds": time.perf_counter() - start}
    if path is not None:
        write_text(path, json.dumps(found))
    return found


def apart(name: str, settings: Settings, seconds: float, path: Path) -> dict[str, Any]:
    """One section in a process of its own: what it found, also where it crashed or did not end."""
    start = time.perf_counter()
    words = ["--sections", name, "--device", settings.device, "--json", str(path), "--here", str(seconds)]
    command = [sys.executable, str(Path(__file__).resolve()), *words, *(["--quick"] if settings.quick else [])]
    beside = 1 if SECTIONS[name].alone else sum(not SECTIONS[other].alone for other in settings.sections)
    threads = str(max(1, (os.cpu_count() or 1) // beside))
    environment = {"OMP_NUM_THREADS": threads, **os.environ}
    try:
        done = subprocess.run(command, env=environment, timeout=seconds + _START, capture_output=True, text=True)
        fault = f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    except subprocess.TimeoutExpired as error:
        told = error.stderr or b""
        text = told if isinstance(told, str) else told.decode(errors="replace")
        fault = f"it did not end in {seconds + _START:.0f} s\n{text[-4000:]}"
    found = json.loads(path.read_text()) if path.exists() else Report(settings.device, True, 0.0).plain()
    return {"fault": fault, "seconds": time.perf_counter() - start, **found}  # its own, where it has ended


def shown(name: str, found: dict[str, Any]) -> None:
    """Print what a section found."""
    print(f"== {name}, {found['seconds']:.0f} s")
    if found["checks"]:
        print(Table(("what", "relative difference", "allowed"), tuple(map(tuple, found["checks"]))))
    if found["figures"]:
        rows = tuple(
            (row["what"], row["value"], row["unit"], "" if row["target"] is None else f"at most {row['target']:g}")
            for row in found["figures"]
        )
        print(Table(("what", "measured", "unit", "target"), rows))
    for note in found["notes"]:
        print(f"note: {note}")
    if found["left"]:
        print(f"no time left for: {'; '.join(found['left'])}")
    for what, told in found["failures"]:
        print(f"FAILED: {what}\n{told}")
    if found["fault"]:
        print(f"FAULT in {name}:\n{found['fault']}")
    print(flush=True)


def wrong(name: str, found: dict[str, Any]) -> list[str]:
    """What is wrong with a section: differences, errors, and comparisons that there was no time for."""
    told = [f"{what} differs" for what in found["differing"]] + [f"{what} failed" for what, _ in found["failures"]]
    told += ["it did not end as it should"] if found["fault"] else []
    told += [] if SECTIONS[name].alone else [f"no time was left for {what}" for what in found["left"]]
    return [f"{name}: {each}" for each in told]


def summary(sections: dict[str, dict[str, Any]]) -> Table:
    """A row for each section."""
    rows = [
        (
            name, len(found["checks"]), len(found["differing"]), len(found["failures"]), len(found["left"]),
            "fault" if found["fault"] else "whole", len(found["figures"]),
            sum(row["target"] is not None and row["value"] > row["target"] for row in found["figures"]),
            found["seconds"],
        )
        for name, found in sections.items()
    ]  # fmt: skip
    columns = "section", "checks", "differ", "failed", "left out", "ended", "figures", "targets missed", "seconds"
    return Table(columns, tuple(rows))


def machine(settings: Settings) -> dict[str, Any]:
    """What it was measured on."""
    git, commit = shutil.which("git"), ""  # a machine that is lent may have neither git nor the repository
    if git:
        asked = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
        commit = asked.stdout.strip()
    about: dict[str, Any] = {
        "device": "CPU", "processor": platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__,
        "cuda": torch.version.cuda, "python": platform.python_version(), "commit": commit or "unknown",
        "tyro": "missing" if gpu_lines.MISSING else "there",
    }  # fmt: skip
    if settings.device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(settings.device)
        about |= {"device": properties.name, "memory": properties.total_memory, "cudnn": torch.backends.cudnn.version()}
    return about


def found_in(settings: Settings, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each section found, as they end: first those that compare, side by side, then the others."""
    end = time.perf_counter() + _WHOLE

    def one(name: str) -> tuple[str, dict[str, Any]]:
        seconds = min(SECTIONS[name].budget, end - time.perf_counter() - _START)
        return name, apart(name, settings, max(0.0, seconds), folder / f"{name}.json")

    together = [name for name in settings.sections if not SECTIONS[name].alone]
    with ThreadPoolExecutor(max(1, len(together))) as pool:
        yield from pool.map(one, together)
    yield from (one(name) for name in settings.sections if SECTIONS[name].alone)


@contextmanager
def parts(path: Path | None) -> Iterator[Path]:
    """The folder of what sections have found so far, beside the JSON; gone at the end."""
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    beside = path.with_suffix(".parts")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    yield beside
    shutil.rmtree(beside)


def main(settings: Settings) -> int:
    """Compare, time, print, write; 1 where something differs, failed, or was not compared."""
    cuda = settings.device.startswith("cuda")
    if cuda and not torch.cuda.is_available():
        raise FedscapeError("there is no CUDA device here: give --device cpu to try the script")
    if not cuda:
        torch.set_num_threads(1)  # the networks are small, and threads that wait for each other are slow
    if settings.here is not None:
        for name in settings.sections:
            here(name, settings, settings.here, settings.json)
        return 0
    record: dict[str, Any] = {**machine(settings), "sections": {}}
    print(", ".join(f"{name} {value}" for name, value in record.items() if name != "sections"), flush=True)
    with parts(settings.json) as folder:
        each = (
            found_in(settings, folder)
            if cuda or settings.apart
            else ((name, here(name, settings, SECTIONS[name].budget, None)) for name in settings.sections)
        )
        for name, found in each:
            record["sections"][name] = found
            shown(name, found)
            if settings.json is not None:
                write_text(settings.json, json.dumps(record, indent=1) + "\n")
    print(summary(record["sections"]), flush=True)
    told = [each for name, found in record["sections"].items() for each in wrong(name, found)]
    for line in told:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(read(sys.argv[1:])))
