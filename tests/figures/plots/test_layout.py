"""Looks that can be told apart, legends, grids of panels."""

import itertools

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from analysis.style import COLOURS, DASHES, MARKERS
from figures.plots.layout import MOST, add_legend, array, grid, line_width, looks, marker_size
from landscape import FedscapeError
from landscape.storage.style import PictureStyle


def test_the_first_seven_are_the_packages_and_no_two_share_anything():
    found = list(looks(map(str, range(MOST))).values())
    assert [(look.colour, look.marker, look.dash) for look in found[:7]] == list(
        zip(COLOURS, MARKERS, DASHES, strict=True)
    )
    for a, b in itertools.combinations(found, 2):
        assert a.colour != b.colour
        assert a.marker != b.marker
        assert a.dash != b.dash


def test_every_colour_is_seen_on_white():
    """Its contrast is at least 1.8 (WCAG's luminance); Okabe and Ito's orange and sky blue have 2.2 and 2.3."""
    for look in looks(map(str, range(MOST))).values():
        channels = np.array(to_rgb(look.colour))
        linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        assert 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05) > 1.8, look


def test_a_label_keeps_its_look_wherever_it_appears_again():
    assert list(looks(["b", "a", "b", "c"])) == ["b", "a", "c"]
    with pytest.raises(FedscapeError, match=f"{MOST + 1} curves cannot be told apart"):
        looks(map(str, range(MOST + 1)))


@pytest.mark.parametrize(
    ("count", "columns", "shape"),
    [(1, None, (1, 1)), (4, None, (1, 4)), (5, None, (2, 3)), (8, None, (2, 4)), (3, 2, (2, 2))],
)
def test_panels_fill_rows(count, columns, shape):
    made = grid(count, columns)
    assert len(made.axes) == len(made.figure.axes) == count
    assert made.axes[0].get_subplotspec().get_gridspec().get_geometry() == shape
    assert [made.left(i) for i in range(count)] == [i % shape[1] == 0 for i in range(count)]
    with pytest.raises(FedscapeError, match="0 panels in a row"):
        grid(count, 0)


@pytest.mark.parametrize("place", ["right", "below"])
@pytest.mark.parametrize("panels", [1, 3, 5])
def test_title_panels_legend_and_caption_do_not_overlap(place, panels):
    made = grid(panels)
    lines = [made.axes[0].plot([0, 1], label=str(i))[0] for i in range(9)]
    for ax in made.axes:
        ax.set(xlabel="x", ylabel="y", title="panel")
    add_legend(made, {f"a long label {i}": line for i, line in enumerate(lines)}, place)
    figure = made.finish("title", "a caption that is long " * 20)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = [made.body.legends[0].get_window_extent(renderer), figure._suptitle.get_window_extent(renderer)]
    boxes += [figure._supxlabel.get_window_extent(renderer), *(ax.get_tightbbox(renderer) for ax in made.axes)]
    assert not [(i, j) for (i, a), (j, b) in itertools.combinations(enumerate(boxes), 2) if a.overlaps(b)]
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1


def test_a_papers_style_sets_the_width():
    with PictureStyle("paper", "icml2024", columns=1).drawing():
        made = grid(4)
        add_legend(made, {f"algorithm {i}": made.axes[0].plot([0, 1])[0] for i in range(8)}, "auto")
        assert made.figure.get_figwidth() == 3.25
        assert made.columns == 2, "four panels in a row would be narrower than 1.5 inches"
        renderer = FigureCanvasAgg(made.figure).get_renderer()
        made.figure.draw(renderer)
        (legend,) = made.body.legends
        box = legend.get_window_extent(renderer)
        assert box.x0 >= 0
        assert box.x1 <= made.figure.bbox.x1
        assert not any(box.overlaps(ax.get_tightbbox(renderer)) for ax in made.axes)
    with PictureStyle("paper", "icml2024").drawing():
        widths = [
            grid(4).figure.get_figwidth(),
            grid(1).figure.get_figwidth(),
            grid(1, size=(9, 3)).figure.get_figwidth(),
        ]
    assert widths == [6.75, 3.25, 6.75], "panels beside each other, and a wide one, take the text's width"
    assert grid(4).columns == 4


def test_lines_and_markers_follow_the_style():
    with rc_context({"lines.linewidth": 0.5, "lines.markersize": 2.0}):
        assert (line_width(2), marker_size(2)) == (1.0, 4.0)


def test_what_is_no_array_of_numbers_is_refused():
    with pytest.raises(FedscapeError, match="heights are no numbers"):
        array(["a"], "heights")
    with pytest.raises(FedscapeError, match=r"heights have the shape \[1, 2\]"):
        array([[1, 2]], "heights")
    with pytest.raises(FedscapeError, match="unknown place of the legend 'left'"):
        add_legend(grid(1), {}, "left")
