"""Keyword arguments reach the group that has a field of their name, and no other."""

from dataclasses import FrozenInstanceError, dataclass

import pytest

from analysis.arguments import grouped


@dataclass(frozen=True)
class Where:
    device: str = "auto"
    samples: int | None = None


@dataclass(frozen=True)
class Effort:
    tolerance: float = 1e-3
    steps: int = 40


def test_each_option_changes_its_group_alone():
    where, effort = grouped("measure", {"samples": 5, "tolerance": 0.1}, (Where(), Effort()))
    assert (where, effort) == (Where(samples=5), Effort(tolerance=0.1))


def test_an_option_goes_before_the_group_that_was_given():
    given = Where("cpu", 7), Effort(steps=3)
    where, effort = grouped("measure", {"samples": None, "steps": 4}, given)
    assert (where, effort) == (Where("cpu"), Effort(steps=4))
    assert given == (Where("cpu", 7), Effort(steps=3)), "the values of the caller are as they were"
    with pytest.raises(FrozenInstanceError):
        where.samples = 1


def test_without_options_the_groups_are_as_given():
    assert grouped("measure", {}, (Where("cpu"), Effort())) == (Where("cpu"), Effort())
    assert grouped("measure", {}, ()) == ()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sample", "did you mean 'samples'?"),
        ("tolerence", "did you mean 'tolerance'?"),
        ("zzz", "there are device, samples, tolerance, steps"),
    ],
)
def test_an_unknown_option_is_refused_with_what_there_is(name, hint):
    with pytest.raises(TypeError) as error:
        grouped("measure", {"device": "cpu", name: 1}, (Where(), Effort()))
    assert str(error.value) == f"measure() has no option '{name}': {hint}"
