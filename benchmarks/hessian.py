"""Top eigenvalues, trace and density of Hessians against SciPy's eigsh, PyHessian, hessian-eigenthings and curvlinops.

    python benchmarks/hessian.py                                   # everything, one thread; about half an hour
    python benchmarks/hessian.py --parts nets --models cnn lenet_fed --no-pyhessian
    git worktree add BEFORE VERSION; python benchmarks/hessian.py --parts demo --before BEFORE

Parts: ``spectra`` counts products on five known spectra, against those that honest error bounds need; ``nets`` times
the top 10 eigenvalues of nets; ``demo`` times everything for the demo's checkpoints, beside an earlier version's time;
``arithmetic`` is the cost of one product and of the trace, on the first of the models.  All methods do the same work:
the Hessian of the mean cross-entropy over the same images at the same weights.  Peers that are not installed are
said to be so.  Times are CPU times and medians; the figures that count are the ratios of one run.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import hessian_arithmetic
import hessian_demo
import hessian_spectra
import scipy
import torch
import tyro
from hessian_nets import IMAGES, Model, landscape, time_eigenvalues

from landscape import Landscape

Part = Literal["spectra", "nets", "demo", "arithmetic"]


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    parts: tuple[Part, ...] = ("spectra", "nets", "demo", "arithmetic")
    """which parts"""
    models: tuple[Model, ...] = tuple(IMAGES)
    """the nets"""
    tops: tuple[int, ...] = (5, 10, 50)
    """eigenvalues of the known spectra"""
    seeds: int = 10
    """start vectors for each known spectrum"""
    steps: int = 160
    """steps of SGD before nets are measured: 160 end near a minimum, 40 far from one"""
    repeats: int = 5
    """timings, of which the median counts"""
    threads: int = 1
    """CPU threads"""
    device: str = "cpu"
    """of the nets: cpu or cuda"""
    peers: bool = True
    """time hessian-eigenthings too"""
    pyhessian: bool = True
    """time PyHessian (the slowest part) too"""
    demo: Path | None = None
    """the folder with the demo's runs; unless given, they are trained"""
    before: Path | None = None
    """a checkout of an earlier version, to time the demo's checkpoints with"""
    json: Path | None = None
    """write the figures there"""


def main(settings: Settings) -> None:
    """Measure, print, write."""
    torch.set_num_threads(settings.threads)
    versions = f"torch {torch.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, {settings.threads} threads, load {os.getloadavg()[0]:.1f}"
    missing = [name for name in ("pyhessian", "hessian_eigenthings") if importlib.util.find_spec(name) is None]
    print(f"{machine}, {settings.device}, {versions}; not installed: {', '.join(missing) or 'none of the peers'}")
    figures: dict[str, Any] = {
        "machine": machine,
        "device": settings.device,
        "versions": versions,
        "not installed": missing,
    }
    with tempfile.TemporaryDirectory() as folder:
        digits = hessian_demo.trained(settings.demo or Path(folder)) if {"spectra", "demo"} & {*settings.parts} else []
        if "spectra" in settings.parts:
            around = Landscape.from_checkpoint(digits[0], device="cpu")
            figures["spectra"] = hessian_spectra.measure(around, settings.tops, settings.seeds)
        if "nets" in settings.parts:
            peers = settings.peers, settings.pyhessian
            figures["nets"] = [
                time_eigenvalues(model, settings.steps, settings.device, settings.repeats, *peers)
                for model in settings.models
            ]
        if "demo" in settings.parts:
            figures["demo"] = hessian_demo.measure(digits, settings.before, settings.repeats)
        if "arithmetic" in settings.parts:
            around = landscape(settings.models[0], settings.steps, settings.device)
            figures["arithmetic"] = hessian_arithmetic.measure(around, settings.models[0], settings.repeats)
    if settings.json is not None:
        settings.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Settings))
