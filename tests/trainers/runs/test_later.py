"""Options that came after runs were kept: neutral ones leave keys and directories as they were, others do not."""

import json
from dataclasses import fields, replace

import pytest

from trainers import ALGORITHMS, MAN, SWA, FedAvg, FedGloSS, Parts, Settings, train
from trainers.parts.server_optimizers import Adagrad, Adam, Yogi
from trainers.runs import PlannedRun
from trainers.runs.later import LATER

KINDS = {"settings": Settings, "swa": SWA, "man": MAN, "adam": Adam, "adagrad": Adagrad, "yogi": Yogi}


@pytest.mark.parametrize("whose", LATER)
def test_what_is_left_out_is_an_option_at_its_default(whose):
    kind = KINDS.get(whose) or ALGORITHMS.get(whose)
    defaults = {each.name: each.default for each in fields(kind)}
    for name, value in LATER[whose].items():
        assert defaults[name] == value, name


def test_an_option_that_is_not_neutral_is_part_of_the_key():
    parts = Parts(swa=SWA(), man=MAN(0.1), server_optimizer=Adam())
    plain = PlannedRun(FedGloSS(), Settings(), replace(parts, server_optimizer=None))
    others = [
        replace(plain, algorithm=FedGloSS(variant="official")),
        replace(plain, settings=Settings(norm_eps=1e-7)),
        replace(plain, settings=Settings(clip_eps=1e-6)),
        replace(plain, settings=Settings(dual_steps="mean")),
        replace(plain, settings=Settings(dual_lr="first")),
        replace(plain, parts=replace(plain.parts, swa=SWA(variant="official"))),
        replace(plain, parts=replace(plain.parts, man=MAN(0.1, variance=("0",)))),
    ]
    assert len({run.key for run in (plain, *others)}) == len(others) + 1
    assert "variance" not in json.dumps(plain.content)


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    """Its config.json has none of the later options."""
    settings = Settings(rounds=4, clients=4, per_round=2, local_steps=1, device="cpu")
    parts = Parts(swa=SWA(0.25, 2), man=MAN(0.1))
    train(FedAvg(), settings, parts, out=tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in LATER["settings"]:
        del config["settings"][name]
    del config["parts"]["swa"]["variant"], config["parts"]["man"]["variance"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert train(FedAvg(), settings, parts, out=tmp_path, resume=True).status == "finished"
