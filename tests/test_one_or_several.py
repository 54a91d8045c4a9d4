"""Where a function takes several checkpoints, runs or names, one alone stands for a list of it, not for its letters."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis import measure_corruptions, measure_hessian, measure_surface
from analysis.accuracy import client_accuracies
from analysis.hessian.clients import client_curves
from analysis.hessian.layers import layer_eigenvalues
from analysis.source import Source
from figures.reporting import opened
from figures.statistics import curve_over_seeds, to_target
from landscape import Checkpoint, Landscape
from landscape.activations import MAN
from trainers import FedAvg, Settings, train
from trainers.runs import read_runs
from trainers.tables import report, warnings

CPU = {"device": "cpu", "samples": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = Settings(rounds=2, clients=2, per_round=2, local_steps=1, device="cpu", save_every=1)
    return train(FedAvg(), settings, out=tmp_path_factory.mktemp("run")).path


FORMS = {"text": str, "path": Path, "checkpoint": Checkpoint.load}


@pytest.mark.parametrize("form", FORMS)
class TestOneCheckpoint:
    def test_of_corruptions_with_one_corruption_and_one_severity(self, form, run):
        one = FORMS[form](run / "ckpt.pt")
        alone = measure_corruptions(one, "contrast", 2, generate=True, **CPU)
        listed = measure_corruptions([one], ["contrast"], [2], generate=True, **CPU)
        assert (alone.corruptions, alone.severities) == (("contrast",), (2,))
        np.testing.assert_array_equal(alone.loss, listed.loss)

    def test_of_clients_accuracies(self, form, run):
        one = FORMS[form](run / "ckpt.pt")
        alone, listed = client_accuracies(one, [0], device="cpu"), client_accuracies([one], [0], device="cpu")
        assert alone.to_dict() == listed.to_dict()
        assert alone.rounds.tolist() == [2]

    def test_of_clients_curves(self, form, run):
        one = FORMS[form](run / "ckpt.pt")
        told = []
        alone = client_curves(one, [0], told=lambda done, of: told.append((done, of)), **CPU)
        assert told == [(1, 1)]
        assert alone.rounds.tolist() == [2]

    def test_beside_a_surfaces_subject(self, form, run):
        first, second = run / "rounds" / "00000.pt", FORMS[form](run / "ckpt.pt")
        alone, listed = (measure_surface(first, 3, others=o, plane="line", **CPU) for o in (second, [second]))
        np.testing.assert_array_equal(alone.loss, listed.loss)


@pytest.mark.parametrize("form", [str, Path])
def test_one_run_is_read_and_reported(form, run):
    (recorded,) = read_runs(form(run))
    assert recorded.rounds == 2
    (origin,) = opened(form(run), Source(device="cpu"))
    assert origin.checkpoint.round == 2


def test_one_recorded_run_is_tabled(run):
    (recorded,) = read_runs([run])
    assert report(recorded) == report([recorded])
    assert warnings(replace(recorded, repeated=3)) == warnings([replace(recorded, repeated=3)]) != []
    assert curve_over_seeds(recorded).mean.tolist() == curve_over_seeds([recorded]).mean.tolist()
    assert to_target(recorded, 0.5) == to_target([recorded], 0.5)


def test_one_pattern_chooses_what_it_matches_alone(run):
    """As patterns its letters would be ``*``, which chooses everything, and others that match nothing."""
    whole = Landscape.from_checkpoint(run / "ckpt.pt", **CPU)
    biases = sum(entry.stop - entry.start for entry in whole.space.entries if entry.name.endswith("bias"))
    found = measure_hessian(whole, 1, block="*.bias", trace=False)
    assert found.parameters == biases
    assert found.block == ("*.bias",)
    first = next(iter(whole.space.layers()))
    assert layer_eigenvalues(whole, layers=first).layers == (first,)
    assert MAN(0.1, "*.1") == MAN(0.1, ("*.1",))
