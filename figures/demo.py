"""The demonstration for a new user: FedAvg against FedASAM on the embedded digits."""

from __future__ import annotations

import time
from pathlib import Path

from figures.comparison import compare
from landscape.terminal.program import spoken
from trainers import FedASAM, FedAvg, Settings, train

SETTINGS = Settings(
    data="digits", model="digits_mlp", partition="dirichlet:0.1", clients=20, per_round=5, rounds=200, local_epochs=2
)


def demo(out: str | Path = "demo", *, force: bool = False, progress: bool = True) -> None:
    """Train both, measure the landscape around both, draw the comparison, and print where the files are.

    Args:
        out: folder for the runs and the comparison.
        force: take folders that hold other files.
        progress: show progress on stderr.

    Raises:
        FedscapeError: a file cannot be written.
    """
    out, start = Path(out), time.perf_counter()
    s = SETTINGS
    print(
        f"FedAvg against FedASAM: {s.model} on {s.data}, {s.clients} clients at {s.partition}, "
        f"{s.per_round} a round, {s.rounds} rounds"
    )
    runs = [
        train(algorithm, SETTINGS, out=out / name, resume=True, force=force, progress=progress)
        for name, algorithm in (("fedavg", FedAvg()), ("fedasam", FedASAM()))
    ]
    result = compare([run.checkpoint for run in runs], out / "compare", progress=progress)
    print("\n".join(["", result.table().on_screen(), *result.notes(), ""]))
    picture, *pictures, text, numbers = result.files
    print(f"the sheet      {', '.join([str(picture), *(file.name for file in pictures)])}")
    print(f"the table      {text}, {numbers.name}")
    print(f"the runs       {runs[0].path}, {runs[1].path}")
    print(f"in {time.perf_counter() - start:.0f} s. What to try next:")
    fedavg, fedasam = (run.path for run in runs)
    for command in (
        f"python -m figures report {fedavg} {fedasam} -o {out / 'report.html'}",
        f"python -m analysis.hessian {fedasam} --top 20 --density --out {out / 'hessian'}",
        f"python -m analysis.surface {fedasam} --points 41 --plot {out / 'surface.png'}",
        f"python -m trainers scaffold --rounds {s.rounds} --out {out / 'scaffold'}",
        "python -m trainers --help",
    ):
        print(f"  {spoken(command)}")
