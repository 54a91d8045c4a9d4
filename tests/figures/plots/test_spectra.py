"""Eigenvalues are at their ranks, and what a logarithm cannot show is shown otherwise and said; densities are on one
ruler."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import Dense, estimate_density, measure_hessian
from figures.plots import DensityPanel, SpectraPanel, Spectrum, plot_densities, plot_eigenvalues
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import small_landscape

PLAIN = Spectrum("FedAvg", [8.0, 4.0, 2.0], [0.1, 0.2, 0.3])
MIXED = Spectrum("mixed", [8.0, 0.5, 0.01, 0.0, -0.02, -1.0], np.full(6, 0.1), [True, True, True, True, True, False])


def test_values_and_bounds_are_at_their_ranks():
    figure = plot_eigenvalues([SpectraPanel("top 3", [PLAIN])])
    (ax,) = figure.axes
    (line,) = ax.lines
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([1, 2, 3], [8, 4, 2])
    vertices = ax.collections[0].get_paths()[0].vertices
    for rank, value, bound in zip([1, 2, 3], PLAIN.values, PLAIN.bounds, strict=True):
        heights = vertices[vertices[:, 0] == rank, 1]
        assert (heights.min(), heights.max()) == (pytest.approx(value - bound), pytest.approx(value + bound))
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    assert figure.get_supxlabel() == "bands: error bounds"


def test_on_a_logarithm_negative_doubtful_and_zero_values_are_told_apart():
    figure = plot_eigenvalues([SpectraPanel("p", [MIXED])], caption="mine")
    (ax,) = figure.axes
    line, triangles, circles, cross = ax.lines
    np.testing.assert_array_equal(line.get_ydata(), [8, 0.5, np.nan, np.nan, np.nan, np.nan])
    floor = ax.get_ylim()[0]
    assert floor == 0.25, "half the smallest that is told from 0"
    assert (triangles.get_marker(), triangles.get_xdata().tolist()) == ("v", [5, 6])
    assert triangles.get_ydata().tolist() == [floor, 1.0], "what is below the axis is at its edge"
    assert (circles.get_marker(), circles.get_xdata().tolist()) == ("o", [3, 4])
    assert circles.get_ydata()[0] == floor
    assert np.isnan(circles.get_ydata()[1]), "0 is not drawn"
    assert cross.get_xdata().tolist() == [6]
    assert figure.get_supxlabel().replace("\n", " ") == (
        "mine; bands: error bounds; hollow triangles: 2 negative, at their absolute values, 1 of them not told from 0; "
        "hollow circles: 1 not told from 0; 1 of 0 not drawn; 2 below the axis, at its edge; crosses: NOT CONVERGED"
    )


def test_on_a_linear_axis_they_are_where_they_are():
    figure = plot_eigenvalues([SpectraPanel("p", [MIXED])], log_y=False)
    line, circles, *_ = figure.axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), [8, 0.5, np.nan, np.nan, np.nan, -1])
    assert circles.get_ydata().tolist() == [0.01, 0.0, -0.02]
    assert "triangles" not in figure.get_supxlabel()
    assert "hollow circles: 3 not told from 0" in figure.get_supxlabel()


def test_noise_makes_doubtful_and_panels_share_their_axis():
    noisy = Spectrum("a", [8.0, 0.5], noise=1.0)
    assert noisy.doubtful.tolist() == [False, True]
    assert Spectrum("a", [8.0, 0.5]).doubtful.tolist() == [False, False]
    first, second = plot_eigenvalues([SpectraPanel("p", [PLAIN]), SpectraPanel("q", [noisy])], log_x=True).axes
    assert first.get_ylim() == second.get_ylim()
    assert first.get_xscale() == "log"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: plot_eigenvalues([]), "give one panel of eigenvalues"),
        (lambda: plot_eigenvalues([SpectraPanel("p", [])]), "the panel 'p' has no spectrum"),
        (lambda: plot_eigenvalues([SpectraPanel("p", [Spectrum("a", [0.0])])]), "all eigenvalues are 0"),
        (lambda: Spectrum("a", [1, 2]), "the eigenvalues of a do not descend"),
        (lambda: Spectrum("a", [2, np.nan]), "are not all finite"),
        (lambda: Spectrum("a", [2, 1], [0.1]), "2 of values, 1 of bounds"),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()


@pytest.fixture(scope="module")
def report():
    return measure_hessian(small_landscape(), 2, trace=False, density=True, density_steps=10)


class TestDensities:
    @staticmethod
    def with_values(report, largest):
        values = np.r_[np.zeros(90), np.linspace(0.5, 1, 10) * largest]
        density = estimate_density(Dense(torch.diag(torch.from_numpy(values))), steps=20)
        return replace(report, density=density, parameters=100)

    @pytest.mark.parametrize("axis", ["linear", "symlog"])
    def test_kernel_and_axes_are_the_same_in_all_panels(self, report, axis):
        wide, narrow = self.with_values(report, 50.0), self.with_values(report, 5.0)
        panels = [DensityPanel("a", [wide], ["FedAvg"]), DensityPanel("b", [narrow], ["FedAvg"])]
        figure = plot_densities(panels, eigenvalue_axis=axis, title="t", caption="mine")
        together = plot_densities([DensityPanel("a", [wide, narrow], ["x", "y"])], eigenvalue_axis=axis).axes[0]
        first, second = figure.axes
        assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())
        assert first.get_xlim() == pytest.approx(together.get_xlim())
        np.testing.assert_array_equal(second.lines[0].get_ydata(), together.lines[1].get_ydata())
        assert [ax.get_title() for ax in figure.axes] == ["a", "b"]
        assert figure.get_supxlabel().startswith("mine; density: Gaussian kernel")

    def test_labels_of_a_symlog_axis_keep_their_distance(self, report):
        values = np.r_[np.zeros(90), np.linspace(25, 50, 10), -5.0]
        density = estimate_density(Dense(torch.diag(torch.from_numpy(values))), steps=20)
        there = replace(report, density=density, parameters=101)
        (ax,) = plot_densities([DensityPanel("a", [there], ["x"])], eigenvalue_axis="symlog").axes
        places = ax.transData.transform([(place, 1) for place in ax.xaxis.get_majorticklocs()])[:, 0]
        assert np.diff(places).min() > 0.12 * np.diff(ax.transData.transform([(x, 1) for x in ax.get_xlim()])[:, 0])

    def test_mistakes_are_one_sentence(self, report):
        with pytest.raises(FedscapeError, match="give one panel of densities"):
            plot_densities([])
        with pytest.raises(FedscapeError, match="the panel 'a' has 1 densities and 0 labels"):
            plot_densities([DensityPanel("a", [report], [])])
        with pytest.raises(FedscapeError, match="no density was measured"):
            plot_densities([DensityPanel("a", [replace(report, density=None)], ["x"])])
