"""Labelled alignment: every number of every part is at its run, round, clients and place."""

from dataclasses import fields

import numpy as np
import pytest

from analysis.alignment.curvature import Curvature
from analysis.alignment.gradients import Gradients
from analysis.alignment.local_models import LocalModels
from analysis.alignment.options import Asked
from analysis.alignment.perturbations import Perturbations
from analysis.alignment.plain import Plain
from analysis.alignment.results import Alignment, RunAlignment
from analysis.alignment.rounds import TITLES, RoundAlignment
from figures import labelled
from figures.labels.alignment import _OWN_AXES, _UNITS, unit_of

pytest.importorskip("xarray")


def drawn(kind: type[Plain], seed: int, n: int) -> Plain:
    """A part with random numbers."""
    random, sizes = np.random.default_rng(seed), {"n": n, "k": 2}
    values = {}
    for field in fields(kind):
        shape = [sizes.get(letter) or int(letter) for letter in kind.letters.get(field.name, "")]
        values[field.name] = random.uniform(0.5, 1.0, shape) if shape else float(random.uniform(0.5, 1.0))
    if "diverged" in values:
        values["diverged"] = np.zeros(n)
    return kind(**values)


def one(number: int, clients: tuple[int, ...], local: tuple[int, ...] = ()) -> RoundAlignment:
    n = len(clients)
    given = {
        "round": number, "clients": clients, "population": 9, "weighted": "of the test",
        "shares": np.full(n, 1 / n), "histograms": [],
        "local_clients": local, "missing": {}, "gradients": drawn(Gradients, number, n),
        "perturbations": drawn(Perturbations, number, n), "curvature": drawn(Curvature, number, n),
        "local": drawn(LocalModels, number, len(local)) if local else None,
    }  # fmt: skip
    return RoundAlignment(**{field.name: given.get(field.name) for field in fields(RoundAlignment)})


@pytest.fixture(scope="module")
def measured():
    first = RunAlignment("fedavg", "runs/fedavg", (one(2, (1, 4, 7), (1, 7)), one(4, (0, 4, 7))), {})
    second = RunAlignment("fedsam", "runs/fedsam", (one(4, (1, 4, 7)),), {2: "was not kept"})
    return Alignment((first, second), Asked(), "cpu", "float32")


def test_quantities_have_both_errors_by_run_round_and_name(measured):
    found = labelled(measured)["quantities"]
    for run in measured.runs:
        for part in run.rounds:
            for q in part.quantities():
                here = found.sel(run=run.label, round=part.round, quantity=q.name)
                said = [here[name].item() for name in ("value", "sampling_error", "measurement_error", "low", "high")]
                np.testing.assert_array_equal(said, [q.mean.value, q.mean.stderr, q.error, q.mean.low, q.mean.high])
                assert here["title"].item() == q.title
    assert np.isnan(found["value"].sel(run="fedsam", round=2)).all()
    assert found["unit"].sel(quantity="lambda_max").item() == "loss / parameter²"


def test_matrices_and_vectors_are_at_their_clients(measured):
    run = labelled(measured)["runs/fedavg"]
    early, late = measured.runs[0].rounds
    gains = run["perturbations"]["gains"]
    assert gains.dims == ("round", "client", "client_other")
    assert gains.sel(round=2, client=4, client_other=7) == early.perturbations.gains[1, 2]
    assert np.isnan(gains.sel(round=2, client=0, client_other=4)), "client 0 was not measured then"
    assert run["gradients"]["norms"].sel(round=4, client=0) == late.gradients.norms[0]
    assert run["gradients"]["loss"].sel(round=4) == late.gradients.loss
    angles = run["curvature"]["angles"]
    assert angles.sel(round=4, client=0, client_other=7, rank=2) == late.curvature.angles[0, 2, 1]
    assert (angles.attrs["units"], gains.attrs["units"]) == ("degree", "nat")
    assert run["share"].sel(round=2, client=4) == pytest.approx(1 / 3)


def test_local_models_are_by_their_own_clients_place_and_measure(measured):
    run = labelled(measured.runs[0])
    early = measured.runs[0].rounds[0].local
    own = run["local"]["own"]
    assert own.sel(round=2, client=7, place="aggregate", measure="trace") == early.own[1, 2, 4]
    assert np.isnan(own.sel(round=2, client=4)).all(), "its local model was not measured"
    assert np.isnan(own.sel(round=4)).all(), "no local models then"
    assert run["local"]["unit"].sel(measure="loss").item() == "nat"
    assert run["local"]["distances"].sel(round=2, client=1, end="received") == early.distances[0, 0]


def test_a_round_alone_and_two_runs_of_one_name(measured):
    alone = labelled(measured.runs[1].rounds[0])
    assert alone["gradients"]["norm"].sel(round=4) == measured.runs[1].rounds[0].gradients.norm
    twice = labelled(Alignment((measured.runs[0], measured.runs[0]), Asked(), "cpu", "float32"))
    assert list(twice["runs"].children) == ["fedavg (1)", "fedavg (2)"]


UNITLESS = {
    "accuracies", "accuracy", "cosines", "with_global", "along_global", "found", "found_stderr", "lengthened_found",
    "mean_length", "converged", "global_converged", "space_errors", "global_space_error", "overlaps",
    "overlap_errors", "with_global_errors", "carried", "carried_errors", "heterogeneity", "heterogeneity_errors",
    "mean_heterogeneity", "mean_heterogeneity_error", "products", "diverged", "with_own", "with_ascent", "agreement",
    "agreement_stderr",
}  # fmt: skip
OF_SEVERAL_UNITS = {"own", "own_errors", "everybody", "everybody_errors", "server"}


def test_every_number_of_every_part_has_a_unit_that_somebody_thought_of():
    for kind in Plain.__subclasses__():
        names = {field.name for field in fields(kind)}
        assert names <= {*_UNITS, *UNITLESS, *OF_SEVERAL_UNITS}, kind
        digits = {name for name in names if any(letter.isdigit() for letter in kind.letters.get(name, ""))}
        assert digits <= {*_OWN_AXES, *OF_SEVERAL_UNITS}, kind
    assert {unit_of(name) for name in TITLES} == {"nat", "1", "loss / parameter²", "parameter"}
