"""The files that a command is about to write, checked before its work.

A command names its outputs and its inputs to :func:`check_outputs` first.  Refused, in one sentence, are an output that
is an input too (also by another name: a symbolic or hard link), two outputs in one file, what is no regular file
(folders, devices, pipes), a name that ends as another kind's does (``--csv a.pt``: a forgotten name), a folder that
cannot be written, and a file that is there and is not our own of the same kind, unless ``--force`` is given.  What
counts as our own says :data:`KINDS`: each kind of file shows its maker where its format has room for it, and tables
and numbers show it by their columns and keys.  A file that cannot show it (a JPEG, for example) is never ours.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from landscape.errors import FedscapeError
from landscape.storage.files import make_directory, written_place

PRODUCER = "Fedscape"
"""The maker, as pictures, pages and texts name it."""

ForceFlag = Annotated[
    bool,
    tyro.conf.arg(help="replace files of these names that are not our own; never an input, a device or a folder"),
    tyro.conf.FlagCreatePairsOff,
]
"""The option ``--force``, the same in every command that writes files."""

_PEEK = 1 << 16
"""Bytes at each end of a file in which its maker is looked for."""
_MOST_JSON = 1 << 28
"""Bytes of the largest file of numbers that is read to see whether it is ours."""


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: with its article, for sentences.
        suffixes: what its names end in; the first is proposed.
        ours: whether an existing file is one of ours, given the signs of the output.
    """

    name: str
    suffixes: tuple[str, ...]
    ours: Callable[[Path, Sequence[str]], bool]


@dataclass(frozen=True)
class Output:
    """A file that a command is about to write.

    Attributes:
        option: what named it, such as ``--csv``.
        path: the file.
        kind: of :data:`KINDS`.
        signs: by which our own tables and numbers are known: the first columns, keys of an object, arrays.
        continued: whether the work goes on from an existing file, which must be ours then whatever ``--force`` says.
    """

    option: str
    path: Path
    kind: str
    signs: tuple[str, ...] = ()
    continued: bool = False


def check_outputs(outputs: Iterable[Output], inputs: Iterable[str | Path] = (), *, force: bool = False) -> None:
    """Refuse, before any work, what must not be written; then create the folders that are missing.

    Args:
        outputs: all files that will be written.
        inputs: the files that are read; those that do not exist, and folders, are ignored.
        force: whether files that are not ours may be replaced; nothing else is permitted by it.

    Raises:
        FedscapeError: an output is an input, names the file of another output, is no regular file, ends as another
            kind's files do, cannot be written where it is, or is there and not ours.

    Example:
        >>> from pathlib import Path
        >>> check_outputs([Output("--csv", Path("a.pt"), "csv", ("model",))], ["b.pt"])
        Traceback (most recent call last):
        landscape.errors.FedscapeError: --csv a.pt: was a name forgotten? it ends in .pt, and a CSV table in .csv
    """
    outputs = list(outputs)
    read = [Path(path) for path in inputs]
    seen: list[Output] = []
    for output in outputs:
        _check_name(output)
        written_place(output.path)
        for other in read:
            if _same(output.path, other):
                raise FedscapeError(
                    f"{output.option} {output.path}: that file is read, and would be lost: give another file"
                )
        for earlier in seen:
            if _same(output.path, earlier.path):
                raise FedscapeError(
                    f"{earlier.option} and {output.option} are both to be written to {output.path}: give two files"
                )
        seen.append(output)
        _check_folder(output)
        if output.path.exists() and not (force and not output.continued) and not _ours(output):
            way_out = "" if output.continued else ", or --force to replace it"
            raise FedscapeError(
                f"{output.option} {output.path}: there is a file that is not {KINDS[output.kind].name} of this "
                f"command's: give another name{way_out}"
            )
    for output in outputs:
        make_directory(Path(os.path.realpath(output.path)).parent)


def check_folder(option: str, folder: Path, signs: Iterable[str], *, force: bool = False) -> None:
    """Refuse, before any work, a folder that is neither empty nor ours.

    Args:
        option: what named it.
        folder: there or not.
        signs: what a folder of ours has, one of them at least.
        force: whether it may be another one.

    Raises:
        FedscapeError: it is no folder, cannot be written, or holds something else.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise FedscapeError(f"{option} {folder} is no folder: give another name")
    _check_folder(Output(option, folder / "any", "text"))
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    if names and not force and not any((folder / sign).exists() for sign in signs):
        raise FedscapeError(
            f"{option} {folder}: the folder holds {names[0]} and nothing of ours: give an empty or new one, or --force "
            "to write into it"
        )


def pictures(option: str, path: Path, *, paper: bool) -> list[Output]:
    """The outputs of one picture: the file, and in the style of a paper its caption beside it."""
    found = [Output(option, path, "picture")]
    if paper:
        found.append(Output(f"the caption of {option}", path.with_suffix(".caption.txt"), "caption", (path.name,)))
    return found


def _ours(output: Output) -> bool:
    """Whether the file that is there is one of ours."""
    return KINDS[output.kind].ours(output.path, output.signs)


def _check_name(output: Output) -> None:
    """Refuse a name that ends as those of another kind do."""
    kind, suffix = KINDS[output.kind], output.path.suffix.lower()
    if suffix in kind.suffixes or suffix not in _SUFFIXES:
        return
    raise FedscapeError(
        f"{output.option} {output.path}: was a name forgotten? it ends in {suffix}, and {kind.name} in "
        f"{kind.suffixes[0]}"
    )


def _check_folder(output: Output) -> None:
    """Refuse a folder in which nothing can be written, there or still to be made."""
    folder = Path(os.path.realpath(output.path)).parent
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not there.is_dir():
        raise FedscapeError(f"{output.option}: cannot write {output.path}: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FedscapeError(f"{output.option}: cannot write {output.path}: {there} is not writable")


def _same(one: Path, other: Path) -> bool:
    """Whether both are one file, there (through symbolic and hard links) or still to be made."""
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)


def _ends(path: Path) -> bytes:
    """The beginning and the end of a file."""
    with open(path, "rb") as file:
        head = file.read(_PEEK)
        file.seek(max(len(head), os.path.getsize(path) - _PEEK))
        return head + file.read(_PEEK)


def _marked(*marks: bytes) -> Callable[[Path, Sequence[str]], bool]:
    """Whether a file has one of these marks near its beginning or its end; an empty file is nobody's loss."""

    def ours(path: Path, signs: Sequence[str]) -> bool:
        try:
            found = _ends(path)
        except OSError:
            return False
        return not found or any(mark in found for mark in marks)

    return ours


def _picture(path: Path, signs: Sequence[str]) -> bool:
    """A picture that names us in its metadata, and is of the format that its name says."""
    maker, suffix = PRODUCER.encode(), path.suffix.lower()
    marks = {
        ".png": (b"\x89PNG", b"Software\0" + maker),
        ".pdf": (b"%PDF", b"/Creator (" + maker),
        ".svg": (b"<?xml", b"<dc:title>" + maker),
        ".ps": (b"%!PS", b"%%Creator: " + maker),
        ".eps": (b"%!PS", b"%%Creator: " + maker),
    }
    try:
        if suffix == ".svgz":
            with gzip.open(path) as file:
                found, (magic, mark) = file.read(_PEEK), marks[".svg"]
        else:
            found, (magic, mark) = _ends(path), marks.get(suffix, (b"\0none", b""))
    except (OSError, EOFError, zlib.error):
        return False
    return not found or (found.startswith(magic) and mark in found)


def _caption(path: Path, signs: Sequence[str]) -> bool:
    """The caption beside a picture of ours, which is named by the sign."""
    picture = path.with_name(signs[0])
    return picture.exists() and _picture(picture, ())


def _table(path: Path, signs: Sequence[str]) -> bool:
    """A CSV file whose first columns are these."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            line = file.readline(_PEEK)
        return not line or next(csv.reader([line]), [])[: len(signs)] == list(signs)
    except (OSError, UnicodeDecodeError, csv.Error):
        return False


def _text(path: Path, signs: Sequence[str]) -> bool:
    """A text whose first line has these words in this order, as a table's columns."""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(_PEEK)
    except (OSError, UnicodeDecodeError):
        return False
    return not line or " ".join(line.split()).startswith(" ".join(signs))


def _numbers(path: Path, signs: Sequence[str]) -> bool:
    """A JSON file of an object with these keys, or of a list of such objects, also as a value of the object."""
    try:
        if os.path.getsize(path) > _MOST_JSON:
            return False
        contents = path.read_bytes()
        return not contents or any(set(signs) <= found.keys() for found in _objects(json.loads(contents)))
    except (OSError, ValueError, RecursionError):
        return False


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The object, or the first ones of the lists in it."""
    if isinstance(value, dict):
        yield value
        lists = [one for one in value.values() if isinstance(one, list)]
    else:
        lists = [value] if isinstance(value, list) else []
    yield from (one[0] for one in lists if one and isinstance(one[0], dict))


def _lines(path: Path, signs: Sequence[str]) -> bool:
    """A file of one JSON list a line, of a key, a loss and an accuracy."""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(_PEEK)
        found = json.loads(line) if line else ["", 0.0, 0.0]
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, list) and list(map(type, found)) == [str, float, float]


def _parts(path: Path, signs: Sequence[str]) -> bool:
    """A file of one JSON list a line, of a key and an object; lines may be long, and the beginning is looked at."""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(40)
    except (OSError, ValueError):
        return False
    return not line or re.match(r'\["[0-9a-f]{24}", \{"', line) is not None


def _arrays(path: Path, signs: Sequence[str]) -> bool:
    """An ``.npz`` file that has these arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {f"{sign}.npy" for sign in signs} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError):
        return os.path.getsize(path) == 0


def _tensors(path: Path, signs: Sequence[str]) -> bool:
    """A file of torch's whose description (``data.pkl``, which is not loaded) has these words."""
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            with archive.open(name) as file:
                words = file.read(_PEEK)
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError):
        return False
    return all(sign.encode() in words for sign in signs)


def _trace(path: Path, signs: Sequence[str]) -> bool:
    """A compressed JSON object whose first key names us."""
    try:
        with gzip.open(path) as file:
            return file.read(_PEEK).startswith(b'{"producer": "' + _MAKER) or os.path.getsize(path) == 0
    except (OSError, EOFError, zlib.error):
        return False


_MAKER = PRODUCER.encode()
KINDS: dict[str, Kind] = {
    "csv": Kind("a CSV table", (".csv", ".tsv", ".txt"), _table),
    "json": Kind("a JSON file", (".json",), _numbers),
    "lines": Kind("a file of measured values", (".jsonl",), _lines),
    "parts": Kind("a file of measured parts", (".jsonl",), _parts),
    "netcdf": Kind("a netCDF file", (".nc",), _marked(b"fedscape_version\0")),
    "npz": Kind("a file of arrays", (".npz",), _arrays),
    "picture": Kind(
        "a picture",
        (".png", ".pdf", ".svg", ".svgz", ".eps", ".ps", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".pgf", ".raw",
         ".rgba", ".gif", ".avif"),
        _picture,
    ),
    "caption": Kind("a caption", (".txt",), _caption),
    "page": Kind("a page", (".html", ".htm"), _marked(b'name="generator" content="' + _MAKER)),
    "latex": Kind("a LaTeX table", (".tex", ".txt"), _marked(b"% " + _MAKER)),
    "markdown": Kind("a Markdown text", (".md", ".txt"), _marked(b"<!-- " + _MAKER)),
    "text": Kind("a text", (".txt",), _text),
    "vtk": Kind("a VTK file", (".vtk", ".vts"), _marked(b"\n" + _MAKER, b"<!-- " + _MAKER)),
    "surface": Kind("a surface", (".h5", ".hdf5"), _marked(b"fedscape-surface/")),
    "state": Kind("a file of unfinished work", (".pt", ".state", ".pth", ".ckpt"), _tensors),
    "directions": Kind("a file of directions", (".pt", ".pth"), _tensors),
    "trace": Kind("a trace", (".gz",), _trace),
}  # fmt: skip
"""The kinds of files that commands write, by name."""

_SUFFIXES = {suffix for kind in KINDS.values() for suffix in kind.suffixes} | {
    ".pkl", ".pickle", ".bin", ".safetensors", ".npy", ".py", ".ipynb", ".yaml", ".yml", ".toml", ".zip", ".gz", ".tar",
    ".sh", ".log", ".onnx", ".parquet",
}  # fmt: skip
"""What names of files end in that hold something: none of them can be meant for another kind of output."""
