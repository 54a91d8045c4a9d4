"""The vocabulary that declares what files hold."""

import pytest

from landscape import FedscapeError
from landscape.storage.schema import (
    Agree,
    Either,
    Items,
    Keyed,
    Maybe,
    Number,
    OneOf,
    Plain,
    Record,
    Row,
    Table,
    Text,
    Truth,
    printable,
    require,
)

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (Number(), [0, -1, 1.5, 10**30], [True, None, "1", NAN, INFINITY, -INFINITY, [1], 10**400, 1j]),
        (Number(0, 5), [0, 5, 2.5], [-1, 5.5, -0.1, 10**400]),
        (Number(1, whole=True), [1, 10**9], [0, 1.0, True, "1", NAN]),
        (Text(3), ["", "abc"], ["abcd", None, 5, b"abc"]),
        (Truth(), [True, False], [0, 1, None, "true"]),
        (Maybe(Truth()), [None, True], [0, ""]),
        (OneOf(("a", "b")), ["a", "b"], ["c", None, ["a"], {}]),
        (Either((Truth(), Number(0))), [True, 3], [-3, None, "x"]),
        (Items(Number(0), 1, 2), [[1], (1, 2)], [[], [1, 2, 3], [-1], "12", {0: 1}, None]),
        (Row((Text(), Number())), [["a", 1]], [["a"], ["a", "b"], ["a", 1, 2], "ab"]),
        (Table(Number()), [[[1, 2], [3, 4]]], [[], [[]], [[1], [1, 2]], [1], [["a"]]]),
        (Keyed(Text(), Number()), [{}, {"a": 1}], [{1: 1}, {"a": "b"}, [], None]),
        (Record({"a": Number()}), [{"a": 1}, {"a": 1, "b": [None]}], [{}, {"a": "x"}, {"a": 1, 5: 1}, [], None]),
        (Record({"a": Number()}, {"b": Text()}, False), [{"a": 1, "b": ""}], [{"a": 1, "c": 1}, {"a": 1, "b": 2}]),
        (Agree(Record({}), ("x", "y")), [{"x": [1], "y": [2]}, {"x": [1]}], [{"x": [1], "y": []}]),
        (Plain(), [None, NAN, [1, {"a": ["b"]}], {3: True}], [1j, b"x", {1, 2}, {(): 1}, object(), 10**400]),
    ],
)  # fmt: skip
def test_each_rule_takes_what_it_says_and_nothing_else(rule, right, wrong):
    for value in right:
        require(value, rule, "f")
    for value in wrong:
        with pytest.raises(FedscapeError, match=r"^f is damaged: it holds|^f is damaged: .* is "):
            require(value, rule, "f")


def test_the_sentence_names_file_place_what_is_there_and_what_would_be_right():
    rule = Record({"runs": Items(Record({"round": Number(0, 9, whole=True)}))})
    with pytest.raises(FedscapeError) as caught:
        require({"runs": [{"round": 1}, {"round": -4}]}, rule, "a.json")
    assert str(caught.value) == "a.json is damaged: runs[1].round is -4, not a whole number from 0 up to 9"
    with pytest.raises(
        FedscapeError, match=r"a\.json is damaged: runs\[0\] is an object of 0 entries, not one with round"
    ):
        require({"runs": [{}]}, rule, "a.json")


def test_what_is_deep_or_has_very_many_parts_is_refused_at_once():
    """Forty lists, each of which holds the one before twice, have 10¹² parts and take no memory."""
    twice: list = [1]
    for _ in range(40):
        twice = [twice, twice]
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in (twice, deep):
        with pytest.raises(FedscapeError, match=r"not at most 1,000,000 values, nested 32 deep"):
            require(value, Plain(), "f")


def test_names_are_printed_with_their_escapes_spelt_out():
    assert printable("a\x1b[2Jb\x07\n\u202e") == r"a\x1b[2Jb\x07\n\u202e"
    assert printable("λ ≤ 1") == "λ ≤ 1"
    assert printable("x" * 500) == "x" * 200
    with pytest.raises(FedscapeError) as caught:
        require({"\x1b[31m": 1}, Record({}, extra=False), "f")
    assert "\x1b" not in str(caught.value)
