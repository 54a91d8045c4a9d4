"""The embedded data set of scikit-learn's digits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from landscape.data.dataset import DATASETS, Dataset, every_fifth, make_dataset


@DATASETS.register("digits")
def digits(folder: Path | None = None) -> Dataset:
    """scikit-learn's 8x8 handwritten digits, embedded: 1,442 training and 355 test images, 10 classes.

    The split is fixed: every fifth image of each class, in file order, is a test image.
    """
    x, y = _images()
    test = every_fifth(y)
    return make_dataset(
        "digits", (x[~test], y[~test]), (x[test], y[test]), classes=10, class_names=[str(i) for i in range(10)]
    )


@cache
def _images() -> tuple[np.ndarray, np.ndarray]:
    """All images, [n, 1, 8, 8] uint8, and their classes; nobody can write into them.

    scikit-learn reads 130 kB of text each time, and every landscape around a model of digits asks for them.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = data.images.astype(np.uint8)[:, None], data.target.astype(np.int64)
    for array in (x, y):
        array.flags.writeable = False
    return x, y
