"""Training curves show the recorded numbers, and can be read."""

import pytest

from landscape.storage.pictures import draw_picture
from tests.figures.legible import faults
from trainers.plots import plot_metrics

METRICS = [
    {"round": n, "train_loss": 2.0 / n**2, "test_loss": 2.2 / n, "test_accuracy": 0.1 * n if n % 2 else None}
    for n in range(1, 9)
]


def drawn(figure, title):
    (ax,) = (ax for ax in figure.axes if ax.get_title() == title)
    return ax, {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.get_lines()}


def test_lines_are_the_recorded_values_of_the_rounds_that_have_them():
    figure = plot_metrics(METRICS, "mine", 4)
    losses, lines = drawn(figure, "Loss")
    assert lines["training, in the local steps"] == (list(range(1, 9)), [record["train_loss"] for record in METRICS])
    assert lines["test"] == (list(range(1, 9)), [record["test_loss"] for record in METRICS])
    assert lines["the model, round 4"][0] == [4, 4]
    assert losses.get_yscale() == "log"
    scores, lines = drawn(figure, "Test accuracy")
    assert lines["test accuracy"] == ([1, 3, 5, 7], pytest.approx([0.1, 0.3, 0.5, 0.7]))
    assert scores.yaxis.get_major_formatter()(0.5) == "50%"


def test_losses_of_one_decade_are_on_a_plain_axis_and_an_empty_panel_is_left_out():
    figure = plot_metrics([{"round": 1, "train_loss": 2.0}, {"round": 2, "train_loss": 0.5}], "$mine$")
    (ax,) = figure.axes
    assert (ax.get_yscale(), ax.get_ylabel()) == ("linear", "mean loss")


@pytest.mark.parametrize("style", ["screen", "paper"])
def test_the_picture_can_be_read(style):
    assert faults(draw_picture(lambda: plot_metrics(METRICS, "fedavg (mine)", 4), style=style)) == []
