"""Hessian-vector products against those of PyHessian and curvlinops."""

import copy

import pytest
import torch
from torch import nn

from landscape import Landscape, Samples, build_model, load_dataset

N = 50
criterion = nn.CrossEntropyLoss()


@pytest.fixture(scope="module")
def data() -> Samples:
    return load_dataset("digits").train.subset(range(N))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return build_model("digits_cnn", seed=2, input_shape=(1, 8, 8), classes=10)


def direction(model: nn.Module) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(p.shape, generator=draw).to(p.dtype) for p in model.parameters()]


def flat(tensors) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_product_is_pyhessians_on_one_batch(data, model, dtype, tolerance):
    from pyhessian import hessian
    from pyhessian.utils import hessian_vector_product

    model = copy.deepcopy(model).to(dtype)
    theirs = hessian(copy.deepcopy(model), criterion, data=data.batch(slice(None), dtype), cuda=False)
    v = direction(model)
    expected = flat(hessian_vector_product(theirs.gradsH, theirs.params, v))
    ours = Landscape(model, data, batch_size=16, device="cpu").hvp(None, flat(v))
    assert (ours - expected).norm() < tolerance * expected.norm()


@pytest.mark.filterwarnings("ignore:Using backward")
def test_product_is_pyhessians_streamed_over_unequal_batches(data, model):
    from pyhessian import hessian

    loader = [data.batch(slice(a, a + 16), torch.float32) for a in range(0, N, 16)]
    v = direction(model)
    eigenvalue, products = hessian(
        copy.deepcopy(model), criterion, dataloader=loader, cuda=False
    ).dataloader_hv_product(v)
    function = Landscape(model, data, batch_size=7, device="cpu")
    ours = function.hvp(None, flat(v))
    assert (ours - flat(products)).norm() < 1e-5 * ours.norm()
    assert float(ours @ flat(v)) == pytest.approx(eigenvalue, rel=1e-4)


def test_product_is_curvlinops_on_a_net_without_normalisation(data, model):
    """On nets with LayerNorm or BatchNorm curvlinops is no oracle: its Hessian is wrong there."""
    curvlinops = pytest.importorskip("curvlinops")
    model = copy.deepcopy(model).double()
    loader = [data.batch(slice(a, a + 16), torch.float64) for a in range(0, N, 16)]
    theirs = curvlinops.HessianLinearOperator(model, criterion, list(model.parameters()), loader)
    v = flat(direction(model))
    expected = theirs @ v
    ours = Landscape(model, data, batch_size=7, device="cpu").hvp(None, v)
    assert (ours - expected).norm() < 1e-12 * expected.norm()
