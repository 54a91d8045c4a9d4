"""Everything for the demo's checkpoints in one call, here and in a checkout of another version.

This file is also the program that times them, with whichever Fedscape comes first on PYTHONPATH: so it uses only what
every version has.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TARGET = 3.0
"""How many times faster than before."""
_TOP = 5


def trained(folder: Path) -> list[Path]:
    """The checkpoints of the demo's two runs, trained in this folder unless they are there."""
    from figures.demo import SETTINGS
    from trainers import FedASAM, FedAvg, train

    runs = {"fedavg": FedAvg(), "fedasam": FedASAM()}
    return [train(algorithm, SETTINGS, out=folder / name, resume=True).checkpoint for name, algorithm in runs.items()]


def timed(checkpoint: str) -> dict[str, Any]:
    """CPU seconds and products of the eigenvalues, the trace and the density, after a call that does not count."""
    import torch

    from analysis import measure_hessian

    torch.set_num_threads(1)
    for _ in range(2):
        start = time.process_time()
        report = measure_hessian(checkpoint, _TOP, density=True, device="cpu")
        spent = time.process_time() - start
    values = [float(value) for value in report.eigen.values]
    return {"seconds": spent, "products": report.hvps, "eigenvalues": values, "trace": report.trace.value}


def _in_process(version: Path, checkpoint: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(version), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(checkpoint)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=version)
    return json.loads(done.stdout.splitlines()[-1])


def measure(checkpoints: Sequence[Path], before: Path | None, repeats: int) -> list[dict[str, Any]]:
    """Time each version in processes of its own that take turns; prints medians of CPU seconds.

    Args:
        checkpoints: ``ckpt.pt`` files.
        before: the other version's root folder; none: only this version.
        repeats: processes of each.
    """
    print(f"\nthe demo's checkpoints: top {_TOP}, trace to 2 %, density, medians of {repeats} processes, CPU time")
    versions = {"now": Path(__file__).resolve().parents[1]} | ({"before": before.resolve()} if before else {})
    results = []
    for checkpoint in checkpoints:
        rounds = [{name: _in_process(root, checkpoint.resolve()) for name, root in versions.items()}
                  for _ in range(repeats)]  # fmt: skip
        row: dict[str, Any] = {"checkpoint": checkpoint.parent.name}
        for name in versions:
            row[name] = {
                "seconds": statistics.median(times[name]["seconds"] for times in rounds),
                "products": rounds[0][name]["products"],
            }
            print(f"  {row['checkpoint']:<10}{name:<8}{row[name]['products']:5d} products{row[name]['seconds']:8.2f} s")
        if before:
            row["times faster"] = row["before"]["seconds"] / row["now"]["seconds"]
            row["met"] = row["times faster"] >= TARGET
            print(
                f"  {row['checkpoint']:<10}{row['times faster']:.1f} times faster ({'met' if row['met'] else 'missed'})"
            )
        results.append(row)
    return results


if __name__ == "__main__":
    print(json.dumps(timed(sys.argv[1])))
