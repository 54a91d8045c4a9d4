"""Normalisation of inputs: (inputs − mean) / std by channel, by a rule that is named, printed and recorded.

The rule of this version: uint8 images are normalised, by the statistics of their data set or else by those of its
training images; floating-point inputs are taken as they are.  Earlier versions divided floating-point inputs, too, by
their own statistics, and did not record it (:func:`as_before`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from landscape.data.dataset import Dataset, channel_statistics
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.registry import unknown_name

PUBLISHED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mnist": ((0.1307,), (0.3081,)),
    "tiny_imagenet": ((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
}
"""Mean and deviation of the training pixels by channel, where black is 0 and white 1."""
_WHITE = 255
_SHOWN = 4


@dataclass(frozen=True)
class Normalisation:
    """Mean and deviation by channel, in units of pixels from 0 to 1 for uint8 images, else in the inputs' own.

    Attributes:
        pixels: whether the inputs are uint8 images.
        mean, std: by channel; ``None``: the inputs are taken as they are.

    Example:
        >>> from landscape import load_dataset
        >>> from landscape.data.normalisation import Normalisation, normalised
        >>> digits = normalised(load_dataset("digits"), "0.02/0.02")
        >>> print(Normalisation.of(digits))
        normalised by 0.02/0.02 (pixels/255)
    """

    pixels: bool
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None

    @classmethod
    def of(cls, dataset: Dataset) -> Normalisation:
        """That of a data set."""
        data = dataset.train
        pixels = data.inputs.dtype == torch.uint8
        if data.mean is None or data.std is None:
            return cls(pixels, None, None)
        unit = _WHITE if pixels else 1
        mean, std = ([value / unit for value in t.flatten().tolist()] for t in (data.mean, data.std))
        return cls(pixels, tuple(mean), tuple(std))

    def __str__(self) -> str:
        if self.mean is None or self.std is None:
            return "taken as they are"
        words = "/".join(_listed(values) for values in (self.mean, self.std))
        return f"normalised by {words}{' (pixels/255)' if self.pixels else ''}"


def _listed(values: Sequence[float]) -> str:
    shown = ",".join(f"{value:.6g}" for value in values[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown},… ({len(values)} channels)"


def statistics(name: str) -> tuple[list[float], list[float]]:
    """Published mean and deviation in units of a stored pixel."""
    mean, std = PUBLISHED[name]
    return [_WHITE * value for value in mean], [_WHITE * value for value in std]


def normalised(dataset: Dataset, rule: str | None) -> Dataset:
    """The data set with its inputs normalised by another rule.

    Args:
        dataset: the data.
        rule: a name of :data:`PUBLISHED`; ``MEAN,.../STD,...`` by channel, or one for all, both for pixels from 0 to 1
            where the inputs are uint8 images and else in the inputs' units; ``none``: pixels from 0 to 1, floats as
            they are; ``data``: the statistics of the training inputs; ``None``: as the data set is.

    Raises:
        FedscapeError: an unknown rule, other numbers than one for each channel, a deviation that is not above 0;
            integers that are no images.

    Example:
        >>> from landscape import load_dataset
        >>> from landscape.data.normalisation import normalised
        >>> digits = normalised(load_dataset("digits"), "none")
        >>> digits.train.std.flatten()
        tensor([255.], dtype=torch.float64)
    """
    if rule is None:
        return dataset
    inputs = dataset.train.inputs
    pixels, channels = inputs.dtype == torch.uint8, inputs.shape[1] if inputs.dim() > 1 else 1
    if not pixels and not inputs.is_floating_point():
        raise FedscapeError(f"the inputs of {dataset.name} are {inputs.dtype} and no images: leave out --normalise")
    if rule == "data":
        return _with(dataset, *channel_statistics(inputs.numpy()))
    if rule == "none":
        return _with(dataset, [0.0] * channels, [float(_WHITE)] * channels) if pixels else _plain(dataset)
    mean, std = PUBLISHED[rule] if rule in PUBLISHED else _numbers(rule)
    both = [values * channels if len(values) == 1 else values for values in (mean, std)]
    if any(len(values) != channels for values in both):
        raise FedscapeError(
            f"--normalise {rule} has {len(mean)} means and {len(std)} deviations for the {channels} channels of "
            f"{dataset.name}: give one number for each, or one for all"
        )
    unit = _WHITE if pixels else 1
    return _with(dataset, *([unit * value for value in values] for values in both))


def _numbers(rule: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    means, slash, deviations = rule.partition("/")
    if not slash:
        raise unknown_name("normalisation", rule, [*PUBLISHED, "none", "data", "MEAN,.../STD,..."])
    try:
        mean, std = (tuple(float(word) for word in words.split(",")) for words in (means, deviations))
    except ValueError:
        mean = std = (math.nan,)
    if not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        raise FedscapeError(
            f"--normalise {rule} is not MEAN,.../STD,... with a number for each channel and deviations above 0, as in "
            "0.4914,0.4822,0.4465/0.2023,0.1994,0.2010"
        )
    return mean, std


def _with(dataset: Dataset, mean: Sequence[float], std: Sequence[float]) -> Dataset:
    shape = (len(mean), *[1] * (dataset.train.inputs.dim() - 2))
    both = {
        name: torch.tensor(values, dtype=torch.float64).reshape(shape)
        for name, values in (("mean", mean), ("std", std))
    }
    return _replaced(dataset, **both)


def _plain(dataset: Dataset) -> Dataset:
    return _replaced(dataset, mean=None, std=None)


def _replaced(dataset: Dataset, mean: Tensor | None, std: Tensor | None) -> Dataset:
    def samples(part: Samples) -> Samples:
        return replace(part, mean=mean, std=std)

    return replace(dataset, train=samples(dataset.train), test=samples(dataset.test), as_given=False)


def recorded(dataset: Dataset) -> dict[str, Any]:
    """The normalisation as a checkpoint holds it: ``inputs`` (their type), ``mean`` and ``std`` in their own units."""
    data = dataset.train
    return {
        "inputs": _kind(data),
        "mean": None if data.mean is None else data.mean.flatten().tolist(),
        "std": None if data.std is None else data.std.flatten().tolist(),
    }


def as_recorded(dataset: Dataset, record: object, where: str) -> Dataset:
    """The data set normalised as a checkpoint records it.

    Args:
        dataset: the data.
        record: of :func:`recorded`, from a file.
        where: the file, for the error.

    Raises:
        FedscapeError: the record is damaged, or of inputs of another kind.
    """
    data = dataset.train
    found = record if isinstance(record, Mapping) else {}
    mean, std = found.get("mean"), found.get("std")
    if not isinstance(found.get("inputs"), str) or not (_are_none(mean, std) or _are_numbers(mean, std)):
        raise FedscapeError(f"{where}: the record of the normalisation is damaged: give --normalise")
    channels = data.inputs.shape[1] if data.inputs.dim() > 1 else 1
    if found["inputs"] != _kind(data) or (mean is not None and len(mean) != channels):
        raise FedscapeError(
            f"{where}: the model was trained on {'' if mean is None else f'{len(mean)} channels of '}"
            f"{''.join(filter(str.isprintable, found['inputs']))[:20]} inputs, and {dataset.name} has {channels} of "
            f"{_kind(data)}: say with --normalise what they are normalised by"
        )
    return _plain(dataset) if mean is None else _with(dataset, mean, std)  # type: ignore[arg-type]


def _kind(data: Samples) -> str:
    if data.inputs.is_floating_point():
        return "floating-point"
    return "uint8" if data.inputs.dtype == torch.uint8 else "integer"


def _are_none(mean: Any, std: Any) -> bool:
    return mean is None and std is None


def _are_numbers(mean: Any, std: Any) -> bool:
    whole = all(isinstance(v, list) and all(isinstance(x, float) and math.isfinite(x) for x in v) for v in (mean, std))
    return whole and len(mean) == len(std) > 0 and min(std) > 0


def as_before(dataset: Dataset) -> Dataset:
    """The data set by the rule of versions that recorded none: floating-point inputs are normalised, too."""
    return normalised(dataset, "data") if dataset.as_given else dataset
