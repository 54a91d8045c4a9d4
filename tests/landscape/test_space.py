"""The flat vector's layout: order, views, layers, filters, kinds of parameters."""

import pytest
import torch
from torch import Tensor, nn

from landscape import FedscapeError, ParameterSpace
from tests.landscape.nets import NETS, Tied, case


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4), nn.LayerNorm(4), nn.Linear(4, 1)
    )


@pytest.fixture
def space(model) -> ParameterSpace:
    return ParameterSpace.of(model)


def named(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("name", NETS)
def test_order_is_that_of_named_parameters_and_the_round_trip_is_exact(name):
    model = case(name).model
    space, tensors = ParameterSpace.of(model), named(model)
    w = space.flatten(tensors)
    assert torch.equal(w, nn.utils.parameters_to_vector(tensors.values()))
    assert space.dimension == len(w) == sum(space.sizes)
    back = space.unflatten(w)
    assert list(back) == list(tensors)
    assert all(torch.equal(back[key], tensors[key]) for key in tensors)


def test_flattening_copies_and_detaches(model, space):
    w = space.flatten(dict(model.named_parameters()))
    assert not w.requires_grad
    before = w.clone()
    with torch.no_grad():
        model[0].weight.zero_()
    assert torch.equal(w, before)


@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_stacked_vectors_unflatten_to_stacked_tensors(space, leading):
    w = torch.randn(*leading, space.dimension)
    tensors = space.unflatten(w)
    assert {name: t.shape for name, t in tensors.items()} == {e.name: (*leading, *e.shape) for e in space.entries}
    single = space.unflatten(w.reshape(-1, space.dimension)[-1])
    last = {name: t.reshape(-1, *single[name].shape)[-1] for name, t in tensors.items()}
    assert all(torch.equal(last[name], single[name]) for name in single)


@pytest.mark.parametrize("leading", [(), (5,)])
def test_unflattened_tensors_are_views(space, leading):
    w = torch.randn(*leading, space.dimension)
    for tensor in space.unflatten(w).values():
        tensor.zero_()
    assert not w.any()


def test_gradients_flow_through_unflatten(space):
    w = torch.randn(3, space.dimension, requires_grad=True)
    weights = [torch.randn(3, *entry.shape) for entry in space.entries]
    sum((t * c).sum() for t, c in zip(space.unflatten(w).values(), weights, strict=True)).backward()
    assert torch.equal(w.grad, torch.cat([c.reshape(3, -1) for c in weights], dim=1))


def test_a_parameter_without_dimensions_is_one_coordinate():
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.temperature = nn.Parameter(torch.tensor(3.0))

    space = ParameterSpace.of(Scaled())
    assert space.unflatten(torch.zeros(4, space.dimension))["temperature"].shape == (4,)
    assert space.unflatten(torch.zeros(space.dimension))["temperature"].shape == ()


def test_layers_are_slices_by_module(space):
    assert space.layers() == {
        "0": slice(0, 27), "1": slice(27, 33), "3": slice(33, 85), "4": slice(85, 93), "5": slice(93, 98)
    }  # fmt: skip


def test_a_parameter_of_the_model_itself_is_in_the_nameless_layer():
    space = ParameterSpace.of(nn.Linear(2, 1))
    assert space.layers() == {"": slice(0, 3)}
    assert [entry.kind for entry in space.entries] == ["weight", "bias"]


def test_filters_are_rows_of_views_of_weights_only(model, space):
    w = space.flatten(named(model))
    filters = {entry.name: rows for entry, rows in space.filters(w)}
    assert list(filters) == ["0.weight", "3.weight", "5.weight"]
    assert torch.equal(filters["0.weight"], model[0].weight.detach().reshape(3, 8))
    assert torch.equal(filters["3.weight"], model[3].weight.detach())
    filters["0.weight"][1].zero_()
    assert not w[8:16].any()
    assert w[:8].all()
    assert w[16:24].all()


def test_kinds_are_weights_biases_and_scales(space):
    expected = {
        "weight": {"0.weight", "3.weight", "5.weight"},
        "bias": {"0.bias", "1.bias", "3.bias", "4.bias", "5.bias"},
        "scale": {"1.weight", "4.weight"},
    }
    for kind, names in expected.items():
        assert {entry.name for entry in space.entries if entry.kind == kind} == names


@pytest.mark.parametrize(
    ("layer", "kinds"),
    [
        (nn.MultiheadAttention(4, 2), ["weight", "bias", "weight", "bias"]),
        (nn.LayerNorm((2, 3)), ["scale", "bias"]),
        (nn.InstanceNorm2d(3, affine=True), ["scale", "bias"]),
        (nn.GroupNorm(1, 3), ["scale", "bias"]),
        (nn.LSTM(2, 2), ["weight", "weight", "bias", "bias"]),
        (nn.PReLU(3), ["scale"]),
        (nn.Embedding(3, 2), ["weight"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_kind_is_right_on_layers_with_names_or_shapes_of_their_own(layer, kinds):
    assert [entry.kind for entry in ParameterSpace.of(nn.Sequential(layer)).entries] == kinds


def test_masks_divide_the_coordinates(space):
    masks = [space.mask(kind) for kind in ("weight", "bias", "scale")]
    assert torch.equal(sum(mask.long() for mask in masks), torch.ones(space.dimension, dtype=torch.long))
    assert [int(mask.sum()) for mask in masks] == [24 + 48 + 4, 3 + 3 + 4 + 4 + 1, 3 + 4]
    assert torch.equal(space.mask("bias", "scale"), masks[1] | masks[2])
    bias = space.unflatten(masks[1])
    assert all(values.all() == name.endswith("bias") for name, values in bias.items())
    assert not space.mask().any()


def test_tied_parameters_are_one_block_and_frozen_ones_none():
    assert [entry.name for entry in ParameterSpace.of(Tied()).entries] == [
        "first.weight", "first.bias", "second.bias", "head.weight", "head.bias"
    ]  # fmt: skip
    frozen = ParameterSpace.of(case("frozen parameters").model)
    assert [entry.name for entry in frozen.entries] == ["0.bias", "2.weight", "4.weight", "4.bias"]


def test_nothing_to_train_is_refused(model):
    for module in (nn.ReLU(), model.requires_grad_(False)):
        with pytest.raises(FedscapeError, match=f"{type(module).__name__} has no trainable parameters"):
            ParameterSpace.of(module)


def test_a_missing_or_misshapen_tensor_is_named(model, space):
    tensors = named(model)
    with pytest.raises(FedscapeError, match=r"the parameter '3.bias' has shape \(5,\), the model wants \(4,\)"):
        space.flatten({**tensors, "3.bias": torch.zeros(5)})
    del tensors["3.bias"]
    with pytest.raises(FedscapeError, match=r"the parameter '3\.bias' is missing"):
        space.flatten(tensors)


@pytest.mark.parametrize("shape", [(), (97,), (98, 1)])
def test_a_vector_of_another_length_is_refused(space, shape):
    with pytest.raises(FedscapeError, match="is not in this space of 98 parameters"):
        space.unflatten(torch.zeros(shape))
