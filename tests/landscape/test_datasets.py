"""Data by name: digits, the real images, the user's own; names that are unknown and folders that are empty."""

import sys
import types

import numpy as np
import pytest
import torch

from landscape import DATASETS, FedscapeError, load_dataset, make_dataset
from tests.landscape.storage.files import normalised, stored


class TestDigits:
    def test_split_is_stratified_disjoint_and_complete(self):
        from sklearn.datasets import load_digits

        digits, source = load_dataset("digits"), load_digits()
        assert (len(digits.train), len(digits.test), digits.classes) == (1442, 355, 10)
        assert digits.input_shape == (1, 8, 8)
        for label in range(10):
            mine = source.images[source.target == label].astype(np.uint8)
            chosen = np.arange(len(mine)) % 5 == 4
            for part, images in ((digits.train, mine[~chosen]), (digits.test, mine[chosen])):
                assert np.array_equal(part.inputs[part.targets == label, 0].numpy(), images)

    def test_every_call_gives_images_of_its_own(self):
        """scikit-learn's file is read once: what is written into one data set must not show in the next."""
        for part in ("train", "test"):
            first = load_dataset("digits").split(part)
            images, targets = first.inputs.clone(), first.targets.clone()
            first.inputs.fill_(7)
            first.targets.fill_(7)
            again = load_dataset("digits").split(part)
            assert torch.equal(again.inputs, images)
            assert torch.equal(again.targets, targets)

    def test_normalisation_is_that_of_the_training_images_on_both_parts(self):
        digits = load_dataset("digits")
        x = normalised(digits)
        assert x.mean() == pytest.approx(0, abs=1e-12)
        assert x.std() == pytest.approx(1, rel=1e-12)
        raw, test = stored(digits).astype(float), digits.test.inputs.numpy()
        assert np.allclose(normalised(digits, "test"), (test - raw.mean()) / raw.std(), rtol=1e-12, atol=1e-12)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "hint"), [("digit", "digits"), ("cifar-10", "cifar10"), ("fashionmnist", "fashion_mnist")]
    )
    def test_an_unknown_name_is_answered_with_the_nearest(self, name, hint):
        with pytest.raises(
            FedscapeError, match=f"unknown data set '{name}': did you mean '{hint}'\\? known are .*digits"
        ):
            load_dataset(name)

    @pytest.mark.parametrize(
        ("name", "inner"),
        [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python"), ("fashion_mnist", "FashionMNIST/raw")],
    )
    def test_a_folder_without_the_files_is_told_what_it_must_hold(self, tmp_path, name, inner):
        for folder in (tmp_path, tmp_path / "none"):
            command = f"`python -m landscape.data fetch {name} --data-dir {folder}` gets it"
            with pytest.raises(
                FedscapeError, match=f"{name} is not in {folder}: {command}; .* must hold {inner}/ with"
            ):
                load_dataset(name, folder)
        with pytest.raises(FedscapeError, match=f"give --data-dir DIR, the folder that holds {inner}/"):
            load_dataset(name)

    def test_every_registered_name_is_documented(self):
        assert {"digits", "cifar10", "cifar100", "fashion_mnist"} <= set(DATASETS)
        assert all(loader.__doc__ for _, loader in DATASETS.items())

    def test_the_users_own_callable_is_given_the_data_directory(self, tmp_path, monkeypatch):
        x, y = np.eye(3, dtype=np.float32), np.arange(3)
        own = types.ModuleType("own_data")
        own.load = lambda folder: make_dataset(str(folder), (x, y), (x, y))
        own.number = lambda folder: 5
        own.table = {}
        own.missing = lambda folder: {}["images"]
        monkeypatch.setitem(sys.modules, "own_data", own)
        assert load_dataset("own_data:load", tmp_path).name == str(tmp_path)
        for name, reason in {
            "own_data:number": r"returned int, not a landscape.Dataset: landscape.make_dataset\(name, ",
            "own_data:table": "the data set 'own_data:table' is not callable: give a class or a function, not a dict",
            "own_data:missing": r"'own_data:missing' fails: KeyError: 'images' \(test_datasets.py, line \d+\)$",
            "own_data:none": "cannot import the data set 'own_data:none'",
            "no_such_module:f": "cannot import the data set 'no_such_module:f'",
            ".relative:f": "cannot import the data set '.relative:f'",
            ":f": "cannot import the data set ':f'",
        }.items():
            with pytest.raises(FedscapeError, match=reason):
                load_dataset(name)

    def test_an_unknown_name_is_told_that_own_files_and_folders_serve(self):
        with pytest.raises(
            FedscapeError, match=r"unknown data set 'mine.csv': .*FILE.npz, folder:PATH, package.module"
        ):
            load_dataset("mine.csv")

    def test_a_split_is_train_or_test(self):
        digits = load_dataset("digits")
        assert digits.split("train") is digits.train
        assert digits.split("test") is digits.test
        with pytest.raises(FedscapeError, match="unknown split 'validation': give train or test"):
            digits.split("validation")


@pytest.mark.parametrize(
    ("name", "train", "test", "shape", "mean", "std"),
    [
        pytest.param(
            *("cifar10", [5000] * 10, [1000] * 10, (3, 32, 32), [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
            marks=pytest.mark.slow,
        ),
        ("cifar100", [100] * 100, [100] * 100, (3, 32, 32), [0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]),
        ("fashion_mnist", [6000] * 10, [1000] * 10, (1, 28, 28), [0.2860], [0.3530]),
    ],
)
def test_real_images_have_the_published_counts_classes_and_statistics(real_data, name, train, test, shape, mean, std):
    folder = real_data(name)
    dataset = load_dataset(name, folder)
    assert (dataset.input_shape, dataset.classes) == (shape, len(train))
    for part, counts in ((dataset.train, train), (dataset.test, test)):
        assert part.inputs.dtype == torch.uint8
        assert part.targets.bincount().tolist() == counts
    raw = stored(dataset) / np.float32(255)
    near = 2e-3 if name == "cifar100" else 2e-4  # of CIFAR-100 only a fifth of the training set is here
    assert np.allclose(raw.mean((0, 2, 3), dtype=np.float64), mean, atol=near)
    assert np.allclose(raw.std((0, 2, 3), dtype=np.float64), std, atol=near)
    with np.load(folder / f"{name}.npz") as archive:
        images, labels = archive["x_test"], archive["y_test"]
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    assert np.array_equal(dataset.test.inputs.numpy(), images)
    assert np.array_equal(dataset.test.targets.numpy(), labels)
