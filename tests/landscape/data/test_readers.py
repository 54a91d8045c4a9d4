"""The published file formats are read exactly, and everything else is refused in one sentence."""

import pickle
import re
import struct

import numpy as np
import pytest

from landscape import FedscapeError, load_dataset
from tests.landscape.storage.files import (
    TouchesAFile,
    idx,
    normalised,
    python2_pickle,
    python3_pickle,
    stored,
    write_cifar10,
    write_fashion_mnist,
)


class TestCifar:
    MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

    @pytest.mark.parametrize("write", [python2_pickle, python3_pickle])
    def test_pickles_of_both_pythons_are_read_exactly(self, tmp_path, write):
        images, labels = write_cifar10(tmp_path, write)
        dataset = load_dataset("cifar10", tmp_path)
        assert np.array_equal(stored(dataset), images)
        assert dataset.train.targets.tolist() == labels.tolist()
        assert (len(dataset.test), dataset.classes, dataset.input_shape) == (3, 10, (3, 32, 32))

    def test_the_data_sets_own_folder_serves_too(self, tmp_path):
        images, _ = write_cifar10(tmp_path)
        assert np.array_equal(stored(load_dataset("cifar10", tmp_path / "cifar-10-batches-py")), images)

    def test_normalisation_is_per_channel_with_the_published_constants(self, tmp_path):
        images, _ = write_cifar10(tmp_path)
        expected = (images.transpose(0, 2, 3, 1) / 255 - self.MEAN) / self.STD
        assert np.allclose(normalised(load_dataset("cifar10", tmp_path)), expected.transpose(0, 3, 1, 2), atol=1e-12)

    def test_hundred_classes_are_the_fine_labels(self, tmp_path):
        folder = tmp_path / "cifar-100-python"
        folder.mkdir()
        record = {"data": np.zeros((3, 3072), np.uint8), "fine_labels": [0, 99, 50], "coarse_labels": [1, 2, 3]}
        for name in ("train", "test"):
            (folder / name).write_bytes(pickle.dumps(record, 2))
        dataset = load_dataset("cifar100", tmp_path)
        assert dataset.train.targets.tolist() == [0, 99, 50]
        assert dataset.classes == 100

    @pytest.mark.parametrize("protocol", range(6))
    def test_a_pickle_that_would_run_code_is_refused_and_does_not_run_it(self, tmp_path, protocol):
        write_cifar10(tmp_path)
        witness = tmp_path / "ran"
        evil = pickle.dumps({"data": TouchesAFile(witness), "labels": []}, protocol)
        (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(evil)
        with pytest.raises(FedscapeError, match=r"data_batch_3 is not a CIFAR batch.*system, which is no array"):
            load_dataset("cifar10", tmp_path)
        assert not witness.exists()
        pickle.loads(evil)
        assert witness.exists()  # the pickle was a dangerous one

    IMAGES = np.zeros((4, 3072), np.uint8)

    @pytest.mark.parametrize(
        ("record", "reason"),
        [
            ({"data": IMAGES, "labels": [0, 1, 2, 10]}, "training labels must be one number from 0 to 9 a sample"),
            ({"data": IMAGES, "labels": [0, 1, 2, -1]}, "training labels must be one number from 0 to 9 a sample"),
            ({"data": IMAGES[:3], "labels": [0, 1, 2, 3]}, r"uint8 \(3, 3072\) for 4 labels, expected uint8"),
            ({"data": IMAGES[:, :3000], "labels": [0, 1, 2, 3]}, r"uint8 \(4, 3000\) for 4 labels"),
            ({"data": IMAGES.astype(float), "labels": [0, 1, 2, 3]}, r"float64 \(4, 3072\) for 4 labels"),
            ({"data": IMAGES, "labels": [0.5, 1, 2, 3]}, "its labels are not one integer an image"),
            ({"data": IMAGES, "labels": [[0], [1], [2], [3]]}, "its labels are not one integer an image"),
            ({"data": IMAGES[:1], "labels": 5}, "its labels are not one integer an image"),
            ({"data": IMAGES}, "data_batch_1 is not a CIFAR batch or is damaged: KeyError"),
            ([1, 2], "data_batch_1 is not a CIFAR batch or is damaged: TypeError"),
        ],
    )
    def test_a_record_of_another_form_is_refused(self, tmp_path, record, reason):
        write_cifar10(tmp_path, lambda *_: pickle.dumps(record, 2))
        with pytest.raises(FedscapeError, match=reason):
            load_dataset("cifar10", tmp_path)

    @pytest.mark.parametrize("write", [python2_pickle, python3_pickle])
    def test_a_truncated_pickle_is_refused_at_every_length(self, tmp_path, write):
        write_cifar10(tmp_path, write)
        file = tmp_path / "cifar-10-batches-py" / "data_batch_1"
        whole = file.read_bytes()
        for length in [*range(0, 200, 13), len(whole) // 2, len(whole) - 1]:
            file.write_bytes(whole[:length])
            with pytest.raises(FedscapeError, match="data_batch_1 is not a CIFAR batch or is damaged"):
                load_dataset("cifar10", tmp_path)

    def test_a_missing_batch_is_named(self, tmp_path):
        write_cifar10(tmp_path)
        (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
        with pytest.raises(FedscapeError, match=r"there is no file .*data_batch_4"):
            load_dataset("cifar10", tmp_path)


class TestFashionMnist:
    @pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
    def test_idx_files_are_read_exactly(self, tmp_path, zipped):
        images, labels = write_fashion_mnist(tmp_path, zipped)
        dataset = load_dataset("fashion_mnist", tmp_path)
        assert np.array_equal(stored(dataset), images[:, None])
        assert dataset.train.targets.tolist() == labels.tolist()
        assert (len(dataset.test), dataset.classes, dataset.input_shape) == (3, 10, (1, 28, 28))
        assert np.allclose(normalised(dataset), (images[:, None] / 255 - 0.2860) / 0.3530, atol=1e-12)

    IMAGES, LABELS = np.zeros((6, 28, 28), np.uint8), np.arange(6)
    SHORTS = struct.pack(">BBBB3I", 0, 0, 11, 3, 6, 28, 28) + bytes(2 * IMAGES.size)
    HUGE = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 4)  # 2^64 values, which is 0 in 64 bits

    @pytest.mark.parametrize(
        ("file", "raw", "reason"),
        [
            ("train-images-idx3", b"", "is not an idx file"),
            ("train-images-idx3", b"hello, world", "is not an idx file: its first bytes are 68656c6c"),
            ("train-images-idx3", idx(IMAGES)[:-1], "is cut short or damaged: 4703 bytes of values, expected 4704"),
            ("train-images-idx3", idx(IMAGES) + b"\0", "is cut short or damaged"),
            ("train-images-idx3", idx(IMAGES)[:10], "is not an idx file"),
            ("train-images-idx3", idx(IMAGES[:5]), r"train images are uint8 \(5, 28, 28\) for labels \(6,\)"),
            ("train-images-idx3", idx(IMAGES[0]), r"train images are uint8 \(28, 28\) for labels \(6,\)"),
            ("train-images-idx3", SHORTS, "train images are >i2"),
            ("train-images-idx3", HUGE, "cut short or damaged: 0 bytes of values, expected 18446744073709551616"),
            ("t10k-images-idx3", idx(IMAGES[:3, :5]), r"inputs are \(1, 28, 28\), test inputs \(1, 5, 28\)"),
            ("train-labels-idx1", idx(LABELS[:, None]), r"uint8 \(6, 28, 28\) for labels \(6, 1\)"),
            ("train-labels-idx1", idx(LABELS + 5), "training labels must be one number from 0 to 9"),
            ("train-labels-idx1", struct.pack(">BBBBB", 0, 0, 8, 0, 7), "is not an idx file"),
        ],
    )
    def test_a_damaged_or_misshapen_file_is_refused(self, tmp_path, file, raw, reason):
        write_fashion_mnist(tmp_path)
        (tmp_path / "FashionMNIST" / "raw" / f"{file}-ubyte").write_bytes(raw)
        with pytest.raises(FedscapeError, match=reason):
            load_dataset("fashion_mnist", tmp_path)

    def test_a_damaged_gz_file_is_refused(self, tmp_path):
        write_fashion_mnist(tmp_path, zipped=True)
        file = tmp_path / "FashionMNIST" / "raw" / "train-images-idx3-ubyte.gz"
        whole = file.read_bytes()
        for raw in (b"", b"no gzip at all", whole[:5], whole[: len(whole) // 2], whole[:-1], whole[:20] + whole[30:]):
            file.write_bytes(raw)
            with pytest.raises(FedscapeError, match=r"train-images-idx3-ubyte.gz is damaged|is not an idx file"):
                load_dataset("fashion_mnist", tmp_path)


class TestArchives:
    @staticmethod
    def save(tmp_path, **changes) -> str:
        x, y = np.arange(4 * 5 * 5 * 3, dtype=np.uint8).reshape(4, 5, 5, 3), np.arange(4)
        arrays = {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2], **changes}
        np.savez(tmp_path / "own.npz", **{name: array for name, array in arrays.items() if array is not None})
        return str(tmp_path / "own.npz")

    @pytest.mark.parametrize(
        ("shape", "expected"),
        [((6, 7), (1, 6, 7)), ((6, 7, 3), (3, 6, 7)), ((6, 7, 1), (1, 6, 7)), ((2, 6, 7), (2, 6, 7)), ((9,), (9,))],
    )
    def test_images_become_channels_first_and_features_stay(self, tmp_path, shape, expected):
        x = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
        dataset = load_dataset(self.save(tmp_path, x_train=x, x_test=x[:2]))
        assert dataset.input_shape == expected
        assert np.array_equal(
            stored(dataset), np.moveaxis(x, 3, 1) if len(shape) == 3 and shape[2] < 4 else x.reshape(4, *expected)
        )
        assert stored(dataset).dtype == np.uint8

    def test_normalisation_is_computed_per_channel_from_the_training_inputs(self, tmp_path):
        x = (
            np.random.default_rng(0)
            .normal([60, 120, 200], [5, 20, 9], size=(40, 6, 6, 3))
            .clip(0, 255)
            .astype(np.uint8)
        )
        dataset = load_dataset(self.save(tmp_path, x_train=x, y_train=np.arange(40), x_test=x[:2]))
        z = normalised(dataset)
        assert np.allclose(z.mean((0, 2, 3)), 0, atol=1e-6)
        assert np.allclose(z.std((0, 2, 3)), 1, atol=1e-6)

    def test_a_constant_channel_is_not_divided_by_zero(self, tmp_path):
        x = np.full((4, 3), 7, np.uint8)
        assert np.array_equal(normalised(load_dataset(self.save(tmp_path, x_train=x, x_test=x[:2]))), np.zeros((4, 3)))

    FEATURES = np.zeros((4, 3))

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"y_test": None}, "lacks y_test: it must hold x_train, y_train, x_test, y_test"),
            ({"x_train": FEATURES}, r"training inputs are \(3,\), test inputs \(3, 5, 5\)"),
            ({"x_train": np.zeros(4)}, r"inputs of shape \(4,\) are neither images nor feature vectors"),
            ({"x_train": np.zeros((4, 1, 1, 1, 1))}, "are neither images nor feature vectors"),
            ({"x_train": np.array([["a"]] * 4)}, "inputs are <U1, they must be numbers"),
            ({"x_train": np.array([[None]] * 4)}, "is not a NumPy archive of plain arrays"),
            ({"x_train": FEATURES + np.nan, "x_test": FEATURES[:2]}, "inputs hold values that are not finite"),
            ({"x_test": FEATURES[:2] + np.inf, "x_train": FEATURES}, "inputs hold values that are not finite"),
            ({"y_train": np.arange(3)}, r"4 inputs for labels of shape \(3,\)"),
            ({"y_train": np.eye(4, dtype=int)}, r"4 inputs for labels of shape \(4, 4\)"),
            ({"y_train": np.arange(4.0)}, "labels are float64, they must be integers"),
            ({"y_train": np.arange(4) - 1}, "training labels must be one number from 0 to 2"),
            ({"y_test": np.array([0, 4])}, "test labels must be one number from 0 to 3"),
            ({"x_test": np.zeros((0, 5, 5, 3), np.uint8), "y_test": np.arange(0)}, "there are no test samples"),
            ({"x_train": np.zeros((0, 5, 5, 3), np.uint8), "y_train": np.arange(0)}, "there are no training samples"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, tmp_path, changes, reason):
        with pytest.raises(FedscapeError, match=reason):
            load_dataset(self.save(tmp_path, **changes))

    def test_an_archive_that_would_run_code_is_refused_and_does_not_run_it(self, tmp_path):
        witness = tmp_path / "ran"
        path = self.save(tmp_path, x_train=np.array([[TouchesAFile(witness)]] * 4))
        with pytest.raises(FedscapeError, match="is not a NumPy archive of plain arrays"):
            load_dataset(path)
        assert not witness.exists()

    def test_a_damaged_archive_is_refused(self, tmp_path):
        path = tmp_path / "own.npz"
        whole = (self.save(tmp_path), path.read_bytes())[1]
        # Another compression method, in the files' headers and in the archive's list of them.
        flipped = re.sub(
            rb"(PK\x03\x04.{4}|PK\x01\x02.{6})\x00\x00", lambda header: header[1] + b"\x63\0", whole, flags=re.S
        )
        assert flipped != whole
        for raw in (b"", b"PK\3\4", whole[: len(whole) // 2], whole[:-30], pickle.dumps(1), flipped):
            path.write_bytes(raw)
            with pytest.raises(FedscapeError, match=r"own\.npz is not a NumPy archive of plain arrays or is damaged"):
                load_dataset(str(path))

    def test_a_missing_archive_is_named(self, tmp_path):
        with pytest.raises(FedscapeError, match=r"there is no file .*none\.npz"):
            load_dataset(str(tmp_path / "none.npz"))
