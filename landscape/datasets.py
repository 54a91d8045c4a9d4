"""Data sets by name: tensors with their normalisation, read from files, never downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from landscape.errors import FedscapeError
from landscape.readers import read_cifar, read_idx, read_npz
from landscape.registry import Registry
from landscape.samples import Samples


@dataclass(frozen=True)
class Dataset:
    """A training and a test set with the same normalisation.

    ``input_shape`` is a sample's shape without the batch axis, e.g. ``(3, 32, 32)``.
    """

    name: str
    train: Samples
    test: Samples
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.inputs.shape[1:])

    def split(self, name: str) -> Samples:
        """``train`` or ``test``.

        Raises:
            FedscapeError: any other name.
        """
        if name not in ("train", "test"):
            raise FedscapeError(f"unknown split '{name}': give train or test")
        return self.train if name == "train" else self.test


Loader = Callable[[Path | None], Dataset]
DATASETS: Registry[Loader] = Registry("data set")


def load_dataset(name: str, data_dir: str | Path | None = None, *, imports: bool = True) -> Dataset:
    """The data set called ``name``, from ``data_dir`` where it is one on disk.

    Args:
        name: a registered name, the path of a ``.npz`` file, or ``package.module:callable``, which is
            called with the data directory (a ``Path`` or ``None``) and returns a :class:`Dataset`.
        data_dir: the folder that holds the data set's own folder (torchvision's ``root``).
        imports: whether a ``package.module:callable`` may be imported.

    Raises:
        FedscapeError: the name is unknown; the files are missing, damaged or of the wrong shape.
    """
    folder = Path(data_dir) if data_dir is not None else None
    if name.endswith(".npz"):
        return _npz(Path(name))
    dataset = DATASETS.get(name, imports=imports)(folder)
    if not isinstance(dataset, Dataset):
        raise FedscapeError(f"the data set '{name}' returned {type(dataset).__name__}, not a landscape.Dataset")
    return dataset


def make_dataset(
    name: str,
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    *,
    classes: int | None = None,
    mean: list[float] | None = None,
    std: list[float] | None = None,
) -> Dataset:
    """A data set from arrays: inputs [n, C, H, W] (or [n, features]) and integer labels [n].

    Args:
        classes: the number of classes; the largest training label + 1 unless given.
        mean, std: per channel, in the inputs' own units (0-255 for uint8 images); computed from the
            training inputs unless given.

    Raises:
        FedscapeError: shapes that do not fit, labels out of range.
    """
    x, y = train
    if not (np.issubdtype(y.dtype, np.integer) and np.issubdtype(test[1].dtype, np.integer)):
        raise FedscapeError(f"{name}: labels are {y.dtype}, they must be integers")
    if x.shape[1:] != test[0].shape[1:]:
        raise FedscapeError(f"{name}: training inputs are {x.shape[1:]}, test inputs {test[0].shape[1:]}")
    count = classes if classes is not None else int(y.max(initial=0)) + 1
    for part, labels in (("training", y), ("test", test[1])):
        if not len(labels):
            raise FedscapeError(f"{name}: there are no {part} samples")
        if labels.ndim != 1 or not 0 <= int(labels.min()) <= int(labels.max()) < count:
            raise FedscapeError(f"{name}: {part} labels must be one number from 0 to {count - 1} a sample")
    if mean is None or std is None:
        axes = (0, *range(2, x.ndim))
        mean = x.mean(axis=axes, dtype=np.float64).tolist()
        std = np.maximum(x.std(axis=axes, dtype=np.float64), 1e-8).tolist()
    shape = (len(mean), *[1] * (x.ndim - 2))

    def samples(inputs: np.ndarray, labels: np.ndarray) -> Samples:
        return Samples(
            torch.from_numpy(np.ascontiguousarray(inputs)),
            torch.from_numpy(labels.astype(np.int64)),
            _column(mean, shape),
            _column(std, shape),
        )

    return Dataset(name, samples(x, y), samples(*test), count)


def _column(values: list[float], shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


@DATASETS.register("digits")
def digits(folder: Path | None = None) -> Dataset:
    """scikit-learn's 8x8 handwritten digits, embedded: 1,442 training and 355 test images, 10 classes.

    The split is fixed: of each class every fifth image in file order is a test image.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = data.images.astype(np.uint8)[:, None], data.target.astype(np.int64)
    rank = np.zeros(len(y), dtype=np.int64)
    for label in range(10):
        rank[y == label] = np.arange((y == label).sum())
    test = rank % 5 == 4
    return make_dataset("digits", (x[~test], y[~test]), (x[test], y[test]), classes=10)


def _folder(name: str, data_dir: Path | None, inner: str, source: str) -> Path:
    """``data_dir/inner``; naming the data set's own folder as ``data_dir`` serves too."""
    if data_dir is None:
        raise FedscapeError(f"{name} is read from disk: give --data-dir DIR, the folder that holds {inner}/")
    candidates = [data_dir / inner]
    if data_dir.name == inner.split("/")[0]:
        candidates.append(data_dir.parent / inner)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise FedscapeError(f"{name} is not in {data_dir}: it must hold {inner}/, unpacked from {source}")


def _cifar(
    name: str, folder: Path, train: list[str], test: str, key: str, classes: int, mean: list[float], std: list[float]
) -> Dataset:
    batches = [read_cifar(folder / file, key) for file in train]
    x = np.concatenate([images for images, _ in batches])
    y = np.concatenate([labels for _, labels in batches])
    scale = [255 * value for value in mean], [255 * value for value in std]
    return make_dataset(name, (x, y), read_cifar(folder / test, key), classes=classes, mean=scale[0], std=scale[1])


@DATASETS.register("cifar10")
def cifar10(data_dir: Path | None) -> Dataset:
    """CIFAR-10 in its Python pickles: 50,000 training and 10,000 test images 3x32x32, 10 classes."""
    folder = _folder(
        "cifar10", data_dir, "cifar-10-batches-py", "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    )
    train = [f"data_batch_{i}" for i in range(1, 6)]
    mean, std = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
    return _cifar("cifar10", folder, train, "test_batch", "labels", 10, mean, std)


@DATASETS.register("cifar100")
def cifar100(data_dir: Path | None) -> Dataset:
    """CIFAR-100 in its Python pickles, fine labels: images 3x32x32, 100 classes."""
    folder = _folder(
        "cifar100", data_dir, "cifar-100-python", "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    )
    mean, std = [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]
    return _cifar("cifar100", folder, ["train"], "test", "fine_labels", 100, mean, std)


@DATASETS.register("fashion_mnist")
def fashion_mnist(data_dir: Path | None) -> Dataset:
    """Fashion-MNIST's idx files (plain or .gz): 60,000 training and 10,000 test images 1x28x28, 10 classes."""
    folder = _folder("fashion_mnist", data_dir, "FashionMNIST/raw", "https://github.com/zalandoresearch/fashion-mnist")
    parts = []
    for prefix in ("train", "t10k"):
        images = read_idx(folder / f"{prefix}-images-idx3-ubyte")
        labels = read_idx(folder / f"{prefix}-labels-idx1-ubyte")
        if images.dtype != np.uint8 or images.ndim != 3 or labels.shape != images.shape[:1]:
            raise FedscapeError(
                f"{folder}: {prefix} images are {images.dtype} {images.shape} for labels {labels.shape}, "
                "expected uint8 (n, height, width) for (n,)"
            )
        parts.append((images[:, None].copy(), labels.astype(np.int64)))
    return make_dataset("fashion_mnist", parts[0], parts[1], classes=10, mean=[255 * 0.2860], std=[255 * 0.3530])


def _npz(path: Path) -> Dataset:
    """Arrays of the user's: images [n, H, W], [n, H, W, C] (C = 1, 3 or 4) or features [n, f]."""
    arrays = read_npz(path)

    def channels_first(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind not in "buif":
            raise FedscapeError(f"{path}: inputs are {x.dtype}, they must be numbers")
        if x.dtype != np.uint8:
            x = x.astype(np.float32)
            if not np.isfinite(x).all():
                raise FedscapeError(f"{path}: inputs hold values that are not finite")
        if x.ndim == 3:
            return x[:, None]
        if x.ndim == 4 and x.shape[3] in (1, 3, 4):
            return x.transpose(0, 3, 1, 2)
        if x.ndim in (2, 4):
            return x
        raise FedscapeError(f"{path}: inputs of shape {x.shape} are neither images nor feature vectors")

    train = channels_first(arrays["x_train"]), arrays["y_train"]
    test = channels_first(arrays["x_test"]), arrays["y_test"]
    for x, y in (train, test):
        if y.ndim != 1 or len(x) != len(y):
            raise FedscapeError(f"{path}: {len(x)} inputs for labels of shape {y.shape}: one label a sample is needed")
    return make_dataset(str(path), train, test)
