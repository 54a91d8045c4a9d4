"""The papers' runs in the form of their authors' code: what is taken from the protocols, and what stays."""

from dataclasses import replace

import pytest

from figures.recipes import Asked, Order, man
from figures.recipes.fedsmoo import FEDSMOO
from figures.recipes.flat_minima import FLAT_MINIMA
from landscape import FedscapeError
from trainers.runs.planned import PlannedRun

SLIP = (("0", "4", "13", "15"), ("15",))


def run(paper, item, *entry, **choices):
    """The first run of a table's entry at the paper's scale."""
    made = paper.recipes[item].content(Asked("paper", choices=choices))
    return next(node for node in made.entries[entry].nodes if isinstance(node, PlannedRun))


def test_fedsmoos_runs_have_fl_simulators_arithmetic():
    settings = run(FEDSMOO, "T1", "SCAFFOLD 10%-100", "C10 Dir0.1").settings
    assert (settings.clip_at, settings.clip_eps, settings.norm_eps) == ("linear", 1e-6, 1e-7)
    assert (settings.dual_steps, settings.augment, settings.weighting) == ("first", "flip-crop-half", "uniform")
    assert run(FEDSMOO, "T1", "FedAdam 10%-100", "C10 Dir0.1").algorithm.v0 == "zero"


def test_what_a_recipe_leaves_open_itself_stays_its_own():
    entry = ("FedSMOO 10%-100", "C10 Dir0.1")
    assert run(FEDSMOO, "T1", *entry).algorithm.variant == "paper"
    chosen = run(FEDSMOO, "T1", *entry, variant="official", clip="0", sampling="bernoulli")
    assert (chosen.algorithm.variant, chosen.settings.clip, chosen.settings.sampling) == ("official", 0, "bernoulli")
    plain = run(FEDSMOO, "T1", *entry)
    assert (plain.settings.clip, plain.settings.sampling, plain.settings.lr_decay) == (10.0, "exact", 0.9995)


def test_flat_minimas_swa_is_captured_as_in_their_code_and_as_in_the_paper():
    entry = ("FedSAM+SWA", "CIFAR10 alpha=0 5cl")
    code, paper = (run(FLAT_MINIMA, "T2", *entry, form=form) for form in ("code", "paper"))
    assert (code.parts.swa.variant, paper.parts.swa.variant) == ("official", "paper")
    assert replace(code.parts, swa=paper.parts.swa) == paper.parts
    assert run(FLAT_MINIMA, "T2", *entry) == code


def test_mans_runs_have_relative_sizes_the_slip_and_the_uncleared_gradient():
    order = Order(man.MAN_PAPER.recipes["T1"], Asked("paper"))
    dyn = man.run(order, "FedDyn+MAN", "delta=0.3", "Tiny-ImageNet")
    assert (dyn.algorithm.sizes, dyn.settings.clip_at, dyn.settings.weighting) == ("relative", "linear", "uniform")
    assert (dyn.parts.man.layers, dyn.parts.man.variance) == SLIP
    sam = man.run(order, "FedSAM+MAN", "delta=0.3", "Tiny-ImageNet")
    assert (sam.parts.man.layers, sam.parts.man.variance) == (("*",), ())
    assert man.run(order, "FedSpeed", "iid").algorithm.variant == "uncleared"


def test_smaller_scales_have_the_papers_form_and_another_is_refused():
    small = FEDSMOO.recipes["T1"].content(Asked("small")).entries["SCAFFOLD 10%-100", "C10 Dir0.1"].nodes[0]
    assert small.settings.dual_steps == "own"
    with pytest.raises(FedscapeError, match="choose form=code or form=paper"):
        run(FEDSMOO, "T1", "SCAFFOLD 10%-100", "C10 Dir0.1", form="both")
