"""What the papers' networks compute, against the same networks written as functions of their weights."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from landscape import Landscape, build_model

CLASSES = 5


class Weights:
    """A network's tensors by name, and its layers as functions of them; BatchNorm where there are statistics."""

    def __init__(self, model: nn.Module) -> None:
        self.tensors = dict(model.state_dict())

    def conv(self, x: Tensor, name: str, stride: int = 1, padding: int = 0, groups: int = 1) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        return F.conv2d(x, weight, bias, stride, padding, groups=groups)

    def dense(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"])

    def norm(self, x: Tensor, name: str, groups: int = 2) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        if f"{name}.running_mean" in self.tensors:
            mean, var = self.tensors[f"{name}.running_mean"], self.tensors[f"{name}.running_var"]
            return F.batch_norm(x, mean, var, weight, bias)
        return F.group_norm(x, groups, weight, bias)


def randomised(name: str, shape: tuple[int, int, int] = (3, 32, 32)) -> tuple[nn.Module, Weights, Tensor]:
    """A network with every parameter and statistic away from 0 and 1, its tensors, and images."""
    draw = torch.Generator().manual_seed(0)
    model = build_model(name, seed=0, input_shape=shape, classes=CLASSES).double().eval()
    with torch.no_grad():
        for p in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
            noise = 0.05 * torch.randn(p.shape, generator=draw).double()
            p += noise.abs() if p.dim() == 1 else noise  # a variance stays above 0
    return model, Weights(model), torch.randn(3, *shape, generator=draw).double()


def lenet_fed(p: Weights, x: Tensor) -> Tensor:
    h = F.max_pool2d(F.relu(p.conv(x, "conv1")), 2)
    h = F.max_pool2d(F.relu(p.conv(h, "conv2")), 2)
    h = F.relu(p.dense(h.reshape(len(x), -1), "fc1"))
    return p.dense(F.relu(p.dense(h, "fc2")), "fc3")


def convnet_tiny(p: Weights, x: Tensor) -> Tensor:
    for stage in (0, 4, 8):
        x = p.norm(p.conv(x, f"{stage}", padding=1), f"{stage + 1}", groups=4)
        x = F.max_pool2d(F.relu(x), 2)
    h = F.relu(p.dense(x.reshape(len(x), -1), "13"))
    return p.dense(F.relu(p.dense(h, "15")), "17")


def cnn_emnist(p: Weights, x: Tensor) -> Tensor:
    h = F.max_pool2d(F.relu(p.conv(F.relu(p.conv(x, "0")), "2")), 2)
    return p.dense(F.relu(p.dense(h.reshape(len(x), -1), "7")), "10")


def resnet18(p: Weights, x: Tensor, small: bool = False) -> Tensor:
    h = F.relu(p.norm(p.conv(x, "conv1", *((1, 1) if small else (2, 3))), "bn1"))
    if not small:
        h = F.max_pool2d(h, 3, stride=2, padding=1)
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = F.relu(p.norm(p.conv(h, f"{name}.conv1", stride, 1), f"{name}.bn1"))
            y = p.norm(p.conv(y, f"{name}.conv2", 1, 1), f"{name}.bn2")
            if stride == 2:
                h = p.norm(p.conv(h, f"{name}.downsample.0", 2), f"{name}.downsample.1")
            h = F.relu(y + h)
    return p.dense(h.mean((2, 3)), "fc")


def resnet18_cifar(p: Weights, x: Tensor) -> Tensor:
    return resnet18(p, x, small=True)


def resnet20(p: Weights, x: Tensor) -> Tensor:
    h = F.relu(p.norm(p.conv(x, "conv1", padding=1), "bn1"))
    for stage in (1, 2, 3):
        for block in (0, 1, 2):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = F.relu(p.norm(p.conv(h, f"{name}.conv1", stride, 1), f"{name}.bn1"))
            y = p.norm(p.conv(y, f"{name}.conv2", 1, 1), f"{name}.bn2")
            if stride == 2:
                h = h[:, :, ::2, ::2]
                h = torch.cat([h, torch.zeros_like(h)], 1)
            h = F.relu(y + h)
    return p.dense(h.mean((2, 3)), "fc")


def mobilenet_v2(p: Weights, x: Tensor) -> Tensor:
    h = F.relu6(p.norm(p.conv(x, "features.0.0", 2, 1), "features.0.1"))
    strides = [1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1]
    outputs = [16] + 2 * [24] + 3 * [32] + 4 * [64] + 3 * [96] + 3 * [160] + [320]
    for i, (stride, channels) in enumerate(zip(strides, outputs, strict=True), start=1):
        name, y, layer = f"features.{i}.conv", h, 0
        if i > 1:
            y = F.relu6(p.norm(p.conv(y, f"{name}.0.0"), f"{name}.0.1"))
            layer = 1
        y = p.conv(y, f"{name}.{layer}.0", stride, 1, groups=y.shape[1])
        y = F.relu6(p.norm(y, f"{name}.{layer}.1"))
        y = p.norm(p.conv(y, f"{name}.{layer + 1}"), f"{name}.{layer + 2}")
        h = h + y if stride == 1 and h.shape[1] == channels else y
    h = F.relu6(p.norm(p.conv(h, "features.18.0"), "features.18.1"))
    return p.dense(h.mean((2, 3)), "classifier.1")


def bisenet_v2(p: Weights, x: Tensor) -> Tensor:
    def step(x: Tensor, name: str, stride: int = 1, at: int = 0, groups: int = 1) -> Tensor:
        """Convolution ``at`` of a sequence and the normalisation behind it."""
        padding = p.tensors[f"{name}.{at}.weight"].shape[-1] // 2
        return p.norm(p.conv(x, f"{name}.{at}", stride, padding, groups), f"{name}.{at + 1}")

    def active(x: Tensor, name: str, stride: int = 1) -> Tensor:
        return F.relu(step(x, name, stride))

    detail = x
    for i, stride in enumerate((2, 1, 2, 1, 1, 2, 1, 1)):
        detail = active(detail, f"detail.{i}", stride)

    stem = active(x, "semantic.0.conv", 2)
    left = active(active(stem, "semantic.0.left.0"), "semantic.0.left.1", 2)
    right = F.max_pool2d(stem, 3, stride=2, padding=1)
    h = active(torch.cat([left, right], 1), "semantic.0.fuse")
    for i, stride in enumerate((2, 1, 2, 1, 2, 1, 1, 1), start=1):
        name, channels = f"semantic.{i}", h.shape[1]
        y = step(active(h, f"{name}.gather"), f"{name}.expand", stride, groups=channels)
        if stride == 2:
            y = step(y, f"{name}.expand", at=2, groups=6 * channels)
            h = step(step(h, f"{name}.shortcut", 2, groups=channels), f"{name}.shortcut", at=2)
        h = F.relu(step(F.relu(y), f"{name}.project") + h)
    pooled = p.norm(h.mean((2, 3), keepdim=True), "semantic.9.norm")
    h = active(active(pooled, "semantic.9.context") + h, "semantic.9.last")

    def enlarged(small: Tensor) -> Tensor:
        return F.interpolate(small, detail.shape[2:], mode="bilinear", align_corners=True)

    gated = p.conv(step(detail, "aggregation.detail", groups=128), "aggregation.detail.2")
    gated = gated * torch.sigmoid(enlarged(step(h, "aggregation.semantic_up")))
    down = F.avg_pool2d(step(detail, "aggregation.detail_down", 2), 3, stride=2, padding=1)
    meaning = p.conv(step(h, "aggregation.semantic", groups=128), "aggregation.semantic.2")
    h = active(gated + enlarged(down * torch.sigmoid(meaning)), "aggregation.last")
    h = p.conv(active(h, "head.0"), "head.2")
    n, _, height, width = h.shape
    tiles = h.reshape(n, CLASSES, 8, 8, height, width)  # each place is a tile of 8 x 8 pixels
    return tiles.permute(0, 1, 4, 2, 5, 3).reshape(n, CLASSES, 8 * height, 8 * width)


NETWORKS = {
    "lenet_fed": lenet_fed,
    "convnet_tiny": convnet_tiny,
    "cnn_emnist": cnn_emnist,
    "resnet18_gn": resnet18,
    "resnet18_bn": resnet18,
    "resnet18_gn_cifar": resnet18_cifar,
    "resnet18_bn_cifar": resnet18_cifar,
    "resnet20_gn": resnet20,
    "resnet20_bn": resnet20,
    "mobilenet_v2_gn": mobilenet_v2,
    "mobilenet_v2_bn": mobilenet_v2,
    "bisenet_v2": bisenet_v2,
    "bisenet_v2_gn": bisenet_v2,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_those_of_the_network_written_out(name):
    model, p, x = randomised(name, (3, 64, 96) if name.startswith("bisenet") else (3, 32, 32))
    expected = NETWORKS[name](p, x)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("ours", "theirs"), [("resnet18_bn", "resnet18"), ("mobilenet_v2_bn", "mobilenet_v2")])
def test_torchvisions_networks_have_the_same_tensors_and_outputs(ours, theirs):
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # beside a torch it was not built for it does not load
        pytest.skip(f"torchvision cannot be imported: {error}")
    model, p, x = randomised(ours)
    other = getattr(torchvision.models, theirs)(num_classes=CLASSES).double().eval()
    other.load_state_dict(p.tensors)
    torch.testing.assert_close(model(x), other(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["resnet20_gn", "mobilenet_v2_gn", "mobilenet_v2_bn", "convnet_tiny"])
def test_hessian_vector_products_are_differences_of_gradients(name):
    model, _, x = randomised(name, (3, 16, 16))
    around = Landscape(model, (x, torch.arange(3)), device="cpu")
    v = torch.randn(around.dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    v /= v.norm()
    h = 1e-5
    difference = (around.gradient(around.weights + h * v) - around.gradient(around.weights - h * v)) / (2 * h)
    product = around.hvp(None, v)
    assert (product - difference).norm() < 1e-5 * difference.norm()
