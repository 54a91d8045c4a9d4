"""Decode image files into one array of uint8.  Many images are decoded once, into a file that is then mapped."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from landscape.data.memory_mapped import LARGE
from landscape.errors import FedscapeError
from landscape.storage.files import make_directory
from landscape.terminal.progress import Progress

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
KEPT = 1 << 26
"""The number of pixel bytes from which decoded images are kept in a file: decoding so many takes seconds."""

Size = tuple[int, int]
"""Height and width."""


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise FedscapeError("reading image files needs Pillow: pip install pillow") from None
    return Image


def open_image(path: Path) -> Any:
    """A Pillow image, decoded.

    Raises:
        FedscapeError: Pillow is missing; the file is missing, damaged or not an image.
    """
    image_module = _pillow()
    try:
        with image_module.open(path) as image:
            image.load()
            return image
    except FileNotFoundError:
        raise FedscapeError(f"there is no file {path}") from None
    except Exception as error:  # a damaged image can raise almost anything
        raise FedscapeError(f"{path} is no image or is damaged: {error}") from error


def read_images(
    files: Sequence[Path], home: Path, *, size: Size | None = None, crop: Size | None = None, grey: bool = False
) -> np.ndarray:
    """Read images: uint8 [n, C, H, W], RGB or (``grey``) one channel.

    Args:
        files: at least one.
        home: the data set's folder; many decoded images are kept in ``.fedscape/`` there.
        size: resize each image to this (bicubic); with ``crop``, its shorter side to the smaller of these numbers.
        crop: the size of the centre that is cut out after that.  Without either, all images must have one size.
        grey: one channel instead of three.

    Raises:
        FedscapeError: as :func:`open_image`, images of different sizes, or a file that cannot be written.
    """
    mode = "L" if grey else "RGB"
    first = open_image(files[0])
    height, width = crop or size or (first.height, first.width)

    def read(path: Path) -> np.ndarray:
        image = _resized(open_image(path).convert(mode), size, crop)
        pixels = np.asarray(image)
        if pixels.shape[:2] != (height, width):
            raise FedscapeError(
                f"{path} is {pixels.shape[0]}x{pixels.shape[1]}, the images before it {height}x{width}: images of one "
                "size are needed (folder:PATH@32 cuts those of a folder of yours to 32x32)"
            )
        return pixels[None] if grey else pixels.transpose(2, 0, 1)

    return _array(files, (1 if grey else 3, height, width), read, home, f"images {mode} {size} {crop}")


def _resized(image: Any, size: Size | None, crop: Size | None) -> Any:
    resampling = _pillow().Resampling.BICUBIC
    if size is None:
        return image
    if crop is None:
        return image if image.size == size[::-1] else image.resize(size[::-1], resampling)
    scale = min(size) / min(image.size)
    scaled = [max(side, round(scale * n)) for n, side in zip(image.size, crop[::-1], strict=True)]
    image = image.resize(scaled, resampling)
    left, top = ((n - side) // 2 for n, side in zip(image.size, crop[::-1], strict=True))
    return image.crop((left, top, left + crop[1], top + crop[0]))


def read_maps(files: Sequence[Path], home: Path, *, size: Size, table: np.ndarray) -> np.ndarray:
    """Read label images: uint8 [n, H, W], each id replaced by ``table[id]`` ([256]); resized by the nearest pixel.

    If an image has several channels, the ids are in the first, as in the simulator CARLA.

    Raises:
        FedscapeError: as :func:`read_images`.
    """

    def read(path: Path) -> np.ndarray:
        image = open_image(path)
        if image.mode in ("RGB", "RGBA"):
            image = image.getchannel(0)
        if image.mode not in ("L", "P"):
            raise FedscapeError(f"{path} is a {image.mode} image, labels are one byte a pixel")
        if image.size != size[::-1]:
            image = image.resize(size[::-1], _pillow().Resampling.NEAREST)
        return table[np.asarray(image)]

    return _array(files, size, read, home, f"maps {size} {table.tolist()}")


def _array(
    files: Sequence[Path], shape: tuple[int, ...], read: Callable[[Path], np.ndarray], home: Path, recipe: str
) -> np.ndarray:
    """All images; many images are read from the file that keeps them, which is written if it is missing."""
    full = (len(files), *shape)
    if int(np.prod(full, dtype=np.int64)) < KEPT:
        array = np.empty(full, np.uint8)
        _fill(array, files, read)
        return array
    kept = _cache(home) / f"{_key(files, home, recipe)}.npy"
    if (found := _kept(kept, full)) is None:
        _keep(kept, full, files, read)
        found = _kept(kept, full)
    if found is None:
        raise FedscapeError(f"{kept}, where decoded images are kept, cannot be read back")
    return found


def _kept(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """The kept array; ``None`` if the file is missing, damaged or of another shape."""
    try:
        array = np.load(path, mmap_mode="c" if path.stat().st_size >= LARGE else None)
    except (OSError, ValueError, EOFError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 else None


def _fill(array: np.ndarray, files: Sequence[Path], read: Callable[[Path], np.ndarray]) -> None:
    def one(i: int) -> None:
        array[i] = read(files[i])

    shown = sys.stderr.isatty()
    with (
        Progress("decoding", len(files), unit="images", enabled=shown) as progress,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for start in range(0, len(files), 512):
            list(pool.map(one, range(start, min(start + 512, len(files)))))
            progress.update(min(start + 512, len(files)))


def _cache(home: Path) -> Path:
    """The folder of decoded images: in the data set's folder if it is writable, else in the user's cache."""
    if os.access(home, os.W_OK):
        return make_directory(home / ".fedscape")
    return make_directory(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedscape")


def _key(files: Sequence[Path], home: Path, recipe: str) -> str:
    """A digest of the files and of the way they are decoded."""
    sha = hashlib.sha256(f"{home.resolve()} {recipe}".encode())
    for path in files:
        try:
            status = path.stat()
        except OSError as error:
            raise FedscapeError(f"cannot read {path}: {error.strerror}") from error
        sha.update(f"{path.relative_to(home)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return sha.hexdigest()[:24]


def _keep(kept: Path, shape: tuple[int, ...], files: Sequence[Path], read: Callable[[Path], np.ndarray]) -> None:
    temporary = kept.with_name(f".{kept.name}.{os.getpid()}.tmp")
    try:
        array = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, but a crash when the map is written
            with open(temporary, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, temporary.stat().st_size)
        _fill(array, files, read)
        array.flush()
        os.replace(temporary, kept)
    except OSError as error:
        raise FedscapeError(f"cannot write {kept}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
