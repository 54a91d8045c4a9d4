"""Landmarks-User-160k's tables and images."""

import numpy as np
import pytest

from landscape import FedscapeError, load_dataset
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import stored


class TestLandmarks:
    def test_the_table_of_users_says_images_classes_and_clients(self, tmp_path):
        write.write_landmarks(tmp_path)
        dataset = load_dataset("landmarks", tmp_path)
        assert dataset.clients.tolist() == [1, 0, 1]  # users 9 and 10, as numbers
        assert dataset.train.targets.tolist() == [5, 2027, 0]
        assert (dataset.classes, dataset.input_shape, len(dataset.test)) == (2028, (3, 224, 224), 1)
        assert np.abs(stored(dataset)[:, :, 100, 100].astype(int) - [[10], [100], [200]]).max() <= 2  # JPEG

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("user_id,image_id\n1,aaa0\n", "lacks the column class: its columns are user_id, image_id"),
            ("user_id,image_id,class\n1,aaa0\n", "has 2 values in line 2, its header has 3"),
            ("user_id,image_id,class\n1,aaa0,x\n", "a class is no whole number"),
            (f"user_id,image_id,class\n1,aaa0,{10**30}\n", "a class is no whole number"),
            ("user_id,image_id,class\n1,aaa0,2028\n", "training labels must be one number from 0 to 2027"),
            ("user_id,image_id,class\n1,eee4,1\n", r"there is no file .*eee4\.jpg"),
            ("user_id,image_id,class\n1,../aaa0,1\n", "is no image id of Google Landmarks"),
            ("user_id,image_id,class\n", "names no images"),
            ("", "lacks the column image_id"),
        ],
    )
    def test_a_damaged_table_is_refused(self, tmp_path, text, reason):
        write.write_landmarks(tmp_path)
        (tmp_path / "landmarks-user-160k" / "federated_train.csv").write_text(text)
        with pytest.raises(FedscapeError, match=reason):
            load_dataset("landmarks", tmp_path)
