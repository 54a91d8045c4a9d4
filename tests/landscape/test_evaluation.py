"""What evaluates many points gives what evaluating each gives, with micro-batches chosen by shape or by the clock."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import landscape.evaluation
from landscape import FedscapeError, Landscape, Samples
from landscape.compute.devices import cpu_threads
from landscape.data.micro_batches import MicroBatches
from landscape.evaluation import Evaluator

DRAW = torch.Generator().manual_seed(0)
IMAGES = torch.randint(0, 256, (23, 3, 8, 8), generator=DRAW, dtype=torch.uint8)
LABELS = torch.arange(23) % 4


class InPlace(nn.Module):
    """Works on its inputs themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mul_(0.5))


def convolutions(dtype: torch.dtype = torch.float64) -> Landscape:
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4), nn.Flatten(),
        nn.Linear(64, 4),
    )  # fmt: skip
    for layer in (net[1], net[4]):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    pixels = torch.full((3, 1, 1), 120.0), torch.full((3, 1, 1), 60.0)
    return Landscape(net, Samples(IMAGES, LABELS, *pixels), device="cpu", dtype=dtype, batch_size=5)


def steps(function: Landscape, count: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [function.weights + 0.1 * torch.randn(function.dimension, generator=draw) for _ in range(count)]


def test_many_points_are_evaluated_as_each_of_them():
    function = convolutions()
    evaluator = function.evaluator()
    assert evaluator.folded == 2
    for w in steps(function):
        fast, plain = evaluator(w, stderr=True), function.evaluate(w, stderr=True)
        for name in ("loss", "accuracy", "loss_stderr", "accuracy_stderr"):
            assert getattr(fast, name) == pytest.approx(getattr(plain, name), rel=1e-11)


def test_targets_that_are_ignored_take_no_part_in_the_mean():
    net = nn.Linear(6, 3).double()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.tensor([0, 1, 2, -100, 0, 1, 2, -100])
    function = Landscape(net, (x, y), device="cpu")
    assert function.value() == pytest.approx(cross_entropy(net(x), y).item(), rel=1e-12)
    assert function.value() != pytest.approx(cross_entropy(net(x), y, reduction="none").mean().item(), rel=1e-3)


def test_inputs_are_prepared_once(monkeypatch):
    function, prepared = convolutions(), []
    original = Samples.prepare
    monkeypatch.setattr(Samples, "prepare", lambda self, *a: (prepared.append(1), original(self, *a))[1])
    evaluator = function.evaluator()
    evaluator(function.weights)
    first = len(prepared)
    for w in steps(function):
        evaluator(w)
    assert len(prepared) == first
    function.batch_size = 7
    assert evaluator(function.weights).loss == pytest.approx(function.value(), rel=1e-11)


def test_inputs_are_not_kept_where_memory_is_short(monkeypatch):
    function = convolutions()
    inputs = 8 * IMAGES.numel()
    for free, kept in ((4 * inputs + 4, True), (4 * inputs - 4, False)):
        monkeypatch.setattr(landscape.evaluation, "free_memory", lambda _, free=free: free)
        evaluator = function.evaluator()
        assert evaluator(function.weights).loss == pytest.approx(function.value(), rel=1e-11)
        assert (evaluator._kept is not None) == kept


def test_a_model_that_works_in_place_gets_its_inputs_anew():
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(4))
    mean = torch.zeros(6)
    function = Landscape(InPlace(), Samples(x, LABELS[:9] % 3, mean, mean + 1), device="cpu", batch_size=4)
    evaluator, plain = function.evaluator(), InPlace()
    for w in steps(function, 4):
        nn.utils.vector_to_parameters(w, plain.parameters())
        assert evaluator(w).loss == pytest.approx(cross_entropy(plain(x.clone()), LABELS[:9] % 3).item(), rel=1e-5)


def test_bfloat16_products_are_near_float32():
    function = convolutions(torch.float32)
    rounded = function.evaluator(bf16=True)
    for w in steps(function):
        loss = function.value(w)
        assert rounded(w).loss != pytest.approx(loss, rel=1e-6)
        assert rounded(w).loss == pytest.approx(loss, rel=2e-2)
    with pytest.raises(FedscapeError, match="float32 parameters"):
        convolutions().evaluator(bf16=True)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((3, 32, 32), 256),
        ((64,), 1024),  # more would be no faster
        ((1, 28, 28), 512),  # 1003, and a power of two
        ((3, 224, 224), 4),
        ((1 << 20,), 1),
        ((), 1024),
    ],
)
def test_the_micro_batch_by_shape_depends_on_nothing_else(shape, size, monkeypatch):
    def refused(*_):
        raise AssertionError("the clock was asked")

    monkeypatch.setattr(landscape.evaluation.time, "perf_counter", refused)
    inputs = torch.zeros(1).expand(2000, *shape)  # takes no memory
    function = convolutions()
    batches = MicroBatches(Samples(inputs, torch.zeros(2000).long()), 5, torch.float64)
    evaluator = Evaluator(function._flat, cross_entropy, batches, "classification")
    for threads in (1, 3):
        with cpu_threads(threads):
            batches.size = 5
            assert evaluator.fit() == batches.size == size


def test_the_micro_batch_by_shape_is_no_larger_than_the_data():
    function = convolutions()
    assert function.evaluator().fit() == function.batch_size == len(IMAGES)


@pytest.mark.parametrize(
    ("seconds", "fastest"),
    [
        (lambda size: 1 / size, 23),
        (lambda size: size, 1),
        (lambda size: abs(size - 10), 10),
        (lambda size: 1.02 if size == 2 else 1 if size == 5 else 2, 2),  # nearly as fast, with less memory
        (lambda size: {1: 5.0, 2: 6.0, 5: 7.0}.get(size, 0.0), 1),  # two in turn are slower
    ],
)
def test_the_fastest_micro_batch_is_chosen(seconds, fastest, monkeypatch):
    monkeypatch.setattr(Evaluator, "_seconds_per_sample", lambda self, data, size: seconds(size))
    function = convolutions()
    function.batch_size = 20
    assert function.evaluator().tune() == function.batch_size == fastest


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), RuntimeError("GET was unable to find an engine")])
def test_sizes_beyond_the_memory_are_not_chosen(monkeypatch, error):
    def seconds(self, data, size):
        if size > 6:
            raise error
        return 1 / size

    monkeypatch.setattr(Evaluator, "_seconds_per_sample", seconds)
    function = convolutions()
    assert function.evaluator().tune() == 5


def test_other_errors_of_a_size_are_told(monkeypatch):
    def seconds(self, data, size):
        raise RuntimeError("wrong shapes")

    monkeypatch.setattr(Evaluator, "_seconds_per_sample", seconds)
    with pytest.raises(RuntimeError, match="wrong shapes"):
        convolutions().evaluator().tune()


def test_sizes_are_really_timed():
    function = convolutions()
    w = function.weights.clone()
    size = function.evaluator().tune()
    assert 1 <= size <= len(IMAGES)
    assert function.value() == pytest.approx(convolutions().value(), rel=1e-11)
    assert torch.equal(function.weights, w)
