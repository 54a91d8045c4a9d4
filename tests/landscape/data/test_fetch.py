"""Fetching and verifying, without a network: torchvision and Hugging Face are stood in for."""

import dataclasses
import hashlib
import re
import sys
import tarfile
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from landscape import FedscapeError, load_dataset
from landscape.data.__main__ import main
from landscape.data.fetch import fetch
from landscape.data.sources import SOURCES, Archive
from landscape.datasets import DATASETS
from landscape.terminal.command import run
from tests.conftest import REPOSITORY
from tests.landscape.storage.files import stored, write_cifar10


@pytest.fixture
def internet(monkeypatch):
    """Files by URL, which torchvision's downloader, stood in for, finds."""
    files: dict[str, bytes] = {}

    def download_url(url, root, filename=None, md5=None):
        if url not in files:
            raise OSError(f"<urlopen error: no route to {url}>")
        (Path(root) / filename).write_bytes(files[url])

    def extract_archive(source, target):
        with tarfile.open(source) as archive:
            safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.10.12 and 3.11.4 have it
            archive.extractall(target, **safely)

    utils = types.SimpleNamespace(download_url=download_url, extract_archive=extract_archive)
    datasets = types.ModuleType("torchvision.datasets")
    datasets.utils = utils
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    return files


def publish(monkeypatch, internet, tmp_path, name: str, folder: Path) -> Archive:
    """Put an archive of ``folder`` where ``name`` is published."""
    path = tmp_path / "published.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    source = Archive(f"https://example.org/{name}.tar.gz", f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}")
    internet[source.url] = path.read_bytes()
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], archives=(source,)))
    return source


def test_a_data_set_is_downloaded_checked_unpacked_and_read(internet, monkeypatch, tmp_path, capsys):
    images, _ = write_cifar10(tmp_path / "theirs")
    publish(monkeypatch, internet, tmp_path, "cifar10", tmp_path / "theirs" / "cifar-10-batches-py")
    data = tmp_path / "mine"
    assert run(lambda: main(["fetch", "cifar10", "--data-dir", str(data)])) == 0
    assert f"cifar10 is in {data / 'cifar-10-batches-py'}" in capsys.readouterr().out
    assert np.array_equal(stored(load_dataset("cifar10", data)), images)
    assert sorted(path.name for path in data.iterdir()) == [".cifar10.tar.gz.unpacked", "cifar-10-batches-py"]
    internet.clear()
    fetch("cifar10", data)  # not downloaded again


def test_files_that_are_there_stay_and_the_missing_ones_come(internet, monkeypatch, tmp_path):
    write_cifar10(tmp_path / "theirs")
    publish(monkeypatch, internet, tmp_path, "cifar10", tmp_path / "theirs" / "cifar-10-batches-py")
    folder = tmp_path / "mine" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    (folder / "test_batch").write_text("mine")
    fetch("cifar10", tmp_path / "mine")
    assert (folder / "test_batch").read_text() == "mine"
    assert len(list(folder.iterdir())) == 6


def test_another_archive_than_the_published_one_is_refused_and_nothing_is_kept(internet, monkeypatch, tmp_path):
    write_cifar10(tmp_path / "theirs")
    source = publish(monkeypatch, internet, tmp_path, "cifar10", tmp_path / "theirs" / "cifar-10-batches-py")
    whole = internet[source.url]
    for raw in (b"", whole[:-1], whole[:50] + b"x" + whole[51:]):
        internet[source.url] = raw
        with pytest.raises(FedscapeError, match=r"is not what was published: .* nothing was kept"):
            fetch("cifar10", tmp_path / "mine")
        assert list((tmp_path / "mine").iterdir()) == []


def test_single_files_are_put_in_their_folder_and_not_downloaded_twice(internet, monkeypatch, tmp_path):
    source = dataclasses.replace(SOURCES["mnist"].archives[0], checksum=f"md5:{hashlib.md5(b'idx').hexdigest()}")
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(SOURCES["mnist"], archives=(source,)))
    internet[source.url] = b"idx"
    fetch("mnist", tmp_path)
    assert (tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz").read_bytes() == b"idx"
    internet.clear()
    fetch("mnist", tmp_path)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cifar10", r"cannot download https://www\.cs\.toronto\.edu/.*: <urlopen error"),
        ("cifar", "unknown data set 'cifar': did you mean 'cifar10'"),
        ("digits", "digits is embedded: there is nothing to fetch"),
        ("cityscapes", "cannot be fetched by a program: get it with an account at https://www.cityscapes-dataset.com"),
        ("idda", "cannot be fetched by a program: get it from .*idda-dataset"),
    ],
)
def test_what_cannot_be_fetched_is_told_why(internet, tmp_path, name, reason):
    with pytest.raises(FedscapeError, match=reason):
        fetch(name, tmp_path)
    assert not any(tmp_path.rglob("*.*"))


def test_without_torchvision_the_command_that_installs_it_is_given(monkeypatch, tmp_path, capsys):
    for name in ("torchvision", "torchvision.datasets"):  # where there is one, another test may have imported it
        monkeypatch.setitem(sys.modules, name, None)
    assert run(lambda: main(["fetch", "cifar10", "--data-dir", str(tmp_path)])) == 2
    assert "pip install 'fedscape[data]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedscapeError, match=r"femnist comes from Hugging Face: pip install 'fedscape\[data\]'"):
        fetch("femnist", tmp_path)


def test_femnist_of_hugging_face_has_its_writers_as_clients(monkeypatch, tmp_path):
    class Rows(list):
        def __getitem__(self, key):
            return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)

    def row(i):
        image = Image.fromarray(np.full((28, 28), i, np.uint8))
        return {"image": image, "writer_id": f"f{i % 2}_{9 + i % 2}", "character": i}

    hub = types.ModuleType("datasets")
    hub.load_dataset = lambda name, split: Rows(row(i) for i in range(12))
    monkeypatch.setitem(sys.modules, "datasets", hub)
    fetch("femnist", tmp_path)
    dataset = load_dataset("femnist", tmp_path)
    assert dataset.train.targets.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11]
    assert dataset.test.targets.tolist() == [8, 9]  # each writer's fifth
    assert dataset.clients.tolist() == [0, 1] * 5
    assert stored(dataset)[:, 0, 5, 5].tolist() == dataset.train.targets.tolist()
    hub.load_dataset = lambda name, split: pytest.fail("downloaded again")
    fetch("femnist", tmp_path)


class TestVerify:
    def test_the_real_files_are_as_published(self, real_data, capsys):
        folder = real_data("fashion_mnist")
        assert run(lambda: main(["verify", "fashion-mnist", "--data-dir", str(folder)])) == 0
        assert capsys.readouterr().out.count("as published") == 4

    def test_others_are_told_apart(self, tmp_path, capsys):
        write_cifar10(tmp_path)
        assert run(lambda: main(["verify", "cifar10", "--data-dir", str(tmp_path)])) == 2
        assert "not as published: data_batch_1, data_batch_2" in capsys.readouterr().err

    def test_without_files_or_checksums_one_sentence_says_so(self, tmp_path, capsys):
        (tmp_path / "MNIST" / "raw").mkdir(parents=True)
        for name, reason in {
            "mnist": "holds none of train-images",
            "cifar10": "get",
            "idda": "no checksums of files are published for 'idda'",
            "nothing": "no checksums of files are published for 'nothing'",
        }.items():
            assert run(lambda name=name: main(["verify", name, "--data-dir", str(tmp_path)])) == 2
            error = capsys.readouterr().err
            assert reason in error
            assert error.count("\n") == 1


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_missing_data_set_says_how_it_is_had_and_how_it_must_lie(tmp_path, name):
    with pytest.raises(FedscapeError) as caught:
        load_dataset(f"{name}/fog/1" if name.endswith("_c") else name, tmp_path)
    said = str(caught.value)
    assert "\n" not in said
    assert SOURCES[name].layout in said
    assert f"python -m landscape.data fetch {name} --data-dir {tmp_path}" in said or "https://" in said
    with pytest.raises(FedscapeError, match="give --data-dir DIR, the folder that holds"):
        load_dataset(name)


def test_every_data_set_is_listed_and_on_its_page(capsys):
    assert run(lambda: main(["list"])) == 0
    listed, page = capsys.readouterr().out, (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8")
    for name in DATASETS:
        assert re.search(rf"^{name} +\S", listed, re.MULTILINE)
        assert f"`{name}`" in page, name
    assert set(DATASETS) == {*SOURCES, "digits"}
