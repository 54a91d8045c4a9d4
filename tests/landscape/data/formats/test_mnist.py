"""MNIST and EMNIST in their idx files."""

import numpy as np
import pytest
import torch

from landscape import load_dataset
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import normalised, stored


class TestIdx:
    def test_mnist_is_read_exactly(self, tmp_path):
        images, labels = write.write_mnist(tmp_path)
        dataset = load_dataset("mnist", tmp_path)
        assert np.array_equal(stored(dataset)[:, 0], images)
        assert dataset.train.targets.tolist() == labels.tolist()
        assert np.allclose(normalised(dataset), (images[:, None] / 255 - 0.1307) / 0.3081)

    @pytest.mark.parametrize("inner", ["", "gzip"])
    def test_emnist_stands_upright(self, tmp_path, inner):
        images, labels = write.write_emnist(tmp_path, inner=inner)
        dataset = load_dataset("emnist", tmp_path)
        assert np.array_equal(stored(dataset)[:, 0], images)
        assert dataset.train.targets.tolist() == labels.tolist()
        assert dataset.classes == 62
        assert [dataset.class_names[i] for i in (9, 10, 35, 36, 61)] == ["9", "A", "Z", "a", "z"]
        assert normalised(dataset).mean() == pytest.approx(0, abs=1e-9)

    @pytest.mark.parametrize(("name", "count"), [("emnist-20", 8), ("emnist_10", 4)])
    def test_a_share_of_emnist_is_always_the_same_samples(self, tmp_path, name, count):
        images, labels = write.write_emnist(tmp_path)
        first, again = (load_dataset(name, tmp_path) for _ in range(2))
        assert len(first.train) == len(first.test) == count
        assert torch.equal(first.train.inputs, again.train.inputs)
        assert not torch.equal(first.train.inputs, first.test.inputs)
        pairs = {(label, image.tobytes()) for image, label in zip(images, labels, strict=True)}
        chosen = [
            (int(y), x[0].numpy().tobytes()) for x, y in zip(first.train.inputs, first.train.targets, strict=True)
        ]
        assert set(chosen) <= pairs
        assert len(set(chosen)) == count

    def test_shares_of_emnist_have_the_papers_counts(self):
        assert 697_932 * 10 // 100 + 116_323 * 10 // 100 == 81_425
        assert (697_932 * 20 // 100, 116_323 * 20 // 100) == (139_586, 23_264)
