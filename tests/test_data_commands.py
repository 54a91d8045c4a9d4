"""The commands on data in their published formats: natural clients, folders, files that are damaged."""

import json

import numpy as np
import pytest
import torch

from analysis.hessian.__main__ import main as hessian
from landscape import Checkpoint
from landscape.terminal.command import run
from tests.landscape.data import data_files as write
from tests.landscape.storage.files import write_cifar10
from trainers.__main__ import main as trainers

SMALL = "--model digits_cnn --rounds 1 --local-epochs 1 --per-round 2 --quiet --device cpu"


def test_femnists_writers_are_the_clients(tmp_path):
    images = write.write_femnist(tmp_path)
    line = f"fedavg --data femnist --data-dir {tmp_path} --partition natural --clients 3 {SMALL} --out {tmp_path}/run"
    assert run(lambda: trainers(line.split())) == 0
    checkpoint = Checkpoint.load(tmp_path / "run" / "ckpt.pt")
    dataset = checkpoint.load_dataset()
    sizes = [len(images[user]) for user in sorted(images)]
    assert checkpoint.partition(dataset).sizes.tolist() == sizes


def test_a_run_on_a_folder_of_images_is_measured_from_elsewhere(tmp_path, monkeypatch):
    for k, name in enumerate(("dark", "bright")):
        for i in range(10):
            pixels = np.full((8, 8), 100 * k + i, np.uint8)
            write.save_image(tmp_path / "images" / name / f"{i}.png", pixels)
    monkeypatch.chdir(tmp_path)
    assert run(lambda: trainers(f"fedavg --data images --clients 2 --partition iid {SMALL} --out run".split())) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(lambda: hessian(["../run/ckpt.pt", "--top", "1", "--quiet", "--device", "cpu", "--out", "here"])) == 0
    assert json.loads((tmp_path / "elsewhere" / "here" / "hessian.json").read_text())["samples"] == 16


def test_streamed_local_work_gives_the_same_model(tmp_path, monkeypatch):
    from landscape import Samples

    models = []
    for stream in (False, True):
        with monkeypatch.context() as patch:
            if stream:
                patch.setattr(Samples, "placed", lambda self, place, stream=None: self.streamed(place))
            out = tmp_path / str(stream)
            line = f"fedavg --clients 4 --augment flip-crop --mixup --cutout --cutout-size 4 {SMALL} --out {out}"
            assert run(lambda line=line: trainers(line.split())) == 0
        models.append(Checkpoint.load(out / "ckpt.pt").parameters)
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize(
    ("name", "spoil", "reason"),
    [
        ("cifar10", lambda f: f.write_bytes(f.read_bytes()[:-50]), "data_batch_1 is not a CIFAR batch or is damaged"),
        ("cifar10", lambda f: f.unlink(), "there is no file"),
        ("cifar100", lambda f: None, "python -m landscape.data fetch cifar100 --data-dir"),
    ],
)
def test_damaged_and_missing_files_end_in_one_sentence_and_exit_code_2(tmp_path, capsys, name, spoil, reason):
    write_cifar10(tmp_path)
    spoil(tmp_path / "cifar-10-batches-py" / "data_batch_1")
    line = f"fedavg --data {name} --data-dir {tmp_path} --clients 2 --partition iid {SMALL} --out {tmp_path / 'run'}"
    assert run(lambda: trainers(line.split())) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
