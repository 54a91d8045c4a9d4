"""Products on every kind of layer against a dense double backward and differences of gradients, both plain PyTorch's.

The double backward shares PyTorch's mistakes, the differences do not.
"""

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import expit
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations

from landscape import FedscapeError, Landscape
from tests.landscape.autograd.test_dense_hessian import close, objective
from tests.landscape.nets import CLASSES, SAMPLES, Case
from tests.processes import python, run_process

TOKENS = 6


class Sequence(nn.Module):
    """Token ids [n, t] -> embedding -> a layer over time -> the mean over time -> classes."""

    def __init__(self, layer: nn.Module | None, width: int, **embedding) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(5, 3, **embedding), layer, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.layer is not None:
            x = self.layer(x)
        return self.head(torch.tanh(x[0] if isinstance(x, tuple) else x).mean(1))


class Encoder(nn.Module):
    """Features [n, 5] as tokens of one position -> a transformer's layer -> classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.3, activation="gelu", batch_first=True)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x[:, :, None])).mean(1))


class Calls(nn.Module):
    """A function between two dense layers."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.head, self.function = nn.Linear(5, 6), nn.Linear(6, CLASSES), function

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.function(torch.tanh(self.first(x))))


def body(shape: tuple[int, ...], *layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Layers, tanh, and a dense layer of their flattened outputs."""

    def build() -> nn.Module:
        net = nn.Sequential(*(layer() for layer in layers), nn.Tanh(), nn.Flatten())
        with torch.no_grad():
            width = copy.deepcopy(net).eval()(torch.randn(2, *shape)).shape[1]
        return nn.Sequential(net, nn.Linear(width, CLASSES))

    return build


IMAGES, SIGNALS, VOLUMES, FEATURES = (2, 5, 5), (2, 9), (1, 4, 4, 4), (5,)


def on(shape: tuple[int, ...], *layers: Callable[[], nn.Module]) -> tuple[Callable[[], nn.Module], tuple[int, ...]]:
    return body(shape, *layers), shape


def conv(**options) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(2, 4, 3, **options)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1d": on(SIGNALS, lambda: nn.Conv1d(2, 3, 3, stride=2)),
    "Conv1d grouped dilated": on(SIGNALS, lambda: nn.Conv1d(2, 4, 3, groups=2, dilation=2)),
    "Conv3d": on(VOLUMES, lambda: nn.Conv3d(1, 2, 3)),
    "Conv2d grouped": on(IMAGES, conv(groups=2, stride=2)),
    "Conv2d dilated": on(IMAGES, conv(dilation=2, padding=1, stride=2)),
    "Conv2d grouped strided dilated": on(IMAGES, conv(groups=2, stride=2, dilation=2, padding=2)),
    "Conv2d depthwise, twice": on(IMAGES, conv(groups=2), nn.Tanh, lambda: nn.Conv2d(4, 4, 2, groups=4)),
    "Conv2d circular": on(IMAGES, conv(padding=1, padding_mode="circular", stride=3)),
    "ConvTranspose1d": on((2, 4), lambda: nn.ConvTranspose1d(2, 2, 3, stride=2)),
    "ConvTranspose2d": on((2, 3, 3), lambda: nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1, output_padding=1)),
    "ConvTranspose2d grouped dilated": on((2, 3, 3), lambda: nn.ConvTranspose2d(2, 2, 2, groups=2, dilation=2)),
    "average pooling": on(IMAGES, conv(), lambda: nn.AvgPool2d(2)),
    "adaptive pooling": on(IMAGES, conv(), lambda: nn.AdaptiveAvgPool2d(2)),
    "upsampling": on((2, 3, 3), lambda: nn.Conv2d(2, 2, 2), lambda: nn.Upsample(scale_factor=2, mode="bilinear")),
    "InstanceNorm": on(IMAGES, conv(), lambda: nn.InstanceNorm2d(4, affine=True)),
    "InstanceNorm with statistics": on(IMAGES, conv(), lambda: nn.InstanceNorm2d(4, True, track_running_stats=True)),
    "BatchNorm1d": on(FEATURES, lambda: nn.Linear(5, 6), lambda: nn.BatchNorm1d(6)),
    "BatchNorm with cumulative statistics": on(IMAGES, conv(), lambda: nn.BatchNorm2d(4, momentum=None)),
    "GroupNorm without scale": on(IMAGES, conv(), lambda: nn.GroupNorm(2, 4, affine=False)),
    "GroupNorm of one group": on(IMAGES, conv(), lambda: nn.GroupNorm(1, 4)),
    "GroupNorm a group a channel": on(SIGNALS, lambda: nn.Conv1d(2, 4, 3), lambda: nn.GroupNorm(4, 4)),
    "GroupNorm frozen": on(IMAGES, conv(), lambda: nn.GroupNorm(2, 4).requires_grad_(False)),
    "GroupNorm twice": on(
        IMAGES, conv(), lambda: nn.GroupNorm(2, 4), nn.SiLU, lambda: nn.Conv2d(4, 4, 2), lambda: nn.GroupNorm(4, 4)
    ),
    "RMSNorm": on(FEATURES, lambda: nn.Linear(5, 6), lambda: nn.RMSNorm(6)),
    "LocalResponseNorm": on(IMAGES, conv(), lambda: nn.LocalResponseNorm(2)),
    "GELU by tanh": on(FEATURES, lambda: nn.Linear(5, 6), lambda: nn.GELU("tanh")),
    "Mish": on(FEATURES, lambda: nn.Linear(5, 6), nn.Mish),
    "Softplus": on(FEATURES, lambda: nn.Linear(5, 6), nn.Softplus),
    "PReLU": on(FEATURES, lambda: nn.Linear(5, 6), nn.PReLU),
    "ReLU in place": on(FEATURES, lambda: nn.Linear(5, 6), lambda: nn.ReLU(inplace=True)),
    "dropout": on(FEATURES, lambda: nn.Linear(5, 6), nn.Tanh, nn.Dropout),
    "spectral norm": on(FEATURES, lambda: parametrizations.spectral_norm(nn.Linear(5, 6))),
    "weight norm of the whole": on(FEATURES, lambda: parametrizations.weight_norm(nn.Linear(5, 6), dim=None)),
    "Embedding": (lambda: Sequence(None, 3), (TOKENS,)),
    "LSTM": (lambda: Sequence(nn.LSTM(3, 2, batch_first=True), 2), (TOKENS,)),
    "LSTM of two layers with dropout": (
        lambda: Sequence(nn.LSTM(3, 2, num_layers=2, dropout=0.5, batch_first=True), 2),
        (TOKENS,),
    ),
    "GRU both ways": (lambda: Sequence(nn.GRU(3, 2, batch_first=True, bidirectional=True), 4), (TOKENS,)),
    "RNN": (lambda: Sequence(nn.RNN(3, 2, batch_first=True), 2), (TOKENS,)),
    "transformer layer": (Encoder, FEATURES),
}
BROKEN = {
    # PyTorch's own double backward is wrong (2.13: gradgradcheck of torch._weight_norm fails along an axis).
    "weight norm": on(FEATURES, lambda: parametrizations.weight_norm(nn.Linear(5, 6))),
    # The backward that PyTorch gives is not the gradient of the loss.
    "Embedding by frequency": (lambda: Sequence(None, 3, scale_grad_by_freq=True), (TOKENS,)),
    "Embedding sparse": (lambda: Sequence(None, 3, sparse=True), (TOKENS,)),
    "EmbeddingBag": (lambda: nn.Sequential(nn.EmbeddingBag(5, 4), nn.Tanh(), nn.Linear(4, CLASSES)), (TOKENS,)),
}
# Renormalises its weights while it runs.
MOVING = {"Embedding renormalised": (lambda: Sequence(None, 3, max_norm=1.0), (TOKENS,))}
BATCH_DEPENDENT = {
    "BatchNorm without statistics": on(
        FEATURES, lambda: nn.Linear(5, 6), lambda: nn.BatchNorm1d(6, track_running_stats=False)
    ),
    "batch_norm of the batch": (
        lambda: Calls(lambda x: nn.functional.batch_norm(x, None, None, training=True)),
        FEATURES,
    ),
    "dropout that never stops": (lambda: Calls(nn.functional.dropout), FEATURES),
}


def case(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> Case:
    """The network in training mode; every parameter and running statistic is random, none is 0 or 1."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = build().double()
        for parameter in model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        for name, statistic in model.named_buffers():
            if name.endswith("running_mean"):
                statistic.normal_()
            elif name.endswith("running_var"):
                statistic.uniform_(0.5, 2.0)
        tokens = shape == (TOKENS,)
        x = torch.randint(5, (SAMPLES, *shape)) if tokens else torch.randn(SAMPLES, *shape, dtype=torch.float64)
        w = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
        return Case(model.train(), x, torch.randint(CLASSES, (SAMPLES,)), w + 0.1 * torch.randn_like(w))


def by_double_backward(net: Case) -> Tensor:
    w = net.w.clone().requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        (gradient,) = torch.autograd.grad(objective(net)(w), w, create_graph=True)
        return torch.stack([torch.autograd.grad(part, w, retain_graph=True)[0] for part in gradient])


def by_differences(net: Case, directions: Tensor | None = None) -> Tensor:
    """Differences of the loss's gradients along directions [k, d], or every axis, in plain PyTorch: products [k, d]."""
    loss = objective(net)

    def gradient(w: Tensor) -> Tensor:
        w = w.clone().requires_grad_()
        return torch.autograd.grad(loss(w), w)[0]

    step = 1e-5 * (torch.eye(len(net.w), dtype=torch.float64) if directions is None else directions)
    return torch.stack([(gradient(net.w + e) - gradient(net.w - e)) / 2e-5 for e in step])


def hessian(net: Case, batch_size: int) -> Tensor:
    landscape = Landscape(net.model, (net.x, net.y), batch_size=batch_size, device="cpu")
    return landscape.hvp(net.w, torch.eye(len(net.w), dtype=torch.float64))


@pytest.mark.parametrize(
    "name", [name if k % 2 else pytest.param(name, marks=pytest.mark.slow) for k, name in enumerate(NETS)]
)
def test_hessian_is_the_dense_double_backward_and_the_difference_of_gradients(name):
    net = case(*NETS[name])
    found = hessian(net, 4)
    close(found, by_double_backward(net), 1e-11)
    draw = torch.Generator().manual_seed(8)
    some = torch.randn(8, len(net.w), dtype=torch.float64, generator=draw) / len(net.w) ** 0.5
    close(some @ found, by_differences(net, some), 1e-7)


@pytest.mark.parametrize("name", NETS)
def test_value_and_gradient_are_plain_pytorchs_and_kept_graphs_change_nothing(name):
    net = case(*NETS[name])
    landscape = Landscape(net.model, (net.x, net.y), batch_size=4, device="cpu")
    w = net.w.clone().requires_grad_()
    loss = objective(net)(w)
    assert landscape.value(net.w) == pytest.approx(loss.item(), rel=1e-12)
    close(landscape.gradient(net.w), torch.autograd.grad(loss, w)[0], 1e-11)
    kept = landscape.hessian(net.w, graph_memory=10**9)
    first, second = kept(w.detach()), kept(w.detach())
    assert kept.graphs_kept == 3
    assert torch.equal(first, second)
    close(first, landscape.hvp(net.w, net.w), 1e-11)


UNNAMED = pytest.mark.xfail(strict=True, reason="wrong, or an error of PyTorch's that does not name the layer")


@pytest.mark.parametrize("name", [*(pytest.param(name, marks=UNNAMED) for name in BROKEN), *MOVING])
def test_a_layer_whose_derivatives_are_wrong_is_right_or_refused(name):
    net = case(*{**BROKEN, **MOVING}[name])
    landscape = Landscape(net.model, (net.x, net.y), device="cpu")
    step = 1e-5 * torch.eye(len(net.w), dtype=torch.float64)
    try:
        found, slope = hessian(net, SAMPLES), landscape.gradient(net.w)
    except FedscapeError:
        return
    values = torch.tensor([landscape.value(net.w + e) - landscape.value(net.w - e) for e in step]).double() / 2e-5
    close(slope, values, 1e-6)
    close(found, by_differences(net), 1e-6)


def test_the_padding_row_of_an_embedding_is_a_constant():
    net = case(lambda: Sequence(None, 3, padding_idx=0), (TOKENS,))
    found = hessian(net, 4)
    assert (found[:3] == 0).all()
    assert (found[:, :3] == 0).all()
    close(found[3:, 3:], by_differences(net)[3:, 3:], 1e-7)


@pytest.mark.parametrize("name", BATCH_DEPENDENT)
def test_a_layer_that_mixes_samples_or_draws_numbers_is_right_or_refused(name):
    net = case(*BATCH_DEPENDENT[name])
    try:
        few, many = hessian(net, 4), hessian(net, SAMPLES)
    except FedscapeError:
        return
    close(few, many, 1e-10)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)),
        nn.CrossEntropyLoss(ignore_index=0),
    ],
    ids=["sum", "class weights", "ignored targets"],
)
def test_a_loss_that_is_no_mean_over_the_batch_is_right_or_refused(loss):
    net = case(*NETS["Softplus"])
    try:
        few, many = (Landscape(net.model, (net.x, net.y), loss, batch_size=b, device="cpu").value() for b in (3, 10))
    except FedscapeError:
        return
    assert few == pytest.approx(many, rel=1e-12)


FIRST = "nn.Sequential(nn.GroupNorm(1, 2), nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(144, 3))"
FROZEN = (
    "nn.Sequential(nn.Conv2d(2, 2, 3).requires_grad_(False), nn.GroupNorm(1, 2), nn.SiLU(), nn.Flatten(), "
    "nn.Linear(72, 3))"
)


ASKED = {
    "gradient": "Landscape(net, (x, y), device='cpu').gradient()",
    "hvp": "Landscape(net, (x, y), device='cpu').hvp(None, torch.ones(d))",
    "Gauss-Newton": "Landscape(net, (x, y), device='cpu').gauss_newton()(torch.ones(d))",
    "training": (
        "flat.gradient(nn.functional.cross_entropy(flat.module(x.contiguous(memory_format=torch.channels_last)), y))"
    ),
}


@pytest.mark.parametrize("net", [FIRST, FROZEN], ids=["the images themselves", "what frozen layers give"])
def test_group_norm_of_what_needs_no_gradient(net):
    """PyTorch crashes where that is channels-last; in a process of its own, therefore, which says how far it came."""
    code = (
        "import torch; from torch import nn; from landscape import Landscape\n"
        "from landscape.autograd.flat import FlatModule\n"
        f"net, x, y = {net}, torch.randn(4, 2, 8, 8), torch.arange(4) % 3\n"
        "flat = FlatModule(net, torch.device('cpu'), torch.float32)\n"
        "d = flat.space.dimension\n"
    )
    code += "".join(
        f"assert ({asked}).isfinite().all()\nprint({name!r}, flush=True)\n" for name, asked in ASKED.items()
    )
    status, printed = run_process(python, code)
    assert printed.splitlines() == list(ASKED)
    assert status == 0


def test_the_old_weight_norm_is_right_or_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(5, 6)), nn.Tanh(), nn.Linear(6, CLASSES)).double()
    net = Case(model, torch.randn(4, 5, dtype=torch.float64), torch.arange(4) % CLASSES, torch.empty(0))
    try:
        Landscape(net.model, (net.x, net.y), device="cpu")
    except FedscapeError:
        return


def test_logistic_regression_is_its_closed_form():
    """∇²L = (1/n) Σ p (1 − p) x xᵀ, for the binary cross-entropy of one logit."""
    draw = np.random.default_rng(2)
    x, y, w = draw.normal(size=(17, 4)), draw.integers(2, size=(17, 1)).astype(float), draw.normal(size=5)
    data = torch.from_numpy(x), torch.from_numpy(y)
    loss = nn.functional.binary_cross_entropy_with_logits
    landscape = Landscape(nn.Linear(4, 1).double(), data, loss, device="cpu", batch_size=5)
    ones = np.c_[x, np.ones(17)]
    p = expit(ones @ w)
    point = torch.from_numpy(w)
    value = -np.mean(y[:, 0] * np.log(p) + (1 - y[:, 0]) * np.log(1 - p))
    assert landscape.value(point) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(landscape.gradient(point), (p - y[:, 0]) @ ones / 17, rtol=1e-12, atol=1e-14)
    found = landscape.hvp(point, torch.eye(5, dtype=torch.float64))
    np.testing.assert_allclose(found, (ones.T * p * (1 - p)) @ ones / 17, rtol=1e-12, atol=1e-14)
