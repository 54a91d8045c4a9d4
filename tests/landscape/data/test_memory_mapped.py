"""Large arrays stay in their files."""

import numpy as np
import pytest

import landscape.data.formats.images
import landscape.data.memory_mapped
from landscape import FedscapeError, load_dataset
from landscape.data.dataset import channel_statistics
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import idx, normalised, stored


class TestMapped:
    """Large arrays stay in their files: here all arrays are large."""

    @pytest.fixture(autouse=True)
    def all_large(self, monkeypatch):
        monkeypatch.setattr(landscape.data.memory_mapped, "LARGE", 0)

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("shape", [(5, 4, 4, 3), (5, 7)])
    def test_an_archive_is_mapped_and_gives_the_same_numbers(self, tmp_path, monkeypatch, shape, order):
        x = np.asarray(write.draw(*shape), order=order)
        path = write.write_archive(tmp_path, x_train=x, x_test=x[:2])
        kinds = []
        spied = landscape.data.memory_mapped.map_values
        monkeypatch.setattr(landscape.data.memory_mapped, "map_values", lambda *a: kinds.append(a) or spied(*a))
        dataset = load_dataset(path)
        assert len(kinds) == 4
        expected = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
        assert np.array_equal(stored(dataset), expected)
        assert np.allclose(normalised(dataset).mean(axis=(0, *range(2, x.ndim))), 0, atol=1e-12)
        dataset.train.inputs[0] = 0
        assert np.array_equal(stored(load_dataset(path)), expected)  # the file is as it was

    def test_a_compressed_archive_is_read(self, tmp_path):
        path, x = write.write_archive(tmp_path), write.draw(5, 4, 4, 3)
        with np.load(path) as archive:
            np.savez_compressed(path, **archive)
        assert np.array_equal(stored(load_dataset(path)), x.transpose(0, 3, 1, 2))

    def test_damage_to_a_mapped_archive_is_found(self, tmp_path):
        path = tmp_path / "own.npz"
        raw = bytearray((write.write_archive(tmp_path), path.read_bytes())[1])
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
