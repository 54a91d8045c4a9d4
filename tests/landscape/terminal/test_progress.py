"""What the line of progress keeps where a terminal is narrow."""

import io
import re

import pytest

from landscape.terminal.progress import Progress

VALUES = {"train_loss": 0.5432, "test_loss": 0.6543, "test_accuracy": "87.21 %", "drift": 0.0123}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def last_line(monkeypatch, columns: int) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr("landscape.terminal.progress.time.monotonic", lambda: next(clock))
    screen = Terminal()
    with Progress("fedasam", 200, unit="rounds", stream=screen) as progress:
        progress.update(12, **VALUES)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    return [line for line in re.split(r"[\r\n]", plain) if "12/200" in line][-1]


@pytest.mark.parametrize(("columns", "kept"), [(60, 0), (80, 0), (100, 1), (200, 4)])
def test_a_narrow_terminal_loses_values_first_and_never_bar_rate_or_time_left(columns, kept, monkeypatch):
    line = last_line(monkeypatch, columns)
    assert len(line.rstrip()) <= columns
    assert "…" not in line
    assert len(re.findall("[━╸╺]", line)) == 20
    assert re.search(r"/s, \d+:\d\d left", line)
    assert [name in line for name in VALUES] == [i < kept for i in range(4)]


def test_printed_lines_keep_to_their_width_and_leave_out_values_for_it():
    stream = io.StringIO()
    with Progress("make", 24, unit="runs", stream=stream, width=60) as progress:
        progress.update(3, failed=1, last="fedavg-ascent-swa-680849c438a748e5-and-more")
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("make 3/24 runs, failed 1, ")
    assert len(line) <= 60
