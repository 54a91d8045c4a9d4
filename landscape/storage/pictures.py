"""Writing pictures."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from landscape.errors import FedscapeError
from landscape.storage.files import atomic_write


def check_picture(path: str | Path) -> str:
    """The kind of picture a file name asks for, such as ``png``.

    Raises:
        FedscapeError: Matplotlib writes no such kind.
    """
    kind = Path(path).suffix[1:].lower()
    known = FigureCanvasBase.get_supported_filetypes()
    if kind not in known:
        raise FedscapeError(f"{path} is no kind of picture Matplotlib writes: end it in {', '.join(sorted(known))}")
    return kind


def save_figure(figure: Figure, path: str | Path, dpi: int = 150) -> None:
    """Write a figure atomically, in the kind its name ends in.

    Raises:
        FedscapeError: the file cannot be written or is of no kind Matplotlib writes.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format=check_picture(path), dpi=dpi)
    with atomic_write(path) as file:
        file.write(picture.getbuffer())
