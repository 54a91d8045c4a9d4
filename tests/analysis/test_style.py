"""Ticks of logarithmic axes can be read, whatever they span."""

import math
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from analysis.style import in_percent, log_axis, log_ticks, percent_axis
from tests.figures.legible import bare, crowded, faults, labels_of

SPANS = [1.001, 1.02, 1.3, 2.0, 4.5, 9.0, 11.0, 70.0, 1e3, 1e5, 1e9, 1e30]


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("low", [1e-12, 0.0009, 0.07, 1.0, 1.5, 8.3, 240.0, 9e6])
@pytest.mark.parametrize("most", [2, 5, 8])
def test_ticks_are_two_or_more_round_numbers_within_and_apart(low, span, most):
    ticks = log_ticks(low, low * span, most)
    assert 2 <= len(ticks) <= max(most, 3)
    assert min(ticks) >= low * (1 - 1e-9)
    assert max(ticks) <= low * span * (1 + 1e-9)
    assert all(b > a for a, b in pairwise(ticks))
    gaps = np.diff(np.log(ticks))
    assert len(ticks) == 2 or gaps.min() > 0.3 * math.log(span) / max(most, 2)


def test_decades_have_one_two_and_five_where_there_is_room():
    assert log_ticks(0.9, 110, 8) == [1, 2, 5, 10, 20, 50, 100]
    assert log_ticks(0.9, 110, 5) == [1, 10, 100]
    assert log_ticks(1e-4, 1e4, 5) == [1e-4, 1e-2, 1, 100, 1e4]


@pytest.mark.parametrize("size", [(1.2, 0.9), (2.0, 1.5), (6.0, 4.0)])
@pytest.mark.parametrize("span", SPANS)
def test_axes_have_two_labels_or_more_and_none_on_another(span, size):
    figure = Figure(figsize=(size[0] + 1, size[1] + 1), layout="constrained")
    ax = figure.subplots()
    log_axis(ax, "x")
    log_axis(ax, "y")
    ax.set(xlim=(3, 3 * span), ylim=(0.4, 0.4 * span))
    figure.draw_without_rendering()
    assert len(labels_of(ax.xaxis)) >= 2
    assert len(labels_of(ax.yaxis)) >= 2
    assert bare(figure) == []
    if span > 1.1:  # with four digits to tell them apart two labels are too wide for an inch
        assert crowded(figure) == []
        assert faults(figure) == []


def test_labels_are_plain_numbers_or_all_powers():
    for limits, told in (((0.4, 30), ["0.5", "1", "2", "5", "10", "20"]), ((1e-6, 1), None)):
        ax = Figure(figsize=(4, 4)).subplots()
        log_axis(ax)
        ax.set_ylim(limits)
        texts = [label.get_text() for label in ax.get_yticklabels()]
        assert texts == told if told else all("10^{" in text for text in texts)


def test_shares_are_labelled_in_percent():
    ax = Figure().subplots()
    ax.set_ylim(0, 1)
    percent_axis(ax.yaxis)
    ax.set_ylabel(in_percent("test accuracy"))
    assert ax.yaxis.get_major_formatter()(0.8) == "80"
    assert ax.get_ylabel() == "test accuracy (%)"
