"""Choosing by dotted names."""

import pytest

from landscape import FedscapeError
from landscape.name_patterns import matches, matching_names

NAMES = ["conv1.weight", "conv1.bias", "layer1.0.conv1.weight", "layer10.0.conv1.weight", "fc.weight"]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["conv1"], NAMES[:2]),
        (["layer1"], NAMES[2:3]),
        (["layer1*"], NAMES[2:4]),
        (["layer?.0"], NAMES[2:3]),
        (["*conv1"], NAMES[:4]),
        (["fc.weight", "conv1.bias"], [NAMES[1], NAMES[4]]),
        (["*.[wb]*"], NAMES),
        (["*"], NAMES),
    ],
)
def test_modules_layers_and_globs_choose_all_beneath_them_in_the_names_own_order(patterns, found):
    assert matching_names(NAMES, patterns, "parameter") == found
    assert [name for name in NAMES if matches(name, patterns)] == found


@pytest.mark.parametrize("pattern", ["conv", "weight", "Conv1", "layer1.", "", "conv1.weight.x"])
def test_a_pattern_that_matches_nothing_is_refused_with_what_there_is(pattern):
    with pytest.raises(FedscapeError, match=rf"^no parameter matches '{pattern}': there are conv1.weight, conv1.bias"):
        matching_names(NAMES, ["fc", pattern], "parameter")
    assert not any(matches(name, [pattern]) for name in NAMES)


def test_no_pattern_is_refused():
    with pytest.raises(FedscapeError, match="no parameter is asked for"):
        matching_names(NAMES, [], "parameter")
