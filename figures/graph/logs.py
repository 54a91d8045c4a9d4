"""What a node says while it is made, in a file of its own: one display for all, and a log for each."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from landscape.storage.files import append_line, make_directory


class LogFile(io.TextIOBase):
    """A text stream that appends whole lines to a file, which is there from the first one on.

    Attributes:
        path: of the file.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from figures.graph.logs import LogFile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = LogFile(Path(folder) / "a.log")
        ...     print("one", "two", file=log)
        ...     log.path.read_text()
        'one two\\n'
    """

    def __init__(self, path: Path) -> None:
        self.path, self._begun = path, ""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Append the lines that are complete; the rest waits for its end."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            append_line(self.path, line)
        return len(text)

    def end(self) -> None:
        """Append what waits for the end of its line."""
        if self._begun:
            self.write("\n")


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Inside, what this process prints goes to the end of a log file."""
    make_directory(path.parent)
    log = LogFile(path)
    with redirect_stdout(log), redirect_stderr(log):
        try:
            yield
        finally:
            log.end()
