"""What `fedscape alignment` takes on some clients of a run: CPU seconds, passes, and what float64 and traces cost.

    python -m trainers fedavg --data cifar10 --model lenet_fed --clients 100 --partition iid --rounds 20 --out RUN
    python benchmarks/alignment.py RUN --clients 20                                       # one process
    torchrun --nproc-per-node 2 benchmarks/alignment.py RUN --clients 20 --json out.json  # two cores

f is that of these clients alone, so that all of its work but the cross-gains grows with their number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from analysis.alignment.cost import announce, expected_work
from analysis.alignment.curvature import compare_curvature
from analysis.alignment.opening import open_round
from analysis.alignment.options import Asked
from analysis.alignment.perturbations import cross_gains
from analysis.hessian.spectrum.eigen import largest_eigenpairs
from analysis.hessian.spectrum.operators import Hessian
from analysis.hessian.spectrum.refinement import refined, refined_where_needed, spent
from analysis.hessian.spectrum.trace import estimate_trace
from analysis.source import Place
from landscape.checkpoints.foreign import checkpoint_file
from landscape.compute.devices import cpu_threads
from landscape.compute.distributed import apart, joined, rank_and_world
from landscape.storage.files import write_json


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    run: tyro.conf.Positional[Path]
    """a training run, or a checkpoint in one"""
    clients: int = 4
    """the first so many clients"""
    data_dir: Path | None = None
    """the folder of the data, if not the one of the training run"""
    solves: int = 2
    """clients of whom one eigen-solve is taken apart"""
    json: Path | None = None
    """write the figures there"""


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, of one thread: other work on the machine is not in them; and what it gives."""
    start = time.process_time()
    found = action()
    return time.process_time() - start, found


def taken_apart(client: Any, w: torch.Tensor, asked: Asked) -> dict[str, float]:
    """Seconds and products of one client's solve, with K float64 products and with one, and of a trace."""
    found: dict[str, float] = {"gradient": timed(lambda: client.gradient(w))[0]}
    operator = Hessian(client, w)
    vector = torch.ones(len(w), 1, dtype=w.dtype, device=w.device)
    operator.matmat(vector)  # keeps its graphs
    found["product"] = timed(lambda: operator.matmat(vector))[0]
    operator = Hessian(client, w)
    found["lanczos"], eigen = timed(lambda: largest_eigenpairs(operator, asked.top, tolerance=asked.tolerance))
    found["lanczos_products"], found["searched"] = eigen.products, eigen.searched
    found["refined"], all_ = timed(lambda: refined(operator, eigen, tolerance=asked.tolerance))
    found["one_float64"], one = timed(lambda: refined_where_needed(operator, eigen, tolerance=asked.tolerance))
    found["moved"] = float(abs(one.values - all_.values).max())
    found["bound"] = float(one.bounds.max())
    for probes in (100, asked.trace_probes):
        operator = Hessian(client, w)
        first = largest_eigenpairs(operator, 1, tolerance=asked.tolerance)

        def trace(k: int = probes, of: Hessian = operator, krylov: Any = first.krylov) -> Any:
            return estimate_trace(of, krylov, tolerance=asked.trace_tolerance, max_probes=k)

        found[f"trace_{probes}"], estimate = timed(trace)
        found[f"trace_{probes}_products"] = spent(operator, first)
        found[f"trace_{probes}_relative_error"] = estimate.stderr / abs(estimate.value)
    return found


def main(settings: Settings) -> None:
    """Measure, print, write."""
    with joined("cpu") as device, cpu_threads(1):
        opened = open_round(checkpoint_file(settings.run), "all", Place(device=str(device), data_dir=settings.data_dir))
        some = dict(list(opened.federation.indices.items())[: settings.clients])
        federation, w = replace(opened.federation, indices=some, measured=tuple(some)), opened.weights
        asked = Asked(parts=("gradients", "perturbations", "curvature"))
        told = expected_work(federation, 0, False, asked)
        rank, world = rank_and_world()
        if rank == 0:
            announce(told, federation, 1, f"{len(some)} clients")
        seconds, start = {}, time.perf_counter()
        seconds["gradients"], (each, total) = timed(lambda: federation.gradients(w))
        losses = federation.values(w)  # in a measurement they are those of the gradients
        seconds["perturbations"], _ = timed(lambda: cross_gains(federation, w, losses, each, total, asked))
        seconds["curvature"], found = timed(lambda: compare_curvature(federation, w, asked))
        if rank:
            return
        spent_ = [found.products[0] / len(some), found.products[1]]
        print(f"{len(some)} clients, {world} processes of one thread, CPU seconds of one: {seconds}, "
              f"{time.perf_counter() - start:.0f} s by the clock")  # fmt: skip
        print(f"products a client {spent_[0]:.1f}, of f {spent_[1]:.0f}; told {told}")
        print(f"largest error of an eigenspace: {found.space_errors.max():.2g} (median "
              f"{sorted(found.space_errors)[len(some) // 2]:.2g})")  # fmt: skip
        with apart():
            solves = [taken_apart(federation.clients[i], w, asked) for i in range(settings.solves)]
        for solve in solves:
            print({name: round(value, 4) for name, value in solve.items()})
        mean = {name: sum(solve[name] for solve in solves) / len(solves) for name in solves[0]} if solves else {}
        if solves:
            rest = mean["lanczos"] + asked.probes * mean["product"]
            print(f"a client's curvature takes {(rest + mean['one_float64']) / (rest + mean['refined']):.2f} of what "
                  f"it took with a float64 product a vector, a local model's "
                  f"{mean[f'trace_{asked.trace_probes}'] / mean['trace_100']:.2f} of that with 100 probes")  # fmt: skip
        if settings.json is not None:
            figures = {"clients": len(some), "processes": world, "seconds": seconds, "products": spent_}
            write_json(settings.json, {**figures, "solves": solves})


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
