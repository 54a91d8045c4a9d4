"""CIFAR-10 and CIFAR-100 in their published formats, byte layouts included, and what is refused."""

import dataclasses
import pickle

import numpy as np
import pytest

from landscape import FedscapeError, load_dataset
from landscape.data.checksums import check_published
from landscape.data.formats.cifar import SUPERCLASSES
from landscape.data.sources import SOURCES
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import stored, write_cifar10


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


def test_a_pickle_of_names_that_would_run_code_is_refused(tmp_path):
    write.write_cifar100(tmp_path)
    (tmp_path / "cifar-100-python" / "meta").write_bytes(pickle.dumps(print))
    with pytest.raises(FedscapeError, match="holds no fine_label_names or is damaged"):
        load_dataset("cifar100", tmp_path)
