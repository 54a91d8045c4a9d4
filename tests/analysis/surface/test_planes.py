"""Planes span what they say, and models lie in them where geometry puts them."""

import numpy as np
import pytest
import torch
from torch import nn

from analysis.surface.directions import Directions, random_directions
from analysis.surface.planes import (
    Plane,
    hessian_plane,
    line_between,
    pca_plane,
    plane_along,
    profiles,
    random_plane,
    three_plane,
    uniform,
)
from landscape import FedscapeError, Landscape
from tests.analysis.surface.test_directions import network

ABC = ["a", "b", "c"]


def landscape(module: nn.Module) -> Landscape:
    return Landscape(module, (torch.randn(4, 2, 4, 4), torch.zeros(4, dtype=torch.long)), device="cpu")


def vectors(count: int, d: int = 40, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(count, d, generator=generator, dtype=torch.float64))


def test_plane_spans_what_it_says():
    plane = random_plane(landscape(network()), seed=3)
    out = torch.empty_like(plane.origin)
    point = plane.point(0.5, -2.0, out=out)
    assert point is out
    torch.testing.assert_close(point, plane.origin + 0.5 * plane.directions[0] - 2.0 * plane.directions[1])
    assert torch.equal(plane.point(0.0, 0.0), plane.origin)


def test_random_plane_is_orthogonal_unless_it_is_left_as_drawn():
    function = landscape(network())
    assert abs(random_plane(function, 3).cosine) < 1e-6
    drawn = random_plane(function, 3, orthogonal=False)
    first, second = drawn.directions.double()
    assert drawn.cosine == pytest.approx(float(torch.cosine_similarity(first, second, dim=0)))
    assert 1e-3 < abs(drawn.cosine) < 0.5
    assert drawn.normalisation == "filter, as drawn"


def test_digest_tells_planes_apart():
    module = network()
    plane = random_plane(landscape(module), seed=3)
    assert plane.digest() == random_plane(landscape(module), seed=3).digest()
    assert plane.digest() != random_plane(landscape(module), seed=4).digest()
    with torch.no_grad():
        module[0].bias[0] += 1
    moved = random_plane(landscape(module), seed=3)
    assert torch.equal(moved.directions, plane.directions)
    assert moved.digest() != plane.digest()


def test_no_plane_around_weights_that_are_not_finite():
    module = network()
    with torch.no_grad():
        module[4].weight[0, 0] = float("nan")
    for make in (random_plane, profiles, hessian_plane):
        with pytest.raises(FedscapeError, match="not all finite"):
            make(landscape(module))


def test_no_plane_where_every_filter_is_zero():
    module = network()
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    with pytest.raises(FedscapeError, match="have no length"):
        random_plane(landscape(module))


def test_projection_is_exact_for_directions_of_any_length_and_angle():
    """A peer divides by ‖d‖ in place of ‖d‖² ("cos"), and treats oblique directions as orthogonal."""
    origin, first, second, away = vectors(4)
    directions = torch.stack([3 * first, 0.2 * second + first])
    basis, _ = torch.linalg.qr(directions.T)
    away -= basis @ (basis.T @ away)
    plane = Plane(origin, directions, "own", 0)
    assert abs(plane.cosine) > 0.9
    for x, y in ((0.0, 0.0), (2.0, -1.5), (-0.3, 4.0)):
        assert plane.project(plane.point(x, y) + away) == pytest.approx((x, y), abs=1e-10)


def saddle(values: list[float]) -> tuple[Landscape, torch.Tensor]:
    """½ Σ λ_i (q_i·w)² as a landscape of one sample, and its eigenvectors as rows."""
    q, _ = torch.linalg.qr(torch.stack(vectors(len(values), len(values), seed=1)))

    def objective(outputs, _):
        return 0.5 * (outputs @ q).square() @ torch.tensor(values, dtype=torch.float64)

    module = nn.Linear(len(values), 1, bias=False).double()
    eye = torch.eye(len(values), dtype=torch.float64)
    data = (eye, torch.zeros(len(values), 1, dtype=torch.float64))
    return Landscape(module, data, lambda out, t: objective(out[:, 0], t), device="cpu"), q.T


def test_hessian_plane_has_the_eigenvectors_of_a_saddle():
    function, q = saddle([5.0, -3.0, 0.5, 2.0, 1.0])
    plane = hessian_plane(function)
    assert plane.values == pytest.approx((5.0, 2.0), rel=1e-6)
    for found, wanted in zip(plane.directions, (q[0], q[3]), strict=True):
        assert abs(float(found @ wanted)) == pytest.approx(1, abs=1e-6)
        assert found[found.abs().argmax()] > 0
    w = plane.origin
    for x, y in ((1.0, 0.0), (0.0, -2.0), (0.5, 0.5)):
        parts = q @ (w + x * plane.directions[0] + y * plane.directions[1])
        wanted = 0.5 * float(parts.square() @ torch.tensor([5.0, -3.0, 0.5, 2.0, 1.0], dtype=torch.float64))
        assert function.value(plane.point(x, y)) == pytest.approx(wanted, rel=1e-9)


def test_three_models_lie_in_their_plane_at_their_distances():
    models = vectors(3)
    plane = three_plane(models, ABC)
    gram = plane.directions @ plane.directions.T
    torch.testing.assert_close(gram, torch.eye(2, dtype=torch.float64))
    for model, mark in zip(models, plane.marks, strict=True):
        torch.testing.assert_close(plane.point(mark.x, mark.y), model)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        apart = np.hypot(plane.marks[i].x - plane.marks[j].x, plane.marks[i].y - plane.marks[j].y)
        assert apart == pytest.approx(float((models[i] - models[j]).norm()))
    assert [mark.label for mark in plane.marks] == ABC


def test_barycentric_coordinates_are_the_weights_of_the_models():
    models = vectors(3)
    plane = three_plane(models, ABC)
    for weights in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (1 / 3, 1 / 3, 1 / 3), (1.5, -0.7, 0.2)):
        point = sum(share * model for share, model in zip(weights, models, strict=True))
        assert plane.shares(*plane.project(point)) == pytest.approx(weights, abs=1e-10)


def test_three_models_on_a_line_have_no_plane():
    a, b, _ = vectors(3)
    for models in ([a, b, a + 0.3 * (b - a)], [a, a, b], [a, b, a]):
        with pytest.raises(FedscapeError, match="lie on one line"):
            three_plane(models, ABC)
    with pytest.raises(FedscapeError, match="2 models are given"):
        three_plane([a, b], ABC)


def test_principal_components_are_those_of_the_singular_value_decomposition():
    models = vectors(6)
    plane = pca_plane(models, list("abcdef"))
    matrix = np.array([model.numpy() for model in models])
    _, singular, right = np.linalg.svd(matrix - matrix.mean(axis=0), full_matrices=False)
    for found, wanted in zip(plane.directions.numpy(), right, strict=False):
        assert abs(found @ wanted) == pytest.approx(1, abs=1e-10)
    assert plane.explained == pytest.approx(singular[:2] ** 2 / (singular**2).sum())
    wanted = (matrix - matrix[-1]) @ plane.directions.numpy().T
    np.testing.assert_allclose(plane.trajectory, wanted, atol=1e-12)
    assert (plane.trajectory[0] >= 0).all()
    assert [mark.label for mark in plane.marks] == ["a", "f"]
    assert (plane.marks[1].x, plane.marks[1].y) == pytest.approx((0, 0), abs=1e-12)


def test_trajectory_within_a_plane_is_explained_whole_and_its_grid_holds_it():
    origin, first, second = vectors(3)
    models = [origin + np.cos(t) * first + t * second for t in range(8)]
    plane = pca_plane(models, [str(t) for t in range(8)])
    assert sum(plane.explained) == pytest.approx(1)
    for model, (x, y) in zip(models, plane.trajectory, strict=True):
        torch.testing.assert_close(plane.point(x, y), model)
    x, y = plane.grid((7, 5))
    for grid, column in ((x, 0), (y, 1)):
        assert grid[0] < plane.trajectory[:, column].min()
        assert grid[-1] > plane.trajectory[:, column].max()


@pytest.mark.parametrize("block", [1, 50, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_components_of_near_duplicates_are_those_of_float64_whatever_the_blocks(block, dtype, monkeypatch):
    """All models but one nearly the same, far from the origin: products of the models themselves would drown it."""
    monkeypatch.setattr("analysis.surface.planes.BLOCK", block)
    far, first, second, *noise = vectors(9)
    models = [(1e4 * far + 1e-2 * (t * first + t * t * second + n)).to(dtype) for t, n in enumerate(noise)]
    plane = pca_plane(models, list("abcdef"))
    matrix = np.array([model.double().numpy() for model in models])
    _, singular, right = np.linalg.svd(matrix - matrix.mean(axis=0), full_matrices=False)
    assert plane.directions.dtype == plane.origin.dtype == dtype
    rounding = 1e-6 if dtype == torch.float32 else 1e-9
    assert plane.explained == pytest.approx(singular[:2] ** 2 / (singular**2).sum(), rel=1e-9)
    for found, wanted in zip(plane.directions.double().numpy(), right, strict=False):
        np.testing.assert_allclose(found, wanted * np.sign(found @ wanted), atol=rounding)
    projected = [plane.project(model) for model in models]
    np.testing.assert_allclose(plane.trajectory, projected, atol=1e-9 * np.abs(projected).max())
    assert (plane.trajectory[0] >= 0).all()


def test_no_components_of_models_that_are_not_finite():
    models = vectors(4)
    models[1][7] = float("inf")
    with pytest.raises(FedscapeError, match="not all finite"):
        pca_plane(models, list("abcd"))


def test_too_few_models_or_models_on_a_line_have_no_components():
    a, b, _ = vectors(3)
    with pytest.raises(FedscapeError, match="need at least 3"):
        pca_plane([a, b], ["a", "b"])
    with pytest.raises(FedscapeError, match="lie on one line"):
        pca_plane([a, b, 2 * b - a], ABC)


@pytest.mark.parametrize(("points", "span"), [(5, None), (21, 0.2), (51, 0.25), (50, 0.5), (2, 1.0), (11, 0.0)])
def test_line_between_two_models_has_both_on_its_grid(points, span):
    a, b = vectors(2)
    line = line_between([a, b], ["a", "b"])
    x, y = line.grid((points, 1), span)
    assert (len(x), list(y)) == (points, [0.0])
    assert {0.0, 1.0} <= set(x)
    np.testing.assert_allclose(np.diff(x), np.diff(x)[0], rtol=1e-12)
    torch.testing.assert_close(line.point(0.25, 0.0), 0.75 * a + 0.25 * b)
    assert line.shares(0.25, 0) == pytest.approx([0.75, 0.25])


def test_a_model_has_no_line_to_itself():
    a, _ = vectors(2)
    with pytest.raises(FedscapeError, match="the two models are the same"):
        line_between([a, a.clone()], ["a", "b"])


def test_profiles_go_along_the_directions_by_number():
    function = landscape(network())
    lines = profiles(function, seed=2, count=3)
    directions = random_directions(function.weights, function.space, 2, 3, orthogonal=False)
    x, y = lines.grid((5, 1), 0.5)
    assert list(y) == [0, 1, 2]
    for k in y:
        torch.testing.assert_close(lines.point(x[1], k), function.weights + x[1] * directions[int(k)])
    with pytest.raises(FedscapeError, match="give at least 1"):
        profiles(function, count=0)


def test_two_checkpoints_share_directions_of_a_file(tmp_path):
    first, second = network(), network()
    with torch.no_grad():
        second[0].weight.mul_(2)
    plane = random_plane(landscape(first), seed=4)
    plane.kept(landscape(first)).save(tmp_path / "d.pt", landscape(first).space)
    shared = plane_along(landscape(second), Directions.load(tmp_path / "d.pt", landscape(second).space))
    assert torch.equal(shared.directions, plane.directions)
    assert torch.equal(shared.origin, landscape(second).weights)
    assert not torch.equal(random_plane(landscape(second), seed=4).directions, plane.directions)


@pytest.mark.parametrize("points", [3, 25, 51, 101])
def test_grid_is_uniform_and_symmetric_with_an_exact_centre(points):
    grid = uniform(points, 0.7)
    np.testing.assert_allclose(grid, np.linspace(-0.7, 0.7, points), atol=1e-15)
    np.testing.assert_array_equal(grid, -grid[::-1])
    assert grid[points // 2] == 0
    assert (grid[0], grid[-1]) == (-0.7, 0.7)
