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

    def test_a_subset_keeps_its_pairs(self):
        samples = Samples(torch.arange(4)[:, None].float(), torch.arange(4))
        x, y = samples.stored(torch.tensor([2, 0]))
        assert (x[:, 0].tolist(), y.tolist()) == ([2, 0], [2, 0])
