"""A run's metrics as TensorBoard's event files, beside ``metrics.jsonl``, which stays the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from landscape.errors import FedscapeError

LogName = Literal["tensorboard"]
"""Where metrics go beside ``metrics.jsonl``."""
FOLDER = "tensorboard"
"""Of the event files, in the run directory."""


class Events:
    """Event files of the package tensorboard, or nothing where none were asked for.

    Attributes:
        writer: ``torch.utils.tensorboard.SummaryWriter``, or ``None``.
    """

    def __init__(self, writer: Any = None) -> None:
        self.writer = writer

    def add(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a round's record, each by its name in ``metrics.jsonl``, at the step of its round."""
        if self.writer is None:
            return
        for name, value in record.items():
            if name != "round" and isinstance(value, (int, float)) and not isinstance(value, bool):
                self.writer.add_scalar(name, value, record["round"])
        self.writer.flush()


@contextmanager
def events(log: LogName | None, folder: Path, recorded: Callable[[], Sequence[Mapping[str, Any]]]) -> Iterator[Events]:
    """The event files of a run, open.

    They begin with the rounds that are recorded, and tell TensorBoard to drop all steps that files of before have
    (``purge_step``): a resumed run has each round once, whether or not all of it was logged.

    Args:
        log: what was asked for.
        folder: the run directory; the files are in its folder ``tensorboard``.
        recorded: reads the rounds of ``metrics.jsonl``.

    Raises:
        FedscapeError: the package is not installed.
    """
    if log is None:
        yield Events()
        return
    with summary_writer()(str(folder / FOLDER), purge_step=0) as writer:
        found = Events(writer)
        for record in recorded():
            found.add(record)
        yield found


def summary_writer() -> Any:
    """``torch.utils.tensorboard.SummaryWriter``.

    Raises:
        FedscapeError: the package tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise FedscapeError(
            f"--log tensorboard needs the package tensorboard ({error}): pip install 'fedscape[tensorboard]'"
        ) from None
    return SummaryWriter
