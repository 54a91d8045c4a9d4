"""FEMNIST in LEAF's JSON files."""

import numpy as np
import pytest

from landscape import FedscapeError, load_dataset
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import stored


class TestFemnist:
    def test_users_are_clients_and_grey_values_bytes(self, tmp_path):
        images = write.write_femnist(tmp_path)
        dataset = load_dataset("femnist", tmp_path)
        order = ["f1_02", "f0_10", "f3_00"]
        assert np.array_equal(stored(dataset).reshape(-1, 784), np.concatenate([images[user] for user in order]))
        assert dataset.clients.tolist() == [1, 1, 0, 2, 2, 2]  # by name
        assert dataset.train.targets.tolist() == [10, 11, 10, 10, 11, 12]
        assert (len(dataset.test), dataset.classes, dataset.input_shape) == (2, 62, (1, 28, 28))

    IMAGE = [0.0] * 784

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "is not a file of LEAF's form or is damaged"),
            ('{"users": ["a"]', "is not a file of LEAF's form or is damaged"),
            ("[1, 2]", "is not a file of LEAF's form or is damaged"),
            ('{"users": [[1]], "num_samples": [1], "user_data": {}}', "it needs users, num_samples and user_data"),
            ('{"users": [], "num_samples": [], "user_data": {}}', "it needs users, num_samples and user_data"),
            ('{"users": ["a"], "num_samples": [2], "user_data": {"a": {"x": [[0]], "y": [1]}}}', "not the 2 samples"),
            ('{"users": ["a"], "num_samples": [0], "user_data": {}}', "not the 0 samples"),
            (write.leaf({"a": ([[0.0] * 783], [1])}), "images that are not rows of 784 numbers"),
            (write.leaf({"a": ([IMAGE, [0.0] * 3], [1, 2])}), "images that are not rows of 784 numbers"),
            (write.leaf({"a": ([[0.5] * 784], [1])}), "not multiples of 1/255 from 0 to 1"),
            (write.leaf({"a": ([[2.0] * 784], [1])}), "not multiples of 1/255 from 0 to 1"),
            (write.leaf({"a": ([[float("nan")] * 784], [1])}), "not multiples of 1/255 from 0 to 1"),
            (write.leaf({"a": ([IMAGE], ["A"])}), "not one whole number as label"),
            (write.leaf({"a": ([IMAGE], [62])}), "training labels must be one number from 0 to 61"),
        ],
    )
    def test_files_of_another_form_are_refused(self, tmp_path, text, reason):
        write.write_femnist(tmp_path)
        for file in (tmp_path / "femnist" / "train").iterdir():
            file.write_text(text)
        with pytest.raises(FedscapeError, match=reason):
            load_dataset("femnist", tmp_path)
