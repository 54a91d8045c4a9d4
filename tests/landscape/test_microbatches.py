"""The mean over samples is exact: the micro-batch size changes results by rounding only."""

import pytest
import torch

from landscape import FedscapeError, Landscape, Samples, build_model, load_dataset

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
