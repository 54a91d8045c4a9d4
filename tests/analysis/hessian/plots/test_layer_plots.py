"""The picture of the layers: its points, names and axes."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from analysis.hessian.layers import Activations, LayerEigenvalues, activation_norms, layer_eigenvalues
from analysis.hessian.plots.layers import plot_layers
from landscape import Landscape
from tests.analysis.hessian.spectrum.spectra import small_landscape


def measured(label: str, landscape: Landscape):
    return label, layer_eigenvalues(landscape), activation_norms(landscape)


def made_up(names: list[str], values: list[float]):
    n, bounds = len(names), 0.1 * np.abs(values)[:, None]
    column = np.array(values)[:, None]
    blocks = LayerEigenvalues(tuple(names), np.ones(n, int), column, bounds, np.ones((n, 1), bool), 0)
    return blocks, Activations({"a": 1.0}, dict.fromkeys(names, 2.0))


def points(ax, i: int) -> np.ndarray:
    return ax.containers[i].lines[0].get_xydata()


def labels(ax) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


@pytest.fixture(scope="module")
def one():
    return measured("a run, round 3", small_landscape())


def test_every_number_is_at_its_layer(one):
    _, blocks, norms = one
    figure = plot_layers([one])
    eigen, bound, after = figure.axes
    assert labels(bound) == ["0", "1", "3", "5"]
    assert labels(after) == labels(bound)
    assert points(after, 0)[:, 0].tolist() == [0, 2], "each activation is below the layer it follows"
    assert points(eigen, 0).tolist() == [[i, blocks.values[i, 0]] for i in (0, 2, 3)]
    assert points(eigen, 1).tolist() == [[1, blocks.values[1, 0]]], "the normalisation stands apart, hollow"
    assert eigen.containers[1].lines[0].get_markerfacecolor() == "white"
    assert points(bound, 0)[:, 1].tolist() == list(norms.inputs.values())
    assert points(after, 0)[:, 1].tolist() == list(norms.outputs.values())
    low, high = (bars[:, 1] for bars in np.swapaxes(eigen.containers[0].lines[2][0].get_segments(), 0, 1))
    np.testing.assert_allclose((high - low) / 2, blocks.bounds[[0, 2, 3], 0], rtol=1e-6, atol=1e-12)
    assert figure.get_suptitle() == "a run, round 3"
    assert "hollow" in figure.get_supxlabel()
    assert not figure.legends


def test_activations_after_several_layers_have_an_axis_of_their_own(one):
    label, blocks, norms = one
    figure = plot_layers([(label, blocks, replace(norms, outputs={"0": 1.0, "1 + 3": 2.0}))])
    assert labels(figure.axes[1]) == ["0", "1", "3", "5"]
    assert labels(figure.axes[2]) == ["0", "1\n+ 3"]


def test_several_share_the_axes_in_colours_markers_and_dashes_of_their_own(one):
    _, blocks, norms = one
    other = LayerEigenvalues(("5", "extra"), blocks.parameters[:2], *(blocks.values[:2],) * 2, blocks.converged[:2], 0)
    figure = plot_layers([one, ("another", other, norms)])
    eigen, bound, _ = figure.axes
    assert labels(bound) == ["0", "1", "3", "5", "extra"]
    assert np.abs(points(eigen, 2)[:, 0] - 3).max() < 0.5
    lines = [eigen.containers[i].lines[0] for i in (0, 2)]
    for look in ("color", "marker", "linestyle"):
        assert len({getattr(line, f"get_{look}")() for line in lines}) == 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a run, round 3", "another"]


def test_no_marker_lies_on_the_frame(one):
    for ax in plot_layers([one]).axes:
        heights = [height for line in ax.get_lines() for height in line.get_ydata() if height == height]
        assert ax.get_ylim()[1] >= 1.07 * max(heights)


def test_an_axis_over_decades_is_logarithmic_unless_there_are_values_below_0():
    def scale(values: list[float]) -> str:
        return plot_layers([("", *made_up(["a", "b"], values))]).axes[0].get_yscale()

    assert scale([1.0, 10.0]) == "linear"
    assert scale([1.0, 100.0]) == "log"
    assert scale([-1.0, 100.0]) == "linear"


def test_many_long_names_stand_upright_without_overlap_and_the_legend_has_room():
    names = [f"layer{i}.0.downsample.{i}" for i in range(40)]
    figure = plot_layers([(f"run {i}", *made_up(names, np.linspace(1, 2, 40).tolist())) for i in range(9)])
    figure.draw_without_rendering()
    ticks = figure.axes[1].get_xticklabels()
    boxes = [tick.get_window_extent() for tick in ticks]
    assert all(tick.get_rotation() == 90 for tick in ticks)
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))
    assert figure.axes[0].get_window_extent().height > 0.6 * 2.4 * figure.dpi
    styles = [container.lines[0] for container in figure.axes[0].containers]
    assert len({(line.get_color(), line.get_marker()) for line in styles if line.get_linestyle() != "None"}) == 9


@pytest.mark.parametrize("net", [nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))])
def test_a_model_without_activations_and_one_that_is_a_single_layer_are_drawn(net):
    x, y = torch.randn(5, 3), torch.arange(5) % 2
    figure = plot_layers([measured("linear", Landscape(net, (x, y), device="cpu"))])
    figure.draw_without_rendering()
    names = ["model"] if isinstance(net, nn.Linear) else ["0", "1"]
    assert labels(figure.axes[1]) == names
    assert len(points(figure.axes[1], 0)) == len(names)
    assert "hollow" not in figure.get_supxlabel()
    assert [text.get_text() for text in figure.axes[2].texts] == ["the model has no non-linearity"]


def test_what_has_not_converged_is_crossed_out_and_the_caption_says_so(one):
    label, blocks, norms = one
    assert "NOT CONVERGED" not in plot_layers([one]).get_supxlabel()
    wrong = replace(blocks, converged=np.arange(len(blocks.layers))[:, None] != 2)
    figure = plot_layers([(label, wrong, norms)])
    (crosses,) = (line for line in figure.axes[0].lines if line.get_marker() == "x")
    assert crosses.get_xydata().tolist() == [[2.0, blocks.values[2, 0]]]
    assert "crosses: NOT CONVERGED" in figure.get_supxlabel()
