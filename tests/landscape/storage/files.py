"""Writers of data files in their published formats, what was read from them, and files that would run code."""

import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import torch

from landscape import Dataset


def stored(dataset: Dataset) -> np.ndarray:
    """The training inputs as they are kept."""
    return dataset.train.inputs.numpy()


def normalised(dataset: Dataset, part: str = "train") -> np.ndarray:
    """The inputs as a model gets them."""
    return dataset.split(part).batch(slice(None), torch.float64)[0].numpy()


class TouchesAFile:
    """Unpickled carelessly, it creates ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def _text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode()


def _int(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def python2_pickle(images: np.ndarray, labels: list[int], key: str) -> bytes:
    """The bytes that Python 2's ``cPickle.dump(..., 2)`` wrote for CIFAR: byte strings, NumPy 1 names."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\0\x85" + _text("b") + b"\x87R"
        + b"(K\1" + _int(images.shape[0]) + _int(images.shape[1]) + b"\x86"
        + b"cnumpy\ndtype\n" + _text("u1") + b"K\0K\1\x87R(K\3" + _text("|") + b"NNN" + _int(-1) + _int(-1) + b"K\0tb"
        + b"\x89T" + struct.pack("<i", images.nbytes) + images.tobytes() + b"tb"
    )  # fmt: skip
    items = _text("batch_label") + _text("training batch 1 of 5")
    items += _text(key) + b"](" + b"".join(map(_int, labels)) + b"e" + _text("data") + array
    return b"\x80\2}(" + items + b"u."


def python3_pickle(images: np.ndarray, labels: list[int], key: str) -> bytes:
    return pickle.dumps({"batch_label": "training batch 1 of 5", key: labels, "data": images}, protocol=4)


def write_cifar10(root: Path, write=python2_pickle, per_batch: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-10's six files with random images; returns training images [n, 3, 32, 32] and labels."""
    draw = np.random.default_rng(0)
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    images = draw.integers(0, 256, (6, per_batch, 3072), dtype=np.uint8)
    labels = draw.integers(0, 10, (6, per_batch))
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / name).write_bytes(write(images[i], labels[i].tolist(), "labels"))
    return images[:5].reshape(-1, 3, 32, 32), labels[:5].ravel()


def idx(array: np.ndarray) -> bytes:
    """MNIST's format for uint8 values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_fashion_mnist(root: Path, zipped: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Fashion-MNIST's four files with random images; returns training images [n, 28, 28] and labels."""
    draw = np.random.default_rng(1)
    folder = root / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    images, labels = draw.integers(0, 256, (9, 28, 28), dtype=np.uint8), draw.integers(0, 10, 9)
    for prefix, part in (("train", slice(0, 6)), ("t10k", slice(6, 9))):
        for name, content in (("images-idx3", images[part]), ("labels-idx1", labels[part])):
            raw = idx(content)
            if zipped:
                (folder / f"{prefix}-{name}-ubyte.gz").write_bytes(gzip.compress(raw))
            else:
                (folder / f"{prefix}-{name}-ubyte").write_bytes(raw)
    return images[:6], labels[:6]
