"""Compare files with their published checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

from landscape.data.sources import SOURCES, source_folder
from landscape.errors import FedscapeError
from landscape.terminal.table import Table


def matches(path: Path, checksum: str) -> bool:
    """Whether a file has a checksum, ``md5:…`` or ``sha256:…``.

    Raises:
        FedscapeError: the file cannot be read.
    """
    kind, _, wanted = checksum.partition(":")
    try:
        with open(path, "rb") as file:
            digest = hashlib.new(kind)
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise FedscapeError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest() == wanted


def check_published(name: str, path: Path) -> None:
    """Refuse a file with the published length and another checksum: it is damaged.

    A file of another length may be another version of the data, and is left to the readers' checks.

    Raises:
        FedscapeError: the file is damaged.
    """
    source = SOURCES[name]
    length = source.lengths.get(path.name)
    if length is None or not path.is_file() or path.stat().st_size != length:
        return
    if not matches(path, source.files[path.name]):
        raise FedscapeError(
            f"{path} is damaged: it is as long as the published file and its checksum is not {source.files[path.name]}"
        )


def verify(name: str, data_dir: Path | None) -> Table:
    """A table of the data set's files on disk: whether each is as published.

    Raises:
        FedscapeError: no such data set, its folder or all its files are missing, or no checksums are published.
    """
    if name not in SOURCES or not SOURCES[name].files:
        known = [key for key, source in SOURCES.items() if source.files]
        raise FedscapeError(f"no checksums of files are published for '{name}': they are for {', '.join(known)}")
    folder = source_folder(name, data_dir)
    files = {file: checksum for file, checksum in SOURCES[name].files.items() if (folder / file).is_file()}
    if not files:
        raise FedscapeError(f"{folder} holds none of {', '.join(SOURCES[name].files)}")
    rows = [(f, "as published" if matches(folder / f, checksum) else "differs") for f, checksum in files.items()]
    return Table(("file", "content"), tuple(rows))
