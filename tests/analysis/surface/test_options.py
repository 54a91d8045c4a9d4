"""The groups of options, single options by name or position, and the command line ask for the same measurement."""

from dataclasses import astuple, fields

import numpy as np
import pytest
import torch
import tyro

from analysis.source import SurfaceSource
from analysis.surface import measure_surface
from analysis.surface.__main__ import Command
from analysis.surface.options import Effort, Grid, Output, Quantities, Request
from analysis.surface.planes import random_plane
from landscape import FedscapeError
from landscape.activations import MAN
from tests.analysis.surface.test_store import assert_same, save_checkpoint
from tests.analysis.surface.test_surface import bowl


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("run") / "ckpt.pt")


def asked(*arguments: str) -> Command:
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    return tyro.cli(Command, args=["ckpt.pt", *arguments], config=config)


def test_names_positions_and_groups_ask_for_one_surface(checkpoint):
    named = measure_surface(
        checkpoint, points=(4, 3), span=0.5, seed=2, split="test", samples=40, device="cpu", batch_size=16,
        test=False, weight_decay=0.1, biases=True, exact=True,
    )  # fmt: skip
    by_position = measure_surface(
        checkpoint, (4, 3), 0.5, 2, None, "test", 40, None, "cpu", None,
        batch_size=16, weight_decay=0.1, biases=True, exact=True,
    )  # fmt: skip
    groups = measure_surface(
        checkpoint,
        source=SurfaceSource(split="test", samples=40, device="cpu", batch_size=16),
        grid=Grid(points=(4, 3), span=0.5, seed=2, biases=True),
        quantities=Quantities(weight_decay=0.1),
        effort=Effort(exact=True),
    )
    assert_same(by_position, named)
    assert_same(groups, named)
    assert by_position.provenance == groups.provenance == named.provenance
    assert named.provenance.normalisation == "filter, biases too"


def test_an_option_by_name_goes_before_its_group():
    surface = measure_surface(bowl(), 3, grid=Grid(points=9, span=0.5, seed=4), span=2.0)
    assert (surface.provenance.points, surface.provenance.span, surface.provenance.seed) == (3, 2.0, 4)


def test_orthogonal_is_the_opposite_of_as_drawn():
    function = bowl()
    for options, orthogonal in (({}, True), ({"orthogonal": True}, True), ({"orthogonal": False}, False)):
        surface = measure_surface(function, 3, **options)
        assert surface.provenance.plane == random_plane(function, orthogonal=orthogonal).digest()
    as_drawn = measure_surface(function, 3, as_drawn=True)
    assert as_drawn.provenance.plane == surface.provenance.plane


def test_a_penalty_or_its_strength_may_be_given(checkpoint):
    options = {"points": 2, "samples": 20, "batch_size": 32}
    first, second = (measure_surface(checkpoint, **options, **given) for given in ({"penalty": MAN(0.1)}, {"man": 0.1}))
    assert first.provenance == second.provenance
    np.testing.assert_array_equal(first.loss, second.loss)
    halved = measure_surface(checkpoint, **options, penalty=MAN(0.1, half=True))
    assert halved.provenance.regulariser == "0.1/2 MAN"
    assert Quantities().penalty is None
    assert measure_surface(checkpoint, **options, penalty=None).provenance.regulariser == ""


@pytest.mark.parametrize(
    ("positional", "options", "sentence"),
    [
        ((), {"toleranse": 0.1}, r"measure_surface\(\) has no option 'toleranse': did you mean 'tolerance'\?"),
        ((), {"out": "s.h5"}, r"measure_surface\(\) has no option 'out'"),
        ((None,) * 4 + ("train",), {"split": "test"}, "got several values for 'split'"),
        ((None,) * 4 + ("train", 5, None, "cpu", None, 1), {}, "at most 10 arguments"),
    ],
)
def test_an_option_that_there_is_not_is_a_type_error(positional, options, sentence):
    with pytest.raises(TypeError, match=sentence):
        measure_surface(bowl(), *positional, **options)


@pytest.mark.parametrize(
    ("given", "size"),
    [(5, (5, 5)), ((5,), (5, 5)), ([3, 4], (3, 4)), ((2, 1000), (2, 1000)), (Grid().points, (51, 51))],
)
def test_a_grid_has_one_number_of_points_or_two(given, size):
    assert Grid(points=given).size == size


@pytest.mark.parametrize("points", [1, (3, 1001), (), (2, 2, 2)])
def test_a_grid_of_other_numbers_is_refused(points):
    with pytest.raises(FedscapeError, match=r"give 2 to 1000|numbers of points"):
        Request(SurfaceSource(), Grid(points=points), Quantities(), Effort()).check()


def test_the_command_line_asks_for_what_the_function_does_by_itself():
    command = asked()
    assert (command.grid, command.quantities, command.effort) == (Grid(), Quantities(), Effort())
    assert (command.output, command.source) == (Output(), SurfaceSource())


FLAGS = (
    "--plane pca --points 3 4 --span 0.5 --seed 1 --seeds 2 --normalisation layer --biases --as-drawn "
    "--directions d.pt --test --weight-decay 0.1 --man 0.2 --batchnorm frozen --lambda-max --bf16 --tolerance 0.3 "
    "--checks 7 --exact --workers 2"
)


def test_every_flag_reaches_its_field():
    command = asked(*FLAGS.split())
    given = [*astuple(command.grid), *astuple(command.quantities), *astuple(command.effort)]
    defaults = [*astuple(Grid()), *astuple(Quantities()), *astuple(Effort())]
    assert len(given) == sum(len(fields(group)) for group in (Grid, Quantities, Effort))
    assert not any(one == other for one, other in zip(given, defaults, strict=True))
    assert command.quantities.penalty == MAN(0.2)


def test_a_plane_of_the_callers_own_is_measured_as_it_is():
    function = bowl()
    plane = random_plane(function, seed=7)
    surface = measure_surface(function, 3, plane=plane)
    assert surface.provenance.plane == plane.digest()
    with pytest.raises(FedscapeError, match="a plane of your own has its models and directions"):
        measure_surface(function, 3, plane=plane, directions="d.pt")


@pytest.mark.parametrize(
    "options", [{"device": torch.device("cpu")}, {"clients": []}, {"batch_size": 5}, {"stream": False}, {"man": 0.1}]
)
def test_a_landscape_takes_no_option_that_it_has_already(options):
    with pytest.raises(FedscapeError, match="a Landscape brings its data"):
        measure_surface(bowl(), 3, **options)


def test_a_landscape_may_say_which_split_it_is_of():
    surface = measure_surface(bowl(), 3, split="test")
    assert surface.provenance.split == "test"
