"""Progress of a long computation on stderr: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any, TextIO

from landscape.terminal.table import Share

_EVERY = {"bar": 0.1, "lines": 5.0}
_BAR = 20
_BESIDE = _BAR + 3
"""Columns of the spinner and the bar, with a blank after each."""


class Progress:
    """Shows ``surface 120/625 points, loss 0.43, 310 points/s, 0:02 left`` during the work.

    On a terminal the line is beside a bar and updated in place; elsewhere (a log file, a notebook) it is printed at
    most every five seconds, and once at the end.

    Args:
        description: the work, in a word or two.
        total: the number of units of work; ``None`` if unknown.
        done: the units that were done before (a resumed run); they are not part of the rate.
        unit: the name of the units, in the plural.
        enabled: whether to show anything.
        stream: the file to print to; stderr unless given.
        width: columns that a printed line has at most; as many as it takes unless given.

    Example:
        >>> import sys
        >>> from landscape.terminal.progress import Progress
        >>> with Progress("count", 3, unit="sheep", enabled=False) as progress:
        ...     for n in range(3):
        ...         progress.update(n + 1, loss=0.5 / (n + 1))
    """

    def __init__(
        self,
        description: str,
        total: int | None = None,
        *,
        done: int = 0,
        unit: str = "steps",
        enabled: bool = True,
        stream: TextIO | None = None,
        width: int | None = None,
    ) -> None:
        self.description, self.total, self.unit, self.enabled = description, total, unit, enabled
        self._stream, self._width = stream or sys.stderr, width
        self._before = self._done = done
        self._fields: dict[str, Any] = {}
        self._start = self._shown = time.monotonic()
        self._current = True  # whether the latest state is on the screen
        self._bar: Any = None

    def __enter__(self) -> Progress:
        self._start = self._shown = time.monotonic()
        if self.enabled and self._stream.isatty() and os.environ.get("TERM") != "dumb":
            self._open_bar()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._current:
            self._show()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def update(self, done: int, *, of: int | None = None, **fields: Any) -> None:
        """Set the number of units done so far, and values to show with it.

        Args:
            done: the units done.
            of: the new total, if it has changed.
            fields: values to show by name, shares (:class:`landscape.terminal.table.Share`) in percent; those that are
                ``None`` are left out.
        """
        self._done, self._fields = done, fields
        self.total = self.total if of is None else of
        self._current = not self.enabled
        if self.enabled and time.monotonic() - self._shown >= _EVERY["bar" if self._bar is not None else "lines"]:
            self._show()

    def line(self, width: int | None = None) -> str:
        """The state in one line of text.

        Args:
            width: the columns there are; where they are too few, values are left out, the last first, then units.
        """
        of = "" if self.total is None else f"/{self.total:,}"
        count = f"{self.description} {self._done:,}{of}"
        values = [f"{name} {_text(value)}" for name, value in self._fields.items() if value is not None]
        pace = self._pace()
        lines = [", ".join([f"{count} {self.unit}", *values[:kept], *pace]) for kept in range(len(values), -1, -1)]
        lines.append(", ".join([count, *(part.replace(f" {self.unit}/s", "/s") for part in pace)]))
        return next((line for line in lines if width is None or len(line) <= width), lines[-1])

    def _pace(self) -> list[str]:
        """How fast, and how long it takes yet."""
        elapsed, now_done = time.monotonic() - self._start, self._done - self._before
        if now_done <= 0 or elapsed <= 0:
            return []
        rate = now_done / elapsed
        told = f"{rate:,.0f} {self.unit}/s" if rate >= 100 else f"{rate:.2g} {self.unit}/s"
        if self.total is None:
            return [told, f"{_clock(elapsed)} so far"]
        done = self._done >= self.total
        return [told, f"in {_clock(elapsed)}" if done else f"{_clock((self.total - self._done) / rate)} left"]

    def _show(self) -> None:
        self._shown, self._current = time.monotonic(), True
        if self._bar is not None:
            line = self.line(self._bar.console.width - _BESIDE)
            self._bar.update(self._task, completed=self._done, total=self.total, line=line)
        else:
            with suppress(OSError):  # an error of the output must not end the work
                print(self.line(self._width), file=self._stream, flush=True)

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (SpinnerColumn(), BarColumn(bar_width=_BAR), TextColumn("{task.fields[line]}", markup=False))
        self._bar = Bar(*columns, console=Console(file=self._stream))
        line = self.line(self._bar.console.width - _BESIDE)
        self._task = self._bar.add_task("", total=self.total, completed=self._done, line=line)
        self._bar.start()


def _text(value: Any) -> str:
    if isinstance(value, Share):
        return f"{value:.1%}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``3:05:00``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
