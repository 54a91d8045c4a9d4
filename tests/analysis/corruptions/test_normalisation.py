"""Corrupted images are normalised as the model's clean ones, whatever the published statistics are."""

import numpy as np
import pytest
import torch

from analysis.corruptions import measure_corruptions
from analysis.corruptions.images import GeneratedImages
from landscape import FedscapeError, make_dataset
from landscape.data.corruptions import corrupt
from tests.analysis.corruptions.test_corruptions import BRIGHT, FOG_RIGHT, SNOW_RIGHT, bright, write_cifar

PLAIN = "tests.analysis.corruptions.bright:plain"


@pytest.fixture
def cifar(tmp_path):
    return write_cifar(tmp_path)


def test_published_images_have_the_models_own(cifar):
    # Levels of pixels/255: a threshold of 100 levels is 100/255 there.
    record = {"inputs": "uint8", "mean": [0.0] * 3, "std": [255.0] * 3}
    model = bright(100 / 255, data={**bright().data, "normalisation": record})
    plain = measure_corruptions([model], ("fog", "snow"), data_dir=cifar, model=PLAIN, device="cpu")
    assert plain.accuracy.tolist() == [[[n / 4 for n in FOG_RIGHT], [n / 4 for n in SNOW_RIGHT]]]


def test_asked_for_it_goes_before_the_record(cifar):
    plain = measure_corruptions(
        [bright(100 / 255)], ("fog",), data_dir=cifar, model=PLAIN, device="cpu", normalise="none"
    )
    assert plain.accuracy.tolist() == [[[n / 4 for n in FOG_RIGHT]]]


def test_models_of_different_ones_are_not_compared(cifar):
    record = {"inputs": "uint8", "mean": [0.0] * 3, "std": [255.0] * 3}
    models = [bright(), bright(data={**bright().data, "normalisation": record})]
    options = {"corruptions": ("fog",), "data_dir": cifar, "model": BRIGHT, "device": "cpu"}
    with pytest.raises(FedscapeError, match="normalised in different ways: measure them one by one"):
        measure_corruptions(models, **options)
    assert len(measure_corruptions(models, **options, normalise="cifar10").labels) == 2


def test_generated_images_of_floats_that_are_taken_as_they_are_keep_their_units():
    x = np.random.default_rng(0).random((6, 1, 8, 8)).astype(np.float32)
    dataset = make_dataset("floats", (x, np.arange(6) % 2), (x, np.arange(6) % 2))
    images = GeneratedImages(dataset, dataset.test, seed=0).samples("brightness", 1)
    corrupted = images.batch(slice(None), torch.float64)[0].numpy()
    white = float(x.max())
    expected = corrupt((255 * x / white).round().astype(np.uint8).transpose(0, 2, 3, 1), "brightness", 1, 0)
    assert np.allclose(corrupted, expected.transpose(0, 3, 1, 2) * white / 255, rtol=1e-6)
