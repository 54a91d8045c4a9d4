"""CIFAR-10-C's files: which images a severity is, and what is refused."""

import numpy as np
import pytest
import torch

from landscape import FedscapeError, load_dataset
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import write_cifar10


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
