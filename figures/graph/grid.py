"""Grids of runs: options with several values each, in a TOML file, as the runs of all their combinations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from figures.graph.ranges import several
from landscape.errors import FedscapeError
from landscape.storage.reading import read_toml
from landscape.terminal.options import Option, meant
from trainers.__main__ import Output, kind_of, options_of, read
from trainers.config import option_words, plain_options
from trainers.flags import without_idle
from trainers.runs.planned import PlannedRun
from trainers.tables.selection import titled

_PLACE = {"device": "--device", "data_dir": "--data-dir", "out": "--out"}
"""What the sweep's options say of all runs, by the names of a run's."""
_NOT_THE_RUNS = frozenset({*_PLACE, *(each.name for each in fields(Output))})

Options = dict[str, Any]
Axes = Mapping[str, list[Any]]
"""The values of each option."""


@dataclass(frozen=True)
class GridRun:
    """A run of a grid.

    Attributes:
        options: what it was given, by name with underscores.
        run: what is trained.
    """

    options: Options
    run: PlannedRun


@dataclass(frozen=True)
class Grid:
    """The runs of a grid, each once.

    Attributes:
        name: of the file, without what it ends in.
        runs: in the order of the file, the last option with several values changing first.
        order: of the options in the file.
    """

    name: str
    runs: tuple[GridRun, ...]
    order: tuple[str, ...]

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """The options in which the runs differ."""
        names = dict.fromkeys([*self.order, *(name for each in self.runs for name in each.options)])
        return tuple(name for name in names if len({repr(each.options.get(name)) for each in self.runs}) > 1)

    def label(self, run: GridRun) -> str:
        """What tells a run from the others, such as ``fedsam, rho 0.1, seed 0``."""
        told = [(name, run.options.get(name)) for name in self.varied]
        words = [titled(name, value) for name, value in told if value is not None]
        return ", ".join(words) or run.run.name


def read_grid(path: str | Path) -> Grid:
    """The grid of a TOML file.

    An entry is an option of training by its name; a list or a range (:func:`figures.graph.ranges.several`) is several
    values of it.  ``[overrides.fedsam]`` has what that algorithm is given in their place.  An option goes to the
    algorithms that have it, and that of a part where the part is chosen; one that no run has is refused.  ``false``
    leaves an option out.

    Raises:
        FedscapeError: the file cannot be read, has an unknown option, or a combination that cannot be a run.

    Example:
        >>> import tempfile
        >>> from figures.graph.grid import read_grid
        >>> text = '''
        ... algorithm = ["fedavg", "fedsam"]
        ... rho = [0.05, 0.1]
        ... seed = {from = 0, to = 1}
        ... rounds = 3
        ... [overrides.fedavg]
        ... lr = 0.2
        ... '''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "grid.toml").write_text(text)
        ...     grid = read_grid(Path(folder) / "grid.toml")
        >>> [grid.label(run) for run in grid.runs][:3]  # ρ is none of FedAvg's
        ['fedavg, seed 0, lr 0.2', 'fedavg, seed 1, lr 0.2', 'fedsam, rho 0.05, seed 0']
        >>> len(grid.runs), grid.runs[0].run.settings.lr, grid.runs[2].run.settings.lr
        (6, 0.2, 0.1)
    """
    path = Path(path)
    table = read_toml(path)
    overrides = table.pop("overrides", {})
    if not isinstance(overrides, dict) or not all(isinstance(each, dict) for each in overrides.values()):
        raise FedscapeError(
            f"{path}: overrides is no table of algorithms: write [overrides.fedsam] and below it options"
        )
    common = _axes(table, str(path))
    if not common.get("algorithm"):
        raise FedscapeError(f'{path} names no algorithm: write algorithm = ["fedavg", "fedsam"]')
    own = {name: _axes(each, f"{path}, overrides of {name}") for name, each in overrides.items()}
    order = tuple(common)
    names = [str(name) for name in common["algorithm"]]
    common = {name: values for name, values in common.items() if name != "algorithm"}
    if unused := [name for name in own if name not in names]:
        raise FedscapeError(f"{path} has overrides of {unused[0]}, which is none of its algorithms {', '.join(names)}")
    return Grid(path.stem, tuple(_runs(path, names, common, own)), order)


def _axes(table: Mapping[str, Any], place: str) -> Axes:
    """The values of each option."""
    found = {name: several(value, f"{place}: {name}") for name, value in table.items()}
    axes: Axes = plain_options(found, place)
    for name in axes:
        if name in _NOT_THE_RUNS:
            instead = f"give {_PLACE[name]} to the sweep" if name in _PLACE else "leave it out"
            raise FedscapeError(f"{place}: {name} is no option of a grid's runs: {instead}")
    return axes


def _runs(path: Path, names: Sequence[str], common: Axes, own: Mapping[str, Axes]) -> list[GridRun]:
    found: dict[PlannedRun, GridRun] = {}
    used: set[str] = set()
    every: dict[str, None] = {}
    for name in names:
        options = options_of(name)
        known = sorted({_plain(option) for one in options for option in one.names})
        every |= dict.fromkeys(known)
        mine = own.get(name, {})
        for option in mine:
            if option not in known:
                raise _unknown(f"{path}, overrides of {name}", option, known)
        axes = {option: values for option, values in {**common, **mine}.items() if option in known}
        made: dict[str, PlannedRun] = {}
        applied: set[str] = set()
        for values in itertools.product(*axes.values()):
            chosen = without_idle(dict(zip(axes, values, strict=True)), kind_of(name))
            applied |= chosen.keys()
            given = {option: value for option, value in chosen.items() if value is not False}
            run = _planned(path, name, given, options, made)
            found.setdefault(run, GridRun({"algorithm": name, **given}, run))
        if idle := [option for option in mine if option not in applied]:
            raise _idle(f"{path}, overrides of {name}", idle[0])
        used |= applied
    for option in common:
        if option not in used:
            raise _idle(str(path), option) if option in every else _unknown(str(path), option, list(every))
    return list(found.values())


def _planned(
    path: Path, name: str, values: Options, every: Sequence[Option], made: dict[str, PlannedRun]
) -> PlannedRun:
    """The run of an algorithm with these options; seeds share what was made of the others."""
    others = {option: value for option, value in values.items() if option != "seed"}
    seed = values.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise FedscapeError(f"{path}: the seed is {seed}: give whole numbers")
    key = repr(others)
    if key not in made:
        words = [name, *option_words(others, every, path)]
        try:
            command = read(words)
            command.parts.check(command.algorithm)
        except FedscapeError as error:
            raise FedscapeError(f"{path}, the run {' '.join(words)}: {error}") from error
        made[key] = PlannedRun(command.algorithm, command.settings, command.parts)
    return made[key].seeded(seed)


def _idle(place: str, option: str) -> FedscapeError:
    return FedscapeError(f"{place}: no run has the option {option}, which belongs to a part: choose the part, too")


def _plain(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _unknown(place: str, option: str, known: Sequence[str]) -> FedscapeError:
    near = meant(f"--{option.replace('_', '-')}", [f"--{name.replace('_', '-')}" for name in known])
    hint = f": did you mean {near.removeprefix('--').replace('-', '_')}?" if near else ""
    return FedscapeError(f"{place}: no algorithm of it has an option {option}{hint}")
