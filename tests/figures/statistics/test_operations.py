"""Multiplications, against the counts worked out by hand and against the other counter of the package."""

import pytest
import torch
from torch import nn

from figures.statistics import count_operations
from landscape import FedscapeError
from landscape.activations import Recorder
from landscape.compute.cost import sample_cost
from landscape.models import build_model


def test_lenets_are_those_of_mans_table_3():
    """recipes/man.md, T3: C_o·H_o·W_o·C_i·K² and H_o·W_o·C_o; d_i·d_o and d_o."""
    found = count_operations(build_model("lenet_fed", seed=0, input_shape=(3, 32, 32), classes=100), (3, 32, 32))
    assert [(layer.name, layer.forward, layer.regulariser) for layer in found.layers] == [
        ("conv1", 3_763_200, 50_176),
        ("conv2", 10_240_000, 6_400),
        ("fc1", 614_400, 384),
        ("fc2", 73_728, 192),
        ("fc3", 19_200, 0),
    ]
    assert (found.forward, found.regulariser) == (14_710_528, 57_152)
    assert round(100 * found.share, 2) == 0.39


@pytest.mark.parametrize("name", ["convnet_tiny", "resnet18_gn", "mobilenet_v2_gn"])
def test_other_nets_agree_with_the_other_counter_and_with_their_activations(name):
    model = build_model(name, seed=0, input_shape=(3, 32, 32), classes=10).eval()
    found = count_operations(model, (3, 32, 32))
    assert 2 * found.forward == sample_cost(model, torch.zeros(2, 3, 32, 32)).flops
    with Recorder(model, lambda a: torch.tensor(a.numel())) as seen:
        model(torch.zeros(1, 3, 32, 32))
    assert found.regulariser == sum(int(count) for count in seen.outputs.values())
    assert len({layer.name for layer in found.layers}) == len(found.layers)


def test_layers_that_join_before_an_activation_have_one_row():
    rows = count_operations(build_model("resnet18_gn", seed=0, input_shape=(3, 32, 32), classes=10), (3, 32, 32)).layers
    (joined,) = (row for row in rows if row.name == "layer2.0.conv2 + layer2.0.downsample.0")
    # 3×3, 128 → 128, and 1×1, 64 → 128, on 4 × 4 places.
    assert (joined.forward, joined.regulariser) == (16 * (128 * 128 * 9 + 64 * 128), 128 * 16)
    assert rows[-1].regulariser == 0


def test_a_regulariser_of_some_layers_leaves_the_others_rows():
    model = build_model("lenet_fed", seed=0, input_shape=(3, 32, 32), classes=100)
    found = count_operations(model, (3, 32, 32), ["fc*"])
    assert found.regulariser == 384 + 192
    assert [layer.name for layer in found.layers] == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    with pytest.raises(FedscapeError, match="no layer with an activation matches 'conv3'"):
        count_operations(model, (3, 32, 32), ["conv3"])


def test_products_outside_of_layers_are_not_lost():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):  # [n, 3, 4]
            x = self.first(x).relu()
            return self.last(torch.bmm(torch.bmm(x, x.transpose(1, 2)), x))

    found = count_operations(Attention(), (3, 4))
    assert [(row.name, row.forward) for row in found.layers] == [
        ("first", 3 * 16), ("last", 3 * 8), ("others", 2 * 3 * 3 * 4),
    ]  # fmt: skip


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)).train()
    count_operations(model, (3,))
    assert model.training
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_layer_in_two_rows_is_refused():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.b(self.a(self.a(x).relu()) + self.b(x)).relu()

    with pytest.raises(FedscapeError, match="its operations have no one row"):
        count_operations(Twice(), (2,))


def test_models_without_parameters_or_activations_are_refused():
    with pytest.raises(FedscapeError, match="has no parameters"):
        count_operations(nn.ReLU(), (2,))
    with pytest.raises(FedscapeError, match="no layer has a non-linearity"):
        count_operations(nn.Linear(2, 2), (2,))
