"""``python -m trainers``."""

import json
import re

import pytest

from landscape.terminal.command import run
from tests.trainers.usual import usual
from trainers import ALGORITHMS
from trainers.__main__ import main


def test_help_lists_the_algorithms_with_their_papers(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help-all"])
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, kind in ALGORITHMS.items():
        assert name in text
        assert kind.paper in text


@pytest.mark.parametrize("name", usual(ALGORITHMS))
def test_help_of_an_algorithm_shows_its_hyper_parameters_with_symbols_and_defaults(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help-all"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    algorithm = ALGORITHMS.get(name)()
    kinds = {float: "FLOAT", int: "INT", str: "{"}
    for field, default in algorithm.hyper_parameters().items():
        assert f"--{field.replace('_', '-')} {kinds[type(default)]}" in text
        assert f"(default: {default})" in text
    assert any(symbol in text for symbol in ("η", "μ", "ρ"))
    for option in ("ascent", "man", "swa", "mixup", "cutout", "server-optimizer", "adversary", "local-optimizer"):
        assert f"--{option} " in text, option
    for option in (
        "data", "data-dir", "model", "partition", "clients", "per-round", "rounds", "local-epochs", "batch-size", "lr",
        "lr-decay", "lr-schedule", "lr-step", "lr-min", "lr-warmup", "weight-decay", "augment",
        "seed", "device", "dtype", "out", "save-every", "resume",
    ):  # fmt: skip
        assert f"--{option} " in text, option


def test_all_flags_of_the_issue_are_taken(tmp_path, capsys):
    line = (
        "fedasam --rho 0.3 --eta 0.1 --data digits --model digits_cnn --partition iid --clients 4 --per-round 2 "
        "--rounds 2 --local-epochs 1 --batch-size full --lr 0.1 --lr-decay 0.99 --weight-decay 0.001 --seed 3 "
        f"--augment none --device cpu --dtype float32 --save-every 1 --resume --out {tmp_path}"
    )
    assert run(lambda: main(line.split())) == 0
    captured = capsys.readouterr()
    assert f"checkpoint: {tmp_path}/ckpt.pt" in captured.out
    assert "2/2 rounds" in captured.err
    assert captured.err.startswith(
        "fedasam on digits: digits_cnn, 6,090 parameters; 4 clients by iid, 2 a round, 2 rounds\n"
    )
    shown = re.search(r"test_accuracy ([\d.]+)%", captured.err)
    told = re.search(r"test accuracy ([\d.]+)%", captured.out)
    assert float(shown[1]) == pytest.approx(float(told[1]), abs=0.051)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["algorithm"] == {"name": "fedasam", "rho": 0.3, "eta": 0.1, "server_lr": 1.0}
    assert (config["settings"]["batch_size"], config["settings"]["lr_decay"]) == ("full", 0.99)


def test_divergence_is_exit_code_three(tmp_path, capsys):
    assert run(lambda: main(["fedavg", "--lr", "1e20", "--quiet", "--out", str(tmp_path)])) == 3
    assert "fedavg diverged in round 1: the training loss is nan; the last good model is" in capsys.readouterr().out


def test_list_and_report_are_commands_too(tmp_path, capsys):
    assert run(lambda: main(["fedavg", "--rounds", "1", "--quiet", "--out", str(tmp_path / "mine")])) == 0
    capsys.readouterr()
    assert run(lambda: main(["report", str(tmp_path / "mine")])) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("mine  ")
    assert run(lambda: main(["list"])) == 0
    assert "mofedsam" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--lr 0.1", "give python -m trainers the algorithm before its options, not --lr"),
        ("reprot", "unknown algorithm 'reprot': did you mean 'report'?"),
        ("list all", "Unrecognized options: all"),
        ("fedspeed --variant offical", "invalid choice 'offical'"),
        ("fedsamm", "unknown algorithm 'fedsamm': did you mean 'fedsam'?"),
        ("fedsam --rho big", "Error parsing --rho: could not convert string to float: 'big'"),
        ("fedsam --rho -1", "FedSAM: SAM needs a radius ρ of 0 or more, not rho=-1.0"),
        ("fedavg --data digit", "unknown data set 'digit': did you mean 'digits'?"),
        ("fedavg --data nothing.npz", "there is no file nothing.npz"),
        ("fedavg --data cifar10", "give --data-dir DIR, the folder that holds cifar-10-batches-py/"),
        ("fedavg --data cifar10 --data-dir {tmp}", "the folder must hold cifar-10-batches-py/ with"),
        ("fedavg --data no.module:f", "cannot import the data set 'no.module:f'"),
        ("fedavg --model digits_mpl", "unknown model 'digits_mpl': did you mean 'digits_mlp'?"),
        ("fedavg --model lenet_fed", "the model 'lenet_fed' takes images"),
        ("fedavg --partition dirichlet", "needs a positive number, as in dirichlet:0.1"),
        ("fedavg --partition dirichlet:-1", "needs a positive number"),
        ("fedavg --partition random", "unknown partition 'random'"),
        ("fedavg --clients 2000 --per-round 5", "2000 clients cannot share 1442 samples"),
        ("fedavg --clients 4", "--per-round is 5: give a number from 1 to the 4 clients"),
        ("fedavg --rounds -1", "--rounds is -1"),
        ("fedavg --batch-size 0", "--batch-size is 0: give at least 1, or full"),
        ("fedavg --batch-size half", "--batch-size cannot be 'half': give INT or full"),
        ("fedavg --lr 0", "--lr is 0.0: it must be above 0"),
        ("fedavg --lr nan", "--lr is nan"),
        ("fedavg --augment cutmix", "invalid choice 'cutmix'"),
        ("fedavg --dtype float16", "invalid choice 'float16'"),
        ("fedavg --device gpu", "unknown device 'gpu': give auto, cpu, cuda or cuda:N"),
        ("fedavg --learning-rate 1", "there is no option --learning-rate: did you mean --lr?"),
        ("fedavg --out {tmp}/file/run", "cannot create the directory"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(line, sentence, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    words = line.format(tmp=tmp_path).split()
    extra = ["--quiet"] if words and words[0] in ALGORITHMS else []
    if extra and "--out" not in words:
        extra += ["--out", str(tmp_path / "run")]
    assert run(lambda: main([*words, *extra])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
    assert (tmp_path / "file").read_text() == "kept"
