"""The papers' networks: sizes, outputs' shapes, seeded parameters, how they start, what they refuse."""

import sys
import types

import pytest
import torch
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
        ("convnet_tiny", (3, 64, 64), 200, 64 * 28 + 2 * 64 * 577 + 3 * 128 + 512 * 4097 + 384 * 513 + 200 * 385),
        ("cnn_emnist", (1, 28, 28), 62, 1_206_590),  # in the summary of Reddi et al.'s code
        ("cnn_emnist", (1, 28, 28), 10, 1_199_882),
        ("resnet18_gn", (3, 32, 32), 10, 11_181_642),
        ("resnet18_bn", (3, 224, 224), 1000, 11_689_512),  # torchvision's table
        ("resnet18_gn_cifar", (3, 32, 32), 10, 11_181_642 - 64 * 3 * (49 - 9)),
        ("resnet18_bn_cifar", (3, 32, 32), 10, 11_173_962),
        ("resnet20_gn", (3, 32, 32), 10, 269_722),
        ("resnet20_bn", (3, 32, 32), 10, 269_722),  # He et al.: 0.27 million
        ("mobilenet_v2_bn", (3, 224, 224), 1000, 3_504_872),  # torchvision's table
        ("mobilenet_v2_gn", (3, 224, 224), 2028, 3_504_872 + 1281 * (2028 - 1000)),
    ],
)
def test_number_of_parameters_is_the_published_one(name, shape, classes, count):
    assert parameters(build(name, shape, classes)) == count


def bisenet_parameters(classes: int) -> int:
    """BiSeNet V2, counted layer by layer from the paper's table 1 and FedDrive's heads; ``k * k * in * out + 2 * out``
    is a convolution with its normalisation."""

    def conv(inputs: int, outputs: int, k: int = 3) -> int:
        return k * k * inputs * outputs + 2 * outputs

    def by_channel(inputs: int, outputs: int) -> int:
        return 9 * outputs + 2 * outputs

    def block(inputs: int, outputs: int, stride: int) -> int:
        hidden = 6 * inputs
        count = conv(inputs, inputs) + by_channel(inputs, hidden) + conv(hidden, outputs, 1)
        if stride == 2:
            count += by_channel(hidden, hidden) + by_channel(inputs, inputs) + conv(inputs, outputs, 1)
        return count

    detail = conv(3, 64) + 4 * conv(64, 64) + conv(64, 128) + 2 * conv(128, 128)
    stem = conv(3, 16) + conv(16, 8, 1) + conv(8, 16) + conv(32, 16)
    stages = block(16, 32, 2) + block(32, 32, 1) + block(32, 64, 2) + block(64, 64, 1)
    stages += block(64, 128, 2) + 3 * block(128, 128, 1)
    context = 2 * 128 + conv(128, 128, 1) + conv(128, 128)
    gates = 2 * (by_channel(128, 128) + 128 * 128) + 2 * conv(128, 128)
    return detail + stem + stages + context + gates + conv(128, 128) + conv(128, 1024) + 1025 * 64 * classes


@pytest.mark.parametrize("name", ["bisenet_v2", "bisenet_v2_gn"])
@pytest.mark.parametrize("classes", [19, 16])
def test_bisenet_has_the_parameters_counted_layer_by_layer(name, classes):
    assert parameters(build(name, (3, 64, 64), classes)) == bisenet_parameters(classes)


def test_cityscapes_network_has_four_and_a_half_million_parameters():
    assert bisenet_parameters(19) == 4_585_552


SHAPES = [(3, 32, 32), (1, 28, 28), (3, 16, 40), (1, 64, 64)]
SEGMENTING = ["bisenet_v2", "bisenet_v2_gn"]


@pytest.mark.parametrize("name", [name for name in MODELS if name not in SEGMENTING])
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs_are_one_finite_number_a_class(name, shape):
    outputs = build(name, shape, classes=7)(torch.randn(2, *shape))
    assert outputs.shape == (2, 7)
    assert outputs.isfinite().all()


@pytest.mark.parametrize("name", SEGMENTING)
@pytest.mark.parametrize("shape", [*SHAPES, (3, 37, 50)])
def test_outputs_of_segmentation_are_one_finite_number_a_class_and_pixel(name, shape):
    outputs = build(name, shape, classes=7)(torch.randn(2, *shape))
    assert outputs.shape == (2, 7, *shape[1:])
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


def test_draws_are_the_cpus_whatever_the_default_device_is():
    expected = nn.utils.parameters_to_vector(build("cnn_emnist", (1, 28, 28)).parameters())
    with torch.device("meta"):  # as torch.set_default_device("cuda") would
        there = build("cnn_emnist", (1, 28, 28))
    assert torch.equal(nn.utils.parameters_to_vector(there.parameters()), expected)


@pytest.mark.parametrize(
    ("name", "fan"),
    [
        ("resnet18_gn", "out"),
        ("resnet18_bn_cifar", "out"),
        ("resnet20_bn", "in"),
        ("mobilenet_v2_gn", "out"),
        ("bisenet_v2", "out"),
    ],
)
def test_deep_networks_start_from_kaiming_normal(name, fan):
    for label, p in build(name).named_parameters():
        if p.dim() == 4:
            fans = {"in": p[0].numel(), "out": p[:, 0].numel()}
            z = p / (2 / fans[fan]) ** 0.5
            assert z.std().item() == pytest.approx(1, abs=5 / (2 * p.numel()) ** 0.5), label


def test_dense_and_shallow_networks_start_from_torchs_own():
    for name, fan_in in (("lenet_fed", 1600), ("convnet_tiny", 1024)):
        weight = next(p for p in build(name).parameters() if p.dim() == 2)
        assert weight.abs().max().item() == pytest.approx(fan_in**-0.5, rel=1e-3)


def test_cnn_emnist_starts_from_glorot_uniform_as_keras_does():
    for p in build("cnn_emnist", (1, 28, 28), 62).parameters():
        if p.dim() == 1:
            assert (p == 0).all()
        else:
            largest = (6 / (p[0].numel() + p[:, 0].numel())) ** 0.5
            assert largest * 0.97 < p.abs().max().item() <= largest


def test_mobilenets_dense_layer_starts_small_and_bisenets_residuals_from_nothing():
    dense = build("mobilenet_v2_gn", classes=100).classifier[1]
    assert dense.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert (dense.bias == 0).all()
    scales = [p for name, p in build("bisenet_v2_gn").named_parameters() if name.endswith("project.1.weight")]
    assert len(scales) == 8
    assert all((scale == 0).all() for scale in scales)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("lenet_fed", (1, 8, 8), r"takes images .* of at least 16x16, not inputs of shape \(1, 8, 8\)"),
        ("lenet_fed", (64,), r"takes images .*, not inputs of shape \(64,\)"),
        ("resnet18_gn", (3, 4, 32), r"takes images .* of at least 8x8, not inputs of shape \(3, 4, 32\)"),
        ("convnet_tiny", (3, 7, 64), r"takes images .* of at least 8x8"),
        ("cnn_emnist", (784,), r"takes images .*, not inputs of shape \(784,\)"),
        ("mobilenet_v2_gn", (3, 4, 4), r"the model 'mobilenet_v2_gn' takes images .* of at least 8x8"),
        ("bisenet_v2", (3, 8, 64), r"the model 'bisenet_v2' takes images .* of at least 16x16"),
        ("resnet20_bn", (64,), r"the model 'resnet20_bn' takes images"),
        ("digits_cnn", (1, 3, 3), r"takes images .* of at least 4x4"),
        ("digits_cnn", (1, 1, 8, 8), r"not inputs of shape \(1, 1, 8, 8\)"),
    ],
)
def test_inputs_a_network_cannot_take_are_refused(name, shape, reason):
    with pytest.raises(FedscapeError, match=reason):
        build(name, shape)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("lenet", "lenet_fed"), ("resnet18gn", "resnet18_gn"), ("digits-cnn", "digits_cnn"), ("bisenetv2", "bisenet_v2")],
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
