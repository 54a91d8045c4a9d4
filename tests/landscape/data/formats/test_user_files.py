"""The user's own data: folders of images and NumPy archives."""

import numpy as np
import pytest

from landscape import FedscapeError, load_dataset
from landscape.datasets import recorded_name
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import stored


class TestOwn:
    @staticmethod
    def classes(folder, count=6, size=(8, 8)):
        for k, name in enumerate(("cat", "dog")):
            for i in range(count):
                write.save_image(folder / name / f"{i}.png", np.full((*size, 3), 20 * i + k, np.uint8))

    def test_of_a_folder_of_classes_every_fifth_image_of_each_is_tested(self, tmp_path):
        self.classes(tmp_path)
        for name in (str(tmp_path), f"folder:{tmp_path}"):
            dataset = load_dataset(name)
            assert dataset.class_names == ("cat", "dog")
            assert dataset.train.targets.tolist() == [0] * 5 + [1] * 5
            assert stored(dataset)[:, 0, 0, 0].tolist() == [0, 20, 40, 60, 100, 1, 21, 41, 61, 101]
            assert dataset.test.inputs[:, 0, 0, 0].tolist() == [80, 81]

    def test_train_and_test_folders_are_taken_as_they_are(self, tmp_path):
        self.classes(tmp_path / "train", 2)
        write.save_image(tmp_path / "val" / "dog" / "x.jpg", np.full((8, 8, 3), 77, np.uint8))
        dataset = load_dataset(f"folder:{tmp_path}@4")
        assert dataset.input_shape == (3, 4, 4)
        assert (len(dataset.train), dataset.test.targets.tolist()) == (4, [1])
        write.save_image(tmp_path / "val" / "horse" / "x.png", np.full((8, 8, 3), 77, np.uint8))
        with pytest.raises(FedscapeError, match=r"holds the class 'horse', which .*train lacks"):
            load_dataset(f"folder:{tmp_path}")

    def test_grey_images_have_one_channel(self, tmp_path):
        for i in range(5):
            write.save_image(tmp_path / "a" / f"{i}.png", np.full((6, 5), i, np.uint8))
        assert load_dataset(f"folder:{tmp_path}").input_shape == (1, 6, 5)

    def test_images_of_other_sizes_are_centred_and_cut_when_asked(self, tmp_path):
        self.classes(tmp_path)
        wide = np.zeros((8, 24, 3), np.uint8)
        wide[:, 8:16] = 200
        write.save_image(tmp_path / "cat" / "0.png", wide)
        with pytest.raises(FedscapeError, match=r"1\.png is 8x8, the images before it 8x24: .*folder:PATH@32 cuts"):
            load_dataset(f"folder:{tmp_path}")
        assert stored(load_dataset(f"folder:{tmp_path}@8"))[0].tolist() == np.full((3, 8, 8), 200).tolist()

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (lambda folder: None, "holds no folders of classes"),
            (lambda folder: (folder / "cat").mkdir(), r"cat holds no images \(\.png"),
            (lambda folder: TestOwn.classes(folder, 4), "fewer than 5 images of each class"),
        ],
    )
    def test_a_folder_without_images_is_told_what_it_needs(self, tmp_path, make, reason):
        make(tmp_path)
        with pytest.raises(FedscapeError, match=reason):
            load_dataset(f"folder:{tmp_path}")
        with pytest.raises(FedscapeError, match=r"there is no folder .*none"):
            load_dataset(f"folder:{tmp_path}/none")

    def test_paths_are_recorded_so_that_they_are_found_from_elsewhere(self, tmp_path, monkeypatch):
        (tmp_path / "images").mkdir()
        monkeypatch.chdir(tmp_path)
        assert recorded_name("own.npz") == str(tmp_path / "own.npz")
        assert recorded_name("images") == recorded_name("folder:images") == f"folder:{tmp_path}/images"
        assert recorded_name("folder:images@32") == f"folder:{tmp_path}/images@32"
        assert recorded_name("cifar10_c/fog/3") == "cifar10_c/fog/3"

    def test_an_archive_may_hold_clients_names_and_maps(self, tmp_path):
        maps = np.array([0, 1, 255, 4], np.uint8).repeat(20).reshape(5, 4, 4)
        clients = np.array([3, 0, 0, 1, 3])
        dataset = load_dataset(write.write_archive(tmp_path, y_train=maps, y_test=maps[:2], clients=clients))
        assert (dataset.task, dataset.classes, dataset.clients.tolist()) == ("segmentation", 5, clients.tolist())
        dataset = load_dataset(write.write_archive(tmp_path, class_names=np.array(["a", "b", "c", "d"])))
        assert (dataset.classes, dataset.class_names) == (4, ("a", "b", "c", "d"))
        for wrong in (clients[:3], clients / 2, clients - 1):
            with pytest.raises(FedscapeError, match="clients"):
                load_dataset(write.write_archive(tmp_path, clients=wrong))
