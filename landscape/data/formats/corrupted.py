"""CIFAR-10-C and CIFAR-100-C (Hendrycks & Dietterich, ICLR 2019): data sets with corrupted test images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from landscape.data.corruptions import CORRUPTIONS, SEVERITIES
from landscape.data.dataset import DATASETS, Dataset, make_dataset
from landscape.data.formats.cifar import SUPERCLASSES
from landscape.data.normalisation import statistics
from landscape.data.readers import read_npy
from landscape.data.samples import Samples
from landscape.data.sources import source_folder
from landscape.errors import FedscapeError
from landscape.registry import unknown_name

CLEAN = {"cifar10_c": "cifar10", "cifar100_c": "cifar100"}
"""The data set of the clean images."""


def corrupted_samples(name: str, data_dir: Path | None, corruption: str, severity: int) -> Samples:
    """The published test images of one corruption at one severity, normalised like the clean training images.

    ``CORRUPTION.npy`` is uint8 [5 n, 32, 32, 3], the n test images at severity 1, then at 2, ..., 5; ``labels.npy``
    holds the labels [5 n].

    Args:
        name: ``cifar10_c`` or ``cifar100_c``.
        data_dir: the folder that holds ``CIFAR-10-C/`` or ``CIFAR-100-C/``.
        corruption: one of :data:`landscape.data.corruptions.CORRUPTIONS`.
        severity: 1 to 5.

    Raises:
        FedscapeError: no such corruption or severity; the files are missing, damaged or of the wrong shape.
    """
    if corruption not in CORRUPTIONS:
        raise unknown_name("corruption", corruption, list(CORRUPTIONS))
    if severity not in SEVERITIES:
        raise FedscapeError(f"there is no severity {severity} of {name}: give 1 to {max(SEVERITIES)}")
    folder = source_folder(name, data_dir)
    images, labels = read_npy(folder / f"{corruption}.npy", 4), read_npy(folder / "labels.npy", 1)
    if images.shape[1:] != (32, 32, 3) or len(images) != len(labels) or len(images) % len(SEVERITIES):
        raise FedscapeError(
            f"{folder / corruption}.npy holds {images.shape} for {len(labels)} labels, expected (n, 32, 32, 3) and n "
            f"labels: {len(SEVERITIES)} severities of the same test images"
        )
    n = len(images) // len(SEVERITIES)
    part = slice((severity - 1) * n, severity * n)
    mean, std = statistics(CLEAN[name])
    pair = np.array(images[part].transpose(0, 3, 1, 2), order="C"), np.array(labels[part])
    classes = len(SUPERCLASSES) if name == "cifar100_c" else 10
    return make_dataset(str(folder / corruption), pair, pair, classes=classes, mean=mean, std=std).test


def corrupted_dataset(spec: str, data_dir: Path | None) -> Dataset:
    """``cifar10_c/CORRUPTION/SEVERITY``: the clean training images, the published corrupted test images.

    Raises:
        FedscapeError: as :func:`corrupted_samples`, the clean images are missing, or have other labels.
    """
    name, *rest = spec.split("/")
    source_folder(name, data_dir)
    if len(rest) != 2 or not rest[1].isdecimal():
        raise FedscapeError(
            f"{name} is {len(CORRUPTIONS)} corruptions at {len(SEVERITIES)} severities: name one of each, as in "
            f"{name}/fog/3 (known are {', '.join(CORRUPTIONS)})"
        )
    test = corrupted_samples(name, data_dir, rest[0], int(rest[1]))
    clean = DATASETS.get(CLEAN[name])(data_dir)
    if not test.targets.equal(clean.test.targets):
        raise FedscapeError(f"{spec} is not of the test images of {clean.name} in {data_dir}: their labels differ")
    return replace(clean, name=spec, test=test)


@DATASETS.register("cifar10_c")
def cifar10_c(data_dir: Path | None) -> Dataset:
    """CIFAR-10-C as cifar10_c/CORRUPTION/SEVERITY: CIFAR-10's training images, its 10,000 test images corrupted."""
    return corrupted_dataset("cifar10_c", data_dir)


@DATASETS.register("cifar100_c")
def cifar100_c(data_dir: Path | None) -> Dataset:
    """CIFAR-100-C as cifar100_c/CORRUPTION/SEVERITY: CIFAR-100's training images, its 10,000 test images corrupted."""
    return corrupted_dataset("cifar100_c", data_dir)
