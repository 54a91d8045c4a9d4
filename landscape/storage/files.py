"""Write files so that an interruption or a full disk never damages an earlier file; read torch's files safely."""

from __future__ import annotations

import json
import os
import pickle
import stat
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import torch

from landscape.errors import FedscapeError
from landscape.storage import limits


class RunsCodeError(FedscapeError):
    """A file that would run code if it were loaded."""


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def make_directory(path: str | Path) -> Path:
    """Create a directory and its parents if they are missing.

    Raises:
        FedscapeError: the directory cannot be created.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedscapeError(f"cannot create the directory {path}: {_reason(error)}") from error
    return path


def written_place(path: str | Path) -> Path:
    """Where a file named ``path`` is written: at the end of its symbolic links, which stay.

    Raises:
        FedscapeError: there is something that is no regular file (a folder, a device such as ``/dev/null``, a pipe),
            which is never replaced.
    """
    place = Path(os.path.realpath(path))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return place
    except OSError as error:
        raise FedscapeError(f"cannot write {path}: {_reason(error)}") from error
    if stat.S_ISDIR(mode):
        raise FedscapeError(f"cannot write {path}: Is a directory")
    if not stat.S_ISREG(mode):
        raise FedscapeError(f"cannot write {path}: it is no regular file (a device or a pipe): give a file's name")
    return place


def temporary_name(name: str, process: int) -> str:
    """What a file of this name is called while a process writes it.

    Example:
        >>> from landscape.storage.files import temporary_name
        >>> temporary_name("ckpt.pt", 1234)
        '.ckpt.pt.1234.tmp'
    """
    return f".{name}.{process}.tmp"


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under ``path`` complete or not at all (temporary file, then rename).

    Symbolic links are written through.

    Raises:
        FedscapeError: the file cannot be written (no permission, disk full, no regular file, ...); ``path`` is
            unchanged.
    """
    place = written_place(path)
    temporary = place.with_name(temporary_name(place.name, os.getpid()))
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        raise FedscapeError(f"cannot write {path}: {_reason(error)}") from error
    finally:
        with suppress(OSError):  # the folder itself may be missing
            temporary.unlink(missing_ok=True)


def append_line(path: str | Path, line: str) -> None:
    """Append one line of text in a single write.

    Raises:
        FedscapeError: the file cannot be written, or is no regular one.
    """
    try:
        with open(written_place(path), "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise FedscapeError(f"cannot write {path}: {_reason(error)}") from error


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically (UTF-8)."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; numbers that are not finite become ``null``."""
    write_text(path, json.dumps(json_ready(value), indent=2, ensure_ascii=False) + "\n")


def json_ready(value: Any) -> Any:
    """The same value with tuples as lists, paths as text and non-finite numbers as ``None``.

    Example:
        >>> from landscape.storage.files import json_ready
        >>> json_ready({"loss": float("nan"), "range": (0, 1)})
        {'loss': None, 'range': [0, 1]}
    """
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return str(value) if isinstance(value, Path) else value


class _Recorder:
    """A file that records the OSError of a write, because torch's writer raises another error instead."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def save_torch(path: str | Path, value: Any) -> None:
    """``torch.save``, atomically.

    Raises:
        FedscapeError: the file cannot be written; an earlier file of that name is unchanged.
    """
    with atomic_write(path) as file:
        recorder = _Recorder(file)
        try:
            torch.save(value, cast("IO[bytes]", recorder))
        except RuntimeError:
            if recorder.error is not None:
                raise recorder.error from None
            raise


def load_torch(path: str | Path, *, mapped: bool = False) -> Any:
    """``torch.load(weights_only=True)`` on the CPU, with errors in one sentence.

    Args:
        path: the file.
        mapped: map the tensors into memory (copy on write) instead of reading them.

    Raises:
        FedscapeError: no such file, or it is not a torch file, truncated, would run code, or would take more memory
            than the limit (:mod:`landscape.storage.limits`).
    """
    path = Path(path)
    with limits.open_regular(path) as file:
        return _load(file, path, mapped)


def _load(file: IO[bytes], path: Path, mapped: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about the contents of a damaged file
        try:
            _check_sums(file, path)
            source = path if mapped else file
            return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
        except FedscapeError:
            raise
        except Exception as error:  # a damaged file can raise almost anything
            if isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error):
                raise RunsCodeError(
                    f"{path} holds objects that would run code when loaded, and was not loaded: "
                    "only tensors and plain values are safe in a checkpoint"
                ) from error
            raise FedscapeError(f"{path} is not a checkpoint or is damaged: torch cannot read it") from error


def _check_sums(file: IO[bytes], path: Path) -> None:
    """Refuse an archive with changed bits, as torch writes checksums but does not check them, and one that declares
    more than a file of its size may take.
    """
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            limits.require_members(path, archive, limits.size_of(file))
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"the check sum of {damaged} is wrong")
    file.seek(0)
