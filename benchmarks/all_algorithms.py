"""Every algorithm and some combinations on the digits: same data, seeds and budget, as one table.

    python benchmarks/all_algorithms.py                  # some minutes on one core; runs that are there are kept
    python benchmarks/all_algorithms.py --seeds 0 --rounds 20 --out /tmp/short --page /tmp/short.md

The table goes between the two marks of the page, docs/all_algorithms.md; the text around it is kept.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from landscape import FedscapeError
from landscape.storage.files import write_text
from landscape.terminal.table import Table
from trainers import train
from trainers.__main__ import read
from trainers.runs import read_runs
from trainers.tables import presented, report

PRIVACY = ("--dp 0 --dp-clip inf", "--dp 0 --dp-clip 1", "--dp 0.95 --dp-clip 1", "--dp 0.95 --dp-clip 0.2")
"""DP-FedSAM's σ, with and without noise and clipping."""
LINES = (
    "fedavg", "fedprox", "fedavgm", "fedadam", "fedadagrad", "fedyogi", "scaffold", "feddyn", "feddc",
    "feddc --server-correction sampled", "fedspeed", "fedspeed --server-correction sampled",
    "fedspeed --variant official", "fedcm", "mimelite", "fedrobust", "fedsam",
    "fedgsam", "fedasam", "mofedsam", "fedsmoo", "fedsmoo --variant official", "adabest", "fedgamma", "fedlesam",
    "fedlesam --base scaffold", "fedlesam --base feddyn", "fedgloss", "centralised",
    "fedinit", "fedacg", "fednsam", "fednova", "fedexp", "fedexp --evaluated-model last-two-mean", "fedvarp", "fedgf",
    "fedwmsam", "fedswa",
    "mime", "ghbm", "localghbm", "fedhbm", "fedsol", "fedsol --rho 0.1", "fedsol --strength adaptive",
    *(f"fedsam {privacy} --sampling bernoulli --weighting uniform --aggregation unbiased" for privacy in PRIVACY),
    # Caldarola et al., Table 6: ASAM on other algorithms; their SWA; the parts alone and together.
    "fedavgm --ascent asam", "fedprox --ascent asam", "scaffold --ascent asam", "feddyn --ascent asam",
    "adabest --ascent asam", "fedavg --swa", "fedasam --swa", "fedavg --man 0.15", "feddyn --man 0.15",
    "fedavg --mixup", "fedavg --cutout --cutout-size 4", "fedsam --server-optimizer momentum",
    "fedprox --server-optimizer adam --server-optimizer-lr 0.01", "fedsmoo --man 0.15 --mixup",
    "scaffold --ascent asam --man 0.15 --swa --mixup", "centralised --ascent asam --swa",
    "feddyn --start relaxed --start-average models", "scaffold --server-optimizer nesterov",
)  # fmt: skip
BUDGET = (
    "--data digits --model digits_mlp --partition dirichlet:0.1 --clients 20 --per-round 5 --local-epochs 2 "
    "--batch-size 32 --lr 0.1 --lr-decay 0.998 --weight-decay 1e-3 --clip 10 --save-every 0 --device cpu --quiet"
)
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


@dataclass(frozen=True)
class Settings:
    """What is run, and where it goes."""

    rounds: int = 100
    """communication rounds"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """a run for each; the table has mean ± deviation"""
    targets: tuple[float, ...] = (0.8, 0.9)
    """test accuracies for rounds to target"""
    out: Path = Path("runs/all_algorithms")
    """run directories"""
    page: Path = Path("docs/all_algorithms.md")
    """Markdown page that holds the table"""


def directory(line: str, seed: int) -> str:
    """A run's name: ``scaffold-ascent-asam-seed-0``."""
    return "-".join(word.lstrip("-") for word in [*line.split(), "--seed", str(seed)])


def markdown(table: Table) -> str:
    """The table in Markdown; numbers rounded as in text."""
    rows = [
        [cell if isinstance(cell, str) else "–" if cell is None else f"{cell:.4g}" for cell in r] for r in table.rows
    ]
    lines = [table.columns, ["---"] * len(table.columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def compared(settings: Settings) -> Table:
    """A row for each line, over the seeds."""
    reaching = [f"rounds to {100 * target:g} %" for target in settings.targets]
    columns = ["status", "accuracy %", "last tenth %", "SWA %", *reaching, "drift", "MB down", "MB up"]
    rows = []
    for line in LINES:
        runs = read_runs(settings.out / directory(line, seed) for seed in settings.seeds)
        table = presented(report(runs, settings.targets, group=True))
        row = dict(zip(table.columns, table.rows[0], strict=True))
        rows.append((f"`{line}`", *(row.get(name) for name in columns)))
    return Table(("run", *columns), tuple(rows))


def write(page: Path, text: str, name: str = "") -> None:
    """Put the table between the page's marks; of several tables on a page, those that say ``: name``.

    Raises:
        FedscapeError: it has none.
    """
    begin = BEGIN.replace("table", f"table: {name}") if name else BEGIN
    whole = page.read_text(encoding="utf-8") if page.exists() else begin + END
    before, _, rest = whole.partition(begin)
    if END not in rest:
        raise FedscapeError(f"{page} has no marks {begin.strip()} and {END.strip()} for the table")
    write_text(page, before + begin + "\n" + text + "\n" + END + rest.partition(END)[2])


def main(settings: Settings) -> None:
    """Run what is not there yet, and write the table."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    for seed in settings.seeds:
        for line in LINES:
            out = settings.out / directory(line, seed)
            words = [*line.split(), *BUDGET.split(), "--rounds", str(settings.rounds), "--seed", str(seed)]
            command = read([*words, "--out", str(out)])
            run = train(command.algorithm, command.settings, command.parts, out=out, resume=True)
            print(f"{time.perf_counter() - start:6.0f} s  {out.name}: {run.status}", file=sys.stderr, flush=True)
    write(settings.page, markdown(compared(settings)))
    print(f"table: {settings.page}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
