"""CIFAR-10, CIFAR-100 and the federated CIFAR-100 of Pachinko allocation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from landscape.data.checksums import check_published
from landscape.data.dataset import DATASETS, Arrays, Dataset, make_dataset
from landscape.data.normalisation import statistics
from landscape.data.readers import read_cifar, read_cifar_names
from landscape.data.sources import source_folder
from landscape.errors import FedscapeError
from landscape.storage.limits import open_regular

SUPERCLASSES = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7,
    6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10,
    16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16,
    12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)  # fmt: skip
"""CIFAR-100's coarse label of each fine one (https://www.cs.toronto.edu/~kriz/cifar.html), both in ``meta``'s order."""


_MOST_VALUES = 100_000_000
"""Of a client's images, in the federated CIFAR-100."""


def _read(name: str, folder: Path, files: list[str], key: str) -> Arrays:
    for file in files:
        check_published(name, folder / file)
    batches = [read_cifar(folder / file, key) for file in files]
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def _names(file: Path, key: str) -> tuple[str, ...]:
    """The class names; none if their file is missing, because nothing else needs it."""
    return read_cifar_names(file, key) if file.is_file() else ()


@DATASETS.register("cifar10")
def cifar10(data_dir: Path | None) -> Dataset:
    """CIFAR-10 in its Python pickles: 50,000 training and 10,000 test images 3x32x32, 10 classes."""
    folder = source_folder("cifar10", data_dir)
    train = _read("cifar10", folder, [f"data_batch_{i}" for i in range(1, 6)], "labels")
    test = _read("cifar10", folder, ["test_batch"], "labels")
    mean, std = statistics("cifar10")
    names = _names(folder / "batches.meta", "label_names")
    return make_dataset("cifar10", train, test, classes=10, mean=mean, std=std, class_names=names)


@DATASETS.register("cifar100")
def cifar100(data_dir: Path | None) -> Dataset:
    """CIFAR-100 in its Python pickles: images 3x32x32, 100 fine classes in 20 superclasses."""
    folder = source_folder("cifar100", data_dir)
    train, test = (_read("cifar100", folder, [file], "fine_labels") for file in ("train", "test"))
    return _hundred("cifar100", train, test, names=_names(folder / "meta", "fine_label_names"))


def _hundred(
    name: str, train: Arrays, test: Arrays, *, clients: np.ndarray | None = None, names: tuple[str, ...] = ()
) -> Dataset:
    mean, std = statistics("cifar100")
    return make_dataset(
        name,
        train,
        test,
        classes=100,
        mean=mean,
        std=std,
        clients=clients,
        superclasses=np.array(SUPERCLASSES),
        class_names=names,
    )


@DATASETS.register("cifar100_pam")
def cifar100_pam(data_dir: Path | None) -> Dataset:
    """Federated CIFAR-100 (Reddi et al., ICLR 2021): 500 clients of 100 images by Pachinko allocation, 10,000 test.

    TensorFlow Federated's HDF5 files: ``examples/CLIENT/image`` uint8 [n, 32, 32, 3] and ``label`` int64 [n].
    """
    folder = source_folder("cifar100_pam", data_dir)
    *train, clients = _read_clients(folder / "fed_cifar100_train.h5")
    *test, _ = _read_clients(folder / "fed_cifar100_test.h5")
    return _hundred("cifar100_pam", (train[0], train[1]), (test[0], test[1]), clients=clients)


def _read_clients(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images uint8 [n, 3, 32, 32], labels [n] and clients [n], ordered by the clients' numbers."""
    import h5py

    from landscape.storage.hdf5 import read_array, subgroup

    open_regular(path).close()
    try:
        with h5py.File(path, "r") as file:
            groups = subgroup(file, "examples")
            names = sorted(groups, key=lambda name: (len(name), name))
            each = [subgroup(groups, name) for name in names]
            images = [read_array(client, "image", most=_MOST_VALUES) for client in each]
            labels = [read_array(client, "label", most=_MOST_VALUES) for client in each]
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise FedscapeError(f"{path} is not TensorFlow Federated's CIFAR-100 or is damaged: {error}") from error
    for name, x, y in zip(names, images, labels, strict=True):
        if x.dtype != np.uint8 or x.shape != (y.size, 32, 32, 3) or y.ndim != 1 or y.dtype.kind not in "iu":
            raise FedscapeError(f"{path}: client {name} has images {x.dtype} {x.shape} for labels {y.dtype} {y.shape}")
    if not names:
        raise FedscapeError(f"{path} holds no clients")
    clients = np.repeat(np.arange(len(names)), [len(y) for y in labels])
    return np.concatenate(images).transpose(0, 3, 1, 2), np.concatenate(labels), clients
