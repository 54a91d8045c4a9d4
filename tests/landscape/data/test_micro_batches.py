"""The mean over samples is exact: the micro-batch size changes results by rounding only."""

import pytest
import torch

from landscape import FedscapeError, Landscape, Samples, build_model, load_dataset
from landscape.compute.cost import SampleCost, sample_cost
from landscape.data.micro_batches import micro_batch_size

N = 23


@pytest.fixture(scope="module")
def data() -> Samples:
    return load_dataset("digits").train.subset(range(N))


def model() -> torch.nn.Module:
    return build_model("digits_cnn", seed=1, input_shape=(1, 8, 8), classes=10)


def landscape(data: Samples, **options) -> Landscape:
    return Landscape(model(), data, device="cpu", **options)


def measure(function: Landscape) -> dict[str, torch.Tensor]:
    v = torch.linspace(-1, 1, 2 * function.dimension, dtype=torch.float64).view(2, -1)
    return {
        "value": torch.tensor(function.value(), dtype=torch.float64),
        "gradient": function.gradient().double(),
        "products": function.hvp(None, v).double(),
    }


def assert_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    for name, wanted in expected.items():
        assert (actual[name] - wanted).norm() <= tolerance * wanted.norm(), name


@pytest.fixture(scope="module")
def exact(data) -> dict[str, torch.Tensor]:
    return measure(landscape(data, dtype="float64", batch_size=N))


@pytest.mark.parametrize("size", [1, 7, N - 1, N + 5, None])
def test_size_of_the_micro_batch_changes_only_rounding(data, exact, size):
    function = landscape(data, dtype="float64", batch_size=size)
    assert_close(measure(function), exact, 1e-13)
    assert function.accuracy() == landscape(data, batch_size=N).accuracy()


def test_mean_is_that_of_single_samples_and_not_of_batches(data, exact):
    """The plain mean of the batches' means is visibly another number here, so the test above can fail."""
    parts = [landscape(data.subset(range(a, min(a + 7, N))), dtype="float64") for a in range(0, N, 7)]
    values = torch.tensor([part.value() for part in parts], dtype=torch.float64)
    counts = torch.tensor([len(part.data) for part in parts], dtype=torch.float64)
    torch.testing.assert_close((values * counts).sum() / N, exact["value"], rtol=1e-13, atol=0)
    assert abs(values.mean() - exact["value"]) > 1e-3 * exact["value"]
    gradients = torch.stack([part.gradient() for part in parts])
    assert (gradients.mean(0) - exact["gradient"]).norm() > 1e-2 * exact["gradient"].norm()


@pytest.mark.parametrize("size", [1, 7, N])
def test_float32_agrees_with_float64(data, exact, size):
    function = landscape(data, dtype="float32", batch_size=size)
    assert function.gradient().dtype == function.hvp(None, function.weights).dtype == torch.float32
    assert_close(measure(function), exact, 1e-5)


def test_default_precision_is_the_models_own(data):
    assert landscape(data).dtype == torch.float32
    assert Landscape(model().double(), data).dtype == torch.float64


@pytest.mark.parametrize("size", [0, -3])
def test_a_micro_batch_has_at_least_one_sample(data, size):
    with pytest.raises(FedscapeError, match=f"micro-batch size is {size}: it must be at least 1"):
        landscape(data, batch_size=size)


def kept(function: Landscape, memory: int) -> tuple[int, int]:
    """How many graphs are kept in that memory, and what they are said to weigh."""
    products = function.hessian(graph_memory=memory)
    first, second = (products(function.weights) for _ in range(2))
    assert_close({"again": second}, {"again": first}, 1e-6)
    return products.graphs_kept, products._held


def test_a_smaller_last_micro_batch_weighs_less(data):
    function = landscape(data, batch_size=10)  # of 23
    count, everything = kept(function, 10**9)
    assert count == 3
    assert kept(function, everything) == (3, everything)
    assert kept(function, everything - 1)[0] == 2


def test_samples_and_parameters_are_there_anyway_and_weigh_nothing():
    """Inputs that are taken as they lie are views of them all."""
    wide = torch.randn(4096, 16)
    net = torch.nn.Sequential(torch.nn.Linear(16, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))
    function = Landscape(net, (wide, torch.arange(4096) % 2), device="cpu", batch_size=64)
    count, held = kept(function, 10**9)
    assert count == 64
    assert held < 2 * wide.nbytes


def test_gradients_that_are_kept_weigh(data):
    function = landscape(data, batch_size=1)
    count, held = kept(function, 10**9)
    assert count == N
    assert held > N * 4 * function.dimension


def test_batches_of_many_shapes_are_kept_as_long_as_they_fit(data):
    x, y = data.batch(slice(None), torch.float32)
    batches = [(x[:n], y[:n]) for n in (20, 1, 23, 2, 22, 1)]

    def loss(net, batch):
        return torch.nn.functional.cross_entropy(net(batch[0]), batch[1])

    function = Landscape.of(model(), batches, loss, device="cpu")
    weights = {len(b[0]): kept(Landscape.of(model(), [b], loss, device="cpu"), 10**9)[1] for b in batches}
    assert kept(function, 10**9) == (6, sum(weights[n] for n in (20, 1, 23, 2, 22, 1)))
    assert kept(function, weights[1] + weights[20]) == (2, weights[1] + weights[20])
    assert kept(function, 2 * weights[1] + weights[2]) == (3, 2 * weights[1] + weights[2])


@pytest.mark.parametrize(
    ("saved", "size"),
    [(640, 8192), (11_008, 8192), (410_624, 256), (1_520_176, 64), (1 << 27, 1), (1 << 30, 1), (0, 8192)],
)
def test_a_micro_batch_saves_at_most_128_mib_or_is_one_sample(saved, size):
    cost = SampleCost(flops=1.0, saved=saved)
    assert micro_batch_size(torch.device("cpu"), "classification", torch.zeros(9), cost) == size
    assert size * saved <= 1 << 27 or size == 1
    assert 2 * size * saved > 1 << 27 or size == 8192


def test_without_a_known_cost_the_device_decides():
    for kind, size in (("cpu", 256), ("cuda", 1024)):
        assert micro_batch_size(torch.device(kind), "classification", torch.zeros(9), None) == size
        maps = torch.zeros(2, 64, 128)
        assert micro_batch_size(torch.device(kind), "segmentation", maps, None) == size // 8


def test_the_default_is_that_of_what_the_model_saves(data):
    function = landscape(data)
    assert function.micro_batches.cost == sample_cost(model(), data.batch(slice(0, 2), torch.float32)[0])
    assert landscape(data).batch_size == 8192
    assert landscape(data, dtype="float64").micro_batches.cost.saved > 1.5 * function.micro_batches.cost.saved


def test_the_bound_on_memory_holds_for_a_kept_graph(data):
    """Twice what a forward pass saves, and twice the parameters, as micro_batch_size says."""
    function = landscape(data, batch_size=N)
    _, held = kept(function, 10**9)
    assert N * function.micro_batches.cost.saved < held
    assert held < 2 * (N * function.micro_batches.cost.saved + 4 * function.dimension)
