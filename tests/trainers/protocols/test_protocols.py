"""Protocols as options: each expands for each of its algorithms, what is given goes first, config.json has all of it,
and ``--show`` has a source for every value."""

import json
import re
from dataclasses import asdict, fields

import pytest

from landscape import FedscapeError
from trainers import ALGORITHMS, Settings
from trainers.__main__ import main, read
from trainers.flags import FLAGS
from trainers.protocols import PROTOCOLS, Protocol, expanded, protocol
from trainers.protocols.protocol import given_options, lines

PAIRS = [(name, algorithm) for name, each in PROTOCOLS.items() for algorithm in each.algorithms]
SOURCE = re.compile(r"[\w./-]+\.(py|sh):\d+|data/cifar10: its split")


def command(line):
    return read(line.split())


def test_the_eight_are_there():
    assert list(PROTOCOLS) == [
        "fl-simulator", "feddyn", "feddc", "fedsam", "fedman", "fedlesam", "fedgloss", "adabest",
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "algorithm"), PAIRS)
def test_every_value_arrives_and_has_a_source(name, algorithm):
    arrived = command(f"{algorithm} --protocol {name}")
    values = asdict(arrived.settings) | asdict(arrived.algorithm)
    told = protocol(name).lines(algorithm)
    assert told
    for option, line in told.items():
        assert values[option] == line.value, option
        assert SOURCE.match(line.source), (option, line.source)
    assert arrived.protocol.known


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_option_under_a_condition_is_one_of_ours(name):
    parts = {option for flag in FLAGS for option in [flag.name, *flag.options()]}
    settings = {each.name for each in fields(Settings)}
    for conditions, more in protocol(name).when:
        hyper = (
            {each.name for _, kind in ALGORITHMS.items() for each in fields(kind)} if "base" in conditions else set()
        )
        assert set(conditions) <= parts | settings | {"algorithm", "base"}
        assert more
        assert all(SOURCE.match(line.source) for line in more.values())
        assert set(more) <= parts | settings | hyper


def test_what_is_given_goes_before_the_protocol():
    arrived = command("feddyn --protocol=fl-simulator --lr 0.01 --clip-at=gradient --alpha 0.5 --rounds 7")
    settings = arrived.settings
    assert (settings.lr, settings.clip_at, settings.rounds, arrived.algorithm.alpha) == (0.01, "gradient", 7, 0.5)
    assert (settings.clip, settings.seed, settings.weighting) == (10.0, 20, "uniform")


def test_options_of_parts_come_with_their_parts_alone():
    assert command("fedavg --protocol fedsam").parts.chosen() == {}
    arrived = command("fedavg --protocol fedsam --swa --swa-cycle 5 --ascent asam --server-optimizer adam").parts
    assert (arrived.swa.variant, arrived.swa.cycle, arrived.swa.start) == ("official", 5, 0.75)
    assert (arrived.ascent.rho, arrived.ascent.eta) == (0.7, 0.2)
    assert (arrived.server_optimizer.v0, arrived.server_optimizer.tau) == ("corrected", 0.1)
    slip = command("feddyn --protocol fedman --man 0.1 --data tiny_imagenet").parts.man
    assert (slip.half, slip.layers, slip.variance) == (True, ("0", "4", "13", "15"), ("15",))
    assert command("fedsam --protocol fedman --man 0.1 --data tiny_imagenet").parts.man.variance == ()
    assert command("fedavg --protocol fedman --man 0.1").parts.man.layers == ("*",)


def test_what_belongs_to_a_data_set_comes_with_it_alone():
    digits, cifar = command("fedavg --protocol fedsam --data digits"), command("fedavg --protocol fedsam")
    assert (digits.settings.normalise, digits.settings.model) == ("auto", "digits_mlp")
    assert (cifar.settings.augment, cifar.settings.model) == ("flip-crop", "lenet_fed")
    assert command("fedlesam --protocol fedlesam --base feddyn").algorithm.alpha == 0.1


TINY = "--data digits --model digits_mlp --clients 6 --per-round 3 --rounds 1 --local-epochs 1 --quiet --device cpu"


def test_config_json_has_the_values_and_runs_on_without_the_protocol(tmp_path):
    out = tmp_path / "run"
    assert main(f"fedprox --protocol fl-simulator {TINY} --out {out}".split()) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["protocol"] == "fl-simulator"
    told = protocol("fl-simulator").values("fedprox", None, data="digits")
    given = ("data", "model", "clients", "per_round", "rounds", "local_epochs")
    recorded = config["settings"] | config["algorithm"]
    assert {name: recorded[name] for name in told if name not in given} == {
        name: value for name, value in told.items() if name not in given
    }
    again = []
    for name, value in (config["settings"] | {"mu": config["algorithm"]["mu"]}).items():
        if value is not None and not isinstance(value, bool):
            again += [f"--{name.replace('_', '-')}", str(value)]
    assert main(["fedprox", *again, "--quiet", "--resume", "--rounds", "2", "--out", str(out)]) == 0
    config = json.loads((out / "config.json").read_text())
    assert (config["settings"]["rounds"], config["protocol"]) == (2, "fl-simulator")


def test_show_prints_every_value_with_its_source_and_trains_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["feddc", "--protocol", "feddc", "--show", "--lr", "0.3"]) == 0
    printed = capsys.readouterr().out
    rows = {row.split()[0]: row for row in printed.splitlines() if row.startswith("--") and "---" not in row}
    for option, line in protocol("feddc").lines("feddc").items():
        row = rows[f"--{option.replace('_', '-')}"]
        assert line.source in row
        assert option == "lr" or str(line.value) in row.split()
    assert "given here; 0.1 in example_code_cifar10.py:74" in rows["--lr"]
    assert "0.3" in rows["--lr"].split()
    assert "https://github.com/gaoliang13/FedDC at 13440c2" in printed
    assert not list(tmp_path.iterdir())


def test_an_algorithm_that_the_code_has_not_gets_what_all_of_them_have(tmp_path, capsys):
    main(f"fedasam --protocol adabest {TINY} --out {tmp_path / 'run'}".split())
    assert "the code of adabest has no fedasam (it has adabest, fedavg, fedprox, feddyn)" in capsys.readouterr().err
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["clip"], settings["batch_size"]) == (1000.0, 32)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("fedavg --protocol fedsan", "unknown protocol 'fedsan': did you mean 'fedsam'?"),
        ("fedavg --protocol --show", "--protocol needs a name"),
        ("fedavg --show", "--show is of --protocol"),
    ],
)
def test_mistakes_are_refused_in_a_sentence(line, sentence):
    with pytest.raises(FedscapeError, match=re.escape(sentence)):
        main(line.split())


def test_a_condition_may_ask_for_any_value_and_for_several_options():
    mine = Protocol(
        "mine", "", "", lines(lr=(0.1, "a.py:1")), {"fedavg": lines(clip=(2.0, "a.py:2"))},
        (
            ({"swa": "", "lr": "0.1"}, lines(swa_cycle=(3, "a.py:3"))),
            ({"algorithm": "fedavg"}, lines(seed=(5, "a.py:4"))),
        ),
    )  # fmt: skip
    assert [*mine.lines("fedavg", {"swa": ""})] == ["lr", "clip", "swa_cycle", "seed"]
    assert [*mine.lines("fedprox", {"swa": "", "lr": "0.2"})] == ["lr"]
    assert expanded("fedavg", ["--lr", "0.1"]) is None
    assert given_options(["--mu", "-1", "--swa", "-h"]) == {"mu": "-1", "swa": ""}
