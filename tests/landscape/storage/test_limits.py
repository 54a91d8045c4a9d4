"""Files that are no files, and files that declare more than they are: refused before anything is allocated."""

import os
import zipfile

import h5py
import numpy as np
import pytest
import torch

from landscape import FedscapeError, Partition, load_dataset
from landscape.storage import limits
from landscape.storage.files import load_torch
from landscape.storage.hdf5 import read_plain
from landscape.storage.reading import read_json, read_json_lines
from landscape.storage.schema import Number, Plain, Record


def read_all(path):
    """Every reader, of a file of any kind."""
    yield lambda: load_torch(path)
    yield lambda: load_torch(path, mapped=True)
    yield lambda: Partition.load(path)
    yield lambda: read_json(path, Plain())
    yield lambda: read_json_lines(path, Plain())


def test_devices_pipes_and_folders_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in (("/dev/zero", "a device"), (tmp_path / "pipe", "a pipe"), (tmp_path, "Is a directory")):
        for read in read_all(path):
            with pytest.raises(FedscapeError, match=f"cannot read {path}: {kind}"):
                read()
    with pytest.raises(FedscapeError, match="there is no file"):
        limits.open_regular(tmp_path / "none")
    with pytest.raises(FedscapeError, match="cannot read"):
        limits.open_regular("a\0b")


def test_a_device_that_is_called_an_archive_of_data_is_refused(tmp_path):
    (tmp_path / "data.npz").symlink_to("/dev/zero")
    with pytest.raises(FedscapeError, match=r"cannot read .*data\.npz: a device"):
        load_dataset(str(tmp_path / "data.npz"))


def bomb(archive, name, megabytes):
    """Add a member of zeros, which takes a thousandth of that in the file."""
    with archive.open(name, "w") as file:
        if name.endswith(".npy"):
            header = {"descr": "<i8", "fortran_order": False, "shape": (megabytes << 17,)}
            np.lib.format.write_array_header_1_0(file, header)
        for _ in range(megabytes):
            file.write(bytes(1 << 20))


@pytest.fixture
def low(monkeypatch):
    """A limit of 16 MiB, as a bomb of a gigabyte takes long to make."""
    monkeypatch.setattr(limits, "EXPANDED", 16 << 20)


def test_a_bomb_is_refused_with_what_raises_the_limit(tmp_path, monkeypatch, low):
    path = tmp_path / "partition.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for client in range(2):
            bomb(archive, f"client_{client:05d}.npy", 9)
    assert path.stat().st_size < 1 << 16
    reason = r"would take 18,874,624 bytes, and 16,777,216 are the limit: .*FEDSCAPE_MAX_BYTES=18874624"
    with pytest.raises(FedscapeError, match=reason):
        Partition.load(path)
    monkeypatch.setenv(limits.VARIABLE, "18874624")
    assert Partition.load(path).sizes.tolist() == [9 << 17] * 2


def test_a_checkpoint_bomb_is_refused_before_it_is_decompressed(tmp_path, low):
    torch.save({"a": torch.ones(3)}, tmp_path / "small.pt")
    small = zipfile.ZipFile(tmp_path / "small.pt")
    with small, zipfile.ZipFile(tmp_path / "big.pt", "w", zipfile.ZIP_DEFLATED) as big:
        for name in small.namelist():
            if name.endswith("data/0"):
                bomb(big, name, 20)
            else:
                big.writestr(name, small.read(name))
    with pytest.raises(FedscapeError, match=r"would take 20,97\d,\d{3} bytes, and 16,777,216 are the limit"):
        load_torch(tmp_path / "big.pt")


def test_a_label_that_is_no_class_takes_no_memory(tmp_path):
    images, labels = np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 2, 10**9])
    np.savez(tmp_path / "data.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with pytest.raises(FedscapeError, match=r"the largest label is 1,000,000,000: labels must be .* 65,536 classes"):
        load_dataset(str(tmp_path / "data.npz"))


def test_large_files_that_are_as_large_as_they_say_are_not_limited():
    limits.require_expanded("f", 19 << 30, 1 << 30)
    with pytest.raises(FedscapeError, match="are the limit"):
        limits.require_expanded("f", 21 << 30, 1 << 30)


def test_an_array_that_declares_more_than_is_there_is_refused(tmp_path):
    """NumPy would allocate 8 TB, or fill it with what happens to be there."""
    path = tmp_path / "partition.npz"
    for shape in ((10**12,), (3,), (-1,)):
        with zipfile.ZipFile(path, "w") as archive, archive.open("client_00000.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": shape})
            file.write(bytes(16))
        with pytest.raises(FedscapeError, match=r"does not hold the .* values it declares|is damaged"):
            Partition.load(path)


def test_json_files_above_the_limit_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("[" + "1," * 100 + "1]")
    assert len(read_json(path, Plain())) == 101
    with pytest.raises(FedscapeError, match=r"the file has 203 bytes, and 100 are the limit: .*FEDSCAPE_MAX_BYTES=203"):
        read_json(path, Plain(), limit=100)
    monkeypatch.setenv(limits.VARIABLE, "203")
    assert len(read_json(path, Plain(), limit=100)) == 101
    monkeypatch.setenv(limits.VARIABLE, "much")
    with pytest.raises(FedscapeError, match="FEDSCAPE_MAX_BYTES is 'much': give a number of bytes"):
        read_json(path, Plain(), limit=100)


@pytest.mark.parametrize("text", ["", "{", "\xff", "[" * 100_000, "nul", '{"round": 1e}', "1 2"])
def test_what_is_no_json_is_refused_in_a_sentence(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FedscapeError, match=r"a\.json is damaged: "):
        read_json(tmp_path / "a.json", Record({}))


def test_lines_are_checked_each_and_an_incomplete_last_one_is_left_out(tmp_path):
    path = tmp_path / "m.jsonl"
    rule = Record({"round": Number(0, whole=True)})
    path.write_text('{"round": 1}\n{"round": 2}\n{"rou')
    assert [record["round"] for record in read_json_lines(path, rule)] == [1, 2]
    path.write_text('{"round": 1}\n{"rou\n{"round": 2}\n')
    with pytest.raises(FedscapeError, match=r"line 2 of .*m\.jsonl is damaged"):
        read_json_lines(path, rule)
    path.write_text('{"round": 1}\n{"round": -4}\n')
    with pytest.raises(FedscapeError, match=r"line 2 of .*m\.jsonl is damaged: round is -4, not a whole number from 0"):
        read_json_lines(path, rule)


class TestHDF5:
    """What HDF5 would fetch from elsewhere is not fetched."""

    @staticmethod
    def refused(path, reason):
        with h5py.File(path, "r") as file, pytest.raises(ValueError, match=reason):
            read_plain(file, most=100)

    def test_a_plain_file_is_read(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["x"] = np.arange(3.0)
            file.create_dataset("z", data=np.arange(4), compression="gzip", shuffle=True, fletcher32=True)
            file.attrs["name"], file.attrs["n"], file.attrs["on"] = "net", 3, True
        with h5py.File(tmp_path / "a.h5", "r") as file:
            attributes, arrays = read_plain(file, most=100)
        assert attributes == {"name": "net", "n": 3, "on": True}
        assert [(name, array.tolist()) for name, array in arrays.items()] == [("x", [0, 1, 2]), ("z", [0, 1, 2, 3])]

    def test_other_files_and_links_are_not_followed(self, tmp_path):
        secret = tmp_path / "secret"
        secret.write_bytes(np.arange(3.0).tobytes())
        with h5py.File(tmp_path / "other.h5", "w") as file:
            file["x"] = np.arange(3.0)
        with h5py.File(tmp_path / "external.h5", "w") as file:
            file.create_dataset("x", (3,), "f8", external=[(str(secret), 0, 24)])
        self.refused(tmp_path / "external.h5", "'x' is in another file")
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", shape=(3,))
        with h5py.File(tmp_path / "virtual.h5", "w") as file:
            file.create_virtual_dataset("x", layout)
        self.refused(tmp_path / "virtual.h5", "'x' is in another file")
        for name, link in (("soft", h5py.SoftLink("/y")), ("link", h5py.ExternalLink(tmp_path / "other.h5", "/x"))):
            with h5py.File(tmp_path / f"{name}.h5", "w") as file:
                file["y"] = np.arange(3.0)
                file["x"] = link
            self.refused(tmp_path / f"{name}.h5", "'x' is a link")

    def test_groups_texts_objects_and_large_arrays_are_refused(self, tmp_path):
        made = {
            "group": lambda file: file.create_group("x"),
            "text": lambda file: file.__setitem__("x", "secret"),
            "large": lambda file: file.create_dataset("x", (10**6, 10**6), "f8", chunks=(10, 10)),
            "chunks": lambda file: file.create_dataset("x", (10,), "f8", chunks=(10**6,), maxshape=(None,)),
            "filter": lambda file: file.create_dataset("x", (10,), "f8", compression="lzf"),
            "reference": lambda file: file.create_dataset("x", (10,), h5py.ref_dtype),
            "attribute": lambda file: file.attrs.__setitem__("a", np.arange(3)),
        }
        for name, make in made.items():
            with h5py.File(tmp_path / f"{name}.h5", "w") as file:
                make(file)
            self.refused(
                tmp_path / f"{name}.h5", "is no array|is of object|has the shape|unknown filter|no single value"
            )
