"""FEMNIST: EMNIST's characters by writer (LEAF, Caldas et al., 2018)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from landscape.data.dataset import DATASETS, Dataset, make_dataset
from landscape.data.formats.leaf import read_leaf
from landscape.data.formats.mnist import CHARACTERS
from landscape.data.readers import read_npz
from landscape.data.sources import source_folder
from landscape.data.tables import client_ids
from landscape.errors import FedscapeError


@DATASETS.register("femnist")
def femnist(data_dir: Path | None) -> Dataset:
    """FEMNIST: characters 1x28x28 of 62 classes, black on white; each writer is a client.

    It is read from LEAF's JSON files, or ``femnist.npz`` (written by :func:`landscape.data.fetch.fetch`).  The
    normalisation is computed.
    """
    folder = source_folder("femnist", data_dir)
    if (folder / "femnist.npz").is_file():
        arrays = read_npz(folder / "femnist.npz")
        if "clients" not in arrays:
            raise FedscapeError(f"{folder / 'femnist.npz'} lacks clients, the writer of each training image")
        train, test = ([arrays[f"x_{part}"][:, None], arrays[f"y_{part}"]] for part in ("train", "test"))
        clients = arrays["clients"]
    else:
        if not (folder / "train").is_dir() and (folder / "data").is_dir():
            folder = folder / "data"  # as in LEAF's repository
        users, *train = _read(folder / "train")
        _, *test = _read(folder / "test")
        clients = client_ids(users)
    return make_dataset(
        "femnist", (train[0], train[1]), (test[0], test[1]), classes=62, clients=clients, class_names=CHARACTERS
    )


def _read(folder: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Each sample's user, images uint8 [n, 1, 28, 28] and labels [n], from LEAF's files."""
    users: list[str] = []
    images, labels = [], []
    for user, data, file in read_leaf(folder):
        images.append(_pixels(data["x"], f"{file}: user {user}"))
        labels.append(np.array(data["y"]))
        if labels[-1].shape != images[-1].shape[:1] or labels[-1].dtype.kind not in "iu":
            raise FedscapeError(f"{file}: user {user} has not one whole number as label of each image")
        users += [user] * len(labels[-1])
    return users, np.concatenate(images), np.concatenate(labels)


def _pixels(rows: Any, where: str) -> np.ndarray:
    """Rows of 784 grey values from 0 to 1, which are multiples of 1/255 -> uint8."""
    try:
        values = 255 * np.array(rows, dtype=np.float64).reshape(-1, 1, 28, 28)
    except (ValueError, TypeError) as error:
        raise FedscapeError(f"{where} has images that are not rows of 784 numbers") from error
    levels = values.round()
    if not (np.abs(values - levels) < 1e-3).all() or levels.min(initial=0) < 0 or levels.max(initial=0) > 255:
        raise FedscapeError(f"{where} has grey values that are not multiples of 1/255 from 0 to 1")
    return levels.astype(np.uint8)
