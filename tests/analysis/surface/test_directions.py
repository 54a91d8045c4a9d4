"""Random directions are scaled as Li et al. (NeurIPS 2018, section 4) say, and come back from their file."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from analysis.surface.directions import Directions, random_directions
from landscape import FedscapeError, ParameterSpace


def network() -> nn.Module:
    """Convolution, normalisation and dense layers, with biases and scales that are not trivial."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 5, 3), nn.GroupNorm(1, 5), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 4, 7), nn.ReLU(), nn.Linear(7, 3)
    )
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def point_of(module: nn.Module) -> tuple[torch.Tensor, ParameterSpace]:
    space = ParameterSpace.of(module)
    return space.flatten(dict(module.named_parameters())), space


def direction_of(module: nn.Module, seed: int = 0, **options) -> dict[str, torch.Tensor]:
    w, space = point_of(module)
    return space.unflatten(random_directions(w, space, seed, 1, **options)[0])


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
    single = random_directions(w, space)
    double = random_directions(w.double(), space)
    assert single.dtype == torch.float32
    assert torch.equal(single, double.float())


@pytest.mark.parametrize("biases", [False, True])
def test_layer_normalisation_gives_each_tensor_its_length_and_model_normalisation_the_whole(biases):
    module = network()
    layer, model = (direction_of(module, normalisation=name, biases=biases) for name in ("layer", "model"))
    moved = {name: p.detach() for name, p in module.named_parameters() if biases or name in WEIGHTS}
    for name, parameter in moved.items():
        assert layer[name].norm().item() == pytest.approx(parameter.norm().item(), rel=1e-6)
    lengths = [math.sqrt(sum(float(t.square().sum()) for t in tensors)) for tensors in (model.values(), moved.values())]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-6)
    ratios = [model[name].norm().item() / moved[name].norm().item() for name in moved]
    assert max(ratios) > 1.05 * min(ratios), "the model as a whole has its length, its tensors have not"


WEIGHTS = ("0.weight", "4.weight", "6.weight")


def test_without_normalisation_the_draw_stays_what_it_is():
    """FedSAM's plain Gaussian: unit variance in every parameter, biases too."""
    w, space = point_of(nn.Linear(20_000, 2))
    first, second = random_directions(w, space, normalisation="none", biases=True).double()
    for direction in (first, second):
        assert direction.std().item() == pytest.approx(1, abs=0.02)
        assert (direction != 0).all()
    assert abs(float(first @ second)) < 1e-3 * float(first.norm() * second.norm()) / 100


@pytest.mark.parametrize("normalisation", ["filter", "layer", "model", "none"])
def test_directions_are_orthogonal_and_scaled_both(normalisation):
    module = network().double()
    w, space = point_of(module)
    first, second = random_directions(w, space, 3, normalisation=normalisation)
    drawn, other = random_directions(w, space, 3, normalisation=normalisation, orthogonal=False)
    assert torch.equal(first, drawn)
    assert abs(first @ second) < 1e-12 * first.norm() * second.norm()
    assert abs(first @ other) > 1e-4 * first.norm() * other.norm()
    assert second.norm().item() == pytest.approx(other.norm().item(), rel=1e-9)
    if normalisation == "filter":
        for (_, ours), (_, filters) in zip(space.filters(second), space.filters(w), strict=True):
            torch.testing.assert_close(ours.norm(dim=1), filters.norm(dim=1))


def test_biases_that_are_kept_are_scaled_as_one_filter_each():
    module = network()
    direction = direction_of(module, biases=True)
    for name in ("0.bias", "1.weight", "1.bias", "4.bias", "6.bias"):
        wanted = dict(module.named_parameters())[name].norm().item()
        assert direction[name].norm().item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("normalisation", ["filter", "layer"])
def test_zero_biases_divide_by_nothing(normalisation):
    """A peer divides by their norm: every untrained BatchNorm has biases of zero."""
    module = network()
    with torch.no_grad():
        module[0].bias.zero_()
        module[1].bias.zero_()
    direction = direction_of(module, normalisation=normalisation, biases=True)
    assert all(part.isfinite().all() for part in direction.values())
    assert (direction["0.bias"] == 0).all()
    assert direction["4.bias"].any()


def test_filter_norm_is_over_inputs_and_kernel_not_over_outputs():
    """A peer takes the norm over the wrong axis: of a layer whose outputs differ in size, only rows tell."""
    module = nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.5, 0.0]]))
    direction = direction_of(module)["weight"]
    torch.testing.assert_close(direction.norm(dim=1), torch.tensor([5.0, 0.5]))


def test_mean_of_a_direction_is_zero():
    """A peer draws uniformly from [0, 1)."""
    for normalisation in ("filter", "layer", "model", "none"):
        direction = direction_of(nn.Linear(50_000, 1), normalisation=normalisation)["weight"].double()
        assert abs(direction.mean().item()) < 4 * direction.std().item() / math.sqrt(50_000)


def test_filter_of_one_entry_has_no_second_orthogonal_direction():
    w, space = point_of(nn.Linear(1, 4, bias=False))
    with pytest.raises(FedscapeError, match="have no length"):
        random_directions(w, space)
    assert random_directions(w, space, orthogonal=False).all()


def test_unknown_normalisation_is_refused():
    with pytest.raises(FedscapeError, match="unknown normalisation 'cube': give filter, layer, model, none"):
        direction_of(network(), normalisation="cube")


def saved(path: Path, seed: int = 0) -> tuple[Directions, ParameterSpace]:
    w, space = point_of(network())
    directions = Directions(random_directions(w, space, seed), "filter", seed, ("a", "b"), "f" * 64)
    directions.save(path, space)
    return directions, space


def test_directions_come_back_from_their_file(tmp_path):
    directions, space = saved(tmp_path / "d.pt", 5)
    again = Directions.load(tmp_path / "d.pt", space)
    assert torch.equal(again.vectors, directions.vectors)
    assert again[1:] == ("filter", 5, ("a", "b"), "f" * 64)


def test_file_of_other_directions_or_of_none_is_refused(tmp_path):
    _, space = saved(tmp_path / "d.pt")
    with pytest.raises(FedscapeError, match="holds directions of another model"):
        Directions.load(tmp_path / "d.pt", ParameterSpace.of(nn.Linear(2, 3)))
    torch.save({"a": 1}, tmp_path / "a.pt")
    with pytest.raises(FedscapeError, match="does not hold directions"):
        Directions.load(tmp_path / "a.pt", space)
    contents = torch.load(tmp_path / "d.pt", weights_only=True)
    torch.save({**contents, "seed": None}, tmp_path / "d.pt")
    with pytest.raises(FedscapeError, match="seed is None, not a whole number"):
        Directions.load(tmp_path / "d.pt", space)
    contents["vectors"][0, 0] += 1
    torch.save(contents, tmp_path / "d.pt")
    with pytest.raises(FedscapeError, match="not those that were saved"):
        Directions.load(tmp_path / "d.pt", space)
