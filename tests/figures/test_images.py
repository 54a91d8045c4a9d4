"""Contact sheets show the images as stored, under their classes."""

import numpy as np
import pytest

from figures.__main__ import main
from figures.images import contact_sheet
from landscape import FedscapeError, load_dataset, make_dataset
from landscape.terminal.command import run


def test_each_image_stands_under_its_class():
    x = np.arange(6, dtype=np.uint8).repeat(3 * 16).reshape(6, 3, 4, 4) * 51
    y = np.arange(6)
    dataset = make_dataset("own", (x, y), (x, y), class_names=[f"shade {i}" for i in range(6)])
    figure = contact_sheet(dataset, 6)
    panels = [ax for ax in figure.axes if ax.images]
    assert len(panels) == 6
    for ax in panels:
        assert ax.images[0].get_array().mean() * 5 == pytest.approx(int(ax.get_title().removeprefix("shade ")))


def test_labels_of_pixels_are_drawn_over_the_image_and_ignored_ones_are_not():
    x, maps = np.zeros((2, 3, 4, 4), np.uint8), np.full((2, 4, 4), 255, np.uint8)
    maps[:, :2] = 1
    figure = contact_sheet(make_dataset("own", (x, maps), (x, maps), classes=3, task="segmentation"), 2)
    shown = figure.axes[0].images[1].get_array()
    assert shown.mask.sum() == 8
    assert set(shown.compressed().tolist()) == {1}


def test_the_command_writes_a_picture(tmp_path, capsys):
    file = tmp_path / "digits.png"
    assert run(lambda: main(["contact-sheet", "digits", "--split", "test", "--out", str(file)])) == 0
    assert f"written: {file}" in capsys.readouterr().out
    assert file.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("digits --images 0", "0 samples are asked for"),
        ("digits --out x.nothing", "is no kind of picture"),
        ("cifar10 --data-dir /nowhere", "python -m landscape.data fetch cifar10 --data-dir /nowhere"),
    ],
)
def test_mistakes_are_one_sentence(line, reason, capsys):
    assert run(lambda: main(["contact-sheet", *line.split()])) == 2
    assert reason in capsys.readouterr().err


def test_features_are_no_images():
    x, y = np.zeros((3, 2)), np.arange(3)
    with pytest.raises(FedscapeError, match="own holds no images"):
        contact_sheet(make_dataset("own", (x, y), (x, y)))


@pytest.mark.parametrize(
    ("name", "first"),
    [
        pytest.param("cifar10", "airplane", marks=pytest.mark.slow),
        pytest.param("cifar100", "apple", marks=pytest.mark.slow),
        ("fashion_mnist", "T-shirt/top"),
    ],
)
def test_real_images_are_drawn_with_their_names(real_data, name, first):
    dataset = load_dataset(name, real_data(name))
    assert dataset.class_names[0] == first
    titles = [ax.get_title() for ax in contact_sheet(dataset).axes]
    assert len(titles) == 25
    assert set(titles) <= set(dataset.class_names)
