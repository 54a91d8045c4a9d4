"""Loss and accuracy of checkpoints on corrupted test images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.arguments import grouped
from analysis.corruptions.images import CorruptedImages, GeneratedImages, PublishedImages
from analysis.corruptions.robustness import Robustness
from analysis.kept import alone, kept_lines, key_of
from analysis.source import Place
from landscape import Checkpoint, Dataset, FedscapeError, Landscape, Samples
from landscape.checkpoints.foreign import opened
from landscape.checkpoints.names import distinct_labels
from landscape.data.corruptions import CORRUPTIONS, SEVERITIES, generated
from landscape.data.loaders import data_named
from landscape.data.normalisation import Normalisation
from landscape.data.samples import random_subset
from landscape.several import several
from landscape.storage.files import append_line
from landscape.storage.schema import Number, Row, Text
from landscape.terminal.notices import notice
from landscape.terminal.progress import Progress
from landscape.version import versions


def measure_corruptions(
    checkpoints: Sequence[Checkpoint | str | Path] | Checkpoint | str | Path,
    corruptions: Sequence[str] | str = (),
    severities: Sequence[int] | int = SEVERITIES,
    *,
    generate: bool = False,
    seed: int = 0,
    place: Place | None = None,
    state: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> Robustness:
    """Evaluate checkpoints on the test images of their data set under corruptions (Hendrycks & Dietterich, ICLR 2019).

    Args:
        checkpoints: files or loaded checkpoints, all of one data set; one or several.
        corruptions: of :data:`landscape.data.corruptions.CORRUPTIONS`, one or several; all there are unless given.
        severities: of 1 to 5, one or several.
        generate: generate the corruptions (:mod:`landscape.data.corruptions`) instead of reading published files.
        seed: of generated corruptions.
        place: the model, the data, the device and the arithmetic in one value.
        state: a file to keep what was measured in; after a kill the same call continues there.
        progress: show progress on stderr.
        options: any option of ``place`` by its name, which goes before that of ``place``: ``samples`` (a random subset
            of so many test images, the same for every checkpoint and corruption), ``device``, ``dtype``, ``data_dir``
            (in which the published files lie too), ``model``, ``data``, ``batch_size`` and ``stream``, as in
            :meth:`landscape.Landscape.from_checkpoint`.

    Raises:
        FedscapeError: a checkpoint or data that cannot be loaded, checkpoints of different data, corruptions or
            severities that do not exist, published files that are missing or damaged, images that cannot be corrupted,
            targets that are no classes.
        LockedError: another process keeps its measurements in the same file.
        TypeError: an option that there is not.
    """
    (place,) = grouped("measure_corruptions", options, (place or Place(),))
    models: list[Checkpoint | str | Path] = several(checkpoints)
    named: list[str] = several(corruptions)
    if not models:
        raise FedscapeError("no checkpoint is given: give at least one")
    levels = _levels(several(severities))
    loaded, dataset, folder = _loaded(models, place)
    clean = dataset.test if place.samples is None else random_subset(dataset.test, place.samples)
    source: CorruptedImages = (
        GeneratedImages(dataset, clean, seed) if generate else PublishedImages(dataset, folder, place.samples)
    )
    names = _names(named, source)
    notes = () if named or not generate else _left_out(clean)
    for note in notes:
        notice(note)
    machine: dict[str, Any] = {
        "device": place.device, "dtype": place.dtype, "batch_size": place.batch_size, "stream": place.stream
    }  # fmt: skip
    landscapes = [Landscape(checkpoint.build_model(place.model), clean, **machine) for checkpoint in loaded]
    first = landscapes[0]
    arithmetic = [str(first.device), first.precision, versions()]
    keys = _keys(
        loaded, clean, source, names, levels, arithmetic
    )  # before the first image is made: a file may be missing
    untouched = np.array([_evaluated(landscape) for landscape in landscapes])
    with alone(state):
        known = _Measured(state)
        known.fill(landscapes, source, [(name, level) for name in names for level in levels], keys, progress)
    found = np.array([known.values[key] for key in keys.flat]).reshape(*keys.shape, 2)
    return Robustness(
        labels=tuple(distinct_labels(loaded)),
        data=dataset.name,
        images=source.title,
        generated=generate,
        corruptions=names,
        severities=levels,
        clean_accuracy=untouched[:, 1],
        clean_loss=untouched[:, 0],
        accuracy=found[..., 1],
        loss=found[..., 0],
        samples=len(clean),
        seed=seed,
        device=str(first.device),
        dtype=first.precision,
        notes=notes,
    )


def _left_out(images: Samples) -> tuple[str, ...]:
    """What is generated of colour images and not of these, in a sentence; nothing where all is."""
    there = generated(images.inputs.shape[1])
    missing = [name for name in generated(3) if name not in there]
    if not missing:
        return ()
    return (
        f"left out: {', '.join(missing)}, which changes colours, and the images are grey: all means are over the other "
        f"{len(there)} corruptions",
    )


def _levels(severities: Sequence[int]) -> tuple[int, ...]:
    """The severities in order, each once.

    Raises:
        FedscapeError: there are none, or one that does not exist.
    """
    levels = tuple(sorted(set(severities)))
    if not levels or not set(levels) <= set(SEVERITIES):
        raise FedscapeError(f"the severities are {', '.join(map(str, severities)) or 'none'}: give some of 1 to 5")
    return levels


def _names(corruptions: Sequence[str], source: CorruptedImages) -> tuple[str, ...]:
    """The corruptions asked for, each once; all that the images have where none is named.

    Raises:
        FedscapeError: one that the images do not have.
    """
    names = tuple(dict.fromkeys(corruptions)) or source.names
    if unknown := [name for name in names if name not in source.names]:
        here = "not generated of these images" if unknown[0] in CORRUPTIONS else "unknown"
        raise FedscapeError(f"the corruption '{unknown[0]}' is {here}: take {', '.join(source.names)}")
    return names


def _loaded(
    checkpoints: Sequence[Checkpoint | str | Path], place: Place
) -> tuple[list[Checkpoint], Dataset, Path | None]:
    """The checkpoints, their one data set and the folder its own folder lies in.

    Raises:
        FedscapeError: they are of different data, or of data without classes, or something cannot be loaded.
    """
    pairs = [opened(path, **place.naming) for path in checkpoints]
    loaded = [checkpoint for checkpoint, _ in pairs]
    named = data_named(place.data, place.loader)
    of = sorted({named or str(checkpoint.data.get("name")) for checkpoint in loaded})
    if len(of) > 1:
        raise FedscapeError(f"the checkpoints are of different data ({', '.join(of)}): give those of one data set")
    stored = loaded[0].data.get("kwargs", {}).get("data_dir")
    folder = place.data_dir if place.data_dir is not None or stored is None else str(stored)
    dataset = next((dataset for _, dataset in pairs if dataset is not None), None)
    dataset = dataset or loaded[0].load_dataset(data_dir=folder, name=named, normalise=place.normalise)
    if any(Normalisation.of(one.normalised(dataset, place.normalise)) != Normalisation.of(dataset) for one in loaded):
        raise FedscapeError(
            "the checkpoints were trained on inputs normalised in different ways: measure them one by one, or give one "
            "--normalise for all"
        )
    if dataset.task != "classification":
        raise FedscapeError(
            f"accuracy under corruption is of images of one class each, and {dataset.name} is of {dataset.task}"
        )
    return loaded, dataset, None if folder is None else Path(folder)


def _keys(
    checkpoints: Sequence[Checkpoint],
    clean: Samples,
    source: CorruptedImages,
    names: Sequence[str],
    levels: Sequence[int],
    arithmetic: list[Any],
) -> np.ndarray:
    """The keys of the measurements, [k, c, s]: digests of the checkpoint and of images and arithmetic, the severity.

    Raises:
        FedscapeError: a file of published images is missing.
    """
    of = {name: key_of([clean.digest(), source.fingerprint(name), name, *arithmetic]) for name in names}
    digests = [checkpoint.digest()[:16] for checkpoint in checkpoints]
    return np.array([[[f"{digest} {of[name]} {level}" for level in levels] for name in names] for digest in digests])


def _evaluated(landscape: Landscape) -> tuple[float, float]:
    """Loss and accuracy.

    Raises:
        FedscapeError: the targets are no classes.
    """
    here = landscape.evaluate()
    if here.accuracy is None:
        raise FedscapeError("accuracy under corruption is of images with classes, and these targets are none")
    return here.loss, here.accuracy


_LINE = Row((Text(), Number(-1e300, 1e300), Number(0, 1)))
"""A line of the file: a key, the loss, the accuracy."""


class _Measured:
    """Losses and accuracies by key; each is a line of the file, where there is one."""

    def __init__(self, file: str | Path | None) -> None:
        self.file = None if file is None else Path(file)
        self.values = {key: (float(loss), float(accuracy)) for key, loss, accuracy in kept_lines(self.file, _LINE)}

    def fill(
        self,
        landscapes: Sequence[Landscape],
        source: CorruptedImages,
        plan: Sequence[tuple[str, int]],
        keys: np.ndarray,
        progress: bool,
    ) -> None:
        """Measure those of ``keys`` [k, c, s] that are missing; ``plan`` has the c · s corruptions and severities."""
        done = sum(key in self.values for key in keys.flat)
        with Progress("corruptions", keys.size, done=done, unit="evaluations", enabled=progress) as bar:
            for (name, level), here in zip(plan, keys.reshape(len(landscapes), -1).T, strict=True):
                if missing := [i for i, key in enumerate(here) if key not in self.values]:
                    images = source.samples(name, level)
                for i in missing:
                    landscapes[i].data = images
                    self._add(str(here[i]), _evaluated(landscapes[i]))
                    done += 1
                    bar.update(done, corruption=name, severity=level, accuracy=self.values[here[i]][1])

    def _add(self, key: str, value: tuple[float, float]) -> None:
        self.values[key] = value
        if self.file is not None:
            append_line(self.file, json.dumps([key, *value]))
