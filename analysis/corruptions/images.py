"""Corrupted test images of a data set: from the published files, or generated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from landscape import Dataset, FedscapeError, Samples
from landscape.data.corruptions import CORRUPTIONS, SMALLEST, corrupt, generated
from landscape.data.formats.corrupted import CLEAN, corrupted_samples
from landscape.data.samples import random_subset
from landscape.data.sources import SOURCES, source_folder

_PUBLISHED = {clean: name for name, clean in CLEAN.items()}


class CorruptedImages(Protocol):
    """The same test images, in the same order, under each corruption at each severity."""

    @property
    def title(self) -> str:
        """A short name of their origin."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the corruptions that these images have."""

    def fingerprint(self, name: str) -> str:
        """Text that differs between two sets of images of the same corruption."""

    def samples(self, name: str, severity: int) -> Samples:
        """The images under a corruption, normalised as the clean ones are."""


@dataclass(frozen=True)
class GeneratedImages:
    """Corruptions by formula (:mod:`landscape.data.corruptions`) of any images.

    White is the largest value in the training images (255; in ``digits`` 16).  The corrupted images have 256 levels in
    any case, and their normalisation is scaled to these.

    Args:
        dataset: the data set of the images.
        clean: its test images, or some of them.
        seed: of the random corruptions.

    Raises:
        FedscapeError: inputs that are no images of 1 or 3 channels, are too small, or negative somewhere.
    """

    dataset: Dataset
    clean: Samples
    seed: int = 0

    def __post_init__(self) -> None:
        x = self.clean.inputs
        fits = x.dim() == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) >= SMALLEST
        if not fits or x.min() < 0 or self.white <= 0:
            raise FedscapeError(
                f"inputs of shape {tuple(x.shape[1:])} from {float(x.min()):g} to {float(x.max()):g} cannot be "
                f"corrupted: they must be images (channels, height, width) of 1 or 3 channels, of at least {SMALLEST} "
                f"x {SMALLEST} pixels, from 0 (black) up"
            )

    @cached_property
    def white(self) -> float:
        """The value of white pixels."""
        return float(self.dataset.train.inputs.max())

    @property
    def title(self) -> str:
        """The word ``generated``."""
        return "generated"

    @property
    def names(self) -> tuple[str, ...]:
        """The corruptions that can be generated of such images."""
        return generated(self.clean.inputs.shape[1])

    def fingerprint(self, name: str) -> str:
        """The seed and the scale; the clean images determine the rest."""
        return f"generated {self.seed} {self.white}"

    def samples(self, name: str, severity: int) -> Samples:
        """The images corrupted, with 256 levels.

        Raises:
            FedscapeError: as :func:`landscape.data.corruptions.corrupt`.
        """
        scale = 255 / self.white
        levels = (self.clean.inputs.cpu().numpy() * scale).round().clip(0, 255).astype(np.uint8)
        images = corrupt(levels.transpose(0, 2, 3, 1), name, severity, self.seed).transpose(0, 3, 1, 2)
        if self.clean.mean is None or self.clean.std is None:  # back to the units of the inputs, which stay as they are
            mean, std = torch.zeros(1, 1, 1, dtype=torch.float64), torch.full((1, 1, 1), scale, dtype=torch.float64)
        else:
            mean, std = self.clean.mean * scale, self.clean.std * scale
        return Samples(torch.from_numpy(np.ascontiguousarray(images)), self.clean.targets, mean, std)


@dataclass(frozen=True)
class PublishedImages:
    """The files of CIFAR-10-C or CIFAR-100-C (:mod:`landscape.data.formats.corrupted`).

    Args:
        dataset: whose test images they are.
        data_dir: the folder that holds theirs.
        count: a random subset of so many images; all unless given.

    Raises:
        FedscapeError: none were published of this data set, or they are not there.
    """

    dataset: Dataset
    data_dir: Path | None
    count: int | None = None

    def __post_init__(self) -> None:
        if self.dataset.name not in _PUBLISHED:
            raise FedscapeError(
                f"no corrupted images of {self.dataset.name} were published (of {' and '.join(_PUBLISHED)} there are): "
                "have them generated with --generate"
            )
        try:
            _ = self.folder
        except FedscapeError as error:
            raise FedscapeError(f"{error}; or have them generated with --generate") from None

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return source_folder(_PUBLISHED[self.dataset.name], self.data_dir)

    @property
    def title(self) -> str:
        """The name of the published set."""
        return SOURCES[_PUBLISHED[self.dataset.name]].folder

    @property
    def names(self) -> tuple[str, ...]:
        """All nineteen."""
        return CORRUPTIONS

    def fingerprint(self, name: str) -> str:
        """The path, size and time of the file.

        Raises:
            FedscapeError: there is no such file.
        """
        file = self.folder / f"{name}.npy"
        try:
            now = file.stat()
        except OSError as error:
            raise FedscapeError(
                f"cannot read {file}: {error.strerror}; name the corruptions whose files are there with --corruptions"
            ) from error
        return f"{file.resolve()} {now.st_size} {now.st_mtime_ns}"

    def samples(self, name: str, severity: int) -> Samples:
        """The images of a file at a severity.

        Raises:
            FedscapeError: the file is missing, cut short, or not of the data set's test images.
        """
        images = corrupted_samples(_PUBLISHED[self.dataset.name], self.data_dir, name, severity)
        if not torch.equal(images.targets, self.dataset.test.targets.cpu()):
            raise FedscapeError(
                f"{self.folder}: the labels of {name} at severity {severity} are not those of the "
                f"{len(self.dataset.test):,} test images of {self.dataset.name}"
            )
        images = replace(images, mean=self.dataset.test.mean, std=self.dataset.test.std)  # the model's normalisation
        return images if self.count is None else random_subset(images, self.count)
