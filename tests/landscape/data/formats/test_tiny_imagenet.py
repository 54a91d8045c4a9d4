"""Tiny-ImageNet's folders, and the file that keeps decoded images."""

import numpy as np
import pytest
import torch

import landscape.data.formats.images
import landscape.data.memory_mapped
from landscape import FedscapeError, load_dataset
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import stored


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
