"""What a picture shows and what its numbers say are the same: lines, bands, bars, images, reliefs, bar by bar."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import figures.plots.surfaces
from figures.commands.numbers import numbers_of
from figures.contents.content import Picture, Results
from figures.labels.files import lines
from figures.labels.pictures import panels_of
from figures.plots import Curve, CurvePanel, Level, Sweep, SweepPanel, plot_curves, plot_sweeps
from figures.recipes import PAPERS, Asked, chosen
from landscape import FedscapeError
from tests.analysis.surface.plots.test_surface_plots import faces
from tests.figures.labels.pretended import results

pytest.importorskip("xarray")


@pytest.fixture
def shown(tmp_path):
    """The products of a figure, from results that nobody measured, with the axes and the numbers of each panel."""

    def products(name, **choices):
        (recipe,) = chosen(PAPERS, (name,))
        content = recipe.content(Asked(choices=choices))
        found = []
        for product in content.products(results(content.nodes(), tmp_path), {}):
            if isinstance(product.shows, Picture):
                figure = product.shows.draw()
                axes = {ax.get_title(): ax for ax in figure.axes}
                nodes = panels_of(product.shows)
                found.append((product, [(axes.get(node.attrs["title"]), node) for node in nodes.values()], figure))
        return found

    yield products
    plt.close("all")


def told(array, **at):
    """Places and numbers of a line, without those that it has not."""
    line = array.sel(**at).dropna(array.dims[-1])
    return np.array([line[array.dims[-1]].values, line.values], dtype=float)


def drawn(line):
    """Places and numbers of a drawn line."""
    at, values = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    return np.array([at[np.isfinite(values)], values[np.isfinite(values)]])


def band(collection, at):
    """The edges of a band at a place."""
    vertices = np.concatenate([path.vertices for path in collection.get_paths()])
    there = vertices[np.isclose(vertices[:, 0], at), 1]
    return there.min(), there.max()


def same_numbers(product, *nodes):
    """Every number of the CSV file is one of the labelled ones."""
    texts = [cell for row in product.numbers.rows for cell in row[1:] if isinstance(cell, float)]
    known = np.concatenate(
        [array.values.ravel().astype(float) for node in nodes for array in node.dataset.variables.values()
         if array.dtype.kind in "iufb"]
    )  # fmt: skip
    known = np.sort(known[np.isfinite(known)])
    for number in texts:
        near = known[np.clip(np.searchsorted(known, number) + np.arange(-1, 1), 0, len(known) - 1)]
        assert np.isclose(near, number, rtol=1e-12).any(), number


def test_lines_of_curves_are_the_numbers(shown):
    ((product, panels, _),) = shown("man/F2")
    assert len(panels) == 3
    for ax, node in panels:
        for label, line in zip(node.curve.values, ax.lines, strict=True):
            np.testing.assert_array_equal(told(node["value"], curve=label), drawn(line))
        assert node["value"].attrs == {"units": "1", "long_name": "test accuracy"}
    same_numbers(product, *(node for _, node in panels))


def test_bands_and_levels_are_the_numbers():
    short = Curve("b", np.array([2, 4]), np.array([0.3, 0.4]))
    wide = Curve("a", np.arange(1, 4), np.array([0.5, 0.6, 0.7]), np.array([0.4, 0.5, 0.5]), np.array([0.6, 0.7, 0.9]))
    panel = CurvePanel("p/q", [wide, short], [Level("target", 0.8)])
    picture = Picture([panel], plot_curves, {"ylabel": "loss (nats)"}, "nat")
    (ax,) = picture.draw().axes
    node = panels_of(picture)["p-q"]
    assert (node.attrs["title"], ax.get_title()) == ("p/q", "p/q")
    assert node["round"].values.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(told(node["value"], curve="b"), [[2, 4], [0.3, 0.4]])
    assert node["value"].attrs == {"units": "nat", "long_name": "loss"}
    edges = [band(ax.collections[0], at) for at in (1, 2, 3)]
    np.testing.assert_allclose(edges, np.stack([told(node[edge], curve="a")[1] for edge in ("low", "high")], axis=1))
    assert np.isnan(node["low"].sel(curve="b")).all()
    assert node["level_value"].sel(level="target") == ax.lines[-1].get_ydata()[0] == 0.8
    plt.close("all")


def test_lines_of_clients_are_the_numbers_by_their_ids(shown):
    (product, panels, _), _ = shown("flat-minima/F3")
    for ax, node in panels:
        assert node.client.values.tolist() == [1, 2, 4, 7, 8]
        thin, (_, bold) = ax.lines[:5], ax.lines[5:]
        for client, line in zip(node.client.values, thin, strict=True):
            np.testing.assert_array_equal(told(node["value"], client=client), drawn(line))
        np.testing.assert_array_equal(told(node["bold"].isel(curve=0)), drawn(bold))
    same_numbers(product, *(node for _, node in panels))


def test_points_of_sampled_clients_are_the_numbers(shown):
    ((product, panels, _),) = shown("flat-minima/F4")
    for ax, node in panels:
        for label, points in zip(node.label.values, ax.lines, strict=False):
            found = node["value"].sel(label=label).stack(point=("round", "client")).dropna("point")
            np.testing.assert_array_equal(np.array([found["round"].values, found.values]), drawn(points))
        for curve, line in zip(node.curve.values, ax.lines[len(node.label) :], strict=True):
            np.testing.assert_array_equal(told(node["beside"], curve=curve), drawn(line))
        assert node["value"].attrs["units"] == "loss / parameter²"
    same_numbers(product, *(node for _, node in panels))


def test_a_band_of_clients_is_from_the_smallest_to_the_largest(shown):
    ((product, _, _),) = shown("flat-minima/F4")
    picture = product.shows
    as_band = Picture(picture.panels, picture.plot, {**picture.options, "kind": "band"}, picture.unit)
    axes = {ax.get_title(): ax for ax in as_band.draw().axes}
    for title, node in panels_of(as_band).items():
        first = node.sel(label=node.label.values[0]) if "label" in node.dims else node
        low, high, middle = axes[title].lines[:3]
        for name, line in (("low", low), ("high", high), ("median", middle)):
            np.testing.assert_array_equal(told(first[name]), drawn(line))


def test_eigenvalues_are_the_numbers(shown):
    ((product, panels, _),) = shown("man/F4a")
    for ax, node in panels:
        for k, label in enumerate(node.curve.values):
            at, values = told(node["value"], curve=label)
            sizes = ~node["doubtful"].sel(curve=label).values.astype(bool)
            line = next(line for line in ax.lines if line.get_label() == label)
            np.testing.assert_array_equal(np.array([at[sizes], values[sizes]]), drawn(line))
            bounds = node["error_bound"].sel(curve=label).values
            assert band(ax.collections[k], 1)[1] == pytest.approx(values[0] + bounds[0])
        assert node["value"].attrs["units"] == "loss / parameter²"
    same_numbers(product, *(node for _, node in panels))


def test_densities_are_the_numbers_on_the_ruler_of_the_picture(shown):
    ((product, panels, _),) = shown("man/F4b")
    for ax, node in panels:
        for label, line, area in zip(node.curve.values, ax.lines, ax.collections, strict=False):
            one = node.sel(curve=label) if "curve" in node.dims else node
            np.testing.assert_array_equal(line.get_xdata(), one["eigenvalue"])
            np.testing.assert_array_equal(line.get_ydata(), np.maximum(one["density"], 1e-300))
            top = int(np.argmax(one["density"].values))
            high = float(one["density"][top] + one["half_band"][top])
            assert band(area, float(one["eigenvalue"][top]))[1] == pytest.approx(high)
    same_numbers(product, *(node for _, node in panels))


def test_bars_are_the_numbers(shown):
    for product, panels, _ in shown("flat-minima/F6"):
        for ax, node in panels:
            for label, bars in zip(node.bar.values, ax.containers, strict=True):
                assert [bar.get_height() for bar in bars] == node["value"].sel(bar=label).values.tolist()
            assert node["group"].values.tolist() == ["fog", "gaussian noise", "contrast", "mean"]
            assert {row[1] for row in product.numbers.rows} >= {"fog", "mean"}


def test_sweeps_are_the_numbers(shown):
    ((product, panels, _),) = shown("fedsmoo/F4")
    for ax, node in panels:
        (line,) = [container[0] for container in ax.containers]
        places, values = told(node["value"], curve="FedSMOO")
        at = np.arange(len(places)) if node.attrs["spacing"] == "even" else places
        np.testing.assert_array_equal(np.array([at, values]), drawn(line))
        assert node["value"].attrs == {"units": "%", "long_name": "test accuracy"}
        assert node["parameter"].attrs["long_name"] == ax.get_xlabel()
    same_numbers(product, *(node for _, node in panels))


def test_error_bars_of_sweeps_are_the_deviations():
    sweep = Sweep("a", np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([0.5, 0.25]))
    picture = Picture([SweepPanel("p", "β", [sweep], default=2.0)], plot_sweeps, {"ylabel": "accuracy (%)"}, "%")
    (ax,) = picture.draw().axes
    node = panels_of(picture)["p"]
    half = [np.ptp(path[:, 1]) / 2 for path in ax.containers[0][2][0].get_segments()]
    np.testing.assert_allclose(node["deviation"].sel(curve="a"), half)
    assert node.attrs["default"] == 2.0
    plt.close("all")


def test_heat_maps_and_histograms_are_the_numbers(shown):
    ((product, panels, _),) = shown("fedsmoo/F5")
    for ax, node in panels:
        (image,) = ax.images
        np.testing.assert_array_equal(np.asarray(image.get_array()).T, node["samples"])
    ((product, panels, _),) = shown("fedsmoo/F2")
    for ax, node in panels:
        assert [bar.get_height() for bar in ax.patches[: len(node["class"])]] == node[
            "with_replacement"
        ].values.tolist()
        np.testing.assert_array_equal(ax.patches[-1].get_data().values, node["without_replacement"])
        assert node["without_replacement"].attrs["units"] == "sample"
    same_numbers(product, *(node for _, node in panels))


def corners(x, y, values):
    """The corners of a relief's cells, sorted."""
    across, up = np.meshgrid(x, y)
    grid = np.stack([across, up, values], axis=-1)
    cells = np.stack([grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]], axis=2).reshape(-1, 3)
    return np.unique(cells.round(9), axis=0)


def test_reliefs_have_the_heights_of_the_numbers_on_own_and_joint_scales(shown):
    found = {product.name: panels for product, panels, _ in shown("man/F1")}
    for name in ("relief-own-scale", "relief-joint-scale"):
        for ax, node in found[name]:
            cells = ax.collections[0]
            every = np.unique(faces(cells).reshape(-1, 3).round(9), axis=0)
            np.testing.assert_allclose(every, corners(node.x.values, node.y.values, node["height"].values), atol=1e-8)
            capped = np.minimum(node["loss"], node.attrs["cap"])
            np.testing.assert_allclose(node["height"], np.log(capped + 0.1))


def test_contours_and_planes_are_drawn_from_the_numbers(shown, monkeypatch):
    seen = []
    draw = figures.plots.surfaces.draw_panel

    def spy(ax, surface, values, *rest):
        seen.append((ax, values))
        return draw(ax, surface, values, *rest)

    monkeypatch.setattr(figures.plots.surfaces, "draw_panel", spy)
    for name, kind, quantity in (("fedsam/F2", "contours-own-scale", "height"), ("flat-minima/F2", "", "value")):
        seen.clear()
        found = {product.name: panels for product, panels, _ in shown(name)}[kind]
        values = {id(ax): drawn for ax, drawn in seen}
        for ax, node in found:
            np.testing.assert_array_equal(values[id(ax)], node[quantity].values)
    assert {node["value"].attrs["units"] for _, node in found} == {"nat", "%"}


def test_one_surface_over_others_has_the_losses_of_the_numbers(shown):
    ((product, panels, figure),) = shown("fedsmoo/F3")
    nodes = [node for _, node in panels]
    assert [node.attrs["title"] for node in nodes] == ["FedSMOO", "FedAvg", "SCAFFOLD", "MoFedSAM"]
    axes = {ax.get_title(): ax for ax in figure.axes}
    for node in nodes[1:]:
        ax = axes[f"FedSMOO on {node.attrs['title']}"]
        (cells,) = [each for each in ax.collections if len(faces(each))]
        every = np.unique(faces(cells).reshape(-1, 3).round(9), axis=0)
        low, high = ax.get_zlim()
        both = []
        for one in (node, nodes[0]):
            values = one["value"].values
            values = np.clip(np.log10(values) if "log" in ax.get_zlabel() or low < 0 else values, low, high)
            both.append(corners(one.x.values, one.y.values, values))
        np.testing.assert_allclose(every, np.unique(np.concatenate(both).round(9), axis=0), atol=1e-7)
    same_numbers(product, *nodes)


def test_two_panels_of_one_name_and_unknown_panels_are_refused():
    panel = CurvePanel("a/b", [Curve("x", np.array([1]), np.array([1.0]))])
    other = CurvePanel("a-b", panel.curves)
    with pytest.raises(FedscapeError, match="two panels are called 'a-b'"):
        panels_of(Picture([panel, other], plot_curves))
    with pytest.raises(FedscapeError, match="a dict has no labelled form"):
        panels_of(Picture([{}], plot_curves))


FAST = (
    "flat-minima/F1", "flat-minima/F2", "flat-minima/F3", "flat-minima/F4", "flat-minima/F6", "flat-minima/T1",
    "fedsam/F3", "fedsam/T3", "man/F4b", "fedsmoo/F2", "fedsmoo/F5", "fedsmoo/F8", "fedsmoo/T2",
)  # fmt: skip
"""One of each kind; the others take ten seconds together."""
IDS = [
    pytest.param(recipe.id, marks=[] if recipe.id in FAST else [pytest.mark.slow])
    for paper in PAPERS
    for recipe in paper.recipes.values()
]


@pytest.mark.parametrize("name", IDS)
def test_every_figure_and_table_has_numbers_with_coordinates_and_units(name, tmp_path):
    (recipe,) = chosen(PAPERS, (name,))
    asked = Asked()
    content = recipe.content(asked)
    given = results(content.nodes(), tmp_path)

    class Pretended:
        def result(self, node):
            return given[node]

    tree = numbers_of(recipe, asked, Pretended(), {}, "the command")
    assert (tree.attrs["figure"], tree.attrs["command"], tree.attrs["scale"]) == (name, "the command", "smoke")
    arrays = [array for node in tree.subtree for array in node.dataset.data_vars.values()]
    assert arrays
    for array in arrays:
        assert set(array.dims) <= {*array.coords, "point", "probe", "node", "atom"}, array.name
        if array.dtype.kind in "iufb":
            assert array.attrs["units"] not in ("", None), array.name
    for node in tree.subtree:
        if "row" in node.dataset.dims:
            assert all(node.dataset["unit"].values != ""), "every column of a table has a unit"
            assert set(node.dataset["cell"].values.ravel()) != {""}
    assert len(lines(tree).rows) >= len(arrays)


def test_a_node_without_a_result_is_told_in_the_attributes(tmp_path):
    (recipe,) = chosen(PAPERS, ("man/T2",))
    nodes = recipe.content(Asked()).nodes()
    given = results(nodes[1:], tmp_path)

    class Pretended:
        def result(self, node):
            return given[node]

    tree = numbers_of(recipe, Asked(), Pretended(), {nodes[0]: "no memory"})
    assert tree.attrs["failed"] == f"{nodes[0].name}: no memory"
    assert "failed: no memory" in set(tree["table"].dataset["cell"].values.ravel())
    assert isinstance(given, Results)
