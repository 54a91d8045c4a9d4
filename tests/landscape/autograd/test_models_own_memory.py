"""Nets that view, permute or read strides give what contiguous images give: bare, folded, evaluated and trained."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from landscape import Landscape, Samples
from landscape.autograd.flat import FlatModule
from landscape.autograd.folding import fold_batchnorm
from landscape.models.outputs import require_outputs


def _view(y: Tensor) -> Tensor:
    return y.view(y.size(0), -1)


def _view_by_length(y: Tensor) -> Tensor:
    return y.view(len(y), -1)


def _flatten(y: Tensor) -> Tensor:
    return y.flatten(1)


def _permute(y: Tensor) -> Tensor:
    return y.permute(0, 2, 1, 3).reshape(y.size(0), -1)


def _permute_and_view(y: Tensor) -> Tensor:
    return y.permute(1, 2, 3, 0).view(-1, y.size(0)).t()


def _storage_order(y: Tensor) -> Tensor:
    """Channels, rows, columns in memory: no error, but other numbers where channels are the last."""
    return y.as_strided((y.size(0), y[0].numel()), (y[0].numel(), 1))


def _strides(y: Tensor) -> Tensor:
    return y.flatten(1) * float(y.stride(1))


WAYS = [_view, _view_by_length, _flatten, _permute, _permute_and_view, _storage_order, _strides]


class Net(nn.Module):
    """Convolution, perhaps BatchNorm, a way to rows, a dense layer."""

    def __init__(self, way, norm: bool, channels: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 4, 3, bias=not norm), nn.Conv2d(4, 5, 2)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.way, self.dense = way, nn.Linear(20, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(self.way(self.second(F.softplus(self.norm(self.first(x))))))


def net(way, norm: bool, channels: int = 3) -> Net:
    torch.manual_seed(3)
    found = Net(way, norm, channels).double().eval()
    if norm:
        with torch.no_grad():
            for tensor in (found.norm.running_mean, found.norm.weight, found.norm.bias):
                tensor.uniform_(0.5, 1.5)
    return found


def images(channels: int = 3) -> Samples:
    draw = torch.Generator().manual_seed(0)
    return Samples(torch.randn(10, channels, 5, 5, generator=draw, dtype=torch.float64), torch.arange(10) % 2)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "BatchNorm"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_value_gradient_product_and_folded_value_are_those_of_contiguous_images(way, norm, channels):
    model, data = net(way, norm, channels), images(channels)
    around = Landscape(model, data, device="cpu", batch_size=4)
    loss = F.cross_entropy(model(data.inputs), data.targets)
    slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    gradient = torch.cat([slope.flatten() for slope in slopes])
    v = torch.linspace(-1, 1, around.dimension, dtype=torch.float64)
    products = torch.autograd.grad(gradient @ v, list(model.parameters()), allow_unused=True)
    product = torch.cat([
        (torch.zeros_like(p) if h is None else h).flatten() for h, p in zip(products, model.parameters(), strict=True)
    ])  # fmt: skip
    assert around.value() == pytest.approx(loss.item(), rel=1e-12)
    torch.testing.assert_close(around.gradient(), gradient.detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(around.hvp(None, v), product, rtol=1e-9, atol=1e-12)
    evaluator = around.evaluator()
    assert evaluator(around.weights).loss == pytest.approx(loss.item(), rel=1e-12)
    # ``len`` of a tensor and strides have no place in a trace; what can be traced is folded in either format.
    assert evaluator.folded == int(norm and way not in (_view_by_length, _strides))


def test_a_folded_net_that_needs_it_has_contiguous_filters_and_others_the_faster_format():
    example = images().batch(slice(0, 8), torch.float64)[0]
    assert not example.is_contiguous()
    for way, fast in ((_view, False), (_storage_order, False), (_flatten, True)):
        flat = FlatModule(net(way, norm=True), torch.device("cpu"), torch.float64)
        folding = fold_batchnorm(flat.module, example)
        assert folding is not None
        assert [layer.channels_last for layer in folding.layers] == [fast]


def test_the_check_of_outputs_takes_images_as_every_model_does():
    require_outputs(net(_view_by_length, norm=False), "classification", 2, images())


class NeedsTwo(nn.Module):
    """Statistics of the batch: a single image of one pixel is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 2, 5), nn.BatchNorm2d(2, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).flatten(1)


def test_a_net_that_refuses_a_single_image_and_random_numbers_of_others_stay_as_they_are():
    model = NeedsTwo().double()
    before = torch.random.get_rng_state()
    around = Landscape(model, images(), device="cpu", batch_size=10)
    expected = F.cross_entropy(model(images().inputs), images().targets).item()
    assert around.value() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(before, torch.random.get_rng_state())


VIEWING = """
    import numpy as np
    from torch import nn
    from landscape import make_dataset

    class Net(nn.Module):
        def __init__(self, input_shape, classes):
            super().__init__()
            self.conv, self.dense = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, classes)

        def forward(self, x):
            return self.dense(self.conv(x).view(len(x), -1))

    def colours(folder):
        draw = np.random.default_rng(0)
        pair = draw.integers(0, 256, (24, 3, 8, 8), dtype=np.uint8), np.arange(24) % 3
        return make_dataset("colours", pair, pair)
"""


def test_training_takes_a_net_that_views_its_convolutions_outputs(tmp_path, monkeypatch):
    from trainers import FedAvg, Settings, train

    (tmp_path / "viewing.py").write_text(textwrap.dedent(VIEWING))
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(
        data="viewing:colours", model="viewing:Net", partition="iid", clients=2, per_round=2, rounds=1, device="cpu"
    )
    run = train(FedAvg(), settings, out=tmp_path / "run")
    assert run.status == "finished"


PYHESSIAN = "FEDSCAPE_PYHESSIAN"
"""The environment variable that names a clone of https://github.com/amirgholami/PyHessian."""


@pytest.mark.slow
@pytest.mark.skipif(PYHESSIAN not in os.environ, reason=f"{PYHESSIAN} names no clone of amirgholami/PyHessian")
def test_pyhessians_own_code_runs_as_on_contiguous_images(monkeypatch):
    folder = Path(os.environ[PYHESSIAN])
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name == "models" or name.startswith("models.")]:
        monkeypatch.delitem(sys.modules, name)
    from models.resnet import resnet

    model = resnet(num_classes=10, depth=20, residual_not=True, batch_norm_not=True)
    state = torch.load(folder / "checkpoints" / "net.pkl", map_location="cpu", weights_only=True)
    model.load_state_dict({name.removeprefix("module."): tensor for name, tensor in state.items()})
    draw = torch.Generator().manual_seed(0)
    data = Samples(torch.randn(20, 3, 32, 32, generator=draw), torch.arange(20) % 10)
    require_outputs(model, "classification", 10, data)
    around = Landscape(model, data, device="cpu", batch_size=8)
    expected = F.cross_entropy(model.eval()(data.inputs), data.targets).item()
    evaluator = around.evaluator()
    assert around.value() == pytest.approx(expected, rel=1e-5)
    assert evaluator(around.weights).loss == pytest.approx(expected, rel=1e-5)
    assert evaluator.folded == 19 + 2  # and the two shortcuts'
