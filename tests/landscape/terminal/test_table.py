"""Tables in the forms that others read."""

import csv
import io
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from landscape import FedscapeError
from landscape.terminal.table import Table


def test_markdown_has_a_rule_and_shields_bars():
    table = Table(("model", "accuracy"), (("a|b", 0.123456), ("c", None)))
    assert table.markdown() == "| model | accuracy |\n| --- | ---: |\n| a&#124;b | 0.1235 |\n| c | - |\n"


def test_csv_keeps_all_digits_and_no_text_is_a_formula():
    texts = ("=SUM(A1)", "+1 run", "-x", "@A1", "-0.5", "+3e-4", "a=b", "")
    table = Table(("=name", "loss"), tuple((text, 1 / 3) for text in texts))
    first, *rows = csv.reader(io.StringIO(table.csv()))
    assert first == ["'=name", "loss"]
    assert [row[0] for row in rows] == ["'=SUM(A1)", "'+1 run", "'-x", "'@A1", "-0.5", "+3e-4", "a=b", ""]
    assert {float(row[1]) for row in rows} == {1 / 3}
    assert Table(("loss",), ((-0.25,),)).csv() == "loss\n-0.25\n"  # a number stays one


class Cells(HTMLParser):
    """The cells of a table, as a browser reads them: (tag, scope, text)."""

    def __init__(self, text):
        super().__init__()
        self.cells = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag in ("th", "td"):
            self.cells.append([tag, dict(attributes).get("scope"), ""])

    def handle_data(self, data):
        if self.cells and data.strip():
            self.cells[-1][2] += data


def test_html_names_rows_and_columns_and_runs_no_script():
    text = Table(("run", "a & b"), (("<script>", 0.123456), ("c", None))).html()
    assert "<script>" not in text
    assert Cells(text).cells == [
        ["th", "col", "run"],
        ["th", "col", "a & b"],
        ["th", "row", "<script>"],
        ["td", None, "0.1235"],
        ["th", "row", "c"],
        ["td", None, "-"],
    ]


def test_json_keeps_all_digits_and_has_null_for_what_is_no_number():
    text = Table(("run", "loss", "trace"), (("λ", 1 / 3, float("nan")), ("b", None, 2))).json()
    assert json.loads(text) == [{"run": "λ", "loss": 1 / 3, "trace": None}, {"run": "b", "loss": None, "trace": 2}]


def test_each_format_has_a_file_of_its_own(tmp_path):
    table = Table(("run", "loss"), (("a", 0.5),))
    assert [file.name for file in table.save(tmp_path / "t")] == ["t.txt", "t.csv"]
    files = table.save(tmp_path / "all", ("txt", "csv", "tex", "md", "html", "json"))
    texts = [f"{table}\n", table.csv(), table.latex(), table.markdown(), table.html(), table.json()]
    assert [file.read_text(encoding="utf-8") for file in files] == texts
    assert [file.suffix for file in files] == [".txt", ".csv", ".tex", ".md", ".html", ".json"]
    with pytest.raises(FedscapeError, match="'xlsx': give txt, csv"):
        table.save(tmp_path / "no", ("txt", "xlsx"))
    assert not (tmp_path / "no.txt").exists()


def test_a_screen_gets_lines_that_fit_and_a_pipe_whole_ones(monkeypatch):
    table = Table(("run", *(f"column {i}" for i in range(15))), (("a", *map(float, range(15))),))
    monkeypatch.setenv("COLUMNS", "80")
    for terminal, text in ((True, table.folded(80)), (False, str(table))):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        assert table.on_screen() == text


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_a_folded_table_fits_and_leaves_nothing_out(width):
    columns = ("run", *(f"column {i}" for i in range(15)))
    table = Table(columns, (("fedavg", *map(float, range(15))), ("fedasam", *(i / 7 for i in range(15)))))
    text = table.folded(width)
    assert all(len(line) <= width for line in text.splitlines())
    blocks = text.split("\n\n")
    assert [name for block in blocks for name in block.splitlines()[0].split("  ") if "column" in name] != []
    found = [re.split(r"\s{2,}", block.splitlines()[0])[1:] for block in blocks]
    assert [name for names in found for name in names] == list(columns[1:])
    rows = [re.split(r"\s{2,}", block.splitlines()[3])[1:] for block in blocks]
    assert [float(cell) for row in rows for cell in row] == pytest.approx([i / 7 for i in range(15)], abs=1e-3)
    assert all(block.splitlines()[2].startswith("fedavg ") for block in blocks)
    if width == 200:
        assert text == str(table)


def test_what_a_command_prints_is_folded_on_a_terminal_only(monkeypatch):
    table = Table(tuple(f"column {i}" for i in range(20)), (tuple(map(float, range(20))),))
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert table.on_screen() == str(table)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert table.on_screen() == table.folded(60) != str(table)
