"""Reading run directories: damaged files are refused, a line that a kill cut short is left out."""

import pytest

from landscape.terminal.command import run
from tests.trainers.runs.recorded import record, row, write
from trainers.commands.report import main
from trainers.runs.records import read_runs
from trainers.tables.comparison import report


def damage(path, file, text):
    (path / file).write_bytes(text)
    return path


BAD = {
    "no such folder": (lambda p: p / "nowhere", "there is no run directory"),
    "no run": (lambda p: p, "is no run directory: it holds no config.json"),
    "a file": (lambda p: write(p / "r") / "config.json", "is no run directory"),
    "config cut": (lambda p: damage(write(p / "r"), "config.json", b'{"algo'), "config.json is damaged"),
    "config list": (lambda p: damage(write(p / "r"), "config.json", b"[]"), "config.json is damaged: it holds a list"),
    "config empty": (lambda p: damage(write(p / "r"), "config.json", b"{}"), "0 entries, not one with algorithm, set"),
    "config nameless": (
        lambda p: damage(write(p / "r"), "config.json", b'{"algorithm": {}, "settings": {}}'),
        "config.json is damaged: algorithm is an object of 0 entries, not one with name",
    ),
    "result": (lambda p: damage(write(p / "r"), "result.json", b"3"), "result.json is damaged"),
    "binary": (lambda p: damage(write(p / "r"), "metrics.jsonl", b"\xff\xfe\n{}"), "metrics.jsonl is damaged: it is"),
    "middle": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": 1}\n{"ro\n{"round": 3}\n'),
        "error: line 2 of ",
    ),
    "no round": (lambda p: damage(write(p / "r"), "metrics.jsonl", b"{}\n"), "0 entries, not one with round"),
    "negative": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": -4}\n'),
        "round is -4, not a whole",
    ),
    "order": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": 2}\n{"round": 1}\n'),
        "line 2: round 1 comes after round 2",
    ),
    "word": (
        lambda p: damage(write(p / "r"), "metrics.jsonl", b'{"round": 2, "test_accuracy": "high"}\n'),
        "metrics.jsonl is damaged: test_accuracy is 'high', not a number",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_exit_code_two(case, tmp_path, capsys):
    make, sentence = BAD[case]
    path = make(tmp_path)
    assert run(lambda: main([str(path)])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1


def test_a_last_line_cut_short_by_a_kill_is_left_out(tmp_path):
    path = write(tmp_path / "r", [record(1), record(2)], result=None)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3, "train_lo')
    assert row(report(read_runs([path])))["status"] == "unfinished, 2 of 10"
