"""BatchNorm folded into the layer before it is the same function, and is folded nowhere else."""

import gc
import linecache
import weakref

import pytest
import torch
from torch import Tensor, nn

from landscape import build_model
from landscape.autograd.folding import fold_batchnorm

IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ROWS = IMAGES.reshape(4, -1)[:, :6]


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """With statistics, scales and shifts that matter."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                for tensor in (layer.weight, layer.bias, layer.running_mean):
                    if tensor is not None:
                        tensor.copy_(torch.randn(tensor.shape, generator=draw))
                if layer.running_var is not None:
                    layer.running_var.copy_(0.5 + torch.rand(layer.running_var.shape, generator=draw))
    return module.eval()


class Block(nn.Module):
    """A convolution whose outputs go wherever ``way`` says."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.conv, self.norm, self.way, self.calls = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), way, 0

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.way == "a shortcut":
            return self.norm(y) + y
        if self.way == "ReLU first":
            return self.norm(y.relu())
        if self.way == "values decide" and y.mean() > 1e9:
            return y
        self.calls += 1
        if self.way == "every third call" and self.calls % 3 != 1:
            return y.tanh()
        if self.way == "otherwise every third call" and self.calls % 3 != 1:
            return self.norm(y).tanh()
        return self.norm(y)


class Shared(nn.Module):
    """Two steps, each of a convolution and BatchNorm, by fewer layers than that."""

    def __init__(self, convolutions: int, norms: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(convolutions))
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(norms))

    def forward(self, x: Tensor) -> Tensor:
        for k in range(2):
            x = self.norms[k % len(self.norms)](self.convs[k % len(self.convs)](x)).relu()
        return x


FOLDS = {
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU()), IMAGES, 1),
    "without bias": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5)), IMAGES, 1),
    "in groups, reflected": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, groups=3, padding_mode="reflect"), nn.BatchNorm2d(6, affine=False)
        ),
        IMAGES,
        1,
    ),
    "one axis": (lambda: nn.Sequential(nn.Conv1d(3, 5, 2), nn.BatchNorm1d(5)), IMAGES[..., 0], 1),
    "dense layer": (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), ROWS, 1),
    "dense layer of a sequence": (lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(3)), IMAGES[..., 0], 0),
    "sequence as long as the layer": (lambda: nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3)), IMAGES[..., 0], 1),
    "residual network": (
        lambda: build_model("resnet20_bn", seed=0, input_shape=(3, 8, 8), classes=3),
        IMAGES.repeat(1, 1, 2, 2),
        19,
    ),
    "a block": (lambda: Block("straight"), IMAGES, 1),
    "nothing to fold": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.GroupNorm(1, 5)), IMAGES, 0),
    "batch statistics": (
        lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, track_running_stats=False)),
        IMAGES,
        0,
    ),
    "a shortcut around it": (lambda: Block("a shortcut"), IMAGES, 0),
    "an activation between": (lambda: Block("ReLU first"), IMAGES, 0),
    "code that looks at values": (lambda: Block("values decide"), IMAGES, 0),
    "code that a trace misses": (lambda: Block("every third call"), IMAGES, 0),
    "code that a trace misses, behind it": (lambda: Block("otherwise every third call"), IMAGES, 1),
    "one norm for two layers": (lambda: Shared(2, 1), IMAGES, 2),
    "one layer for two norms": (lambda: Shared(1, 2), IMAGES, 0),
    "both used twice": (lambda: Shared(1, 1), IMAGES, 1),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 5, 3), nn.BatchNorm2d(5)), IMAGES, 0),
}


@pytest.mark.parametrize("name", FOLDS)
def test_outputs_are_those_of_the_module_at_every_point(name):
    make, x, layers = FOLDS[name]
    torch.manual_seed(0)
    module = shaken(make().double())
    before = {key: value.clone() for key, value in module.state_dict().items()}
    folding = fold_batchnorm(module, x)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert (0 if folding is None else len(folding.layers)) == layers
    if folding is None:
        return
    with torch.no_grad():
        for step in range(2):
            folding.refresh()
            torch.testing.assert_close(folding.module(x), module(x), rtol=1e-10, atol=1e-12)
            for parameter in module.parameters():
                parameter.add_(torch.randn(parameter.shape, dtype=torch.float64), alpha=0.1)
            shaken(module, step + 1)
        if name != "sequence as long as the layer":  # which takes the two layers as they are
            assert not torch.allclose(folding.module(x), module(x)), "a point that nobody told of"


def test_a_module_with_somebodys_hooks_stays_as_it_is():
    module = shaken(nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)).double())
    assert fold_batchnorm(module, IMAGES) is not None
    module[1].register_forward_hook(lambda *_: None)
    assert fold_batchnorm(module, IMAGES) is None


def test_a_module_and_what_was_folded_of_it_go_with_their_last_reference_and_leave_no_code_behind():
    images = IMAGES.float().repeat(1, 1, 2, 2)
    make = lambda: shaken(build_model("resnet20_bn", seed=0, input_shape=(3, 8, 8), classes=3))  # noqa: E731
    fold_batchnorm(make(), images)
    gc.collect()
    gc.disable()
    try:
        code, module = len(linecache.cache), make()
        folding = fold_batchnorm(module, images)
        gone = [weakref.ref(each) for each in (*module.modules(), *folding.layers)]
        del module, folding
        assert not [each() for each in gone if each() is not None]
        assert len(linecache.cache) == code
    finally:
        gc.enable()


def test_somebodys_hook_on_the_whole_module_stays():
    module = shaken(nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)).double())
    module.register_forward_pre_hook(lambda _, args: (2 * args[0],))
    folding = fold_batchnorm(module, IMAGES)
    assert len(folding.layers) == 1
    torch.testing.assert_close(folding.module(IMAGES), module(IMAGES), rtol=1e-10, atol=1e-12)
