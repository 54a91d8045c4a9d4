"""Surfaces in the papers' layouts: heights, scales that are own or joint, models in planes."""

from dataclasses import replace

import numpy as np
import pytest
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from analysis.surface.marked_points import Mark
from figures.plots import PlanePanel, SurfacePanel, plot_loss_surfaces, plot_over, plot_planes
from figures.plots.surfaces import capped_log
from landscape import FedscapeError
from landscape.storage.style import PictureStyle
from tests.analysis.surface.plots.test_surface_plots import X, Y, faces, made
from tests.analysis.surface.test_store import provenance

LOW = made(0.9 + 0 * X[None] + Y[:, None])
"""From 0.9 to 1.9."""
HIGH = made(1.9 + 18 * (X[None] + 1) / 3 + 0 * Y[:, None])
"""From 1.9 to 19.9."""
PANELS = [SurfacePanel("low", LOW), SurfacePanel("high", HIGH)]


def test_the_height_is_lis():
    assert capped_log(np.array([0.9, 5.0, 1e9, np.inf]), 9.9) == pytest.approx([0, np.log(5.1), np.log(10), np.log(10)])
    assert np.isnan(capped_log(np.array([np.nan]), 10.0)).all()
    # The tops of the four colour bars of Figure 1: 2.3 and 3.0 (recipes/flat-minima.md).
    assert [round(float(capped_log(np.array([99.0]), cap)[0]), 1) for cap in (10, 20)] == [2.3, 3.0]


@pytest.mark.parametrize("kind", ["relief", "contours"])
def test_own_scales_end_at_each_surfaces_heights_and_a_joint_one_at_those_of_all(kind):
    own = plot_loss_surfaces(PANELS, kind=kind)
    bars = [ax for ax in own.axes if ax.get_label() == "<colorbar>"]
    assert [bar.get_ylim() for bar in bars] == [
        pytest.approx((0, np.log(2.0))), pytest.approx((np.log(2.0), np.log(10.1))),
    ]  # fmt: skip
    assert [bar.get_ylabel() for bar in bars] == ["ln(min(training loss, 10) + 0.1)"] * 2
    assert "each panel has a scale of its own" in own.get_supxlabel()

    higher = [PANELS[0], replace(PANELS[1], cap=20.0)]
    joint = plot_loss_surfaces(higher, kind=kind, joint=True)
    (bar,) = [ax for ax in joint.axes if ax.get_label() == "<colorbar>"]
    assert bar.get_ylim() == pytest.approx((0, np.log(20.0)))
    assert bar.get_ylabel() == "ln(min(training loss, 20) + 0.1)"
    assert "one scale for all panels" in joint.get_supxlabel()


def test_a_relief_has_the_capped_heights_and_its_panels_share_a_joint_axis():
    figure = plot_loss_surfaces(PANELS, joint=True, title="Figure 1")
    panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    for ax, panel in zip(panels, PANELS, strict=True):
        (cells,) = [c for c in ax.collections if isinstance(c, Poly3DCollection)]
        corners = faces(cells).reshape(-1, 3)
        wanted = np.log(np.minimum(panel.surface.loss, 10) + 0.1)
        assert (corners[:, 2].min(), corners[:, 2].max()) == pytest.approx((wanted.min(), wanted.max()))
        for x, y, z in corners[::7]:
            assert z == pytest.approx(wanted[np.abs(Y - y).argmin(), np.abs(X - x).argmin()])
        assert ax.get_zlim() == pytest.approx((0, np.log(10.1)))
        assert ax.get_title() == panel.title
    assert figure.get_suptitle() == "Figure 1"


@pytest.mark.parametrize("joint", [True, False])
def test_on_a_page_the_height_has_its_label_at_the_colour_bar_alone(joint):
    screen = plot_loss_surfaces(PANELS, joint=joint)
    with PictureStyle("paper").drawing():
        paper = plot_loss_surfaces(PANELS, joint=joint)
    for figure, there in ((screen, True), (paper, False)):
        bars = [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]
        assert [bool(ax.get_zlabel()) for ax in figure.axes if ax not in bars] == [there] * 2
        assert [bar.get_ylabel() for bar in bars] == ["ln(min(training loss, 10) + 0.1)"] * (1 if joint else 2)


def test_jointly_all_panels_are_cut_at_the_largest_cap():
    figure = plot_loss_surfaces([SurfacePanel("a", HIGH, 10.0), SurfacePanel("b", HIGH, 20.0)], joint=True)
    for ax in figure.axes[:2]:
        (cells,) = [c for c in ax.collections if isinstance(c, Poly3DCollection)]
        assert faces(cells)[..., 2].max() == pytest.approx(np.log(20.0))


def test_rows_over_alpha():
    figure = plot_loss_surfaces([*PANELS, PANELS[0]], columns=2)
    panels = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    assert len(panels) == 3
    assert panels[0].get_subplotspec().get_gridspec().get_geometry() == (2, 2)


def test_one_surface_is_over_each_of_the_others():
    figure = plot_over(("FedSMOO", LOW), [("FedAvg", HIGH), ("SCAFFOLD", HIGH)], title="CIFAR-10", caption="mine")
    assert [ax.get_title() for ax in figure.axes] == ["FedSMOO on FedAvg", "FedSMOO on SCAFFOLD"]
    assert len({ax.get_zlim() for ax in figure.axes}) == 1
    assert figure.get_suptitle() == "CIFAR-10"
    assert figure.get_supxlabel().startswith("mine; grid: FedSMOO")
    told = plot_over(("FedSMOO", LOW), [("FedAvg", HIGH)])
    assert "checkpoint" in told.get_supxlabel(), "its provenance is told"


OTHER = replace(provenance(), split="test")
MARKS = (Mark("α = 0", 0.0, 0.2), Mark("α = 0.5", 1.0, 0.2), Mark("α = 1k", 0.5, 0.8))
THREE = replace(LOW, kind="three", marks=MARKS)


def test_planes_have_one_scale_a_quantity_and_mark_the_models():
    panels = [
        PlanePanel("train loss", THREE),
        PlanePanel("test error", replace(THREE, provenance=OTHER), "error"),
        PlanePanel("local models", replace(HIGH, provenance=OTHER), "error"),
    ]
    figure = plot_planes(panels, caption="mine")
    loss, error, local, *bars = figure.axes
    assert [bar.get_ylabel() for bar in bars] == ["mean training loss (cross-entropy, nats)", "test error (%)"]
    wanted = 100 - 100 * np.concatenate([THREE.accuracy.ravel(), HIGH.accuracy.ravel()])
    for ax in (error, local):
        filled = ax.collections[0]
        assert (filled.norm.vmin, filled.norm.vmax) == pytest.approx((wanted.min(), wanted.max()))
    dots = next(line for line in loss.lines if line.get_label() == "models")
    np.testing.assert_array_equal(dots.get_xydata(), [[0.0, 0.2], [1.0, 0.2], [0.5, 0.8]])
    assert [text.get_text() for text in loss.texts] == ["α = 0", "α = 0.5", "α = 1k"]
    text = figure.get_supxlabel().replace("\n", " ")
    assert text.startswith("mine; one scale for all panels of a quantity")
    assert "dashed: the triangle of three models" in text


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: plot_loss_surfaces([]), "give one panel of surfaces"),
        (lambda: plot_loss_surfaces(PANELS, kind="lines"), "unknown kind of picture 'lines'"),
        (lambda: plot_loss_surfaces([SurfacePanel("p", LOW, 0.0)]), "cannot be cut at 0.0"),
        (lambda: plot_loss_surfaces([SurfacePanel("p", made(np.full((5, 7), np.nan)))]), "no loss of p is finite"),
        (lambda: plot_loss_surfaces(PANELS, columns=0), "0 panels in a row"),
        (
            lambda: plot_loss_surfaces([PANELS[0], SurfacePanel("q", replace(HIGH, provenance=OTHER))], joint=True),
            "the surfaces differ in their split",
        ),
        (lambda: plot_over(("a", LOW), []), "a surface below the grid"),
        (lambda: plot_planes([]), "give one panel of planes"),
        (lambda: plot_planes([PlanePanel("p", replace(LOW, accuracy=None), "error")]), "has no error"),
        (lambda: plot_planes([PlanePanel("p", made(np.full((5, 7), np.nan)))]), "no loss of 'p' is finite"),
    ],
)
def test_mistakes_are_one_sentence(call, reason):
    with pytest.raises(FedscapeError, match=reason):
        call()
