"""Nodes: what changes their keys, and what depends on what."""

from dataclasses import replace
from pathlib import Path

import pytest

from figures.graph import FileModel, Measure, RunModel, runs_of
from figures.graph.kinds import KINDS
from figures.graph.nodes import with_runs
from landscape import FedscapeError
from tests.figures.graph.small import planned, spectrum
from trainers import FedAvg, FedSAM
from trainers.runs import PlannedRun, RunStore

RUN = planned()
LAST = RunModel(RUN)


def test_the_key_of_a_measurement_is_pinned():
    """Whoever changes it on purpose raises the kind's schema, or everybody's measurements are made again."""
    assert Measure("hessian", (FileModel(Path("a.pt"), "0" * 16),), {"top": 5}).key == "3376153a13f871b0"


@pytest.mark.parametrize(
    "other",
    [
        Measure("evaluation", (LAST,), {"top": 5}),
        Measure("hessian", (LAST,), {"top": 6}),
        Measure("hessian", (LAST,), {"top": 5, "density": True}),
        Measure("hessian", (RunModel(RUN, 4),), {"top": 5}),
        Measure("hessian", (RunModel(RUN, "swa"),), {"top": 5}),
        Measure("hessian", (RunModel(RUN, client=2),), {"top": 5}),
        Measure("hessian", (LAST, RunModel(RUN, 4)), {"top": 5}),
        Measure("hessian", (RunModel(planned(seed=1)),), {"top": 5}),
        Measure("hessian", (FileModel(Path("a.pt"), "a"),), {"top": 5}),
    ],
)
def test_whatever_decides_the_result_changes_the_key(other):
    assert other != Measure("hessian", (LAST,), {"top": 5})
    assert other.name != Measure("hessian", (LAST,), {"top": 5}).name


def test_neither_order_of_options_nor_place_of_a_file_changes_the_key():
    options = {"top": 5, "density": True}
    assert Measure("hessian", (LAST,), options) == Measure("hessian", (LAST,), dict(reversed(options.items())))
    files = [FileModel(Path(name), "a") for name in ("here/a.pt", "there/b.pt")]
    assert Measure("evaluation", (files[0],)) == Measure("evaluation", (files[1],))


def test_a_kinds_schema_changes_the_keys_of_that_kind_only(monkeypatch):
    def both():
        return Measure("hessian", (LAST,)).key, Measure("evaluation", (LAST,)).key

    before = both()
    monkeypatch.setitem(KINDS, "hessian", replace(KINDS["hessian"], schema=2))
    after = both()
    assert (before[0] == after[0], before[1] == after[1]) == (False, True)


def test_a_changed_hyper_parameter_changes_exactly_what_depends_on_it():
    def graph(rho):
        plain, sharp = planned(FedAvg()), planned(FedSAM(rho))
        both = Measure("surface", (RunModel(plain), RunModel(sharp)), {"plane": "line"})
        return {
            "plain": plain,
            "sharp": sharp,
            "λ of plain": spectrum(plain),
            "λ of sharp": spectrum(sharp),
            "both": both,
        }

    before, after = graph(0.1), graph(0.2)
    assert {name for name in before if before[name] != after[name]} == {"sharp", "λ of sharp", "both"}


def test_a_measurement_needs_the_runs_of_its_models_once():
    other = planned(seed=1)
    measure = Measure("surface", (LAST, RunModel(RUN, 4), RunModel(other), FileModel(Path("a"), "a")))
    assert runs_of(measure) == [RUN, other]
    assert runs_of(RUN) == []
    assert with_runs([measure, spectrum(RUN), other]) == [RUN, other, measure, spectrum(RUN)]


def test_models_lie_where_their_run_keeps_them():
    runs = RunStore("store")
    folder = Path("store") / RUN.name
    assert RunModel(RUN).path(runs) == folder / "ckpt.pt"
    assert RunModel(RUN, "swa").path(runs) == folder / "swa.pt"
    assert RunModel(RUN, 4).path(runs) == folder / "rounds" / "00004.pt"
    assert RunModel(RUN, "rounds").path(runs) == folder
    assert RunModel(RUN, client=3).path(runs) == folder / "ckpt.pt@3"
    assert FileModel(Path("a.pt"), "a").path(runs) == Path("a.pt")


def test_a_kind_that_there_is_not_and_no_model_are_refused():
    with pytest.raises(FedscapeError, match="there is no measurement 'hesian': take hessian, surface"):
        Measure("hesian", (LAST,))
    with pytest.raises(FedscapeError, match="give at least one"):
        Measure("hessian", ())


def test_a_planned_run_is_no_measurement():
    assert PlannedRun(FedAvg()) != Measure("hessian", (LAST,))
