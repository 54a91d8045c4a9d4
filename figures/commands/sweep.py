"""``python -m figures sweep``: the runs of a grid."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TextIO

import tyro

from figures.commands.work import Work
from figures.graph import Node, Outcome, Store
from figures.graph.cost import Costs, duration
from figures.graph.grid import Grid, GridRun, read_grid
from landscape.storage.files import make_directory, write_json
from landscape.storage.outputs import Output, check_folder, check_outputs
from landscape.storage.reading import read_json
from landscape.terminal.command import EXIT_DIVERGED
from landscape.terminal.program import spoken
from landscape.terminal.table import Table
from trainers.runs.stored import RESULT, read_metrics
from trainers.tables.selection import shown_value


@dataclass(frozen=True)
class Sweep:
    """Train the runs of a grid: every combination of the values that a TOML file gives options of training.

    Runs are kept in DIR/store by what decides their result, those of figures with the same DIR among them: a finished
    one is never trained again, an interrupted one continues. What fails or diverges is told at the end (exit code 1,
    or 3 where all that did is diverge), and the others go on. Each run's log is DIR/store/logs/NAME.log; DIR/GRID.json
    lists the runs for `fedscape runs` and `fedscape figures curves`.
    """

    grid: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="GRID.toml")]
    """options of training by name: one value, a list, or a range such as {from = 0.01, to = 1, steps = 5, log = true};
    [overrides.fedsam] has what that algorithm is given instead"""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("sweep")
    """folder of the runs; grids and figures with the same one share them"""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """tell the runs, how far each is and what is left to do, and train nothing"""
    work: Work = field(default_factory=Work)

    def run(self) -> int:
        """Train; the exit code."""
        grid, store = read_grid(self.grid), Store(self.out / "store")
        if self.dry_run:
            print(planned(grid, store).on_screen())
            print(in_all(grid, store))
            return 0
        check_folder("--out", self.out, ("store/runs",), force=self.work.force)
        listed = self.out / f"{grid.name}.json"
        check_outputs([Output("--out", listed, "json", ("grid", "runs"))], [self.grid], force=self.work.force)
        make_directory(store.runs.folder)
        write_json(listed, list_of(grid, store, self.out))
        print(f"{len(grid.runs)} runs: {counts(grid, store)}; logs in {store.folder / 'logs'}", flush=True)
        outcome = self.work.execute([each.run for each in grid.runs], store)
        code = report(grid, store, outcome, sys.stderr)
        print(f"{len(grid.runs)} runs: {outcome.made} made now, {counts(grid, store)}")
        print(f"list: {listed}\ncompare them: {_next(grid, listed)}")
        return code


def list_of(grid: Grid, store: Store, folder: Path) -> dict[str, object]:
    """The list of a grid's runs: the directory of each below ``folder``, and what it was given."""
    runs = [{"path": store.runs.path(each.run).relative_to(folder).as_posix(), **each.options} for each in grid.runs]
    return {"grid": grid.name, "runs": runs}


def how_far(run: GridRun, store: Store) -> str:
    """``finished``, ``diverged``, ``interrupted``, ``failed`` or ``missing``."""
    state = store.state(run.run)
    if state == "done":
        return str(read_json(store.runs.path(run.run) / "result.json", RESULT)["status"])
    return {"partial": "interrupted"}.get(state, state)


def counts(grid: Grid, store: Store) -> str:
    """How many runs are how far, such as ``3 finished, 21 missing``."""
    found = Counter(how_far(each, store) for each in grid.runs)
    order = ("finished", "diverged", "interrupted", "failed", "missing")
    return ", ".join(f"{found[name]} {name}" for name in order if found[name])


def left(run: GridRun, store: Store, costs: Costs) -> float | None:
    """Seconds on one core that a run takes yet, about; ``None`` where its network or data are not known."""
    if store.state(run.run) == "done":
        return 0.0
    seconds, rounds = costs.seconds([run.run]), run.run.settings.rounds
    recorded = read_metrics(store.runs.path(run.run))
    done = min(1.0, recorded[-1]["round"] / rounds) if recorded and rounds else 0.0
    return None if seconds is None else seconds * (1 - done)


def planned(grid: Grid, store: Store) -> Table:
    """The runs, how far each is, and what is left to do."""
    costs = Costs(store, [each.run for each in grid.runs])
    rows = []
    for each in grid.runs:
        seconds, state = left(each, store, costs), how_far(each, store)
        if state in ("interrupted", "failed") and (recorded := read_metrics(store.runs.path(each.run))):
            state = f"{state}, {recorded[-1]['round']} of {each.run.settings.rounds}"
        told = [shown_value(each.options.get(name)) for name in grid.varied]
        rows.append((*told, state, "?" if seconds is None else duration(seconds)))
    return Table((*grid.varied, "state", "h:min"), tuple(rows))


def in_all(grid: Grid, store: Store) -> str:
    """The runs by how far they are, and the hours that are left, in a line."""
    costs = Costs(store, [each.run for each in grid.runs])
    each = [left(run, store, costs) for run in grid.runs]
    known = [seconds for seconds in each if seconds is not None]
    hours = ("" if len(known) == len(each) else ">") + duration(sum(known))
    return f"{len(grid.runs)} runs: {counts(grid, store)}; {hours} (h:min on one core) are left"


def report(grid: Grid, store: Store, outcome: Outcome, stream: TextIO) -> int:
    """Tell what failed, diverged or was left to another process; the exit code."""
    labels: dict[Node, str] = {each.run: grid.label(each) for each in grid.runs}
    for node, reason in outcome.failed.items():
        print(f"failed: {labels[node]}: {reason} ({store.log(node)})", file=stream)
    for node in outcome.busy:
        print(f"not made: {labels[node]}: another process is making it; give the command again later", file=stream)
    diverged = [each for each in grid.runs if store.state(each.run) == "done" and how_far(each, store) == "diverged"]
    for each in diverged:
        result = read_json(store.runs.path(each.run) / "result.json", RESULT)
        print(f"diverged: {grid.label(each)}: in round {result['round']}, {result['reason']}", file=stream)
    if outcome.failed or outcome.busy:
        return 1
    return EXIT_DIVERGED if diverged else 0


def _next(grid: Grid, listed: Path) -> str:
    """The command that compares the runs of a grid, by all options in which those of one algorithm differ."""
    values: dict[str, set[tuple[str, str]]] = {name: set() for name in grid.varied if name not in ("algorithm", "seed")}
    for each in grid.runs:
        for name, found in values.items():
            found.add((each.options["algorithm"], repr(each.options.get(name))))
    names = ["algorithm", *(n for n, found in values.items() if len(found) > len({one for one, _ in found}))]
    columns = f" --columns {names[1]}" if len(names) > 1 else ""
    return spoken(f"python -m trainers report {listed} --group --rows {' '.join([names[0], *names[2:]])}{columns}")
