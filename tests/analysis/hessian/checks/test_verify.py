"""The self-check passes where products are right and stops where they are not."""

import pytest
import torch
from torch import nn

from analysis.hessian.checks.verify import verify
from landscape import FedscapeError, Landscape
from tests.analysis.hessian.spectrum.spectra import small_landscape


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_right_products_pass(dtype):
    check = verify(small_landscape().to(dtype))
    assert check.passed
    check.require()
    assert check.finite_difference < (1e-7 if dtype == torch.float64 else 1e-4)


class Forgetful(torch.autograd.Function):
    """x² whose backward forgets that it depends on x: right gradients, wrong second derivatives."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0].detach() * g


class Wrong(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return Forgetful.apply(self.layer(x))


def test_a_layer_with_a_wrong_double_backward_is_caught():
    torch.manual_seed(0)
    data = torch.randn(20, 4), torch.randint(0, 3, (20,))
    check = verify(Landscape(Wrong(), data, device="cpu", dtype="float64"))
    assert check.finite_difference > 0.1
    assert not check.passed
    with pytest.raises(FedscapeError, match="the products are wrong"):
        check.require()


def test_not_a_number_does_not_pass():
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight.fill_(torch.nan)
    data = torch.randn(20, 4), torch.randint(0, 3, (20,))
    assert not verify(Landscape(net, data, device="cpu")).passed


def test_tf32_is_allowed_its_rounding_and_no_wrong_layer():
    right = small_landscape().to(torch.float32)
    right._batches.tf32 = True  # as on CUDA; the CPU calculates in float32
    assert verify(right).allowed == 5e-2
    torch.manual_seed(0)
    wrong = Landscape(Wrong(), (torch.randn(20, 4), torch.randint(0, 3, (20,))), device="cpu")
    wrong._batches.tf32 = True
    assert not verify(wrong).passed
