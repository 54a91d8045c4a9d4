"""Street scenes with a class for each pixel: Cityscapes and IDDA, with the clients of FedDrive.

FedDrive: Fantauzzo et al., IROS 2022, https://github.com/Erosinho13/FedDrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from landscape.data.dataset import DATASETS, Dataset, make_dataset
from landscape.data.formats.images import Size, read_images, read_maps
from landscape.data.formats.landmarks import MEAN, STD
from landscape.data.formats.leaf import read_leaf
from landscape.data.sources import source_folder
from landscape.data.tables import client_ids
from landscape.errors import FedscapeError
from landscape.tasks import IGNORED

CLASSES = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)  # fmt: skip
"""Cityscapes' 19 evaluated classes in their order."""
_CITYSCAPES = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""The label ids of these classes (cityscapesscripts/helpers/labels.py); the other ids are ignored."""
_IDDA = (255, 2, 4, 255, 11, 5, 0, 0, 1, 8, 13, 3, 7, 6, 255, 255, 15, 14, 12, 9, 10)
"""The class of each of IDDA's label ids, in FedDrive's mapping to 16 classes."""
_IDDA_CLASSES = (*CLASSES[:14], "motorcycle", "bicycle")

CITYSCAPES_SIZE: Size = (512, 1024)
IDDA_SIZE: Size = (540, 960)
Scenes = list[tuple[str, Path, Path]]
"""Scenes: client, image file, file of label ids."""


def table(ids: Mapping[int, int]) -> np.ndarray:
    """Label id -> class, uint8 [256]; other ids are ignored."""
    found = np.full(256, IGNORED, np.uint8)
    for label, number in ids.items():
        found[label] = number
    return found


@DATASETS.register("cityscapes")
def cityscapes(data_dir: Path | None) -> Dataset:
    """Cityscapes: 2,975 training and 500 test (its validation) scenes 3x512x1024, 19 classes a pixel.

    Images have half the published height and width.  Clients are FedDrive's if its JSON files are in ``clients/``, else
    cities.
    """
    folder = source_folder("cityscapes", data_dir)

    def scenes(part: str) -> Scenes:
        labels = sorted((folder / "gtFine" / part).glob("*/*_gtFine_labelIds.png"))
        stems = [path.name.removesuffix("_gtFine_labelIds.png") for path in labels]
        return [
            (path.parent.name, folder / "leftImg8bit" / part / path.parent.name / f"{stem}_leftImg8bit.png", path)
            for path, stem in zip(labels, stems, strict=True)
        ]

    train = _by_client(folder, "train", folder / "leftImg8bit", folder / "gtFine") or scenes("train")
    test = _by_client(folder, "test", folder / "leftImg8bit", folder / "gtFine") or scenes("val")
    ids = table({label: number for number, label in enumerate(_CITYSCAPES)})
    return _dataset("cityscapes", folder, train, test, CITYSCAPES_SIZE, ids, CLASSES)


@DATASETS.register("idda")
def idda(data_dir: Path | None) -> Dataset:
    """IDDA (small): simulated scenes 3x540x960 in domains of town, weather and car, 16 classes a pixel.

    Images have half the published height and width.  Clients are FedDrive's if its JSON files are in ``clients/``;
    else each domain is a client, and the domains of the country (T07) are the test set, which no client has.
    """
    folder = source_folder("idda", data_dir)
    images = folder / "IDDAsmall"
    train, test = (_by_client(folder, part, images, images) for part in ("train", "test"))
    if not train:
        every = [
            (path.parent.parent.name, path.parent.parent / "RGB" / f"{path.stem}.jpg", path)
            for path in sorted(images.glob("*/Semantic/*.png"))
        ]
        train = [scene for scene in every if not scene[0].startswith("T07")]
        test = [scene for scene in every if scene[0].startswith("T07")]
    ids = table(dict(enumerate(_IDDA)))
    return _dataset("idda", folder, train, test, IDDA_SIZE, ids, _IDDA_CLASSES)


@DATASETS.register("idda_country")
def idda_country(data_dir: Path | None) -> Dataset:
    """IDDA (small) in FedDrive's country setting, tested in the country, which no client has seen."""
    return _idda_setting(data_dir, "country", "unseen")


@DATASETS.register("idda_country_seen")
def idda_country_seen(data_dir: Path | None) -> Dataset:
    """IDDA (small) in FedDrive's country setting, tested in the domains that clients have."""
    return _idda_setting(data_dir, "country", "seen")


@DATASETS.register("idda_rainy")
def idda_rainy(data_dir: Path | None) -> Dataset:
    """IDDA (small) in FedDrive's rainy setting, tested in the rain, which no client has seen."""
    return _idda_setting(data_dir, "rainy", "unseen")


@DATASETS.register("idda_rainy_seen")
def idda_rainy_seen(data_dir: Path | None) -> Dataset:
    """IDDA (small) in FedDrive's rainy setting, tested in the domains that clients have."""
    return _idda_setting(data_dir, "rainy", "seen")


def _idda_setting(data_dir: Path | None, setting: str, test: str) -> Dataset:
    """By FedDrive's JSON files in ``clients/SETTING/train``, ``.../seen`` and ``.../unseen``."""
    folder = source_folder("idda", data_dir)
    images = folder / "IDDAsmall"
    found = [_by_client(folder, f"{setting}/{part}", images, images) for part in ("train", test)]
    if not all(found):
        raise FedscapeError(
            f"{folder / 'clients' / setting} must hold FedDrive's JSON files of this setting in train, seen and unseen"
        )
    return _dataset(
        f"idda_{setting}", folder, found[0], found[1], IDDA_SIZE, table(dict(enumerate(_IDDA))), _IDDA_CLASSES
    )


def _by_client(folder: Path, part: str, images: Path, labels: Path) -> Scenes:
    """The scenes of each client by FedDrive's JSON files in ``clients/PART/``; empty without such files."""
    listing = folder / "clients" / part
    if not listing.is_dir():
        return []
    return [
        (user, images / _inside(x, file), labels / _inside(y, file))
        for user, data, file in read_leaf(listing)
        for x, y in zip(data["x"], data["y"], strict=True)
    ]


def _inside(name: object, file: Path) -> PurePosixPath:
    path = PurePosixPath(str(name))
    if path.is_absolute() or ".." in path.parts:
        raise FedscapeError(f"{file} names '{path}', which is not inside the data set")
    return path


def _dataset(
    name: str, folder: Path, train: Scenes, test: Scenes, size: Size, ids: np.ndarray, classes: tuple[str, ...]
) -> Dataset:
    arrays = []
    for part, scenes in (("training", train), ("test", test)):
        if not scenes:
            raise FedscapeError(f"{folder} holds no {part} scenes with their label ids")
        _, images, labels = zip(*scenes, strict=True)
        arrays.append((read_images(images, folder, size=size), read_maps(labels, folder, size=size, table=ids)))
    clients = client_ids([client for client, _, _ in train])
    return make_dataset(
        name,
        *arrays,
        classes=len(classes),
        mean=MEAN,
        std=STD,
        task="segmentation",
        clients=clients,
        class_names=classes,
    )
