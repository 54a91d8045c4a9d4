"""Named combinations: every option of base and parts, every method of the base, runs of before."""

import inspect
import json
import pickle
from dataclasses import dataclass, fields

import pytest
import torch

from landscape import Checkpoint, FedscapeError
from landscape.terminal.command import run
from tests.trainers.federations import federation
from trainers import (
    ALGORITHMS,
    LESAM,
    SAM,
    Algorithm,
    FedAvg,
    FedCM,
    FedLESAM,
    FedNova,
    FedProx,
    FedSAM,
    FedWMSAM,
    MoFedSAM,
    Parts,
    Scaffold,
    Settings,
    train,
)
from trainers.__main__ import main, read
from trainers.algorithms import combinations, newer_combinations
from trainers.algorithms.combination import Combination, Option, named

NAMED = [name for name, kind in ALGORITHMS.items() if hasattr(kind, "sources")]


def test_the_tables_have_seventeen_rows_and_all_are_commands():
    both = {**vars(combinations), **vars(newer_combinations)}
    rows = {kind.__name__.lower() for kind in both.values() if hasattr(kind, "sources")}
    assert rows == set(NAMED)
    assert len(rows) == 17


def distinct(field):
    """A value that is no default: of a number within every rule, of a choice the second."""
    choices = {"structure": "channel", "v0": "zero", "sizes": "relative", "average": "models", "proximal": "half"}
    return {**choices, "strength": "adaptive"}.get(field.name, 0.123)


@pytest.mark.parametrize("name", NAMED)
def test_every_field_of_base_and_parts_is_an_option_that_arrives_there(name):
    kind = ALGORITHMS.get(name)
    given = {each.name: distinct(each) for each in fields(kind)}
    algorithm = kind(**given)
    owners = {part: getattr(algorithm, part) for part in kind.kinds if part != "base"} | {
        "base": algorithm.base_algorithm
    }
    for part, owner in owners.items():
        for each in fields(owner):
            assert getattr(owner, each.name) == distinct(each) or (part, each.name) == ("base", "server_lr"), each.name
    if "server_lr" in {each.name for each in fields(kind.kinds["base"])}:
        doubled = any(each.name == "lr" for each in fields(kind.kinds.get("server_optimizer", FedAvg)))
        assert algorithm.base_algorithm.server_lr == (1.0 if doubled else 0.123)  # else the part's, by this name
    line = [f"--{option.replace('_', '-')}={value}" for option, value in given.items()]
    assert read([name, *line]).algorithm == algorithm


@pytest.mark.parametrize("name", [*NAMED, "fedlesam"])
def test_it_has_every_option_of_its_base(name):
    algorithm = ALGORITHMS.get(name)()
    theirs = set(algorithm.base_algorithm.hyper_parameters())
    renamed = {"mofedsam": {"alpha"}, "fedswa": {"server_lr"}}.get(name, set())
    assert theirs - renamed <= set(algorithm.hyper_parameters())


def test_fedlesam_has_the_options_of_all_its_bases():
    bases = ("fedavg", "scaffold", "feddyn")
    theirs = {each.name for base in bases for each in fields(ALGORITHMS.get(base))}
    repositories = {"sizes", "proximal"}  # of other authors' code than FedLESAM's
    assert {each.name for each in fields(FedLESAM)} == {"rho", "base", "variant"} | theirs - repositories


def test_every_method_of_an_algorithm_is_the_bases():
    parts = {"ascent", "server_optimizer", "adversary", "local_schedule", "relaxed"}
    own = {*parts, "bias", "proximal_weight", "hyper_parameters", "upgraded", "require"}
    members = inspect.getmembers(Algorithm, lambda each: inspect.isfunction(each) or isinstance(each, property))
    methods = {name for name, _ in members if not name.startswith("_")}
    assert methods - own <= vars(Combination).keys()

    calls = []

    class Loud:
        def __getattr__(self, name):
            return lambda *arguments: calls.append((name, arguments))

    class OnLoud(Combination):
        base_algorithm = Loud()

    for name in methods - own:
        arguments = tuple(range(len(inspect.signature(getattr(Algorithm, name)).parameters) - 1))
        getattr(OnLoud(), name)(*arguments)
        assert calls.pop() == (name, arguments)


def test_what_no_method_says_is_the_bases_too():
    class OnWMSAM(Combination):
        base_algorithm = FedWMSAM()

    assert OnWMSAM().on_server == {"c"}
    assert FedNova(mu=0.3).proximal_weight == FedProx(0.3).proximal_weight == 0.3
    assert FedNova(mu=0.3, proximal="half").proximal_weight == FedProx(0.3, "half").proximal_weight == 0.15


def test_they_are_ordinary_classes():
    algorithm = MoFedSAM(0.3, server_lr=0.5)
    assert pickle.loads(pickle.dumps(algorithm)) == algorithm
    assert repr(algorithm) == "MoFedSAM(rho=0.3, beta=0.1, server_lr=0.5)"
    assert algorithm.base_algorithm == FedCM(0.1, 0.5)
    assert isinstance(algorithm, MoFedSAM)
    assert algorithm != MoFedSAM(0.3)
    with pytest.raises(AttributeError):
        algorithm.rho = 0.4


def test_a_row_with_an_option_of_nobody_is_refused():
    with pytest.raises(TypeError, match="no part has the field radius"):
        named("X", FedAvg, {"ascent": SAM}, {"radius": Option(0.1, "")}, paper="", text="")


def test_the_option_of_the_issue_is_taken(tmp_path):
    line = ["fedsam", "--server-lr", "0.5", "--rounds", "1", "--clients", "6", "--quiet", "--out", str(tmp_path)]
    assert run(lambda: main(line)) == 0
    asked = json.loads((tmp_path / "config.json").read_text())["algorithm"]
    assert asked == {"name": "fedsam", "rho": 0.05, "server_lr": 0.5}


SHORT = {"clients": 8, "per_round": 3, "local_steps": 2, "device": "cpu"}
BEFORE = [
    (FedSAM(0.3), {"name": "fedsam", "rho": 0.3}),
    (FedLESAM(0.3), {"name": "fedlesam", "rho": 0.3, "base": "fedavg", "alpha": 0.1}),
    (FedLESAM(0.3, "feddyn", 0.2), {"name": "fedlesam", "rho": 0.3, "base": "feddyn", "alpha": 0.2}),
]


@pytest.mark.parametrize(
    ("algorithm", "recorded"), BEFORE, ids=lambda value: repr(value) if "FedL" in repr(value) else ""
)
def test_a_run_recorded_without_the_new_options_is_resumed(algorithm, recorded, tmp_path):
    whole = train(algorithm, Settings(rounds=3, **SHORT), out=tmp_path / "whole")
    train(algorithm, Settings(rounds=2, **SHORT), out=tmp_path / "part")
    config = json.loads((tmp_path / "part" / "config.json").read_text())
    (tmp_path / "part" / "config.json").write_text(json.dumps({**config, "algorithm": recorded}))
    resumed = train(algorithm, Settings(rounds=3, **SHORT), out=tmp_path / "part", resume=True)
    ends = [Checkpoint.load(each.checkpoint).parameters for each in (whole, resumed)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_another_value_of_a_new_option_is_another_run(tmp_path):
    train(FedLESAM(0.3), Settings(rounds=1, **SHORT), out=tmp_path)
    with pytest.raises(FedscapeError, match=r"server_lr was 1\.0 and is 0\.5"):
        train(FedLESAM(0.3, server_lr=0.5), Settings(rounds=2, **SHORT), out=tmp_path, resume=True)
    with pytest.raises(FedscapeError, match="base was fedavg and is scaffold"):
        train(FedLESAM(0.3, "scaffold"), Settings(rounds=2, **SHORT), out=tmp_path, resume=True)


def test_two_that_keep_a_tensor_of_one_name_are_refused():
    @dataclass(frozen=True)
    class Keeping(Scaffold):
        def client_state(self, w):
            return {**super().client_state(w), "old": w}

    with pytest.raises(FedscapeError, match="Keeping and LESAM both keep old on the clients: rename one"):
        federation(Keeping(), Parts(ascent=LESAM()))
