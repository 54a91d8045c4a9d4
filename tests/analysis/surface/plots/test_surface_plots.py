"""Pictures of surfaces show the values they are given, where they belong, and say what is measured."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from analysis.surface import Surface
from analysis.surface.marked_points import Mark
from analysis.surface.plots.figures import draw
from analysis.surface.plots.lines import plot_lines
from analysis.surface.plots.panels import plot_surface, plot_surfaces, plot_three
from analysis.surface.plots.reliefs import plot_reliefs, plot_superimposed
from analysis.surface.plots.scales import Scale
from landscape import FedscapeError
from landscape.storage.style import PictureStyle
from tests.analysis.surface.test_store import provenance

X, Y = np.linspace(-1, 2, 7), np.linspace(0, 1, 5)


def made(loss: np.ndarray | None = None, **changes: object) -> Surface:
    """A surface on a grid that is not square, with a loss that no swapped axes hide behind."""
    first = 1 + X[None] ** 2 + 0.1 * Y[:, None] if loss is None else loss
    values: dict = {
        "x": X,
        "y": Y,
        "loss": first,
        "accuracy": np.exp(-np.abs(first)),
        "measured": np.ones(first.shape, bool),
        "provenance": provenance(),
        "notes": {"cosine": 0.0},
        "seconds": 1.0,
    }
    return Surface(**{**values, **changes})


def with_test(surface: Surface, loss: np.ndarray) -> Surface:
    """The surface with test data of these losses beside it."""
    origin = replace(surface.provenance, split="test", samples=17)
    return replace(surface, test=replace(surface, loss=loss, accuracy=np.exp(-np.abs(loss)), provenance=origin))


def line(loss: np.ndarray, **changes: object) -> Surface:
    rows = np.atleast_2d(loss)
    x = np.linspace(0, 1, rows.shape[1])
    return made(rows, x=x, y=np.arange(float(len(rows))), kind="line", **changes)


def faces(cells: Poly3DCollection) -> np.ndarray:
    """The corners of a relief's cells, [cells, 4, 3]: no public name of Matplotlib's, and another one up to 3.10."""
    if hasattr(cells, "_faces"):
        return np.asarray(cells._faces)
    return np.stack([cells._vec[:3, cell].T for cell in cells._segslices])


@pytest.mark.filterwarnings("error")
def test_heat_map_has_every_value_at_its_coordinates():
    surface = made()
    figure = plot_surface(surface, "heatmap", "linear")
    for ax, values in zip(figure.axes, (surface.loss, 100 * surface.accuracy), strict=False):
        (cells,) = ax.collections
        np.testing.assert_array_equal(cells.get_array(), values)
        corners = cells.get_coordinates()
        np.testing.assert_allclose((corners[0, 1:, 0] + corners[0, :-1, 0]) / 2, X, atol=1e-12)
        np.testing.assert_allclose((corners[1:, 0, 1] + corners[:-1, 0, 1]) / 2, Y, atol=1e-12)


def test_contours_are_where_the_closed_form_has_them():
    surface = made(np.broadcast_to(3 * X[None] + Y[:, None], (5, 7)).copy())
    (filled, lines) = plot_surface(surface, scale="linear").axes[0].collections[:2]
    np.testing.assert_allclose(filled.levels[[0, -1]], [surface.loss.min(), surface.loss.max()])
    for level, path in zip(lines.levels, lines.get_paths(), strict=True):
        for x, y in path.vertices:
            assert 3 * x + y == pytest.approx(level)


def test_several_share_axes_scale_and_one_colour_bar():
    surfaces = [made(), made(50 * made().loss, x=2 * X), made()]
    figure = plot_surfaces(surfaces, ["a", "b", "c"], kind="heatmap")
    *panels, bar = figure.axes
    assert [ax.get_title() for ax in panels] == ["a", "b", "c"]
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in panels}) == 1
    norms = [ax.collections[0].norm for ax in panels]
    assert {(type(n), n.vmin, n.vmax) for n in norms} == {(LogNorm, surfaces[0].loss.min(), surfaces[1].loss.max())}
    assert bar.get_ylabel().replace("\n", " ").endswith("log scale")
    rows = plot_surfaces(surfaces, quantities=("loss", "error"))
    assert len(rows.axes) == 8
    assert rows.axes[-1].get_ylabel() == "training error (%)"


def test_interpolated_points_are_told_and_measured_ones_dotted():
    computed = np.zeros((5, 7), bool)
    computed[::2, ::3] = True
    surface = made(computed=computed, estimated_error=0.005)
    figure = plot_surface(surface)
    caption = figure.get_supxlabel().replace("\n", " ")
    assert "7 × 5 points, 9 of them measured, the others interpolated (estimated errors: loss 0.5 %)" in caption
    assert "small dots: measured" in caption
    spread, checks = {"train_acc": 1.25, "test_acc": 3.5}, {"points": 20, "largest": 0.003, "within": 0.002}
    noted = replace(surface, notes={"spread": spread, "checks": checks})
    checked = "; checked at 20 random points: largest error of the loss 0.3 %, 95 % of them within 0.2 %)"
    for found, points in ((noted, "1.2"), (with_test(noted, surface.loss), "3.5")):
        caption = plot_surface(found).get_supxlabel().replace("\n", " ")
        assert f"(estimated errors: loss 0.5 %, accuracy {points} points{checked}" in caption
    older = replace(surface, notes={"spread": spread})  # the largest deviation that was seen, not an estimate
    assert "accuracy 3.8 points)" in plot_surface(older).get_supxlabel().replace("\n", " ")
    dots = next(drawn for drawn in figure.axes[0].lines if drawn.get_marker() == "." and len(drawn.get_xdata()) == 9)
    assert set(zip(dots.get_xdata(), dots.get_ydata(), strict=True)) == {(x, y) for y in Y[::2] for x in X[::3]}
    for other in (plot_reliefs([surface]), plot_superimposed([surface, surface], ["a", "b"])):
        assert "9 of them measured, the others interpolated" in other.get_supxlabel().replace("\n", " ")
    exact = plot_surface(made()).get_supxlabel()
    assert "others interpolated" not in exact
    assert "small dots" not in exact


def test_models_and_trajectory_lie_where_they_are():
    way = np.array([[-0.5, 0.2], [0.5, 0.9], [9.0, 0.5]])
    marks = (Mark("α = $0$", 0.0, 0.25), Mark("b", 1.5, 0.75), Mark("c", -0.5, 0.9))
    figure = plot_surface(made(marks=marks, trajectory=way, kind="three"))
    ax = figure.axes[0]
    drawn = {one.get_label(): one.get_xydata().tolist() for one in ax.lines}
    assert drawn["trajectory"] == way.tolist()
    assert drawn["models"] == [[0.0, 0.25], [1.5, 0.75], [-0.5, 0.9]]
    assert [text.get_text() for text in ax.texts] == ["α = $0$", "b", "c"]
    assert ax.patches[0].get_xy()[:3].tolist() == drawn["models"]
    caption = figure.get_supxlabel().replace("\n", " ")
    assert "3 models on the way" in caption
    assert "1 of them outside the picture" in caption


def test_a_model_alone_has_no_label_and_is_told_once():
    alone = (Mark("checkpoint", 0.0, 0.5),)
    for figure in (plot_surface(made(marks=alone)), plot_reliefs([made(marks=alone)])):
        assert [text.get_text() for ax in figure.axes for text in ax.texts] == []
        assert figure.get_supxlabel().replace("\n", " ").endswith("white dot: the checkpoint")
    several = plot_surfaces([made(marks=alone), made(marks=alone)], ["a", "b"])
    assert "white dots: the models" in several.get_supxlabel().replace("\n", " ")


def test_models_are_named_by_the_beginnings_of_their_digests():
    for others, told in (
        ("dddddddddd eeeeeeeeee", "cccccccc, dddddddd, eeeeeeee;"),
        ("d e f", "cccccccc and 3 others;"),
    ):
        caption = plot_surface(made(provenance=replace(provenance(), others=others))).get_supxlabel()
        assert caption.startswith(f"checkpoint {told}")


def test_lines_say_what_they_go_through():
    rows = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]])
    for profile, told in ((rows, "Loss along random lines through"), (rows[:1], "Loss along a random line through")):
        assert plot_lines([replace(line(profile), kind="profile")]).get_suptitle().startswith(told)


def test_three_models_show_training_loss_and_test_error():
    train, kind = made(kind="three"), "three"
    test = made(2 * train.loss, kind=kind, provenance=replace(train.provenance, split="test"))
    figure = plot_three(train, test)
    assert [ax.get_title() for ax in figure.axes[:2]] == ["training loss", "test error"]
    assert figure.axes[3].get_ylabel() == "test error (%)"
    with pytest.raises(FedscapeError, match="training split first"):
        plot_three(train, train)
    with pytest.raises(FedscapeError, match="different planes"):
        plot_three(train, replace(test, provenance=replace(test.provenance, plane="other")))


@pytest.mark.filterwarnings("error")
def test_test_data_have_a_row_of_their_own_on_the_same_scale():
    train = with_test(made(), 3 * made().loss)
    figure = plot_surface(train, "heatmap", "linear")
    panels = figure.axes[:4]
    assert [ax.get_title() for ax in panels] == ["training loss", "training accuracy", "test loss", "test accuracy"]
    for ax, values in zip(
        panels, (train.loss, 100 * train.accuracy, train.test.loss, 100 * train.test.accuracy), strict=True
    ):
        np.testing.assert_array_equal(ax.collections[0].get_array(), values)
    norms = [ax.collections[0].norm for ax in panels]
    assert norms[0] is norms[2]
    assert (norms[0].vmin, norms[0].vmax) == (train.loss.min(), train.test.loss.max())
    assert [ax.get_ylabel() for ax in figure.axes[4:]] == ["mean loss (cross-entropy, nats)", "accuracy (%)"]
    assert figure.get_suptitle().endswith("training samples, 17 test samples")
    several = plot_surfaces([train, train], ["a", "b"])
    assert [ax.get_title() for ax in several.axes[:4]] == ["a, training", "b, training", "a, test", "b, test"]
    half = plot_surfaces([train, made()], ["a", "b"])
    assert [ax.get_title() for ax in half.axes[:2]] == ["a", "b"]


@pytest.mark.filterwarnings("error")
def test_largest_eigenvalues_have_a_panel_where_they_were_measured():
    curved = made(lambda_max=10 * X[None] + Y[:, None])
    figure = plot_surface(curved, "heatmap", "linear")
    assert [ax.get_title() for ax in figure.axes[:3]] == ["loss", "accuracy", "λ_max"]
    np.testing.assert_array_equal(figure.axes[2].collections[0].get_array(), curved.lambda_max)
    assert figure.axes[-1].get_ylabel() == "λ_max of the Hessian (training loss)"
    tested = with_test(curved, 3 * made().loss)
    tested = replace(tested, test=replace(tested.test, lambda_max=None))
    assert [ax.get_title() for ax in plot_surface(tested).axes[:4]] == [
        "training loss", "training accuracy", "test loss", "test accuracy",
    ]  # fmt: skip
    for pair in ([tested, tested], [curved, curved]):
        alone = draw(pair, ["a", "b"], "heatmap", quantity="lambda_max")
        np.testing.assert_array_equal(alone.axes[1].collections[0].get_array(), curved.lambda_max)
        assert len(alone.axes) == 3
        assert draw(pair, ["a", "b"], "relief", quantity="lambda_max").axes[0].get_title().startswith("a")
        assert draw(pair, ["a", "b"], "superimposed", quantity="lambda_max").axes[0].get_title().startswith("a on b")
    values = np.array([4.0, 1.0, 9.0])
    along = with_test(line(np.ones(3), lambda_max=values[None]), np.ones((1, 3)))
    along = replace(along, test=replace(along.test, lambda_max=None))
    (curve,) = (one for one in plot_lines([along]).axes[2].lines if one.get_linestyle() == "-")
    np.testing.assert_array_equal(curve.get_ydata(), values)
    assert len(draw([along], quantity="lambda_max").axes) == 1
    with pytest.raises(FedscapeError, match=r"λ_max was not measured.*--lambda-max"):
        draw([made()], quantity="lambda_max")


@pytest.mark.filterwarnings("error")
def test_reliefs_show_the_test_data_too():
    train = with_test(made(), 3 * made().loss)

    def heights_of(ax):
        (cells,) = (c for c in ax.collections if isinstance(c, Poly3DCollection))
        return faces(cells)[:, :, 2]

    axes = plot_reliefs([train], scale="linear").axes
    assert [ax.get_title() for ax in axes[:4]] == ["training loss", "training accuracy", "test loss", "test accuracy"]
    np.testing.assert_allclose(heights_of(axes[2]), 3 * heights_of(axes[0]))
    assert axes[2].get_zlabel().replace("\n", " ") == "mean test loss (cross-entropy, nats)"
    above = plot_superimposed([train, train], ["a", "b"], scale="linear").axes
    assert [ax.get_title() for ax in above[:2]] == ["a on b, training", "a on b, test"]
    np.testing.assert_allclose(heights_of(above[1]), 3 * heights_of(above[0]))


def test_test_data_of_a_line_are_dashed():
    rows = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 5.0]])
    figure = plot_lines([with_test(line(rows), 2 * rows)], ["m"], "linear")
    for ax, values in zip(figure.axes, (rows, 100 * np.exp(-rows)), strict=True):
        solid, dashed = (one for one in ax.lines if one.get_linestyle() in ("-", "--"))
        tests = 2 * rows if values is rows else 100 * np.exp(-2 * rows)
        np.testing.assert_allclose(solid.get_ydata(), values.mean(axis=0))
        np.testing.assert_allclose(dashed.get_ydata(), tests.mean(axis=0))
        assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["m, training", "m, test"]
        assert len(ax.collections) == 2, "a band each"
    assert [ax.get_ylabel() for ax in figure.axes] == ["mean loss (cross-entropy, nats)", "accuracy (%)"]
    assert "solid: training, dashed: test" in figure.get_supxlabel()
    marks = (Mark("a", 0.0, 0.0), Mark("b", 1.0, 0.0))
    bump = with_test(line(np.array([1.0, 3.0, 1.0]), marks=marks), np.array([[1.0, 5.0, 1.0]]))
    texts = [text.get_text() for text in plot_lines([bump], ["m"]).axes[0].get_legend().get_texts()]
    assert texts == ["m, training: barrier 2", "m, test: barrier 4"]


def test_axes_that_are_not_to_scale_are_told():
    for one in (plot_surface, lambda surface: plot_reliefs([surface]), Surface.plot):
        for stretch, told in ((0.8, False), (0.9, True)):
            surface = made(x=np.linspace(0, 3 * stretch, 7), kind="three")
            assert ("axes not to the same scale" in one(surface).get_supxlabel().replace("\n", " ")) is told
    to_scale, not_to_scale = (plot_surface(made(x=x)).axes[0] for x in (X / 1.5, X))
    assert (to_scale.get_aspect(), not_to_scale.get_aspect()) == (1.0, "auto")
    box = plot_reliefs([made(x=X / 1.5)], quantity="loss").axes[0]._box_aspect
    assert box[0] / box[1] == pytest.approx(2.0), "the relief's base is to scale too"
    assert "same scale" not in plot_lines([line(np.arange(3.0))]).get_supxlabel()


def test_scale_is_what_is_asked_for_and_told():
    values = np.array([1.0, 2.0, 4.0])
    assert Scale.of(values, "log").logarithmic
    assert not Scale.of(100 * values - 99, "linear").logarithmic
    assert isinstance(Scale.of(values).norm, Normalize)
    assert not Scale.of(values).logarithmic
    assert Scale.of(np.array([1.0, 11.0])).logarithmic
    assert Scale.of(values, "log").label("loss") == "loss, log scale"
    assert Scale.of(np.array([np.nan, np.inf])) is None
    with pytest.raises(FedscapeError, match="reach -1"):
        Scale.of(np.array([-1.0, 1.0]), "log")
    with pytest.raises(FedscapeError, match="unknown scale 'sqrt'"):
        Scale.of(values, "sqrt")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_relief_passes_through_every_value(scale):
    surface = made()
    ax = plot_reliefs([surface], scale=scale).axes[0]
    (cells,) = (c for c in ax.collections if isinstance(c, Poly3DCollection))
    corners = {tuple(point) for cell in faces(cells) for point in np.round(cell, 9)}
    raised = np.log10(surface.loss) if scale == "log" else surface.loss
    wanted = {tuple(np.round((x, y, raised[j, i]), 9)) for j, y in enumerate(Y) for i, x in enumerate(X)}
    assert corners == wanted
    assert ("log scale" in ax.get_zlabel().replace("\n", " ")) == (scale == "log")


def test_relief_leaves_out_cells_without_a_value():
    loss = made().loss.copy()
    loss[0, 0], loss[4, 6] = np.nan, np.inf
    figure = plot_reliefs([made(loss)], quantity="loss")
    (cells,) = (c for c in figure.axes[0].collections if isinstance(c, Poly3DCollection))
    assert len(faces(cells)) == 4 * 6 - 2
    nothing = plot_reliefs([made(np.full((5, 7), np.nan))], quantity="loss")
    assert [text.get_text() for text in nothing.axes[0].texts] == ["no finite value"]


def test_superimposed_has_the_first_as_a_grid_over_each_other():
    low, high = made(), made(made().loss + 1)
    figure = plot_superimposed([low, high, high], ["ours", "theirs", "others"])
    assert [ax.get_title() for ax in figure.axes] == ["ours on theirs", "ours on others"]
    assert len({ax.get_zlim() for ax in figure.axes}) == 1
    (cells,) = (c for c in figure.axes[0].collections if isinstance(c, Poly3DCollection))
    transparent = cells._facecolor3d[:, 3] == 0
    assert transparent.sum() == (~transparent).sum() == 24
    np.testing.assert_allclose(faces(cells)[~transparent][:, :, 2], faces(cells)[transparent][:, :, 2] + 1)
    assert "grid: ours" in figure.get_supxlabel()


def test_superimposed_has_the_label_of_its_joint_heights_once_a_row_on_a_page():
    surfaces = [made(), made(), made()]
    with PictureStyle("paper").drawing():
        paper = plot_superimposed(surfaces, ["ours", "theirs", "others"])
    screen = plot_superimposed(surfaces, ["ours", "theirs", "others"])
    assert [bool(ax.get_zlabel()) for ax in paper.axes] == [False, True]
    assert [bool(ax.get_zlabel()) for ax in screen.axes] == [True, True]


def test_barrier_is_the_height_over_the_chord():
    x = np.linspace(0, 1, 11)
    marks = (Mark("a", 0.0, 0.0), Mark("b", 1.0, 0.0))
    found = line(2 - x + 4 * x * (1 - x), marks=marks).barrier
    assert (found.height, found.x) == (pytest.approx(1.0), pytest.approx(0.5))
    assert line(2 - x - x * (1 - x), marks=marks).barrier.height == 0
    assert line(x).barrier is None
    inner = (Mark("a", 0.2, 0.0), Mark("b", 0.8, 0.0))
    assert line(np.abs(x - 0.5), marks=inner).barrier.height == 0
    figure = plot_lines([line(2 - x + 4 * x * (1 - x), marks=marks)], ["m"])
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "m: barrier 1"


def test_lines_are_drawn_with_a_band_over_directions_or_of_standard_errors():
    rows = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]])
    ax = plot_lines([line(rows)], ["m"]).axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2, 2, 5])
    band = ax.collections[0].get_paths()[0].vertices
    for x, (low, high) in zip((0, 0.5, 1), rows.T, strict=True):
        assert {min(low, high), max(low, high)} <= set(band[np.isclose(band[:, 0], x), 1])
    one = line(rows[0], loss_stderr=np.array([[0.1, 0.2, 0.3]]))
    figure = plot_lines([one], ["m"])
    assert "two standard errors" in figure.get_supxlabel()
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(3.6)
    seeds = [replace(provenance(), seed=k) for k in range(2)]
    parts = plot_lines([line(row, provenance=seed) for row, seed in zip(rows, seeds, strict=True)])
    np.testing.assert_array_equal(parts.axes[0].lines[0].get_ydata(), [2, 2, 5])
    two = plot_lines([line(rows[0]), line(rows[1])], ["m", "m"])
    np.testing.assert_array_equal(two.axes[0].lines[0].get_ydata(), [2, 2, 5])


def test_lines_between_other_models_are_other_curves():
    rows = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]])
    ends = [(Mark("a", 0.0, 0.0), Mark(name, 1.0, 0.0)) for name in "bc"]
    ax = plot_lines([line(row, marks=marks) for row, marks in zip(rows, ends, strict=True)]).axes[0]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["a → b: no barrier", "a → c: no barrier"]


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda: plot_surfaces([]), "no surface to draw"),
        (lambda: plot_surfaces([made()], ["a", "b"]), "2 labels for 1 surfaces"),
        (lambda: plot_surfaces([made()], kind="bars"), "unknown kind of panel 'bars'"),
        (lambda: plot_surfaces([made()], quantities=("f1",)), "unknown quantity 'f1'"),
        (lambda: plot_surfaces([made(accuracy=None)], quantities=("accuracy",)), "has no accuracy"),
        (lambda: plot_surfaces([made(made().loss - 9)], scale="log"), "no logarithmic scale"),
        (lambda: plot_surfaces([line(np.arange(3.0))]), "a line has no second axis"),
        (lambda: plot_reliefs([line(np.arange(3.0))]), "a line has no second axis"),
        (lambda: plot_superimposed([made()]), "give two or more"),
        (lambda: plot_lines([made()]), "a plane is no line"),
        (lambda: plot_lines([line(np.arange(3.0)), line(np.arange(4.0))], ["a", "a"]), "different points"),
        (
            lambda: plot_surfaces([made(), made(provenance=replace(provenance(), split="test"))]),
            r"differ in their split \(train, test\)",
        ),
    ],
)
def test_bad_input_is_told_in_a_sentence(draw, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        draw()
