"""A GPU against the CPU: the same numbers from everything, then how fast it is, beside the targets of issue 17.

    python benchmarks/gpu.py --json record.json            # under 8 minutes; exit code 1 where something is wrong
    python benchmarks/gpu.py --device cpu --quick          # the same checks of the CPU with itself, to try the script
    python benchmarks/gpu.py --sections executors rounds   # some of it

It makes its own data (noise around one random pattern a class) and needs no network.  Each section is a process of its
own with a time of its own, the most important first: an error, a crash or a hang of one is recorded with its traceback,
and the others go on.  Keep the JSON of a run as a dated file of benchmarks/records.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_checks
import gpu_times
import torch
import tyro
from gpu_report import Report

from landscape import FedscapeError
from landscape.storage.files import write_text
from landscape.terminal.table import Table

_START = 25.0
"""Seconds that a section's process may take beyond its own: to start, and to end what is under way."""


@dataclass(frozen=True)
class Section:
    """A part of the benchmark.

    Attributes:
        run: does it.
        budget: its seconds on a GPU; what is left out then is noted.
    """

    run: Callable[[Report], None]
    budget: float


SECTIONS = {
    "recording": Section(gpu_checks.recording, 25),
    "executors": Section(gpu_checks.executors, 90),
    "rounds": Section(gpu_times.rounds, 80),
    "hessians": Section(gpu_checks.hessians, 35),
    "faults": Section(gpu_checks.faults, 35),
    "spectrum": Section(gpu_times.spectrum, 50),
    "precisions": Section(gpu_times.precisions, 25),
    "surfaces": Section(gpu_checks.surfaces, 15),
    "layouts": Section(gpu_times.layouts, 20),
}


@dataclass(frozen=True)
class Settings:
    """What is compared and measured."""

    device: str = "cuda"
    """the device that is compared with the CPU"""
    quick: bool = False
    """few algorithms and small networks"""
    sections: tuple[str, ...] = tuple(SECTIONS)
    """some of them only"""
    together: bool = False
    """all in this process: an error of CUDA then spoils the sections behind it"""
    json: Path | None = None
    """write all figures there"""


def here(name: str, settings: Settings, path: Path | None) -> dict[str, Any]:
    """One section in this process."""
    start = time.perf_counter()
    report = Report(settings.device, settings.quick, start + SECTIONS[name].budget, path)
    fault = None
    try:
        SECTIONS[name].run(report)
    except Exception:  # whatever it is, it is told, and the others go on
        fault = traceback.format_exc()
    return {**report.plain(), "fault": fault, "seconds": time.perf_counter() - start}


def apart(name: str, settings: Settings, folder: Path) -> dict[str, Any]:
    """One section in a process of its own: what it found, also where it crashed or did not end."""
    start, partial, whole = time.perf_counter(), folder / f"{name}-rows.json", folder / f"{name}.json"
    words = ["--sections", name, "--together", "--device", settings.device, "--json", str(whole)]
    command = [sys.executable, __file__, *words, *(["--quick"] if settings.quick else [])]
    environment = {**os.environ, "FEDSCAPE_GPU_ROWS": str(partial)}
    try:
        done = subprocess.run(
            command, env=environment, timeout=SECTIONS[name].budget + _START, capture_output=True, text=True
        )
        fault = None if whole.exists() else f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    except subprocess.TimeoutExpired as error:
        told = error.stderr or b""
        text = told if isinstance(told, str) else told.decode(errors="replace")
        fault = f"it did not end in {SECTIONS[name].budget + _START:.0f} s\n{text[-4000:]}"
    if whole.exists():
        return dict(json.loads(whole.read_text())["sections"][name])
    found = json.loads(partial.read_text()) if partial.exists() else Report(settings.device, True, 0.0).plain()
    return {**found, "fault": fault, "seconds": time.perf_counter() - start}


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
    if found["fault"]:
        print(f"FAULT in {name}:\n{found['fault']}")
    print(flush=True)


def machine(settings: Settings) -> dict[str, Any]:
    """What it was measured on."""
    git, commit = shutil.which("git"), ""  # a machine that is lent may have neither git nor the repository
    if git:
        asked = subprocess.run([git, "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
        commit = asked.stdout.strip()
    about: dict[str, Any] = {
        "device": "CPU", "processor": platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__,
        "cuda": torch.version.cuda, "python": platform.python_version(), "commit": commit or "unknown",
    }  # fmt: skip
    if settings.device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(settings.device)
        about |= {"device": properties.name, "memory": properties.total_memory, "cudnn": torch.backends.cudnn.version()}
    return about


def main(settings: Settings) -> int:
    """Compare, time, print, write; 1 where something differs or failed."""
    if unknown := set(settings.sections) - set(SECTIONS):
        raise SystemExit(f"there is no section {', '.join(sorted(unknown))}: give some of {', '.join(SECTIONS)}")
    if settings.device.startswith("cuda") and not torch.cuda.is_available():
        raise FedscapeError("there is no CUDA device here: give --device cpu to try the script")
    if not settings.device.startswith("cuda"):
        torch.set_num_threads(1)  # the networks are small, and threads that wait for each other are slow
    together = settings.together or not settings.device.startswith("cuda")
    record: dict[str, Any] = {**machine(settings), "sections": {}}
    print(", ".join(f"{name} {value}" for name, value in record.items() if name != "sections"), flush=True)
    rows = os.environ.get("FEDSCAPE_GPU_ROWS")
    with tempfile.TemporaryDirectory() as folder:
        for name in settings.sections:
            found = here(name, settings, Path(rows) if rows else None) if together else apart(
                name, settings, Path(folder)
            )  # fmt: skip
            record["sections"][name] = found
            shown(name, found)
            if settings.json is not None:
                write_text(settings.json, json.dumps(record, indent=1) + "\n")
    wrong = [f"{name}: {what}" for name, found in record["sections"].items() for what in found["differing"]]
    faults = [name for name, found in record["sections"].items() if found["fault"]]
    for what in wrong:
        print(f"DIFFERS: {what}", file=sys.stderr)
    if faults:
        print(f"FAILED: {', '.join(faults)}", file=sys.stderr)
    return 1 if wrong or faults else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
