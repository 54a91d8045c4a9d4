"""Download data sets at the user's request, with torchvision's downloader or Hugging Face ``datasets``."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from landscape.data.checksums import matches
from landscape.data.dataset import every_fifth
from landscape.data.sources import SOURCES, Archive
from landscape.data.tables import client_ids
from landscape.errors import FedscapeError
from landscape.registry import unknown_name
from landscape.storage.files import atomic_write, make_directory, write_text

_UNPACKED = (".zip", ".tar", ".tar.gz", ".tar.bz2")


def fetch(name: str, data_dir: Path) -> Path:
    """Download a data set into ``data_dir``, in the layout that it is read in, and return its folder.

    Archives are checked against their published checksums before they are unpacked.  Existing files are not changed,
    and an archive that was unpacked completely is not downloaded again.

    Raises:
        FedscapeError: no such data set, or one that a program cannot download; torchvision or ``datasets`` is missing;
            the download fails or has another checksum; files cannot be written.
    """
    if name == "digits":
        raise FedscapeError("digits is embedded: there is nothing to fetch")
    if name not in SOURCES:
        raise unknown_name("data set", name, list(SOURCES))
    source = SOURCES[name]
    if not source.fetched:
        raise FedscapeError(f"{name} cannot be fetched by a program: get it {source.by_hand}")
    folder = make_directory(data_dir) / source.folder
    if source.hub and not (folder / "femnist.npz").exists():
        _femnist(source.hub, make_directory(folder) / "femnist.npz")
    for archive in source.archives:
        _download(archive, data_dir)
    return folder


def _download(archive: Archive, data_dir: Path) -> None:
    """Download, check and unpack into a temporary folder, then move the files that do not exist yet."""
    try:
        from torchvision.datasets import utils
    except Exception as error:  # with a torch of another build its import fails in many ways
        raise FedscapeError(
            f"downloading needs a torchvision that fits this torch (pip install 'fedscape[data]'): {_line(error)}"
        ) from error
    target, file = make_directory(data_dir / archive.into), archive.url.rpartition("/")[2]
    done = target / f".{file}.unpacked"
    if done.exists() or ((target / file).exists() and matches(target / file, archive.checksum)):
        return
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target) as temporary:
        contents = make_directory(Path(temporary) / "contents")
        try:
            utils.download_url(archive.url, temporary, file)
        except (OSError, RuntimeError, ValueError) as error:
            raise FedscapeError(f"cannot download {archive.url}: {_line(error)}") from error
        if not matches(Path(temporary) / file, archive.checksum):
            raise FedscapeError(
                f"{archive.url} is not what was published: its checksum is not {archive.checksum}; nothing was kept"
            )
        try:
            if file.endswith(_UNPACKED):
                utils.extract_archive(str(Path(temporary) / file), str(contents))
            else:
                shutil.move(Path(temporary) / file, contents)
            for path in (path for path in contents.rglob("*") if path.is_file()):
                place = target / path.relative_to(contents)
                if not place.exists():
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(path, place)
        except OSError as error:
            raise FedscapeError(f"cannot write {target}: {error.strerror or error}") from error
    if file.endswith(_UNPACKED):
        write_text(done, f"{archive.url} {archive.checksum}\n")


def _femnist(hub: str, path: Path) -> None:
    """FEMNIST from Hugging Face (columns image, writer_id, character) -> ``femnist.npz``.

    Every fifth character of each writer is a test sample; writers of fewer than five have none.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise FedscapeError(
            f"femnist comes from Hugging Face: pip install 'fedscape[data]' ({_line(error)})"
        ) from error
    try:
        rows: Any = load_dataset(hub, split="train")
    except Exception as error:  # network, hub and cache can fail in many ways
        raise FedscapeError(f"cannot download {hub} from Hugging Face: {_line(error)}") from error
    clients, labels = client_ids([str(writer) for writer in rows["writer_id"]]), np.array(rows["character"])
    images = np.empty((len(labels), 28, 28), np.uint8)
    for i, row in enumerate(rows):
        images[i] = np.asarray(row["image"].convert("L"))
    test = every_fifth(clients)
    with atomic_write(path) as file:
        np.savez(
            file, x_train=images[~test], y_train=labels[~test], x_test=images[test], y_test=labels[test],
            clients=clients[~test],
        )  # fmt: skip


def _line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
