"""The user's own data: a ``.npz`` file, or a folder of images."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from landscape.data.dataset import Dataset, chunks, every_fifth, make_dataset
from landscape.data.formats.images import SUFFIXES, open_image, read_images
from landscape.data.readers import read_npz
from landscape.errors import FedscapeError
from landscape.tasks import IGNORED

FOLDER = "folder:"


def archive(path: Path) -> Dataset:
    """The data set of a ``.npz`` with ``x_train``, ``y_train``, ``x_test``, ``y_test``.

    It may also have ``clients`` and ``class_names``.

    Inputs are images [n, H, W], [n, H, W, C] or [n, C, H, W] (C = 1, 3 or 4) or features [n, f]; targets are labels [n]
    or, for segmentation, uint8 maps [n, H, W] with 255 ignored; ``clients`` [n] are the training samples' clients.
    Large arrays that are not compressed stay in the file.

    Raises:
        FedscapeError: the file is missing or damaged, arrays are missing or do not fit.
    """
    arrays = read_npz(path)
    train, test = ((_channels_first(path, arrays[f"x_{part}"]), arrays[f"y_{part}"]) for part in ("train", "test"))
    if min(array.ndim for pair in (train, test) for array in pair) < 1:
        raise FedscapeError(f"{path}: an array is a single number: one input and one label a sample are needed")
    maps = train[1].ndim == 3
    for x, y in (train, test):
        if y.ndim != (3 if maps else 1) or len(x) != len(y):
            raise FedscapeError(f"{path}: {len(x)} inputs for labels of shape {y.shape}: one label a sample is needed")
    clients, names = arrays.get("clients"), arrays.get("class_names")
    if clients is not None and (clients.shape != train[1].shape[:1] or clients.dtype.kind not in "iu"):
        raise FedscapeError(f"{path}: clients are {clients.dtype} {clients.shape}: one whole number a training sample")
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U"):
        raise FedscapeError(f"{path}: class_names are {names.dtype} {names.shape}: one text a class is needed")
    classes = None if names is None else len(names)
    if maps and classes is None:
        classes = 1 + max(int(chunk.max(initial=0, where=chunk != IGNORED)) for chunk in chunks(train[1]))
    return make_dataset(
        str(path),
        train,
        test,
        classes=classes,
        clients=clients,
        class_names=() if names is None else tuple(map(str, names)),
        task="segmentation" if maps else "classification",
    )


def _channels_first(path: Path, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "buif":
        raise FedscapeError(f"{path}: inputs are {x.dtype}, they must be numbers")
    if x.dtype != np.uint8:
        x = x.astype(np.float32, copy=False)
        if not all(np.isfinite(chunk).all() for chunk in chunks(x)):
            raise FedscapeError(f"{path}: inputs hold values that are not finite")
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[3] in (1, 3, 4):
        return x.transpose(0, 3, 1, 2)
    if x.ndim in (2, 4):
        return x
    raise FedscapeError(f"{path}: inputs of shape {x.shape} are neither images nor feature vectors")


def image_folder(spec: str) -> Dataset:
    """The data set of a folder ``PATH`` or ``PATH@SIDE``, with one folder of images per class; needs Pillow.

    The images are ``PATH/train/CLASS/*`` and ``PATH/test/CLASS/*`` (or ``val``); or ``PATH/CLASS/*``, where every fifth
    image of each class is a test image.  Classes are in alphabetical order.  Images are RGB, or grey if the first one
    is; with ``@SIDE`` each is resized to that shorter side and its central square used, else all must have one size.

    Raises:
        FedscapeError: there is no such folder, it has no classes, a class has no images, an image cannot be read.
    """
    path, side = re.fullmatch(r"(.*?)(?:@(\d+))?", spec, re.S).groups()  # type: ignore[union-attr]
    folder = Path(path)
    if not folder.is_dir():
        raise FedscapeError(f"there is no folder {folder}")
    held_out = next((folder / name for name in ("test", "val") if (folder / name).is_dir()), None)
    if (folder / "train").is_dir() and held_out is not None:
        names, files, labels = _classes(folder / "train")
        known, test_files, found = _classes(held_out)
        unknown = [name for name in known if name not in names]
        if unknown:
            raise FedscapeError(f"{held_out} holds the class '{unknown[0]}', which {folder / 'train'} lacks")
        test_labels = np.array([names.index(name) for name in known])[found]
    else:
        names, every, targets = _classes(folder)
        test = every_fifth(targets)
        files, test_files = ([f for f, held in zip(every, test, strict=True) if held == out] for out in (False, True))
        labels, test_labels = targets[~test], targets[test]
        if not test_files:
            raise FedscapeError(f"{folder} holds fewer than 5 images of each class: give it train/ and test/ folders")
    square = (int(side), int(side)) if side else None
    if square == (0, 0):
        raise FedscapeError(f"'{spec}' asks for images of 0 pixels: give a side of 1 or more")
    grey = open_image(files[0]).mode in ("L", "1", "I", "I;16", "LA")

    def read(chosen: list[Path]) -> np.ndarray:
        return read_images(chosen, folder, size=square, crop=square, grey=grey)

    pairs = (read(files), labels), (read(test_files), test_labels)
    return make_dataset(f"{FOLDER}{spec}", *pairs, classes=len(names), class_names=names)


def _classes(folder: Path) -> tuple[list[str], list[Path], np.ndarray]:
    """Class names, all image files and the class of each."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise FedscapeError(f"{folder} holds no folders of classes with images in them")
    files = [sorted(p for p in (folder / name).iterdir() if p.suffix.lower() in SUFFIXES) for name in names]
    empty = [name for name, found in zip(names, files, strict=True) if not found]
    if empty:
        raise FedscapeError(f"{folder / empty[0]} holds no images ({', '.join(SUFFIXES)})")
    return (
        names,
        [f for found in files for f in found],
        np.repeat(np.arange(len(names)), [len(found) for found in files]),
    )
