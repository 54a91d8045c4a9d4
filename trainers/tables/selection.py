"""Which runs are meant: their directories, the list of a grid's, and those of them that were given certain options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from landscape.errors import FedscapeError
from landscape.storage.reading import read_json
from landscape.storage.schema import Items, Record, Text
from landscape.terminal.options import meant
from trainers.runs.given import given
from trainers.runs.records import SAME_RESULT, RecordedRun

GRID = Record({"grid": Text(), "runs": Items(Record({"path": Text(4096)}))})
"""The list of a grid's runs, which ``fedscape sweep`` writes: their directories beside what each was given."""


def run_paths(paths: Iterable[Path]) -> tuple[list[Path], int]:
    """Run directories, with those of grids' lists (``.json`` files) in their place.

    Returns:
        The directories, and how many of the lists' are not there yet.

    Raises:
        FedscapeError: a list cannot be read, or none of the runs that it names is there.
    """
    found, missing = [], 0
    for path in paths:
        if path.suffix != ".json" or path.is_dir() or path.name == "config.json":
            found.append(path)
            continue
        named = [path.parent / run["path"] for run in read_json(path, GRID)["runs"]]
        there = [run for run in named if _begun(run)]
        if not there:
            raise FedscapeError(f"none of the {len(named)} runs of {path} is there: make them with fedscape sweep")
        found += there
        missing += len(named) - len(there)
    return found, missing


def _begun(folder: Path) -> bool:
    try:
        return (folder / "config.json").exists()
    except (OSError, ValueError):  # no name of a file: too long, or with a null in it
        return False


def told(run: RecordedRun, name: str) -> Any:
    """What a run was given for an option, by its name with underscores; ``None`` where it has none.

    ``alpha`` is the concentration of a Dirichlet partition where the algorithm has no such hyper-parameter.

    Example:
        >>> from pathlib import Path
        >>> from trainers.runs import RecordedRun
        >>> from trainers.tables.selection import told
        >>> config = {"algorithm": {"name": "fedsam", "rho": 0.1}, "settings": {"partition": "dirichlet:0.6"}}
        >>> run = RecordedRun(Path("a"), config, [], {})
        >>> told(run, "algorithm"), told(run, "rho"), told(run, "alpha"), told(run, "mu")
        ('fedsam', 0.1, 0.6, None)
    """
    found = given(run.config)
    if name == "alpha" and name not in found:
        kind, _, rest = str(found.get("partition")).partition(":")
        number = rest.partition("+")[0]
        return float(number) if kind.startswith("dirichlet") and number else None
    return found.get(name)


def check_name(runs: Sequence[RecordedRun], name: str) -> str:
    """An option's name with underscores, where some run was given it.

    Raises:
        FedscapeError: none was; the most similar option is told.  Or ``alpha`` means one thing for some runs and
            another for others.
    """
    plain = name.replace("-", "_")
    if plain == "alpha" and len({"alpha" in given(run.config) for run in runs}) > 1:
        raise FedscapeError(
            "alpha is a hyper-parameter of some of the algorithms and not of others: give partition for Dirichlet's, "
            "or choose with --where algorithm=NAME"
        )
    if any(told(run, plain) is not None for run in runs):
        return plain
    known = dict.fromkeys(f"--{option.replace('_', '-')}" for run in runs for option in given(run.config))
    near = meant(f"--{name.replace('_', '-')}", list(known))
    hint = f": did you mean {near.removeprefix('--').replace('-', '_')}?" if near else ""
    raise FedscapeError(f"no run was given an option {name}{hint}")


def where(runs: Sequence[RecordedRun], conditions: Iterable[str]) -> list[RecordedRun]:
    """The runs that were given all of these, each as ``NAME=VALUE``.

    Raises:
        FedscapeError: a condition without ``=``, a name that no run was given, or no run is left.
    """
    left = list(runs)
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise FedscapeError(f"--where is '{condition}': give NAME=VALUE, such as algorithm=fedsam")
        plain = check_name(runs, name)
        left = [run for run in left if shown_value(told(run, plain)) == value]
        if not left:
            values = dict.fromkeys(shown_value(told(run, plain)) for run in runs)
            raise FedscapeError(f"no run has {condition}: there are {', '.join(values)}")
    return left


def groups(runs: Sequence[RecordedRun]) -> dict[str, list[RecordedRun]]:
    """The runs that differ by their seed only, by what tells them from the others, such as ``fedsam, rho 0.1``: the
    options that have several values in one algorithm, or that all have and in which they differ.

    Raises:
        FedscapeError: a seed is there more than once in a group.
    """
    found: dict[str, list[RecordedRun]] = {}
    for run in runs:
        found.setdefault(run.configuration, []).append(run)
    firsts = [members[0] for members in found.values()]
    by_algorithm: dict[Any, list[RecordedRun]] = {}
    for run in firsts:
        by_algorithm.setdefault(told(run, "algorithm"), []).append(run)
    within = {name for members in by_algorithm.values() for name in differing(members)}
    common = set.intersection(*(set(given(run.config)) for run in firsts)) if firsts else set()
    names = [name for name in differing(firsts) if name in within | common]
    names = ["algorithm", *(name for name in names if name != "algorithm")]
    labelled: dict[str, list[RecordedRun]] = {}
    for members in found.values():
        values = {name: told(members[0], name) for name in names}
        label = ", ".join(titled(name, value) for name, value in values.items() if value is not None)
        labelled[label] = members
        check_seeds(members, label)
    return labelled


def differing(runs: Sequence[RecordedRun]) -> list[str]:
    """The options in which runs differ, but for those that may differ between the seeds of one group."""
    options = [given(run.config) for run in runs]
    every = dict.fromkeys(name for each in options for name in each if name not in SAME_RESULT)
    return [name for name in every if len({repr(each.get(name)) for each in options}) > 1]


def check_seeds(runs: Sequence[RecordedRun], place: str) -> None:
    """Refuse runs of one group of whom two have the same seed.

    Raises:
        FedscapeError: two have.
    """
    seeds = [run.seed for run in runs]
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        paths = ", ".join(str(run.path) for run in runs if run.seed == twice[0])
        raise FedscapeError(f"{place} has seed {twice[0]} more than once ({paths}): give each run once")


def titled(name: str, value: Any) -> str:
    """The value of an option where it stands without its column: a text alone, anything else with its name."""
    return value if isinstance(value, str) else f"{name} {shown_value(value)}"


def shown_value(value: Any) -> str:
    """The value of an option in a word or number; ``-`` for none.

    Example:
        >>> from trainers.tables.selection import shown_value
        >>> shown_value(0.10), shown_value(True), shown_value(None), shown_value("iid")
        ('0.1', 'true', '-', 'iid')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return " ".join(map(shown_value, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)
