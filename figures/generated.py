"""Small generated scenes with a class for each pixel: what stands in for Cityscapes and IDDA at the smoke scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import nn

from landscape import Dataset, make_dataset

SIDE = 12
CLIENTS, IMAGES = 8, 10
"""Clients, and the training images of each."""


def scenes(domain: int, tested: Sequence[int], name: str) -> Dataset:
    """Noise with a dark square (class 1) and a bright one (class 2); each domain has a light of its own.

    Args:
        domain: seeds the images; their clients have the domains 0 to 7, from dark to bright.
        tested: domains of the 24 test images; from 8 on, no client has them.
        name: of the data set.

    Example:
        >>> from figures.generated import scenes
        >>> found = scenes(0, (8,), "country")
        >>> found.task, found.classes, len(found.train), len(found.test), len(set(found.clients.tolist()))
        ('segmentation', 3, 80, 24, 8)
    """
    random = np.random.default_rng(domain)
    clients = np.repeat(np.arange(CLIENTS), IMAGES)
    train = _drawn(clients, random)
    test = _drawn(np.resize(np.array(tested), 24), random)
    return make_dataset(name, train, test, classes=3, task="segmentation", clients=clients)


def _drawn(domains: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images [n, 1, 12, 12] and maps [n, 12, 12]."""
    light = 8.0 * (domains - CLIENTS / 2)[:, None, None]
    images = random.integers(90, 160, (len(domains), SIDE, SIDE)) + light
    maps = np.zeros((len(domains), SIDE, SIDE), np.uint8)
    for image, labels, own in zip(images, maps, light[:, 0, 0], strict=True):
        for label, grey in ((1, 50), (2, 200)):
            i, j = random.integers(0, SIDE - 4, 2)
            image[i : i + 4, j : j + 4] = grey + own
            labels[i : i + 4, j : j + 4] = label
    return images.clip(0, 255).astype(np.uint8)[:, None], maps


def country(data_dir: Path | None) -> Dataset:
    """Tested in domains that no client has: brighter ones."""
    return scenes(1, (8, 9, 10, 11), "country")


def country_seen(data_dir: Path | None) -> Dataset:
    """As :func:`country`, tested in the clients' domains."""
    return scenes(1, range(CLIENTS), "country")


def rainy(data_dir: Path | None) -> Dataset:
    """Tested in domains that no client has: darker ones."""
    return scenes(2, (-1, -2, -3, -4), "rainy")


def rainy_seen(data_dir: Path | None) -> Dataset:
    """As :func:`rainy`, tested in the clients' domains."""
    return scenes(2, range(CLIENTS), "rainy")


def city(data_dir: Path | None) -> Dataset:
    """Tested in the clients' domains."""
    return scenes(3, range(CLIENTS), "city")


def segmenter(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Two convolutions with BatchNorm between them."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, classes, 3, padding=1)
    )
