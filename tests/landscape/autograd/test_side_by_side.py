"""Products on several data sets at once against those of each data set alone."""

import pytest
import torch
from torch import nn

from landscape import FedscapeError, Landscape
from landscape.activations import MAN

PARTS = (torch.arange(7), torch.tensor([3]), torch.arange(5, 25), torch.tensor([2, 8, 14]))
"""Of several sizes, one of a single sample, one of a single class."""


def chain(activation: nn.Module, *, bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=bias), activation, nn.Linear(5, 3, bias=bias))


def around(module: nn.Module, dtype: str = "float64", **options) -> Landscape:
    torch.manual_seed(1)
    return Landscape(module, (torch.randn(25, 2, 3), torch.arange(25) % 3), device="cpu", dtype=dtype, **options)


@pytest.mark.parametrize(("dtype", "nearness"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("module", [chain(nn.ReLU()), chain(nn.Tanh(), bias=False)])
def test_products_are_those_of_each_data_set_alone(module, dtype, nearness):
    whole = around(module, dtype)
    w = whole.weights + 0.1
    clients = [whole.subset(part) for part in PARTS]
    vectors = torch.randn(len(PARTS), len(w), dtype=w.dtype)
    together = clients[0].hessians_with(clients[1:], w)
    for _ in range(2):  # the graph serves again
        found = together(vectors)
        for client, vector, product in zip(clients, vectors, found, strict=True):
            alone = client.hvp(w, vector)
            assert float((product - alone).norm()) <= nearness * float(alone.norm())


def test_a_line_has_the_hessian_of_its_inputs():
    """(2/n) Σ x xᵀ of the squared error, in closed form."""
    x = torch.randn(9, 4, dtype=torch.float64)
    options = {"device": "cpu", "dtype": "float64"}
    whole = Landscape(nn.Linear(4, 1, bias=False), (x, torch.ones(9, 1)), nn.functional.mse_loss, **options)
    parts = torch.arange(2), torch.arange(2, 9)
    first, second = (whole.subset(part) for part in parts)
    found = first.hessians_with([second], whole.weights)(torch.ones(2, 4, dtype=torch.float64))
    for part, product in zip(parts, found, strict=True):
        assert torch.allclose(product, 2 / len(part) * x[part].T @ x[part] @ torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_loss_of_ones_own_has_the_products_of_each_data_set_alone(dtype):
    """It is called for whole data sets, filled up to the largest by none of their samples."""

    def squared_hinge(outputs, labels):
        return (1 + outputs - outputs.gather(1, labels[:, None])).clamp_min(0).square().mean()

    torch.manual_seed(1)
    data = torch.randn(25, 2, 3), torch.arange(25) % 3
    whole = Landscape(chain(nn.Tanh()), data, squared_hinge, device="cpu", dtype=dtype)
    clients = [whole.subset(part) for part in PARTS]
    vectors = torch.randn(len(PARTS), len(whole.weights), dtype=whole.weights.dtype)
    found = clients[0].hessians_with(clients[1:], whole.weights)(vectors)
    for client, vector, product in zip(clients, vectors, found, strict=True):
        torch.testing.assert_close(product, client.hvp(whole.weights, vector))


def test_losses_that_are_linear_in_the_parameters_have_no_hessian():
    whole = Landscape(nn.Linear(4, 1), (torch.randn(9, 4), torch.ones(9, 1)), lambda out, _: out.mean(), device="cpu")
    clients = [whole.subset(part) for part in (torch.arange(2), torch.arange(2, 9))]
    found = clients[0].hessians_with(clients[1:], whole.weights)(torch.ones(2, 5))
    assert torch.equal(found, torch.zeros(2, 5))


def test_what_is_no_small_chain_of_dense_layers_is_left_to_itself():
    convolution = nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv2d(1, 3, 2), nn.Flatten())
    large = nn.Sequential(nn.Flatten(), nn.Linear(6, 200_000), nn.ReLU(), nn.Linear(200_000, 3))
    for module, options in (
        (convolution, {}),
        (large, {}),
        (chain(nn.ReLU()), {"penalty": MAN(0.1)}),
        (chain(nn.ReLU()), {"batch_size": 4}),
    ):
        whole = around(module, **options)
        clients = [whole.subset(part) for part in PARTS]
        assert clients[0].hessians_with(clients[1:], whole.weights) is None
    assert around(chain(nn.ReLU())).hessians_with([], torch.zeros(53)) is None  # one alone


def test_a_loss_that_is_a_sum_is_refused():
    torch.manual_seed(1)
    data = torch.randn(25, 6), torch.arange(25) % 3
    summed = nn.CrossEntropyLoss(reduction="sum")
    whole = Landscape(nn.Sequential(nn.Linear(6, 3)), data, summed, device="cpu")
    clients = [whole.subset(part) for part in PARTS]
    with pytest.raises(FedscapeError, match="mean"):
        clients[0].hessians_with(clients[1:], whole.weights)
