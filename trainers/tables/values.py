"""The numbers of a run that a table of a grid may hold, by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from landscape.errors import FedscapeError
from trainers.runs.records import RecordedRun

Better = Literal["larger", "smaller"] | None


@dataclass(frozen=True)
class Value:
    """A number of each run.

    Attributes:
        name: as it is asked for.
        title: in words, with its unit.
        of: a run's number; ``None`` where it has none.
        better: which of two is better; ``None`` where that cannot be said.
        share: whether people read it in percent.
        target: the accuracy that is to be reached, where it is what that took.
    """

    name: str
    title: str
    of: Callable[[RecordedRun], float | None]
    better: Better = None
    share: bool = False
    target: float | None = None


_LAST, _TARGETS = "last_tenth", ("rounds_to", "gigabytes_to")


def value_of(name: str, runs: Sequence[RecordedRun]) -> Value:
    """A value by its name.

    Args:
        name: a metric of ``metrics.jsonl`` (the last one recorded), ``best_accuracy`` (of the test data),
            ``last_tenth`` (the mean test accuracy over the evaluated rounds in the last tenth), ``gigabytes`` (all
            traffic), ``rounds_to:SHARE`` or ``gigabytes_to:SHARE`` (until the first round at a test accuracy).
        runs: that have the metric.

    Raises:
        FedscapeError: there is no such value; the most similar one is told; or a target that is no share.

    Example:
        >>> from pathlib import Path
        >>> from trainers.runs import RecordedRun
        >>> from trainers.tables.values import value_of
        >>> metrics = [{"round": 1, "test_accuracy": 0.5}, {"round": 2, "test_accuracy": 0.75}]
        >>> run = RecordedRun(Path("mine"), {"algorithm": {"name": "fedavg"}, "settings": {}}, metrics, {})
        >>> value_of("rounds_to:0.7", [run]).of(run), value_of("test_accuracy", [run]).of(run)
        (2, 0.75)
        >>> value_of("test_acuracy", [run])
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: there is no value test_acuracy: did you mean test_accuracy?
    """
    kind, colon, rest = name.partition(":")
    if colon and kind in _TARGETS:
        return _to_target(name, kind, rest)
    metrics = dict.fromkeys(key for run in runs for record in run.metrics for key, v in record.items() if _number(v))
    if name in metrics:
        score = name.endswith(("accuracy", "miou"))
        better: Better = "larger" if score else "smaller" if name.endswith("loss") else None
        words = name.replace("_", " ").replace("miou", "mIoU")
        share = score or name.endswith("accuracy_deviation")
        return Value(name, f"{words} in %" if share else words, lambda run: run.last(name), better, share)
    if name == "best_accuracy":
        title = "best test accuracy in % (which knows the test data)"
        return Value(name, title, lambda run: max(run.values("test_accuracy"), default=None), "larger", True)
    if name == _LAST:
        return Value(name, "mean test accuracy of the last tenth in %", lambda run: run.last_accuracy(), "larger", True)
    if name == "gigabytes":
        return Value(name, "traffic in GB", lambda run: run.gigabytes(), "smaller")
    known = [*metrics, "best_accuracy", _LAST, "gigabytes", *(f"{each}:0.8" for each in _TARGETS)]
    near = difflib.get_close_matches(name, known, n=1)
    raise FedscapeError(f"there is no value {name}: " + (f"did you mean {near[0]}?" if near else f"give {known[0]}"))


def _to_target(name: str, kind: str, text: str) -> Value:
    try:
        target = float(text)
    except ValueError:
        target = -1.0
    if not 0 < target <= 1:
        raise FedscapeError(f"the target of {name} is no accuracy: give a share above 0 and up to 1, such as 0.8")

    def rounds(run: RecordedRun) -> float | None:
        return run.reaching(target)

    def gigabytes(run: RecordedRun) -> float | None:
        reached = run.reaching(target)
        if reached is None:
            return None
        if (traffic := run.gigabytes(reached)) is None:
            raise FedscapeError(f"{run.path} has no traffic recorded: leave it out, or choose rounds_to")
        return traffic

    if kind == "rounds_to":
        return Value(name, f"rounds to {100 * target:g} % test accuracy", rounds, "smaller", target=target)
    return Value(name, f"GB to {100 * target:g} % test accuracy", gigabytes, "smaller", target=target)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
