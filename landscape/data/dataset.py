"""Data sets: a training and a test set with their normalisation, clients and classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.registry import Registry
from landscape.storage.display import Shown
from landscape.tasks import IGNORED, Task

Arrays = tuple[np.ndarray, np.ndarray]
"""Inputs [n, ...] and targets [n, ...]."""


MOST_CLASSES = 1 << 16
"""Classes that a data set may have: tables of clients by classes are as large as the largest label."""


@dataclass(frozen=True, repr=False)
class Dataset(Shown):
    """A training and a test set with the same normalisation.

    Attributes:
        task: ``classification`` (targets int64 [n]) or ``segmentation`` (targets uint8 [n, H, W], 255 is ignored).
        clients: int64 [n], the natural client (0, 1, ...) of each training sample, if the data have clients.
        superclasses: int64 [classes], the superclass (0, 1, ...) of each class, if the labels have two levels.
        class_names: as published; empty if unknown.
        as_given: whether the inputs are floating-point numbers that :func:`make_dataset` has taken as they are; earlier
            versions, which recorded no normalisation, divided them by their own statistics
            (:func:`landscape.data.normalisation.as_before`).

    Raises:
        FedscapeError: clients or superclasses that do not fit the samples or the classes.
    """

    name: str
    train: Samples
    test: Samples
    classes: int
    task: Task = "classification"
    clients: Tensor | None = None
    superclasses: Tensor | None = None
    class_names: tuple[str, ...] = ()
    as_given: bool = False

    def __post_init__(self) -> None:
        for ids, count, what in (
            (self.clients, len(self.train), "clients, one a training sample"),
            (self.superclasses, self.classes, "superclasses, one a class"),
        ):
            if ids is not None and (ids.dtype != torch.int64 or ids.shape != (count,) or ids.min() < 0):
                raise FedscapeError(f"{self.name}: {what}, must be {count} int64 numbers from 0, not {_form(ids)}")
        if self.class_names and len(self.class_names) != self.classes:
            raise FedscapeError(f"{self.name}: {len(self.class_names)} names for {self.classes} classes")

    def _heading(self) -> str:
        return self.name

    def _facts(self) -> dict[str, str]:
        facts = {"training samples": f"{len(self.train):,}", "test samples": f"{len(self.test):,}"}
        facts |= {"inputs": f"{' × '.join(map(str, self.input_shape))} {_kind(self.train)}", "task": self.task}
        named = f" ({', '.join(self.class_names[:10])}{', …' * (len(self.class_names) > 10)})" * bool(self.class_names)
        facts["classes"] = f"{self.classes:,}{named}"
        return facts | ({} if self.clients is None else {"natural clients": f"{len(self.clients.unique()):,}"})

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, without the batch axis, e.g. ``(3, 32, 32)``."""
        return tuple(self.train.inputs.shape[1:])

    def split(self, name: str) -> Samples:
        """``train`` or ``test``.

        Raises:
            FedscapeError: any other name.
        """
        if name not in ("train", "test"):
            raise FedscapeError(f"unknown split '{name}': give train or test")
        return self.train if name == "train" else self.test


def _kind(samples: Samples) -> str:
    """The type of stored inputs, and whether they are normalised when they are taken."""
    kind = str(samples.inputs.dtype).removeprefix("torch.")
    return kind if samples.mean is None else f"{kind}, normalised"


Loader = Callable[[Path | None], Dataset]
DATASETS: Registry[Loader] = Registry("data set", ("FILE.npz", "folder:PATH"))


def make_dataset(
    name: str,
    train: tuple[np.ndarray | Tensor, np.ndarray | Tensor],
    test: tuple[np.ndarray | Tensor, np.ndarray | Tensor],
    *,
    classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    task: Task = "classification",
    clients: np.ndarray | None = None,
    superclasses: np.ndarray | None = None,
    class_names: Sequence[str] = (),
) -> Dataset:
    """A data set from arrays: inputs [n, C, H, W] (or [n, features]) and integer labels [n] or maps [n, H, W].

    Arrays that are mapped from a file stay in the file.

    Args:
        name: of the data set, for error messages and records.
        train, test: inputs and labels, each an array or a tensor.
        classes: the number of classes; the largest training label + 1 unless given.
        mean, std: per channel, in the inputs' own units (0-255 for uint8 images).  Unless both are given, those of the
            training inputs if they are uint8, and else the inputs are taken as they are.
        task, clients, superclasses, class_names: as in :class:`Dataset`.

    Raises:
        FedscapeError: shapes that do not fit, labels out of range.

    Example:
        >>> import numpy as np
        >>> from landscape import make_dataset
        >>> images, labels = np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 2, 0])
        >>> dataset = make_dataset("mine", (images, labels), (images, labels))
        >>> dataset.classes, dataset.input_shape
        (3, (1, 2, 2))
    """
    train, test = (_arrays(name, part) for part in (train, test))
    x, y = train
    if not (np.issubdtype(y.dtype, np.integer) and np.issubdtype(test[1].dtype, np.integer)):
        raise FedscapeError(f"{name}: labels are {y.dtype}, they must be integers")
    if x.shape[1:] != test[0].shape[1:]:
        raise FedscapeError(f"{name}: training inputs are {x.shape[1:]}, test inputs {test[0].shape[1:]}")
    count = classes if classes is not None else int(y.max(initial=0)) + 1
    if count > MOST_CLASSES:
        raise FedscapeError(
            f"{name}: the largest label is {count - 1:,}: labels must be numbers from 0 to C − 1, for at most "
            f"{MOST_CLASSES:,} classes C"
        )
    for part, inputs, labels in (("training", x, y), ("test", *test)):
        if not len(labels):
            raise FedscapeError(f"{name}: there are no {part} samples")
        if task == "segmentation":
            _check_maps(name, part, inputs, labels, count)
        elif labels.ndim != 1 or not 0 <= int(labels.min()) <= int(labels.max()) < count:
            raise FedscapeError(f"{name}: {part} labels must be one number from 0 to {count - 1} a sample")
    given = mean is not None and std is not None
    if not given:
        mean, std = channel_statistics(x) if x.dtype == np.uint8 else (None, None)
    shape = (-1, *[1] * (x.ndim - 2))
    centre, spread = (None if v is None else torch.tensor(v, dtype=torch.float64).reshape(shape) for v in (mean, std))
    kind = np.uint8 if task == "segmentation" else np.int64

    def samples(inputs: np.ndarray, labels: np.ndarray) -> Samples:
        return Samples(
            torch.from_numpy(inputs if isinstance(inputs, np.memmap) else np.ascontiguousarray(inputs)),
            torch.from_numpy(labels.astype(kind, copy=False)),
            centre,
            spread,
        )

    return Dataset(
        name,
        samples(x, y),
        samples(*test),
        count,
        task,
        _ids(clients),
        _ids(superclasses),
        tuple(class_names),
        as_given=not given and np.issubdtype(x.dtype, np.floating),
    )


def _arrays(name: str, part: tuple[np.ndarray | Tensor, np.ndarray | Tensor]) -> Arrays:
    """Inputs and labels as arrays; those that are one stay what they are."""
    if not (
        isinstance(part, (tuple, list)) and len(part) == 2 and all(isinstance(a, (np.ndarray, Tensor)) for a in part)
    ):
        raise FedscapeError(f"{name}: training and test data are each two arrays or tensors, (inputs, labels)")
    inputs, labels = (a.numpy(force=True) if isinstance(a, Tensor) else a for a in part)
    if inputs.dtype == np.uint8 and inputs.ndim == 3:  # else the rows of an image would be taken for channels
        raise FedscapeError(
            f"{name}: images are {inputs.shape}, and must be [n, C, H, W]: give grey ones as images[:, None]"
        )
    return inputs, labels


def _ids(values: np.ndarray | None) -> Tensor | None:
    return None if values is None else torch.from_numpy(np.asarray(values).astype(np.int64))


def _form(ids: Tensor) -> str:
    return f"{ids.dtype} {tuple(ids.shape)} from {ids.min()}" if len(ids) else "none"


def _check_maps(name: str, part: str, inputs: np.ndarray, maps: np.ndarray, classes: int) -> None:
    if maps.ndim != 3 or maps.shape[1:] != inputs.shape[2:] or maps.dtype != np.uint8:
        raise FedscapeError(
            f"{name}: {part} maps are {maps.dtype} {maps.shape} for inputs {inputs.shape}, expected uint8 (n, H, W)"
        )
    if any(((chunk >= classes) & (chunk != IGNORED)).any() for chunk in chunks(maps)):
        raise FedscapeError(f"{name}: {part} maps must hold numbers from 0 to {classes - 1}, or {IGNORED}")


def chunks(array: np.ndarray, values: int = 1 << 24) -> Iterator[np.ndarray]:
    """The array in parts of about ``values`` numbers each, so that a mapped one is never completely in memory."""
    step = max(1, values * len(array) // max(1, array.size))
    for start in range(0, len(array), step):
        yield array[start : start + step]


def channel_statistics(x: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel of [n, C, ...], in float64; the deviation at least 1e-8."""
    channels = x.shape[1]
    if x.dtype == np.uint8:  # from the counts of each value, which is several times faster
        values = np.arange(256.0)
        counts = np.zeros((channels, 256))
        for chunk in chunks(x):
            counts += [np.bincount(chunk[:, c].reshape(-1), minlength=256) for c in range(channels)]
        shares = counts / counts.sum(1, keepdims=True)
        mean = shares @ values
        square = (shares * np.square(values - mean[:, None])).sum(1)
    else:
        axes, shape = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
        count = x.size // channels
        mean = sum(chunk.sum(axis=axes, dtype=np.float64) for chunk in chunks(x)) / count
        square = sum(np.square(chunk - mean.reshape(shape)).sum(axis=axes) for chunk in chunks(x, 1 << 21)) / count
    return mean.tolist(), np.maximum(np.sqrt(square), 1e-8).tolist()


def every_fifth(labels: np.ndarray) -> np.ndarray:
    """Which samples are test samples if the data have no split: every fifth of each class in order, bool [n]."""
    rank = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rank[labels == label] = np.arange((labels == label).sum())
    return rank % 5 == 4
