"""Tables in the forms that others read."""

from landscape.terminal.table import Table


def test_markdown_has_a_rule_and_shields_bars():
    table = Table(("model", "accuracy"), (("a|b", 0.123456), ("c", None)))
    assert table.markdown() == "| model | accuracy |\n| --- | ---: |\n| a&#124;b | 0.1235 |\n| c | - |\n"
