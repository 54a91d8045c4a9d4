"""The papers' networks: sizes, seeded parameters, and outputs against the same networks written as functions."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from landscape import MODELS, FedscapeError, build_model


def build(name: str, shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, seed: int = 0, **kwargs) -> nn.Module:
    return build_model(name, seed=seed, input_shape=shape, classes=classes, **kwargs)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("digits_mlp", (1, 8, 8), 10, 6_570),
        ("digits_cnn", (1, 8, 8), 10, 16 * 10 + 32 * (16 * 9 + 1) + 10 * (32 * 4 + 1)),
        ("lenet_fed", (3, 32, 32), 10, 797_962),
        ("lenet_fed", (3, 32, 32), 100, 815_332),
        ("resnet18_gn", (3, 32, 32), 10, 11_181_642),
    ],
)
def test_number_of_parameters_is_the_published_one(name, shape, classes, count):
    assert parameters(build(name, shape, classes)) == count


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 16, 40), (1, 64, 64)])
def test_outputs_are_one_finite_number_a_class(name, shape):
    outputs = build(name, shape, classes=7)(torch.randn(2, *shape))
    assert outputs.shape == (2, 7)
    assert outputs.isfinite().all()


@pytest.mark.parametrize("name", list(MODELS))
def test_the_seed_decides_the_parameters_and_global_random_numbers_stay(name):
    def weights(seed: int) -> Tensor:
        return nn.utils.parameters_to_vector(build(name, seed=seed).parameters())

    before = torch.get_rng_state()
    one = weights(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert torch.equal(weights(3), one)
    assert not torch.equal(weights(4), one)
    assert one.dtype == torch.float32


def randomised(name: str) -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    """A network with every parameter away from 0 and 1, its tensors by name, and images."""
    draw = torch.Generator().manual_seed(0)
    model = build(name).double()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=draw)
    return model, dict(model.state_dict()), torch.randn(3, 3, 32, 32, generator=draw).double()


def test_lenet_fed_is_two_convolutions_with_pooling_and_three_dense_layers():
    model, p, x = randomised("lenet_fed")
    h = F.max_pool2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"])), 2)
    h = F.max_pool2d(F.relu(F.conv2d(h, p["conv2.weight"], p["conv2.bias"])), 2)
    h = F.relu(F.linear(h.reshape(3, 1600), p["fc1.weight"], p["fc1.bias"]))
    h = F.relu(F.linear(h, p["fc2.weight"], p["fc2.bias"]))
    torch.testing.assert_close(model(x), F.linear(h, p["fc3.weight"], p["fc3.bias"]), rtol=1e-12, atol=1e-12)


def test_resnet18_gn_is_he_et_als_network_with_two_groups():
    model, p, x = randomised("resnet18_gn")

    def convolved(h: Tensor, conv: str, norm: str, stride: int, padding: int) -> Tensor:
        h = F.conv2d(h, p[f"{conv}.weight"], stride=stride, padding=padding)
        return F.group_norm(h, 2, p[f"{norm}.weight"], p[f"{norm}.bias"])

    h = F.max_pool2d(F.relu(convolved(x, "conv1", "bn1", 2, 3)), 3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = F.relu(convolved(h, f"{name}.conv1", f"{name}.bn1", stride, 1))
            y = convolved(y, f"{name}.conv2", f"{name}.bn2", 1, 1)
            if stride == 2:
                h = convolved(h, f"{name}.downsample.0", f"{name}.downsample.1", 2, 0)
            h = F.relu(y + h)
    expected = F.linear(h.mean((2, 3)), p["fc.weight"], p["fc.bias"])
    torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-10)


def test_resnet18_gn_starts_from_kaiming_normal_by_fan_out_and_the_others_from_torchs_own():
    for name, p in build("resnet18_gn").named_parameters():
        if p.dim() == 4:
            fan_out = p.shape[0] * p.shape[2] * p.shape[3]
            assert p.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05), name
    weight = build("lenet_fed").fc1.weight
    assert weight.abs().max().item() == pytest.approx(1600**-0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("lenet_fed", (1, 8, 8), r"takes images .* of at least 16x16, not inputs of shape \(1, 8, 8\)"),
        ("lenet_fed", (64,), r"takes images .*, not inputs of shape \(64,\)"),
        ("resnet18_gn", (3, 4, 32), r"takes images .* of at least 8x8, not inputs of shape \(3, 4, 32\)"),
        ("digits_cnn", (1, 3, 3), r"takes images .* of at least 4x4"),
        ("digits_cnn", (1, 1, 8, 8), r"not inputs of shape \(1, 1, 8, 8\)"),
    ],
)
def test_inputs_a_network_cannot_take_are_refused(name, shape, reason):
    with pytest.raises(FedscapeError, match=reason):
        build(name, shape)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("lenet", "lenet_fed"), ("resnet18gn", "resnet18_gn"), ("digits-cnn", "digits_cnn")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, hint):
    with pytest.raises(FedscapeError, match=rf"unknown model '{name}': did you mean '{hint}'\? known are digits_mlp"):
        build(name)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("digits_mlp", {"width": 3}), ("digits_mlp", {"classes": -1}), ("digits_mlp", {"classes": "ten"})],
)
def test_arguments_a_network_cannot_take_are_refused(name, arguments):
    with pytest.raises(FedscapeError, match=r"the model 'digits_mlp' cannot be built: [^\n]+$"):
        build(name, **arguments)


def test_the_users_own_callable_is_called_and_must_return_a_module(monkeypatch):
    own = types.ModuleType("own_models")
    own.line = lambda input_shape, classes, bias: nn.Linear(*input_shape, classes, bias=bias)
    own.nothing = lambda input_shape, classes: None
    monkeypatch.setitem(sys.modules, "own_models", own)
    model = build("own_models:line", (4,), 2, bias=False)
    assert parameters(model) == 8
    with pytest.raises(FedscapeError, match=r"the model 'own_models:nothing' returned NoneType, not a torch.nn.Module"):
        build("own_models:nothing")
    with pytest.raises(FedscapeError, match=r"the model 'own_models:line' cannot be built: .*bias"):
        build("own_models:line")
