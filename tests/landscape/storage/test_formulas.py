"""Subscripts stand below the line in the written picture alone; names with underscores and texts stay as they are."""

import re

import pytest

from landscape.storage.canvas import new_figure
from landscape.storage.formulas import typeset
from landscape.storage.pictures import draw_picture


def drawn():
    figure = new_figure((4, 3))
    figure.subplots().set(xlabel="λ_max of digits_mlp", ylabel="a_1 $w_i$", title="run_w_i")
    return figure


def test_a_written_picture_has_subscripts_and_the_figure_its_plain_texts(tmp_path):
    figure = draw_picture(drawn, tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    letters = re.findall(r'<tspan x="[\d.]+" y="(-?[\d.]+)" style="font-size: (\d+)px[^>]*>(.)</tspan>', svg)
    line = float(next(y for y, _, letter in letters if letter == "λ"))
    assert "".join(letter for y, size, letter in letters if float(y) > line and int(size) < 10) == "max"
    assert {"a_1 $w_i$", "run_w_i"} <= set(re.findall(r">([^<>]+)</text>", svg))
    assert figure.axes[0].get_xlabel() == "λ_max of digits_mlp"
    assert not figure.axes[0].xaxis.label.get_parse_math()


@pytest.mark.parametrize("name", ["digits_mlp", "a.b_i", "w_i_j", "f_test", "x_", "_i", "runs/w_1.pt", "100% λmax"])
def test_names_are_not_formulas(name):
    assert typeset(name) is None


def test_norms_have_their_index_below_the_power():
    assert typeset("‖U_iᵀU_j‖²_F / K") == (r"‖$\mathregular{U_{i}}$ᵀ$\mathregular{U_{j}}$‖$\mathregular{^{2}_{F}}$ / K")
