"""Landmarks-User-160k (Hsu et al., ECCV 2020): Google Landmarks v2 by photographer."""

from __future__ import annotations

from pathlib import Path

from landscape.data.dataset import DATASETS, Dataset, make_dataset
from landscape.data.formats.images import read_images
from landscape.data.normalisation import statistics
from landscape.data.sources import source_folder
from landscape.data.tables import client_ids, numbers, read_csv
from landscape.errors import FedscapeError

MEAN, STD = statistics("imagenet")
"""ImageNet's statistics, usual for networks on photographs, in units of a stored pixel."""


@DATASETS.register("landmarks")
def landmarks(data_dir: Path | None) -> Dataset:
    """Landmarks-User-160k: 164,172 training photographs of 1,262 users and 19,526 test ones, 2,028 classes.

    Each image is resized to a shorter side of 256, and its central 224x224 pixels are used.
    """
    folder = source_folder("landmarks", data_dir)
    train, test = folder / "federated_train.csv", folder / "test.csv"
    rows, test_rows = read_csv(train, ("image_id", "class", "user_id")), read_csv(test, ("image_id", "class"))
    arrays = []
    for path, part in ((train, rows), (test, test_rows)):
        if not part:
            raise FedscapeError(f"{path} names no images")
        files = [_file(folder / "images", row[0]) for row in part]
        labels = numbers(path, [row[1] for row in part], "class")
        arrays.append((read_images(files, folder, size=(256, 256), crop=(224, 224)), labels))
    clients = client_ids([row[2] for row in rows])
    return make_dataset("landmarks", arrays[0], arrays[1], classes=2028, clients=clients, mean=MEAN, std=STD)


def _file(folder: Path, name: str) -> Path:
    """``images/ID.jpg``, or ``images/a/b/c/ID.jpg`` as in Google's archives (a, b, c begin the id)."""
    if not name.isalnum():  # an id is hexadecimal, and must not lead out of the folder
        raise FedscapeError(f"'{name[:40]}' is no image id of Google Landmarks")
    flat = folder / f"{name}.jpg"
    nested = folder.joinpath(*name[:3], f"{name}.jpg")
    return nested if not flat.exists() and nested.exists() else flat
