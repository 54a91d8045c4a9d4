"""Filter-normalised directions are what Li et al. (NeurIPS 2018, section 4) say, and planes are what they span."""

import math

import pytest
import torch
from torch import nn

from analysis.directions import filter_normalised, random_plane
from landscape import FedscapeError, Landscape, ParameterSpace
from landscape.randomness import torch_generator


def network() -> nn.Module:
    """Convolution, normalisation and dense layers, with biases and scales that are not trivial."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 5, 3), nn.GroupNorm(1, 5), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 4, 7), nn.ReLU(), nn.Linear(7, 3)
    )
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def direction_of(module: nn.Module, random: torch.Generator | int = 0) -> dict[str, torch.Tensor]:
    space = ParameterSpace.of(module)
    return space.unflatten(filter_normalised(space.flatten(dict(module.named_parameters())), space, random))


def test_each_filter_is_as_long_as_that_of_the_weights():
    module = network()
    direction = direction_of(module)
    checked = 0
    for name, weight in module.named_parameters():
        if name in ("0.weight", "4.weight", "6.weight"):
            for k in range(len(weight)):
                of_weight = math.sqrt(sum(float(value) ** 2 for value in weight[k].detach().flatten()))
                of_direction = math.sqrt(sum(float(value) ** 2 for value in direction[name][k].flatten()))
                assert of_direction == pytest.approx(of_weight, rel=1e-6)
                checked += 1
    assert checked == 5 + 7 + 3


def test_biases_and_normalisation_scales_do_not_move():
    direction = direction_of(network())
    for name in ("0.bias", "1.weight", "1.bias", "4.bias", "6.bias"):
        assert (direction[name] == 0).all(), name


def test_zero_filter_stays_zero_and_spoils_no_other():
    module = network()
    with torch.no_grad():
        module[0].weight[2] = 0
    direction = direction_of(module)["0.weight"]
    assert (direction[2] == 0).all()
    assert direction.isfinite().all()
    assert (direction[[0, 1, 3, 4]].flatten(1).norm(dim=1) > 0).all()


def test_directions_point_both_ways():
    """A peer draws from [0, 1): all entries positive, so that all its directions are nearly one."""
    module = nn.Linear(10_000, 4, bias=False)
    direction = direction_of(module)["weight"]
    share = (direction > 0).double().mean().item()
    assert abs(share - 0.5) < 4 * 0.5 / math.sqrt(40_000)


def test_entries_of_a_filter_are_gaussian():
    direction = direction_of(nn.Linear(100_000, 1, bias=False))["weight"].double().flatten()
    standard = direction / direction.std()
    assert standard.pow(4).mean().item() == pytest.approx(3, abs=0.1)  # 1.8 where they are uniform


def test_seed_decides_the_direction():
    module = network()
    first, again, other = direction_of(module, 1), direction_of(module, 1), direction_of(module, 2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_float32_has_the_direction_of_float64_rounded():
    module = network().double()
    space = ParameterSpace.of(module)
    w = space.flatten(dict(module.named_parameters())).float()
    single = filter_normalised(w, space, 0)
    double = filter_normalised(w.double(), space, 0)
    assert single.dtype == torch.float32
    assert torch.equal(single, double.float())


def landscape(module: nn.Module) -> Landscape:
    return Landscape(module, (torch.randn(4, 2, 4, 4), torch.zeros(4, dtype=torch.long)), device="cpu")


def test_plane_spans_what_it_says():
    plane = random_plane(landscape(network()), seed=3)
    out = torch.empty_like(plane.origin)
    point = plane.point(0.5, -2.0, out=out)
    assert point is out
    torch.testing.assert_close(point, plane.origin + 0.5 * plane.directions[0] - 2.0 * plane.directions[1])
    assert torch.equal(plane.point(0.0, 0.0), plane.origin)


def test_plane_has_two_directions_as_drawn():
    function = landscape(network())
    plane = random_plane(function, seed=3)
    for k in range(2):
        drawn = filter_normalised(function.weights, function.space, torch_generator(3, "direction", k))
        assert torch.equal(plane.directions[k], drawn)
    first, second = plane.directions.double()
    assert plane.cosine == pytest.approx(float(torch.cosine_similarity(first, second, dim=0)))
    assert abs(plane.cosine) < 0.5


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
    with pytest.raises(FedscapeError, match="not all finite"):
        random_plane(landscape(module))


def test_no_plane_where_every_filter_is_zero():
    module = network()
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    with pytest.raises(FedscapeError, match="have no length"):
        random_plane(landscape(module))
