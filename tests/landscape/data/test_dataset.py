"""What a data set knows of its samples fits them."""

import numpy as np
import pytest
import torch

from landscape import FedscapeError, Samples, make_dataset


class TestStructure:
    X, Y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])

    @pytest.mark.parametrize(
        ("known", "reason"),
        [
            ({"clients": np.array([0, 1])}, r"clients, one a training sample, must be 4 int64 numbers from 0"),
            ({"clients": np.array([0, 1, -1, 0])}, "from -1"),
            ({"superclasses": np.array([0, 0, 0])}, "superclasses, one a class, must be 2 int64 numbers"),
            ({"class_names": ("a",)}, "1 names for 2 classes"),
        ],
    )
    def test_what_is_known_of_the_samples_must_fit_them(self, known, reason):
        with pytest.raises(FedscapeError, match=reason):
            make_dataset("own", (self.X, self.Y), (self.X, self.Y), **known)

    def test_tensors_are_taken_as_arrays_are(self):
        x = np.random.default_rng(0).integers(0, 256, (4, 1, 3, 3), dtype=np.uint8)
        arrays = make_dataset("own", (x, self.Y), (x, self.Y))
        tensors = make_dataset("own", *[(torch.tensor(x), torch.tensor(self.Y))] * 2)
        for one, other in ((arrays.train, tensors.train), (arrays.test, tensors.test)):
            for a, b in zip(
                one.batch(slice(None), torch.float32), other.batch(slice(None), torch.float32), strict=True
            ):
                assert torch.equal(a, b)

    @pytest.mark.parametrize("part", [([[1.0]], [0]), (X,), X, None])
    def test_what_is_no_pair_of_arrays_is_refused(self, part):
        with pytest.raises(FedscapeError, match=r"own: training and test data are each two arrays or tensors"):
            make_dataset("own", part, (self.X, self.Y))

    def test_grey_images_without_an_axis_of_channels_are_refused(self):
        images, labels = np.zeros((4, 8, 6), np.uint8), np.array([0, 1, 0, 1])
        with pytest.raises(FedscapeError, match=r"images are \(4, 8, 6\).*images\[:, None\]"):
            make_dataset("mine", (images, labels), (images, labels))
        one = make_dataset("mine", (images[:, None], labels), (images[:, None], labels))
        assert (one.input_shape, one.train.mean.shape) == ((1, 8, 6), (1, 1, 1))

    def test_a_subset_keeps_its_pairs(self):
        samples = Samples(torch.arange(4)[:, None].float(), torch.arange(4))
        x, y = samples.stored(torch.tensor([2, 0]))
        assert (x[:, 0].tolist(), y.tolist()) == ([2, 0], [2, 0])
