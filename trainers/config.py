"""Config files: a run's options in a TOML file by their names, or the ``config.json`` of a run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from landscape.errors import FedscapeError
from landscape.storage.reading import read_toml
from landscape.terminal.options import Option, misspelt
from trainers.algorithm import Algorithm
from trainers.algorithms import ALGORITHMS
from trainers.flags import without_idle
from trainers.runs.earlier import in_todays_terms, recorded_weighting
from trainers.runs.given import given
from trainers.runs.stored import read_config

_CODE = ("algorithm", "model", "data")
"""Options that may name something to be imported."""


def read_options(path: str | Path) -> dict[str, Any]:
    """The options in a file, by name with underscores (``per_round``), ``algorithm`` among them.

    Args:
        path: a TOML file, whose keys are the options' names (``per-round`` or ``per_round``); the ``config.json`` of
            a run, or its directory.

    Raises:
        FedscapeError: the file cannot be read, is of neither kind, has a table or a key twice, or is of an earlier
            version whose run this one cannot do.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from trainers.config import read_options
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "run.toml"
        ...     _ = file.write_text('algorithm = "fedsam"\\nper-round = 3')
        ...     read_options(file)
        {'algorithm': 'fedsam', 'per_round': 3}
    """
    path = Path(path)
    if _of_a_run(path):
        return _recorded(path if path.is_dir() else path.parent)
    if path.suffix != ".toml":
        raise FedscapeError(f"--config {path}: give a .toml file, a run directory or its config.json")
    return plain_options(read_toml(path), path)


def _of_a_run(path: Path) -> bool:
    return path.is_dir() or path.name == "config.json"


def plain_options(table: Mapping[str, Any], place: object) -> dict[str, Any]:
    """The entries of a TOML table as options: names with underscores, none twice, none of them a table.

    Raises:
        FedscapeError: one is; the sentence names ``place``.
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if isinstance(value, dict):
            raise FedscapeError(f"{place}: {key} is a table: give options as KEY = VALUE, by their names alone")
        if name in found:
            raise FedscapeError(f"{place}: {key} is there twice, with a dash and with an underscore: give one")
        if name == "config":
            raise FedscapeError(f"{place}: a config file cannot name another one: leave {key} out")
        found[name] = value
    return found


def _recorded(folder: Path) -> dict[str, Any]:
    config = read_config(folder)
    config = in_todays_terms(config, recorded_weighting(config) or "", str(folder))
    name = config["algorithm"]["name"]
    if name in dict(ALGORITHMS.items()):
        try:
            config = {**config, "algorithm": ALGORITHMS.get(name)().upgraded(config["algorithm"])}
        except (KeyError, TypeError) as error:
            raise FedscapeError(
                f"{folder / 'config.json'} is damaged: it holds no hyper-parameters of {name}"
            ) from error
    protocol = config.get("protocol")
    return given(config) | ({"protocol": protocol} if protocol else {})


def with_config(
    arguments: Sequence[str], kind_of: Callable[[str], type[Algorithm]], options_of: Callable[[str], Sequence[Option]]
) -> list[str]:
    """A command line with the options of its ``--config FILE`` before its own, which go first.

    ``--no-NAME`` takes back a switch that the file gives.

    Args:
        arguments: of ``python -m trainers``; as they are where there is no ``--config``.
        kind_of, options_of: the class and the options of an algorithm, by its name.

    Raises:
        FedscapeError: the file has an unknown option, no algorithm (nor the command line), or names code to import
            though it was written by a run.
    """
    file, rest = _taken(arguments)
    if file is None:
        return list(arguments)
    found = read_options(file)
    typed = rest.pop(0) if rest and not rest[0].startswith("-") else None
    algorithm = typed or found.get("algorithm")
    if not isinstance(algorithm, str):
        raise FedscapeError(f'{file} names no algorithm: write algorithm = "fedavg" into it, or give one')
    typed_values = dict(_typed(rest))
    words = typed_values.keys()
    overridden = {name for name in found if words & {_option(name), _option(f"no_{name}")}}
    if _of_a_run(Path(file)):  # before anything is imported
        recorded = {name: value for name, value in found.items() if name not in overridden}
        _check_recorded(file, {**recorded, "algorithm": "" if typed else algorithm}, bool(words & {"--normalise"}))
    left = {name: value for name, value in found.items() if name != "algorithm"}
    left |= {name: typed_values.get(_option(name)) for name in overridden}
    left = without_idle(left, kind_of(algorithm), sorted(overridden))  # of a part that the command line changes
    left = {name: value for name, value in left.items() if name not in overridden}
    every = options_of(algorithm)
    names = {name for option in every for name in option.names}
    back = {_option(f"no_{name}") for name in found} - names
    rest = [word for word in rest if word.replace("_", "-") not in back]
    other = str(found.get("algorithm", algorithm))
    place = file if other == algorithm else f"{file}, which is of {other} and not of {algorithm}"
    return [algorithm, *option_words(left, every, place), *rest, f"--config={file}"]


def option_words(values: Mapping[str, Any], every: Sequence[Option], place: object) -> list[str]:
    """Options as words of a command line.

    Args:
        values: by name with underscores; ``None`` is left out, true and false are switches, a list several words.
        every: the options that there are.
        place: the file's name, for the error.

    Raises:
        FedscapeError: there is no option of a name; the most similar one is told.

    Example:
        >>> from landscape.terminal.options import Option
        >>> from trainers.config import option_words
        >>> every = [Option(("--lr",), "FLOAT", ""), Option(("--swa",), "", "")]
        >>> option_words({"lr": 0.1, "swa": True}, every, "run.toml")
        ['--lr=0.1', '--swa']
        >>> option_words({"lrr": 0.1}, every, "run.toml")
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: run.toml: there is no option lrr: did you mean lr?
    """
    names = {name for option in every for name in option.names}
    words: list[str] = []
    for name, value in values.items():
        option, off = _option(name), _option(f"no_{name}")
        if not {option, off} & names:
            sentence = (misspelt([option], every) or f"there is no option {option}").replace("--", "")
            raise FedscapeError(f"{place}: {sentence.replace(option.removeprefix('--'), name, 1)}")
        if isinstance(value, bool):
            words += [word for word in [option if value else off] if word in names]
        elif isinstance(value, (list, tuple)):
            items = [str(item) for item in value]
            if dashed := [item for item in items if item.startswith("-")]:
                raise FedscapeError(f"{place}: {name} has the value {dashed[0]}: a value in a list begins with no dash")
            words += [option, *items]
        elif value is not None:
            words.append(f"{option}={value}")
    return words


def _check_recorded(file: str, left: Mapping[str, Any], given_rule: bool) -> None:
    """Refuse what a run's own file must not decide, or does not tell."""
    for name in _CODE:
        value = str(left.get(name, ""))
        if ":" in value and not value.startswith("folder:"):
            again = "the algorithm" if name == "algorithm" else f"the same --{name}"
            raise FedscapeError(
                f"{file} names the {name} '{value}', which would import and run code: if you trust it, give {again} "
                "yourself"
            )
    if "normalise" not in left and not given_rule:
        raise FedscapeError(
            f"{file} is of an earlier version, which divided floating-point inputs by their own statistics: give "
            "--normalise data for that (digits and other floats), or --normalise auto"
        )


def _taken(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of ``--config``, the last one, and the other words."""
    file, rest, words = None, [], iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != "--config":
            rest.append(word)
            continue
        file = value if equals else next(words, "")
        if not file or file.startswith("-"):
            raise FedscapeError("--config needs a file: give a .toml file, a run directory or its config.json")
    return file, rest


def _typed(words: Sequence[str]) -> Iterator[tuple[str, str | bool]]:
    """The options of a command line with their values, the first of several; a switch is true."""
    for word, after in zip_longest(words, words[1:], fillvalue="-"):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            yield name.replace("_", "-"), value if equals else after if not after.startswith("-") else True


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
