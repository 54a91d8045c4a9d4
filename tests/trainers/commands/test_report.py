"""``python -m trainers report``."""

import csv
import json
import re
import sys

import pytest

from landscape.terminal.command import run
from landscape.terminal.table import Table
from tests.trainers.runs.recorded import write
from trainers.commands.report import main


def test_the_command_prints_and_writes(tmp_path, capsys):
    a, b = write(tmp_path / "a_1"), write(tmp_path / "b&c", name="fedavg")
    out = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "json", "latex")}
    words = [str(a), str(b), "--targets", "0.8", "0.95", *(w for k, f in out.items() for w in (f"--{k}", str(f)))]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["run", "algorithm", "status", "rounds"]
    assert "rounds to 80 %" in lines[0]
    assert lines[2].split()[:7] == ["a_1", "scaffold", "finished", "10", "75", "90", "0.4"]
    assert lines[-3:] == [f"table: {out[kind]}" for kind in out]
    with out["csv"].open() as file:
        found = list(csv.DictReader(file))
    assert [r["run"] for r in found] == ["a_1", "b&c"]
    assert (found[0]["rounds"], found[0]["rounds to 95 %"], float(found[0]["GB"])) == ("10", ">10", 0.06)
    assert json.loads(out["json"].read_text())["runs"][1]["rounds to 80 %"] == 4
    latex = out["latex"].read_text()
    assert r"a\_1 & scaffold & finished & 10 & 75 & 90" in latex
    assert r"b\&c" in latex
    assert r"rounds to 80 \%" in latex
    assert "$>$10" in latex
    made, *body = latex.splitlines()
    assert made == "% Fedscape"
    assert body[0].startswith(r"\begin{tabular}{lr")
    assert (body[1], body[3], body[-2], body[-1]) == (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")
    assert len({line.replace(r"\&", "").count("&") for line in body[2:3] + body[4:-2]}) == 1


def test_latex_escapes_what_latex_reads_as_its_own():
    text = Table(("a\\b", "50 % ± 1"), (("~x^2_{i}", "#1 & $5 < 7"),)).latex()
    assert r"a\textbackslash{}b & 50 \% $\pm$ 1 \\" in text
    assert r"\textasciitilde{}x\textasciicircum{}2\_\{i\} & \#1 \& \$5 $<$ 7 \\" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--group"], "give at least one run directory (see python -m trainers report --help)"),
        (["{run}", "--targets", "80"], "the target 80.0 is no accuracy: give a share above 0 and up to 1"),
        (["{run}", "--csv", "{run}"], "cannot write"),
    ],
)
def test_bad_options_are_one_sentence_and_exit_code_two(words, sentence, tmp_path, capsys):
    write(tmp_path / "r")
    assert run(lambda: main([word.format(run=tmp_path / "r") for word in words])) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_on_a_terminal_the_table_fits_and_elsewhere_or_wide_it_is_one(tmp_path, capsys, monkeypatch):
    write(tmp_path / "r")
    assert run(lambda: main([str(tmp_path / "r")])) == 0
    one = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(lambda: main([str(tmp_path / "r"), "--wide"])) == 0
    assert capsys.readouterr().out == one
    assert run(lambda: main([str(tmp_path / "r")])) == 0
    folded = capsys.readouterr().out
    assert max(map(len, one.splitlines())) > 80 >= max(map(len, folded.splitlines()))
    assert set(folded.split()) == set(one.split()) - set(re.findall("-{2,}", one)) | set(re.findall("-{2,}", folded))
