"""Data sets in idx files: MNIST, Fashion-MNIST, EMNIST."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np

from landscape.compute.randomness import numpy_generator
from landscape.data.checksums import check_published
from landscape.data.dataset import DATASETS, Arrays, Dataset, make_dataset
from landscape.data.normalisation import statistics
from landscape.data.readers import read_idx
from landscape.data.sources import source_folder
from landscape.errors import FedscapeError

CLOTHES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""The classes of EMNIST byclass and FEMNIST in their order."""


def _read(name: str, folder: Path, prefix: str) -> Arrays:
    """Images uint8 [n, H, W] and labels int64 [n] of one part."""
    files = [folder / f"{prefix}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    for file in files:
        check_published(name, file)
    images, labels = (read_idx(file) for file in files)
    if images.dtype != np.uint8 or images.ndim != 3 or labels.shape != images.shape[:1]:
        raise FedscapeError(
            f"{folder}: {prefix} images are {images.dtype} {images.shape} for labels {labels.shape}, "
            "expected uint8 (n, height, width) for (n,)"
        )
    return images, labels.astype(np.int64)


def _ten_classes(name: str, data_dir: Path | None, names: tuple[str, ...]) -> Dataset:
    folder = source_folder(name, data_dir)
    (x, y), (x_test, y_test) = _read(name, folder, "train"), _read(name, folder, "t10k")
    train, test = (x[:, None].copy(), y), (x_test[:, None].copy(), y_test)
    mean, std = statistics(name)
    return make_dataset(name, train, test, classes=10, mean=mean, std=std, class_names=names)


@DATASETS.register("mnist")
def mnist(data_dir: Path | None) -> Dataset:
    """MNIST's idx files (plain or .gz): 60,000 training and 10,000 test images 1x28x28, 10 classes."""
    return _ten_classes("mnist", data_dir, CHARACTERS[:10])


@DATASETS.register("fashion_mnist")
def fashion_mnist(data_dir: Path | None) -> Dataset:
    """Fashion-MNIST's idx files (plain or .gz): 60,000 training and 10,000 test images 1x28x28, 10 classes."""
    return _ten_classes("fashion_mnist", data_dir, CLOTHES)


def _emnist(name: str, data_dir: Path | None, percent: int) -> Dataset:
    folder = source_folder(name, data_dir)
    if not any(folder.glob("emnist-byclass-train-images-*")) and (folder / "gzip").is_dir():
        folder = folder / "gzip"  # as in NIST's archive
    parts = []
    for part in ("train", "test"):
        images, labels = _read("emnist", folder, f"emnist-byclass-{part}")
        kept: slice | np.ndarray = slice(None)
        if percent < 100:
            order = numpy_generator(0, "emnist", part).permutation(len(labels))
            kept = np.sort(order[: max(1, len(labels) * percent // 100)])
        # NIST stored each image column by column.
        parts.append((images[kept].transpose(0, 2, 1)[:, None], labels[kept]))
    return make_dataset(name, parts[0], parts[1], classes=62, class_names=CHARACTERS)


@DATASETS.register("emnist")
def emnist(data_dir: Path | None) -> Dataset:
    """EMNIST byclass: 697,932 training and 116,323 test characters 1x28x28, upright, 62 classes."""
    return _emnist("emnist", data_dir, 100)


@DATASETS.register("emnist_20")
def emnist_20(data_dir: Path | None) -> Dataset:
    """A fifth of EMNIST byclass, a fixed random one: 139,586 training and 23,264 test characters.

    "20 % of the dataset" in FedSAM's text; the 81,425 samples of its table are ``emnist_10``.
    """
    return _emnist("emnist_20", data_dir, 20)


@DATASETS.register("emnist_10")
def emnist_10(data_dir: Path | None) -> Dataset:
    """A tenth of EMNIST byclass, a fixed random one: 69,793 + 11,632 = the 81,425 samples of FedSAM's table 3."""
    return _emnist("emnist_10", data_dir, 10)
