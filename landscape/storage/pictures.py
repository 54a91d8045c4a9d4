"""Write pictures with Matplotlib."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from landscape.errors import FedscapeError
from landscape.storage.files import atomic_write


def check_picture(path: str | Path) -> str:
    """The file format of a picture by its suffix, such as ``png``.

    Raises:
        FedscapeError: Matplotlib does not write this format.
    """
    kind = Path(path).suffix[1:].lower()
    known = FigureCanvasBase.get_supported_filetypes()
    if kind not in known:
        raise FedscapeError(f"{path} is no kind of picture Matplotlib writes: end it in {', '.join(sorted(known))}")
    return kind


def save_figure(figure: Figure, path: str | Path, dpi: int = 150) -> None:
    """Write a figure atomically, in the format of the suffix.

    Raises:
        FedscapeError: the file cannot be written, or Matplotlib does not write its format.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format=check_picture(path), dpi=dpi)
    with atomic_write(path) as file:
        file.write(picture.getbuffer())
