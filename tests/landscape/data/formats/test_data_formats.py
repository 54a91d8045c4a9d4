"""The papers' data sets in their published formats, byte layouts included, and what is refused."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch

import landscape.data.formats.images
import landscape.data.mapped
from landscape import FedscapeError, Samples, load_dataset, make_dataset
from landscape.data.checksums import check_published
from landscape.data.dataset import channel_statistics
from landscape.data.formats.cifar import SUPERCLASSES
from landscape.data.sources import SOURCES
from landscape.datasets import recorded_name
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import idx, normalised, stored, write_cifar10


class TestCifar:
    def test_superclasses_of_cifar100_are_the_published_groups_of_five(self):
        assert np.bincount(SUPERCLASSES).tolist() == [5] * 20

    def test_names_and_superclasses_come_with_cifar100(self, tmp_path):
        images = write.write_cifar100(tmp_path)
        dataset = load_dataset("cifar100", tmp_path)
        assert np.array_equal(stored(dataset), images)
        assert dataset.class_names[99] == "fine 99"
        assert dataset.superclasses.tolist() == list(SUPERCLASSES)
        (tmp_path / "cifar-100-python" / "meta").unlink()
        assert load_dataset("cifar100", tmp_path).class_names == ()

    def test_federated_cifar100_has_its_clients_in_the_order_of_their_numbers(self, tmp_path):
        written = write.write_fed_cifar100(tmp_path)
        dataset = load_dataset("cifar100-pam", tmp_path)
        assert dataset.clients.tolist() == [0, 0, 1, 1, 1, 2]  # clients 0, 2 and 10
        assert np.array_equal(stored(dataset)[2:5].transpose(0, 2, 3, 1), written["2"]["image"])
        assert dataset.train.targets.tolist() == [7, 8, 7, 8, 9, 7]
        assert (len(dataset.test), dataset.classes) == (6, 100)
        file = tmp_path / "fed_cifar100" / "fed_cifar100_train.h5"
        whole = file.read_bytes()
        for raw in (b"", b"text", whole[: len(whole) // 2], whole[:-100]):
            file.write_bytes(raw)
            with pytest.raises(FedscapeError, match=r"train\.h5 is not TensorFlow Federated's CIFAR-100 or is damaged"):
                load_dataset("cifar100_pam", tmp_path)

    def test_a_file_as_long_as_the_published_one_with_another_checksum_is_damaged(self, tmp_path, monkeypatch):
        write_cifar10(tmp_path)
        file = tmp_path / "cifar-10-batches-py" / "data_batch_2"
        lengths = SOURCES["cifar10"].lengths | {"data_batch_2": file.stat().st_size}
        monkeypatch.setitem(SOURCES, "cifar10", dataclasses.replace(SOURCES["cifar10"], lengths=lengths))
        with pytest.raises(FedscapeError, match="data_batch_2 is damaged: it is as long as the published file"):
            load_dataset("cifar10", tmp_path)

    def test_the_published_bytes_pass(self, real_data):
        folder = real_data("fashion_mnist") / "FashionMNIST" / "raw"
        for file in folder.iterdir():
            assert SOURCES["fashion_mnist"].lengths[file.name] == file.stat().st_size
            check_published("fashion_mnist", file)

    def test_one_flipped_bit_in_the_published_bytes_is_found(self, real_data, tmp_path):
        raw = bytearray((real_data("fashion_mnist") / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte").read_bytes())
        raw[5000] ^= 1
        file = tmp_path / "t10k-images-idx3-ubyte"
        file.write_bytes(raw)
        with pytest.raises(FedscapeError, match="is damaged"):
            check_published("fashion_mnist", file)

    def test_the_superclasses_are_those_of_the_real_names(self, real_data):
        names = load_dataset("cifar100", real_data("cifar100")).class_names
        groups = [{n for n, s in zip(names, SUPERCLASSES, strict=True) if s == group} for group in range(20)]
        # https://www.cs.toronto.edu/~kriz/cifar.html: aquatic mammals, ..., people, ..., vehicles 2
        assert groups[0] == {"beaver", "dolphin", "otter", "seal", "whale"}
        assert groups[14] == {"baby", "boy", "girl", "man", "woman"}
        assert groups[19] == {"lawn_mower", "rocket", "streetcar", "tank", "tractor"}


class TestCorrupted:
    @pytest.fixture
    def folder(self, tmp_path):
        write_cifar10(tmp_path)
        self.labels = load_dataset("cifar10", tmp_path).test.targets.numpy()
        self.images = write.write_cifar10_c(tmp_path, self.labels)
        return tmp_path

    def test_a_severity_is_a_fifth_of_the_file_and_normalised_as_the_clean_images(self, folder):
        clean = load_dataset("cifar10", folder)
        for severity in (1, 3, 5):
            dataset = load_dataset(f"cifar10-c/fog/{severity}", folder)
            part = self.images[3 * (severity - 1) : 3 * severity]
            assert np.array_equal(dataset.test.inputs.numpy(), part.transpose(0, 3, 1, 2))
            assert dataset.test.targets.tolist() == self.labels.tolist()
            assert torch.equal(dataset.test.mean, clean.test.mean)
            assert torch.equal(dataset.train.inputs, clean.train.inputs)

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("cifar10_c", "19 corruptions at 5 severities: name one of each, as in cifar10_c/fog/3"),
            ("cifar10_c/fog", "name one of each"),
            ("cifar10_c/fog/x", "name one of each"),
            ("cifar10_c/fog/6", "there is no severity 6 of cifar10_c: give 1 to 5"),
            ("cifar10_c/fogg/3", "unknown corruption 'fogg': did you mean 'fog'"),
            ("cifar10_c/snow/3", r"there is no file .*snow\.npy"),
            ("cifar100_c/fog/3", "`python -m landscape.data fetch cifar100_c"),
        ],
    )
    def test_what_is_not_there_is_said(self, folder, name, reason):
        with pytest.raises(FedscapeError, match=reason):
            load_dataset(name, folder)

    def test_files_of_another_form_are_refused(self, folder):
        for array, reason in (
            (self.images[:-1], r"\(14, 32, 32, 3\) for 15 labels"),
            (self.images.astype(float), r"float64 \(15, 32, 32, 3\), expected uint8"),
            (self.images[..., 0], "expected uint8 with 4 axes"),
        ):
            np.save(folder / "CIFAR-10-C" / "fog.npy", array)
            with pytest.raises(FedscapeError, match=reason):
                load_dataset("cifar10_c/fog/1", folder)
        file = folder / "CIFAR-10-C" / "fog.npy"
        np.save(file, self.images)
        file.write_bytes(file.read_bytes()[:-5])
        with pytest.raises(FedscapeError, match=r"fog\.npy is not a NumPy file of plain numbers or is damaged"):
            load_dataset("cifar10_c/fog/1", folder)
        np.save(file, self.images)
        np.save(folder / "CIFAR-10-C" / "labels.npy", np.tile((self.labels + 1) % 10, 5).astype(np.uint8))
        with pytest.raises(FedscapeError, match=r"is not of the test images of cifar10 .* labels differ"):
            load_dataset("cifar10_c/fog/1", folder)


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


class TestTinyImagenet:
    def test_classes_are_wordnet_ids_and_the_annotations_say_the_test_labels(self, tmp_path):
        shades = write.write_tiny_imagenet(tmp_path)
        dataset = load_dataset("tiny-imagenet", tmp_path)
        assert dataset.class_names == ("goldfish", "Egyptian cat")
        assert dataset.train.targets.tolist() == [0, 0, 1, 1]
        assert dataset.test.targets.tolist() == [1, 0, 1]
        assert dataset.input_shape == (3, 64, 64)
        files = [f"{wnid}_{i}.JPEG" for wnid in ("n01443537", "n02124075") for i in range(2)]
        assert stored(dataset)[:, :, 9, 9].tolist() == [[int(shades[f].flat[0])] * 3 for f in files]
        assert dataset.test.inputs[:, 0, 0, 0].tolist() == [200, 210, 220]

    @pytest.mark.parametrize(
        ("file", "text", "reason"),
        [
            ("val/val_annotations.txt", "val_0.JPEG\tn00000000\t0\t0\t1\t1\n", "names no image and class of train/"),
            ("val/val_annotations.txt", "val_0.JPEG n01443537\n", "names no image and class of train/"),
            ("val/val_annotations.txt", "val_9.JPEG\tn01443537\n", r"there is no file .*val_9\.JPEG"),
            ("val/val_annotations.txt", "", "names no images"),
            ("val/images/val_1.JPEG", "no image", r"val_1\.JPEG is no image or is damaged"),
            ("train/n01443537/images/n01443537_1.JPEG", "", r"n01443537_1\.JPEG is no image or is damaged"),
        ],
    )
    def test_damaged_files_are_refused(self, tmp_path, file, text, reason):
        write.write_tiny_imagenet(tmp_path)
        (tmp_path / "tiny-imagenet-200" / file).write_text(text)
        with pytest.raises(FedscapeError, match=reason):
            load_dataset("tiny_imagenet", tmp_path)

    def test_a_truncated_image_is_refused_and_nothing_is_kept(self, tmp_path, monkeypatch):
        monkeypatch.setattr(landscape.data.formats.images, "KEPT", 0)
        write.write_tiny_imagenet(tmp_path)
        file = tmp_path / "tiny-imagenet-200/train/n01443537/images/n01443537_1.JPEG"
        file.write_bytes(file.read_bytes()[:-200])
        with pytest.raises(FedscapeError, match=r"n01443537_1\.JPEG is no image or is damaged"):
            load_dataset("tiny_imagenet", tmp_path)
        assert list((tmp_path / "tiny-imagenet-200" / ".fedscape").iterdir()) == []

    def test_many_images_are_decoded_once_and_again_when_one_changes(self, tmp_path, monkeypatch):
        write.write_tiny_imagenet(tmp_path)
        plain = load_dataset("tiny_imagenet", tmp_path)
        monkeypatch.setattr(landscape.data.formats.images, "KEPT", 0)
        monkeypatch.setattr(landscape.data.formats.images, "LARGE", 0)
        first = load_dataset("tiny_imagenet", tmp_path)
        kept = list((tmp_path / "tiny-imagenet-200" / ".fedscape").glob("*.npy"))
        assert len(kept) == 2
        assert torch.equal(first.train.inputs, plain.train.inputs)
        with monkeypatch.context() as patch:
            patch.setattr(landscape.data.formats.images, "_fill", lambda *_: pytest.fail("decoded again"))
            assert torch.equal(load_dataset("tiny_imagenet", tmp_path).train.inputs, plain.train.inputs)
        for file in kept:
            file.write_bytes(file.read_bytes()[:-100])
        assert torch.equal(load_dataset("tiny_imagenet", tmp_path).train.inputs, plain.train.inputs)
        file = tmp_path / "tiny-imagenet-200/train/n01443537/images/n01443537_1.JPEG"
        write.save_image(file, np.full((64, 64, 3), 99, np.uint8))
        assert load_dataset("tiny_imagenet", tmp_path).train.inputs[1, 0, 5, 5] == 99


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


class TestDriving:
    IDS = np.arange(36, dtype=np.uint8).reshape(6, 6).repeat(100, 0).repeat(200, 1)  # label ids 0..35

    def test_label_ids_of_cityscapes_become_its_19_classes_and_the_rest_is_ignored(self, tmp_path):
        write.write_cityscapes(tmp_path, self.IDS)
        dataset = load_dataset("cityscapes", tmp_path)
        assert dataset.task == "segmentation"
        assert (dataset.classes, dataset.input_shape) == (19, (3, 512, 1024))
        assert dataset.clients.tolist() == [0, 1]  # aachen, zurich
        assert stored(dataset)[:, 0, 0, 0].tolist() == [6, 6]
        maps = dataset.train.targets
        assert (maps.dtype, maps.shape) == (torch.uint8, (2, 512, 1024))
        side = maps[0, 40::86, 80::171][:6, :6].flatten().tolist()  # the middle of each patch
        # https://github.com/mcordts/cityscapesScripts, helpers/labels.py: trainId of each id
        published = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12, 26: 13,
                     27: 14, 28: 15, 31: 16, 32: 17, 33: 18}  # fmt: skip
        assert side == [published.get(label, 255) for label in range(36)]

    def test_idda_is_divided_by_domain_and_the_country_is_tested(self, tmp_path):
        write.write_idda(tmp_path, self.IDS)
        dataset = load_dataset("idda", tmp_path)
        assert dataset.clients.tolist() == [0, 1]
        assert len(dataset.test) == 1
        assert dataset.class_names[13:] == ("car", "motorcycle", "bicycle")
        assert set(dataset.train.targets.unique().tolist()) == {*range(16), 255}

    def test_feddrives_files_say_the_clients(self, tmp_path):
        write.write_cityscapes(tmp_path, self.IDS)
        for part, user, city in (("train", "zurich0", "zurich"), ("test", "global", "aachen")):
            folder = tmp_path / "cityscapes" / "clients" / part
            folder.mkdir(parents=True)
            x, y = (f"train/{city}/{city}_000000_000019_{kind}.png" for kind in ("leftImg8bit", "gtFine_labelIds"))
            (folder / "all_data_0.json").write_text(write.leaf({user: ([x], [y])}))
        dataset = load_dataset("cityscapes", tmp_path)
        assert (len(dataset.train), len(dataset.test), dataset.clients.tolist()) == (1, 1, [0])
        (folder / "all_data_0.json").write_text(write.leaf({"a": (["../../secret.png"], ["/etc/secret.png"])}))
        with pytest.raises(FedscapeError, match=r"names '../../secret.png', which is not inside the data set"):
            load_dataset("cityscapes", tmp_path)

    def test_missing_or_damaged_scenes_are_refused(self, tmp_path):
        (tmp_path / "cityscapes").mkdir()
        with pytest.raises(FedscapeError, match="holds no training scenes with their label ids"):
            load_dataset("cityscapes", tmp_path)
        write.write_cityscapes(tmp_path, self.IDS)
        image = tmp_path / "cityscapes/leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png"
        image.unlink()
        with pytest.raises(FedscapeError, match=r"there is no file .*aachen_000000_000019_leftImg8bit\.png"):
            load_dataset("cityscapes", tmp_path)

    def test_maps_are_checked(self):
        x, maps = np.zeros((2, 3, 4, 4), np.uint8), np.full((2, 4, 4), 255, np.uint8)
        assert (
            make_dataset("own", (x, maps), (x, maps), classes=3, task="segmentation").train.targets.dtype == torch.uint8
        )
        for wrong, reason in (
            (maps - 1, "training maps must hold numbers from 0 to 2, or 255"),
            (maps[:, :3], r"training maps are uint8 \(2, 3, 4\)"),
            (maps.astype(np.int64), "training maps are int64"),
        ):
            with pytest.raises(FedscapeError, match=reason):
                make_dataset("own", (x, wrong), (x, maps), classes=3, task="segmentation")


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
        with pytest.raises(FedscapeError, match=r"1\.png is 8x8, the images before it 8x24"):
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

    @staticmethod
    def archive(tmp_path, **arrays) -> str:
        x, y = write.draw(5, 4, 4, 3), np.arange(5) % 3
        np.savez(tmp_path / "own.npz", **{"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2], **arrays})
        return str(tmp_path / "own.npz")

    def test_an_archive_may_hold_clients_names_and_maps(self, tmp_path):
        maps = np.array([0, 1, 255, 4], np.uint8).repeat(20).reshape(5, 4, 4)
        clients = np.array([3, 0, 0, 1, 3])
        dataset = load_dataset(self.archive(tmp_path, y_train=maps, y_test=maps[:2], clients=clients))
        assert (dataset.task, dataset.classes, dataset.clients.tolist()) == ("segmentation", 5, clients.tolist())
        dataset = load_dataset(self.archive(tmp_path, class_names=np.array(["a", "b", "c", "d"])))
        assert (dataset.classes, dataset.class_names) == (4, ("a", "b", "c", "d"))
        for wrong in (clients[:3], clients / 2, clients - 1):
            with pytest.raises(FedscapeError, match="clients"):
                load_dataset(self.archive(tmp_path, clients=wrong))


class TestMapped:
    """Large arrays stay in their files: here all arrays are large."""

    @pytest.fixture(autouse=True)
    def all_large(self, monkeypatch):
        monkeypatch.setattr(landscape.data.mapped, "LARGE", 0)

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("shape", [(5, 4, 4, 3), (5, 7)])
    def test_an_archive_is_mapped_and_gives_the_same_numbers(self, tmp_path, monkeypatch, shape, order):
        x = np.asarray(write.draw(*shape), order=order)
        path = TestOwn.archive(tmp_path, x_train=x, x_test=x[:2])
        kinds = []
        spied = landscape.data.mapped.map_values
        monkeypatch.setattr(landscape.data.mapped, "map_values", lambda *a: kinds.append(a) or spied(*a))
        dataset = load_dataset(path)
        assert len(kinds) == 4
        expected = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        assert np.array_equal(stored(dataset), expected)
        assert np.allclose(normalised(dataset).mean(axis=(0, *range(2, x.ndim))), 0, atol=1e-12)
        dataset.train.inputs[0] = 0
        assert np.array_equal(stored(load_dataset(path)), expected)  # the file is as it was

    def test_a_compressed_archive_is_read(self, tmp_path):
        path, x = TestOwn.archive(tmp_path), write.draw(5, 4, 4, 3)
        with np.load(path) as archive:
            np.savez_compressed(path, **archive)
        assert np.array_equal(stored(load_dataset(path)), x.transpose(0, 3, 1, 2))

    def test_damage_to_a_mapped_archive_is_found(self, tmp_path):
        path = tmp_path / "own.npz"
        raw = bytearray((TestOwn.archive(tmp_path), path.read_bytes())[1])
        raw[raw.index(write.draw(5, 4, 4, 3).tobytes()) + 30] ^= 1
        path.write_bytes(raw)
        with pytest.raises(FedscapeError, match=r"own\.npz is not a NumPy archive of plain arrays or is damaged"):
            load_dataset(str(path))

    def test_an_idx_file_is_mapped(self, tmp_path):
        images, _ = write.write_emnist(tmp_path)
        dataset = load_dataset("emnist", tmp_path)
        assert np.array_equal(stored(dataset)[:, 0], images)
        file = tmp_path / "EMNIST" / "raw" / "emnist-byclass-train-images-idx3-ubyte"
        for raw, reason in ((idx(images)[:-1], "is cut short or damaged: 31359 bytes"), (b"", "is not an idx file")):
            file.write_bytes(raw)
            with pytest.raises(FedscapeError, match=reason):
                load_dataset("emnist", tmp_path)

    @pytest.mark.parametrize("kind", [np.uint8, np.float32])
    def test_statistics_in_chunks_are_those_of_the_whole(self, kind):
        x = write.draw(70, 3, 200, 200).astype(kind)
        mean, std = channel_statistics(x)
        assert np.allclose(mean, x.mean((0, 2, 3), dtype=np.float64), rtol=1e-12)
        assert np.allclose(std, x.std((0, 2, 3), dtype=np.float64), rtol=1e-12)


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


def test_a_pickle_of_names_that_would_run_code_is_refused(tmp_path):
    write.write_cifar100(tmp_path)
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps(print))
    with pytest.raises(FedscapeError, match="holds no fine_label_names or is damaged"):
        load_dataset("cifar100", tmp_path)
