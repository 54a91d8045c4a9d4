"""The public way to a landscape's model, its micro-batches and the names of its parameters."""

import pytest
import torch
from torch import nn

import landscape.data.micro_batches
from landscape import FedscapeError, Landscape


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Linear(3, 2))
    net[2].weight = net[0].weight
    net[3].bias.requires_grad_(False)
    return net


@pytest.fixture
def function() -> Landscape:
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(11, 3, generator=draw), torch.randint(2, (11,), generator=draw)
    return Landscape(tied(), data, dtype="float64", device="cpu", batch_size=4)


def elsewhere(function: Landscape) -> torch.Tensor:
    return torch.linspace(-1, 1, function.dimension, dtype=function.dtype)


def parameters(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}


def test_inside_at_the_module_has_the_parameters_of_the_point(function):
    w = elsewhere(function)
    for point in (w, None):
        with function.at(point) as module:
            found = parameters(module)
        expected = function.space.unflatten(function.weights if point is None else point)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)


def test_inside_at_the_arithmetic_is_the_landscapes_and_afterwards_the_users(function):
    torch.set_float32_matmul_precision("medium")
    try:
        with function.at():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_copy_of_the_model_has_the_parameters_of_the_point_and_is_the_callers(function):
    w = elsewhere(function)
    value = function.value()
    with function.at() as module:
        before = parameters(module)
        copied = function.model(w)
        assert all(torch.equal(before[name], found) for name, found in parameters(module).items())
    assert torch.equal(function.space.flatten(parameters(copied)), w)
    assert copied[2].weight is copied[0].weight
    assert not copied.training
    with torch.no_grad():
        copied[0].weight.zero_()
    assert function.value() == value


@pytest.mark.parametrize("shape", [(3,), (1, 1), ()])
def test_a_point_of_another_shape_is_refused(function, shape):
    wrong = torch.zeros(shape, dtype=function.dtype)
    with pytest.raises(FedscapeError, match="a point is one vector of"):
        function.model(wrong)
    with pytest.raises(FedscapeError, match="a point is one vector of"), function.at(wrong):
        pass


def test_each_name_of_a_trainable_parameter_leads_to_its_entry(function):
    names = function.parameter_names
    assert names["2.weight"] == names["0.weight"] == "0.weight"
    assert "3.bias" not in names
    assert set(names.values()) == {entry.name for entry in function.space.entries}


def test_the_value_is_the_weighted_mean_over_the_micro_batches(function):
    total = 0.0
    with function.at() as module, torch.no_grad():
        for _, x, y, share in function.micro_batches:
            total += share * function.loss(function.micro_batches.outputs(module, x), y).item()
    assert total == pytest.approx(function.value(), rel=1e-12)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_micro_batches_of_all_ranks_are_all_samples_on_every_rank(function, monkeypatch, world):
    every = torch.cat([x for _, x, _, _ in function.micro_batches])
    parts = []
    for rank in range(world):
        monkeypatch.setattr(landscape.data.micro_batches, "rank_and_world", lambda rank=rank: (rank, world))
        parts += [x for _, x, _, _ in function.micro_batches]
        assert torch.equal(torch.cat([x for _, x, _, _ in function.micro_batches.of_all_ranks()]), every)
    assert torch.equal(torch.cat(parts), every)


def test_a_subset_is_the_same_loss_over_some_of_the_samples(function):
    w, chosen = elsewhere(function), torch.tensor([7, 2, 9])
    x, y = function.data.batch(chosen, torch.float64)
    with torch.no_grad():
        expected = nn.functional.cross_entropy(function.model(w)(x), y).item()
    function._title = "a run"
    part = function.subset(chosen)
    assert part.value(w) == pytest.approx(expected, rel=1e-12)
    assert (part.samples, part.title, function.samples) == (3, "a run", 11)


def test_micro_batches_in_float64_have_half_as_many_samples_unless_their_number_was_given(monkeypatch):
    monkeypatch.setattr(landscape.data.micro_batches, "_SAVED", 4096)
    net = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Tanh(), nn.Linear(16, 2, bias=False))
    data = torch.randn(100, 16), torch.arange(100) % 2
    chosen = Landscape(net, data, device="cpu")
    assert chosen.batch_size == 32  # 4096 bytes are 32 samples of 16 inputs and 16 activations
    assert chosen.to("float64").batch_size == chosen.subset(torch.arange(50)).to("float64").batch_size == 16
    assert chosen.to("float64").to("float32").batch_size == 16
    assert Landscape(net, data, device="cpu", batch_size=32).to("float64").batch_size == 32
    chosen.batch_size = 25
    assert chosen.to("float64").batch_size == 25
