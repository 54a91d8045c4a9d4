"""Corruptions that are generated: measured as by hand, from a seed, and what of them is left out."""

import numpy as np
import pytest
import torch

from analysis.corruptions import measure_corruptions
from analysis.corruptions.__main__ import save
from analysis.corruptions.images import GeneratedImages
from analysis.corruptions.measure import _left_out
from landscape import Dataset, FedscapeError, Samples, load_dataset, make_dataset
from landscape.data.corruptions import corrupt, generated
from tests.landscape.checkpoints.checkpoints import checkpoint


def test_it_is_the_accuracy_on_images_corrupted_by_hand():
    model, digits = checkpoint(), load_dataset("digits")
    found = measure_corruptions([model], ("gaussian_noise",), (4,), generate=True, seed=5, dtype="float64")
    white = (digits.test.inputs.numpy() * (255 / 16)).round().astype(np.uint8).transpose(0, 2, 3, 1)
    noisy = torch.from_numpy(corrupt(white, "gaussian_noise", 4, seed=5).transpose(0, 3, 1, 2) * (16 / 255))
    outputs = model.build_model().double()((noisy - digits.test.mean) / digits.test.std)
    right = (outputs.argmax(1) == digits.test.targets).double().mean().item()
    assert found.accuracy.item() == right
    loss = torch.nn.functional.cross_entropy(outputs, digits.test.targets).item()
    assert found.loss.item() == pytest.approx(loss, rel=1e-9)
    assert (found.generated, found.images) == (True, "generated")


def test_all_that_can_be_generated_are_and_what_cannot_of_grey_images_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("landscape.terminal.notices._told", set())
    found = measure_corruptions([checkpoint()], severities=(1,), generate=True, samples=20)
    assert found.corruptions == generated(1)
    assert set(generated(3)) - set(generated(1)) == {"saturate"}
    (note,) = found.notes
    assert note == (
        "left out: saturate, which changes colours, and the images are grey: all means are over the other 13 "
        "corruptions"
    )
    assert capsys.readouterr().err == f"{note}\n"
    assert note in str(found)
    assert note in found.on_screen()
    assert found.to_dict()["notes"] == (note,)
    save(found, ["a"], tmp_path)
    assert all(note in (tmp_path / f"corruptions.{kind}").read_text() for kind in ("json", "md", "tex"))


def test_nothing_is_told_where_all_is_measured_that_was_asked_for(capsys):
    found = measure_corruptions([checkpoint()], ("fog",), (1,), generate=True, samples=20)
    assert (found.notes, capsys.readouterr().err) == ((), "")
    x = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8)).astype(np.uint8)
    assert _left_out(make_dataset("own", (x, np.arange(6)), (x, np.arange(6))).test) == ()


def test_the_seed_decides():
    def losses(seed):
        return measure_corruptions([checkpoint()], ("shot_noise",), generate=True, seed=seed).loss.tolist()

    assert losses(1) == losses(1) != losses(2)


def test_images_of_256_levels_are_taken_as_they_are():
    x = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8)).astype(np.uint8)
    x[0, 0, 0, 0] = 255
    data = make_dataset("own", (x, np.arange(6)), (x, np.arange(6)))
    images = GeneratedImages(data, data.test).samples("jpeg_compression", 2)
    assert (
        images.inputs.numpy() == corrupt(x.transpose(0, 2, 3, 1), "jpeg_compression", 2).transpose(0, 3, 1, 2)
    ).all()
    assert torch.equal(images.mean, data.test.mean)


@pytest.mark.parametrize(
    "x",
    [np.ones((4, 30), np.uint8), np.ones((4, 4, 8, 8), np.uint8), -np.ones((4, 1, 8, 8), np.float32),
     np.zeros((4, 1, 8, 8), np.uint8), np.ones((4, 1, 3, 8), np.uint8)],
)  # fmt: skip
def test_what_is_no_image_is_refused(x):
    samples = Samples(torch.from_numpy(x), torch.zeros(4, dtype=torch.long))
    with pytest.raises(FedscapeError, match="cannot be corrupted"):
        GeneratedImages(Dataset("own", samples, samples, 2), samples)
