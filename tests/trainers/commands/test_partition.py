"""``python -m trainers partition``: what it prints, writes and draws, and what it refuses."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from landscape import load_dataset, make_partition
from landscape.terminal.command import run
from trainers import FedAvg, Settings, train
from trainers.__main__ import main

LABELS = load_dataset("digits").train.targets.numpy()


def test_statistics_are_printed_and_written(tmp_path, capsys):
    file = tmp_path / "partition.json"
    arguments = ["--partition", "dirichlet:0.1", "dirichlet:0.1+replacement", "--clients", "10", "--seed", "3"]
    assert main(["partition", *arguments, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["partition", "clients", "size", "min"]
    assert [line.split()[0] for line in lines[2:4]] == ["dirichlet:0.1", "dirichlet:0.1+replacement"]
    written = json.loads(file.read_text())
    assert (written["data"], written["clients"], written["seed"]) == ("digits", 10, 3)
    for one in written["partitions"]:
        partition = make_partition(one["partition"], LABELS, 10, 3)
        assert one["sizes"] == partition.sizes.tolist()
        assert one["used"] == len(np.unique(np.concatenate(partition.clients)))
        counts = partition.label_counts(LABELS, 10)
        assert one["classes_mean"] == pytest.approx((counts > 0).sum(1).mean())
        assert one["class_deviation"] == pytest.approx(counts.sum(0).std())


def test_is_the_partition_that_a_run_has(tmp_path):
    trained = train(FedAvg(), Settings(partition="pathological:3", rounds=0, seed=5), out=tmp_path / "run")
    main(["partition", "--partition", "pathological:3", "--seed", "5", "--json", str(tmp_path / "p.json")])
    sizes = json.loads((tmp_path / "p.json").read_text())["partitions"][0]["sizes"]
    with np.load(trained.path / "partition.npz") as stored:
        assert [len(stored[name]) for name in sorted(stored.files)] == sizes


def test_a_picture_is_drawn(tmp_path):
    main(["partition", "--partition", "iid", "pathological:2", "--out", str(tmp_path / "partition.png")])
    height, width, _ = imread(tmp_path / "partition.png").shape
    assert height > 500
    assert width > 1000


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--partition", "dirichlett:1"], "unknown partition 'dirichlett': did you mean 'dirichlet:ALPHA'?"),
        (["--partition", "pam"], "the labels of these data have no superclasses"),
        (["--clients", "0"], "0 clients cannot share 1442 samples"),
        (["--clients", "x"], "(see python -m trainers partition --help)"),
        (["--data", "nothing"], "unknown data set 'nothing'"),
        (["--out", "p.abc"], "p.abc is no kind of picture Matplotlib writes"),
    ],
)
def test_a_bad_request_is_one_sentence_and_exit_2(arguments, reason, capsys, monkeypatch):
    assert run(lambda: main(["partition", *arguments])) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert len(error.strip().splitlines()) == 1
