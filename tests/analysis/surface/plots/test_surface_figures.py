"""Every kind of figure is the one that its name says."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from mpl_toolkits.mplot3d.axes3d import Axes3D

from analysis.surface.plots.figures import draw
from landscape import FedscapeError
from tests.analysis.surface.plots.test_surface_plots import line, made, with_test


def test_kinds():
    pair = [made(), made(made().loss + 1)]
    assert isinstance(draw(pair, "ab", "heatmap").axes[0].collections[0], QuadMesh)
    assert not isinstance(draw(pair, "ab").axes[0].collections[0], QuadMesh)
    assert isinstance(draw(pair, "ab", "relief").axes[0], Axes3D)
    assert draw(pair, "ab", "superimposed").axes[0].get_title() == "a on b"
    assert draw([line(np.arange(3.0))]).axes[0].lines[0].get_ydata().tolist() == [0, 1, 2]


def test_plane_of_three_models_has_the_test_error_beside_it():
    train = with_test(made(kind="three"), made().loss)
    assert [ax.get_title() for ax in draw([train]).axes[:2]] == ["training loss", "test error"]
    assert [ax.get_title() for ax in draw([train], ["m"]).axes[:2]] == ["m: training loss", "m: test error"]
    contours = ["training loss", "training accuracy", "test loss", "test accuracy"]
    assert [ax.get_title() for ax in draw([train], kind="contours").axes[:4]] == contours
    numbers = replace(train, accuracy=None, test=replace(train.test, accuracy=None))
    assert [ax.get_title() for ax in draw([numbers]).axes[:2]] == ["training loss", "test loss"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("bars", "unknown kind of figure 'bars'"), ("line", "no line"), ("superimposed", "or more")],
)
def test_bad_kinds_are_told_in_a_sentence(kind, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        draw([made()], kind=kind)
    with pytest.raises(FedscapeError, match="a line has no second axis and cannot be drawn as 'relief'"):
        draw([line(np.arange(3.0))], kind="relief")
