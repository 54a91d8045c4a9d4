"""Cityscapes and IDDA: scenes with a class for each pixel."""

import numpy as np
import pytest
import torch

from landscape import FedscapeError, load_dataset, make_dataset
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import stored


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

    def test_feddrives_settings_of_idda_are_tested_in_seen_or_in_unseen_domains(self, tmp_path):
        write.write_idda(tmp_path, self.IDS)
        for part, user, number, domain in (
            ("train", "car1", 0, "T01_CN_A"), ("seen", "global", 1, "T02_CS_B"), ("unseen", "global", 2, "T07_CN_A"),
        ):  # fmt: skip
            folder = tmp_path / "idda" / "clients" / "rainy" / part
            folder.mkdir(parents=True)
            x, y = f"{domain}/RGB/{number}_{domain}.jpg", f"{domain}/Semantic/{number}_{domain}.png"
            (folder / "all_data_0.json").write_text(write.leaf({user: ([x], [y])}))
        for name, grey in (("idda_rainy", 120), ("idda_rainy_seen", 60)):  # write_idda: 60 times the scene's number
            dataset = load_dataset(name, tmp_path)
            assert (len(dataset.train), dataset.clients.tolist(), dataset.classes) == (1, [0], 16)
            assert dataset.train.inputs.unique().tolist() == [0]
            assert dataset.test.inputs.unique().tolist() == [grey]
        with pytest.raises(FedscapeError, match="country must hold FedDrive's JSON files of this setting"):
            load_dataset("idda_country", tmp_path)

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
