"""Tiny-ImageNet-200 as Stanford's course published it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from landscape.data.dataset import DATASETS, Dataset, make_dataset
from landscape.data.formats.images import read_images
from landscape.data.normalisation import statistics
from landscape.data.sources import source_folder
from landscape.data.tables import read_lines
from landscape.errors import FedscapeError


@DATASETS.register("tiny_imagenet")
def tiny_imagenet(data_dir: Path | None) -> Dataset:
    """Tiny-ImageNet-200: 100,000 training and 10,000 test (its validation) images 3x64x64, 200 classes.

    The classes are WordNet ids in alphabetical order.  ``val/val_annotations.txt`` has the class of each validation
    image: ``FILE WNID x0 y0 x1 y1``, separated by tabs.  Grey images become RGB.
    """
    folder = source_folder("tiny_imagenet", data_dir)
    ids = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
    if not ids:
        raise FedscapeError(f"{folder} holds no train/WNID/images/*.JPEG")
    by_class = [sorted((folder / "train" / wnid / "images").glob("*.JPEG")) for wnid in ids]
    empty = [wnid for wnid, files in zip(ids, by_class, strict=True) if not files]
    if empty:
        raise FedscapeError(f"{folder / 'train' / empty[0] / 'images'} holds no *.JPEG")
    labels = np.repeat(np.arange(len(ids)), [len(files) for files in by_class])
    test_files, test_labels = _annotations(folder / "val", ids)
    mean, std = statistics("tiny_imagenet")
    return make_dataset(
        "tiny_imagenet",
        (read_images([file for files in by_class for file in files], folder), labels),
        (read_images(test_files, folder), test_labels),
        classes=len(ids),
        mean=mean,
        std=std,
        class_names=_words(folder / "words.txt", ids),
    )


def _annotations(folder: Path, ids: list[str]) -> tuple[list[Path], np.ndarray]:
    path, order = folder / "val_annotations.txt", {wnid: i for i, wnid in enumerate(ids)}
    rows = [line.split("\t") for line in read_lines(path)]
    for row in rows:
        if len(row) < 2 or row[1] not in order:
            raise FedscapeError(
                f"{path}: '{' '.join(row)[:60]}' names no image and class of train/, as FILE WNID separated by a tab do"
            )
    if not rows:
        raise FedscapeError(f"{path} names no images")
    return [folder / "images" / row[0] for row in rows], np.array([order[row[1]] for row in rows], dtype=np.int64)


def _words(path: Path, ids: list[str]) -> list[str]:
    """The first word for each class, or its id if there are no words."""
    if not path.is_file():
        return ids
    words = dict(line.split("\t", 1) for line in read_lines(path) if "\t" in line)
    return [words.get(wnid, wnid).split(",")[0] for wnid in ids]
