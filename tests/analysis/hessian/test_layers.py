"""Layers: activations collected by hand, blocks of the dense Hessian, norms by NumPy."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from analysis import Dense, Hessian, largest_eigenpairs
from analysis.hessian.layers import activation_norms, layer_eigenvalues, norm_product
from analysis.hessian.spectrum.blocks import Block
from landscape import FedscapeError, Landscape, build_model, load_dataset
from landscape.autograd.memory_format import ChannelsLastFallback
from tests.analysis.hessian.spectrum.spectra import dense_hessian, matrix, small_landscape


def on_images(model: nn.Module, side: int, channels: int = 3, n: int = 7) -> Landscape:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(n, channels, side, side, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 10, (n,), generator=draw)
    return Landscape(model.double(), (x, y), device="cpu", batch_size=3)


def moments(activations: list[torch.Tensor]) -> list[float]:
    """MAN's eq. 17 and 18, as they are written: a sum over samples and units over their number."""
    return [sum(float((a**2).sum()) for a in batch) / batch.numel() for batch in activations]


def norms(inputs: list[torch.Tensor]) -> list[float]:
    """The mean over samples of ‖a^i‖² (Frobenius)."""
    return [float(np.mean([np.linalg.norm(sample.numpy()) ** 2 for sample in batch])) for batch in inputs]


def test_of_digits_mlp_are_the_hidden_units_and_not_the_logits():
    dataset = load_dataset("digits")
    model = build_model("digits_mlp", seed=2, input_shape=[1, 8, 8], classes=10)
    landscape = Landscape(model, dataset.train, device="cpu", dtype="float64", batch_size=100)
    x, _ = dataset.train.batch(slice(None), torch.float64)
    weights = [(p.detach().double()) for p in model.parameters()]
    x = x.flatten(1)
    first = (x @ weights[0].T + weights[1]).clamp(min=0)
    second = (first @ weights[2].T + weights[3]).clamp(min=0)
    found = activation_norms(landscape)
    assert list(found.outputs) == ["1", "3"]
    assert list(found.inputs) == ["1", "3", "5"]
    assert list(found.outputs.values()) == pytest.approx(moments([first, second]), rel=1e-10)
    assert list(found.inputs.values()) == pytest.approx(norms([x, first, second]), rel=1e-10)
    assert found.total == pytest.approx(sum(moments([first, second])), rel=1e-10)
    assert found.to_dict()["outputs"]["1"] == found.outputs["1"]


def test_of_lenet_are_those_of_its_functional_non_linearities_before_the_pooling():
    landscape = on_images(build_model("lenet_fed", seed=0, input_shape=[3, 16, 16], classes=10), 16)
    named = {name: p.detach() for name, p in landscape._flat.module.named_parameters()}
    x = landscape.data.inputs
    outputs, inputs = [], []
    for name in ("conv1", "conv2"):
        inputs.append(x)
        outputs.append(functional.conv2d(x, named[f"{name}.weight"], named[f"{name}.bias"]).clamp(min=0))
        x = functional.max_pool2d(outputs[-1], 2)
    x = x.flatten(1)
    for name in ("fc1", "fc2"):
        inputs.append(x)
        x = (x @ named[f"{name}.weight"].T + named[f"{name}.bias"]).clamp(min=0)
        outputs.append(x)
    inputs.append(x)
    found = activation_norms(landscape)
    assert list(found.outputs) == ["conv1", "conv2", "fc1", "fc2"]
    assert list(found.inputs) == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    assert list(found.outputs.values()) == pytest.approx(moments(outputs), rel=1e-10)
    assert list(found.inputs.values()) == pytest.approx(norms(inputs), rel=1e-10)


def test_of_digits_cnn_the_same_network_with_modules_and_with_functions_has_the_same():
    model = build_model("digits_cnn", seed=0, input_shape=[1, 8, 8], classes=10)

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = model[0], model[3], model[7]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = functional.max_pool2d(functional.relu(self.a(x)), 2)
            return self.c(functional.max_pool2d(torch.relu_(self.b(x)), 2).flatten(1))

    one, other = (activation_norms(on_images(m, 8, 1)) for m in (model, Functional()))
    assert list(one.outputs) == ["0", "3"]
    assert list(other.outputs) == ["a", "b"]
    assert list(one.outputs.values()) == pytest.approx(list(other.outputs.values()), rel=1e-12)
    assert list(one.inputs.values()) == pytest.approx(list(other.inputs.values()), rel=1e-12)


def test_of_a_residual_network_every_convolution_is_named_once():
    landscape = on_images(build_model("resnet18_gn", seed=0, input_shape=[3, 16, 16], classes=10), 16, n=2)
    found = activation_norms(landscape)
    layers = [part for name in found.outputs for part in name.split(" + ")]
    convolutions = [name for name, m in landscape._flat.module.named_modules() if isinstance(m, nn.Conv2d)]
    assert layers == convolutions
    assert len(found.outputs) == 17
    assert [*convolutions, "fc"] == list(found.inputs)


class Twice(nn.Module):
    """One layer used twice, two non-linearities in a row, and a gate of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.activation = nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = [self.activation(self.first(x))]
        self.seen.append(functional.silu(self.first(self.seen[0])))
        self.seen.append(self.seen[1].tanh())
        return self.head(self.seen[2])


def test_layers_that_run_twice_and_other_non_linearities():
    torch.manual_seed(0)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(0, 3, (6,))
    landscape = Landscape(Twice().double(), (x, y), device="cpu")
    landscape.value()
    seen = landscape._flat.module.seen
    found = activation_norms(landscape)
    assert list(found.outputs) == ["first", "first (2)", "first (3)"]
    assert list(found.outputs.values()) == pytest.approx(moments([a.detach() for a in seen]), rel=1e-12)
    assert list(found.inputs) == ["first", "first (2)", "head"]


def test_no_hook_stays_and_micro_batches_and_the_point_are_heeded():
    landscape = small_landscape()
    value, there = landscape.value(), landscape.weights + 0.1
    small = Landscape(landscape._flat.module, (landscape.data.inputs, landscape.data.targets), batch_size=7)
    small.weights = there
    a, b = activation_norms(landscape, there), activation_norms(small)
    assert list(a.outputs.values()) == pytest.approx(list(b.outputs.values()), rel=1e-12)
    assert list(a.inputs.values()) == pytest.approx(list(b.inputs.values()), rel=1e-12)
    assert a.outputs != activation_norms(landscape).outputs
    assert landscape.value() == value
    before = [hook for m in landscape._flat.module.modules() for hook in m._forward_pre_hooks.values()]
    assert all(isinstance(hook, ChannelsLastFallback) for hook in before)


def test_of_batches_with_an_objective_they_are_those_of_the_same_function_of_samples():
    plain = small_landscape()
    x, y = plain.data.inputs, plain.data.targets
    batches = [{"x": x[a:b], "y": y[a:b]} for a, b in ((0, 7), (7, 40), (40, 60))]
    same = Landscape.of(
        plain._flat.module, batches, lambda net, b: functional.cross_entropy(net(b["x"]), b["y"]), device="cpu"
    )
    a, b = activation_norms(plain), activation_norms(same)
    assert a.outputs == pytest.approx(b.outputs, rel=1e-12)
    assert a.inputs == pytest.approx(b.inputs, rel=1e-12)
    of_a, of_b = (layer_eigenvalues(landscape, tolerance=1e-9) for landscape in (plain, same))
    np.testing.assert_allclose(of_b.values, of_a.values, rtol=1e-9)
    assert norm_product(same).value == norm_product(plain).value


def test_bound_of_mans_theorem_holds_for_the_last_layer_of_softmax_regression_with_a_half():
    """∇² = (1/n) Σ (diag p − ppᵀ) ⊗ aaᵀ, and ‖diag p − ppᵀ‖ ≤ 1/2: Theorem 2 with α = 1/2 on the weights."""
    landscape = small_landscape()
    net = landscape._flat.module
    net[5].bias.requires_grad_(False)
    frozen = Landscape(net, (landscape.data.inputs, landscape.data.targets), device="cpu")
    found = layer_eigenvalues(frozen, layers=["5"], tolerance=1e-8)
    assert found.values[0, 0] <= activation_norms(frozen).inputs["5"] / 2


def test_block_eigenvalues_are_those_of_the_dense_hessians_diagonal_blocks():
    landscape = small_landscape()
    dense = dense_hessian(landscape)
    found = layer_eigenvalues(landscape, top=3, tolerance=1e-9)
    assert found.layers == ("0", "1", "3", "5")
    assert found.parameters.tolist() == [48, 16, 36, 15]
    for i, part in enumerate(landscape.space.layers().values()):
        exact = np.linalg.eigvalsh(dense[part, part])[::-1][:3]
        np.testing.assert_allclose(found.values[i], exact, rtol=1e-8, atol=1e-10)
    assert found.converged.all()
    top = largest_eigenpairs(Hessian(landscape), 1).values[0]
    assert found.values.max() <= top * 1.001, "a principal block's eigenvalues interlace"
    numbers = found.to_dict()
    assert numbers["layers"] == ["0", "1", "3", "5"]
    assert numbers["values"][0] == found.values[0].tolist()


def test_in_float32_bounds_of_blocks_hold_for_the_float64_hessian():
    precise = small_landscape()
    rough = precise.to("float32")
    found = layer_eigenvalues(rough, top=2, tolerance=1e-5)
    dense = dense_hessian(rough.to("float64"))
    for i, part in enumerate(rough.space.layers().values()):
        true = np.linalg.eigvalsh(dense[part, part])[::-1][:2]
        assert (np.abs(found.values[i] - true) <= found.bounds[i]).all()
    assert (found.noise > 0).all()
    assert (layer_eigenvalues(precise).noise == 0).all()
    assert found.hvps == layer_eigenvalues(rough, top=2, tolerance=1e-5, refine=False).hvps + 3 * len(found.layers)


def test_a_chosen_layer_at_another_point_and_layers_with_fewer_coordinates_than_asked_for():
    landscape = small_landscape()
    there = landscape.weights * 1.2
    moved = Landscape(landscape._flat.module, (landscape.data.inputs, landscape.data.targets), device="cpu")
    moved.weights = there
    a = layer_eigenvalues(landscape, there, layers=["3"])
    assert a.values[0, 0] == pytest.approx(layer_eigenvalues(moved, layers=["3"]).values[0, 0], rel=1e-10)
    many = layer_eigenvalues(landscape, top=16, layers=["5", "1"])
    assert np.isnan(many.values).sum() == 1
    assert np.isnan(many.values[0, 15])


def test_block_of_any_operator_is_the_principal_submatrix():
    dense, _ = matrix("indefinite")
    block = Block(Dense(dense.matrix), slice(10, 25))
    assert block.shape == (15, 15)
    torch.testing.assert_close(block @ torch.eye(15, dtype=torch.float64), dense.matrix[10:25, 10:25])
    assert block.products == 15
    torch.testing.assert_close(block @ torch.ones(15, dtype=torch.float64), dense.matrix[10:25, 10:25].sum(1))


def test_norm_product_is_the_theorems_formula_by_numpy():
    landscape = on_images(build_model("lenet_fed", seed=0, input_shape=[3, 16, 16], classes=10), 16)
    named = {n: p.detach().numpy() for n, p in landscape._flat.module.named_parameters() if p.dim() > 1}
    matrices = [w.reshape(len(w), -1) for w in named.values()]
    spectral = [np.linalg.svd(m, compute_uv=False)[0] for m in matrices]
    frobenius = [np.sqrt((m**2).sum()) for m in matrices]
    exact = np.prod(np.square(spectral)) * sum(f**2 / s**2 for f, s in zip(frobenius, spectral, strict=True))
    found = norm_product(landscape)
    assert found.layers == ("conv1", "conv2", "fc1", "fc2", "fc3")
    np.testing.assert_allclose(found.spectral, spectral, rtol=1e-10)
    np.testing.assert_allclose(found.frobenius, frobenius, rtol=1e-10)
    assert found.value == pytest.approx(exact, rel=1e-10)
    assert found.log == pytest.approx(np.log(exact), rel=1e-10)
    assert found.to_dict()["spectral"] == found.spectral.tolist()


def test_norm_product_of_orthogonal_layers_is_the_sum_of_their_ranks_and_scales_as_a_product_of_squares():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 4)).double()
    for layer in (net[0], net[3]):
        nn.init.orthogonal_(layer.weight)
    landscape = Landscape(net, (torch.randn(3, 6), torch.tensor([0, 1, 2])), device="cpu")
    assert norm_product(landscape).value == pytest.approx(6 + 4, rel=1e-12)
    w = landscape.weights.clone()
    w[landscape.space.layers()["3"]] *= 3
    assert norm_product(landscape, w).value == pytest.approx(9 * 10, rel=1e-12)
    assert norm_product(landscape).value == pytest.approx(10, rel=1e-12)
    net[0].weight.requires_grad_(False)
    frozen = Landscape(net, (torch.randn(3, 6), torch.tensor([0, 1, 2])), device="cpu")
    assert norm_product(frozen).value == pytest.approx(10, rel=1e-12), "constants of the model count"


def test_norm_product_beyond_float64_is_told_by_its_logarithm():
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(8))).double()
    for layer in net:
        layer.weight.data.copy_(1e30 * torch.eye(3, dtype=torch.float64))
    found = norm_product(Landscape(net, (torch.randn(2, 3), torch.tensor([0, 1])), device="cpu"))
    assert found.value == np.inf
    assert found.log == pytest.approx(16 * 30 * np.log(10) + np.log(24), rel=1e-12)


def test_what_makes_no_sense_is_refused_in_a_sentence():
    landscape = small_landscape()
    with pytest.raises(FedscapeError, match="there is no layer '2' with parameters: there are 0, 1, 3, 5"):
        layer_eigenvalues(landscape, layers=["2"])
    with pytest.raises(FedscapeError, match="0 eigenvalues are asked for"):
        layer_eigenvalues(landscape, top=0)
    for measure in (activation_norms, norm_product):
        with pytest.raises(FedscapeError, match="a point is one vector of 115 parameters"):
            measure(landscape, torch.zeros(3))
    with pytest.raises(FedscapeError, match="the weights of '0' are 0 or not finite"):
        norm_product(landscape, torch.zeros(115))
    scale = nn.Sequential(nn.LayerNorm(5))
    with pytest.raises(FedscapeError, match="has no weight matrix"):
        norm_product(Landscape(scale, (torch.randn(2, 5), torch.tensor([0, 1])), device="cpu"))
