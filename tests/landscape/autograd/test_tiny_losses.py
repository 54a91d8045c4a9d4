"""float32 near a minimum: the loss alone in float64 keeps the derivatives right, where float32 loses most digits."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from landscape import Landscape
from landscape.datasets import load_dataset
from landscape.models.digits import digits_mlp


def overtrained(net: nn.Module, samples: int, steps: int, loss: float) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The net in float32, trained in float64 on the first digits; its last layer is scaled up to a small loss."""
    x, y = load_dataset("digits").train.batch(slice(0, samples), torch.float64)
    net = net.double()
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()
        adam.step()
    *_, last = net.modules()
    with torch.no_grad():
        while F.cross_entropy(net(x), y) > loss:
            for tensor in last.parameters():
                tensor.mul_(1.05)
    return net.float(), (x.float(), y)


def off(found: Tensor, true: Tensor) -> float:
    """The largest relative error of λ1 … λ5 and the trace of a Hessian, [d, d]."""
    numbers = [
        torch.cat([torch.linalg.eigvalsh((m + m.T) / 2)[-5:], m.diagonal().sum()[None]]) for m in (found.double(), true)
    ]
    return ((numbers[0] - numbers[1]).abs() / numbers[1].abs()).max().item()


def relative(found: Tensor, true: Tensor) -> float:
    return ((found.double() - true).norm() / true.norm()).item()


@pytest.fixture(scope="module")
def given() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    return overtrained(net, 100, 200, loss=2e-9)


class TestTinyLoss:
    """Against float64 at the same point."""

    @pytest.mark.parametrize("batch_size", [100, 32])
    def test_hessian(self, given, batch_size):
        net, data = given
        here = Landscape(net, data, device="cpu", batch_size=batch_size)
        eye = torch.eye(here.dimension)
        true = here.to("float64").hvp(None, eye.double())
        assert off(here.hvp(None, eye), true) < 1e-4
        # A callable that is not known is left as it is: this is what was measured before.
        own = Landscape(net, data, lambda z, y: F.cross_entropy(z, y), device="cpu", batch_size=batch_size)
        assert off(own.hvp(None, eye), true) > 1e-3

    @pytest.mark.parametrize("kind", ["ggn", "empirical"])
    def test_gauss_newton(self, given, kind):
        here = Landscape(*given, device="cpu")
        v = torch.ones(here.dimension)
        true = here.to("float64").gauss_newton(kind=kind)(v.double())
        assert relative(here.gauss_newton(kind=kind)(v), true) < 1e-4

    def test_value_and_gradient(self, given):
        here = Landscape(*given, device="cpu")
        double = here.to("float64")
        assert here.value() == pytest.approx(double.value(), rel=1e-4)
        assert here.evaluator()(here.weights).loss == pytest.approx(double.value(), rel=1e-4)
        error, true = (one.evaluate(stderr=True).loss_stderr for one in (here, double))
        assert error == pytest.approx(true, rel=1e-4)
        assert relative(here.gradient(), double.gradient()) < 1e-4

    @pytest.mark.slow
    def test_digits_mlp(self):
        """The network of the review, at its loss, all 6,570 parameters."""
        torch.manual_seed(0)
        net, data = overtrained(digits_mlp((1, 8, 8), 10), 1442, 600, loss=1.8e-9)
        here = Landscape(net, data, device="cpu")
        blocks = torch.eye(here.dimension).split(500)
        multiply, double = here.hessian(), here.to("float64").hessian()
        found = torch.cat([multiply(block) for block in blocks])
        true = torch.cat([double(block.double()) for block in blocks])
        assert off(found, true) < 1e-4


SEEN: list[torch.dtype] = []


def noting(outputs: Tensor, targets: Tensor) -> Tensor:
    """A user's own loss, which notes what it is given."""
    SEEN.append(outputs.dtype)
    return F.mse_loss(outputs, targets)


class TestKnownLosses:
    """Which losses are computed in float64, and that none breaks."""

    KNOWN = (
        (F.mse_loss, "numbers"),
        (nn.MSELoss(), "numbers"),
        (nn.HuberLoss(delta=0.5), "numbers"),
        (partial(F.smooth_l1_loss, beta=0.5), "numbers"),
        (nn.BCEWithLogitsLoss(), "numbers"),
        (F.cross_entropy, "numbers"),
        (nn.CrossEntropyLoss(label_smoothing=0.1), "classes"),
        (partial(F.cross_entropy, label_smoothing=0.1), "classes"),
        (lambda z, y: F.mse_loss(z, y), "numbers"),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])), "numbers"),
    )

    @pytest.mark.parametrize(("loss", "kind"), KNOWN)
    def test_same_function(self, loss: Callable[..., Tensor], kind: str):
        torch.manual_seed(1)
        y = torch.rand(9, 3).softmax(1) if kind == "numbers" else torch.randint(3, (9,))
        here = Landscape(nn.Linear(4, 3), (torch.randn(9, 4), y), loss, device="cpu", batch_size=4)
        w, v = here.weights, torch.randn(here.dimension)
        if not (isinstance(loss, nn.Module) and list(loss.buffers())):
            double = here.to("float64")
            assert relative(here.hvp(None, v), double.hvp(None, v.double())) < 1e-5
            assert here.value() == pytest.approx(double.value(), rel=1e-5)
            assert here.gradient().dtype == w.dtype
        assert here.hvp(None, v).isfinite().all()
        assert here.evaluate(stderr=True).loss_stderr > 0

    def test_a_users_own_loss_gets_what_it_got(self):
        SEEN.clear()
        here = Landscape(nn.Linear(4, 3), (torch.randn(9, 4), torch.randn(9, 3)), noting, device="cpu", batch_size=4)
        here.hvp(None, torch.ones(here.dimension))
        here.evaluate(stderr=True)
        assert set(SEEN) == {torch.float32}

    def test_bf16_loss_is_close(self):
        """bfloat16 products stay with the float32 loss."""
        here = Landscape(nn.Linear(4, 3), (torch.randn(9, 4), torch.randint(3, (9,))), device="cpu")
        rough = here.evaluator(bf16=True)(here.weights).loss
        assert rough == pytest.approx(here.value(), rel=3e-2)
