"""Table 3 of MAN: its symbols beside numbers that they give."""

import pytest
from torch import nn

from figures.contents.content import Results
from figures.contents.operations import Network, OperationCounts
from landscape.errors import FedscapeError

LAYERS = {
    "conv1": {"C_o": 64, "H_o": 28, "W_o": 28, "C_i": 3, "K": 5},
    "conv2": {"C_o": 64, "H_o": 10, "W_o": 10, "C_i": 64, "K": 5},
    "fc1": {"d_i": 1600, "d_o": 384},
    "fc2": {"d_i": 384, "d_o": 192},
    "fc3": {"d_i": 192, "d_o": 100},
}
"""lenet_fed on CIFAR-100, from recipes/man.md, Table 3."""


def value(symbols, sizes):
    """The product that a text such as N_b·d_i·d_o stands for, of one image."""
    product = 1
    for symbol in symbols.split("·"):
        name = symbol.removesuffix("²")
        product *= {"N_b": 1, **sizes}[name] ** (2 if symbol.endswith("²") else 1)
    return product


def rows(network):
    (product,) = OperationCounts({"CIFAR-100": network}).products(Results({}), {})
    return product, {row[1]: row for row in product.numbers.rows}


def test_the_symbols_of_each_layer_give_the_numbers_beside_them():
    product, found = rows(Network("lenet_fed", (3, 32, 32), 100))
    assert list(found) == [*LAYERS, "all layers"]
    for name, sizes in LAYERS.items():
        _, _, forward, multiplications, penalty, of_man, together = found[name]
        assert multiplications == value(forward, sizes)
        assert of_man == (value(penalty, sizes) if penalty else 0)
        assert together == multiplications + of_man
    assert [name for name in LAYERS if found[name][4] is None] == ["fc3"]
    # Written out in recipes/man.md: 57,152 of 14,710,528 are 0.39 %.
    assert found["all layers"][2:] == (None, 14_710_528, None, 57_152, "14,767,680 (+0.39 %)")
    assert product.table is not None
    assert product.table.rows[0][3] == "3,763,200"


def test_layers_without_names_are_called_by_their_kind():
    _, found = rows(Network("convnet_tiny", (3, 64, 64), 200))
    assert list(found) == ["conv1", "conv2", "conv3", "fc1", "fc2", "fc3", "all layers"]
    assert found["conv1"][3] == 64 * 64 * 64 * 3 * 9
    assert found["fc3"][3] == 384 * 200


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.dense = nn.Conv2d(1, 4, 4), nn.Linear(16, 4)

    def forward(self, x):
        return (self.conv(x).flatten(1) + self.dense(x.flatten(1))).relu()


def joined(input_shape, classes):
    return Joined()


def test_a_convolution_and_a_dense_layer_before_one_activation_have_no_row():
    with pytest.raises(FedscapeError, match=r"conv \+ dense joins convolutions and dense layers"):
        rows(Network(f"{__name__}:joined", (1, 4, 4), 4))
