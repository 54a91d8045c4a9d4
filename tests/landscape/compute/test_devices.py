"""Devices and precisions by name."""

import itertools

import pytest
import torch

from landscape import FedscapeError, Landscape
from landscape.compute.devices import (
    cpu_threads,
    free_memory,
    memory_size,
    reproducible_arithmetic,
    resolve_device,
    resolve_dtype,
)


def test_auto_is_cuda_exactly_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto").type == "cuda"


@pytest.mark.parametrize("name", ["cpu", torch.device("cpu")])
def test_the_cpu_is_always_there(name):
    assert resolve_device(name) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gpu", "unknown device 'gpu': give auto, cpu, cuda or cuda:N"),
        ("", "unknown device ''"),
        ("cuda:-1", "unknown device 'cuda:-1'"),
        ("meta", "device 'meta' is not supported: give auto, cpu, cuda or cuda:N"),
        ("cuda:2", "device 'cuda:2' is not on this machine, which has 2 CUDA devices: give --device cpu or auto"),
    ],
)
def test_a_device_that_is_not_here_is_refused(monkeypatch, name, reason):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(FedscapeError, match=reason):
        resolve_device(name)


def test_the_cuda_devices_of_the_machine_are_accepted(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize(("name", "dtype"), [("float32", torch.float32), ("float64", torch.float64)])
def test_precisions_are_known_by_name_and_by_type(name, dtype):
    assert resolve_dtype(name) is resolve_dtype(dtype) is dtype


@pytest.mark.parametrize("name", ["float16", "double", torch.float16, torch.int64])
def test_another_precision_is_refused(name):
    with pytest.raises(FedscapeError, match=f"unknown dtype '{name}': give float32 or float64"):
        resolve_dtype(name)


def test_convolutions_are_full_float32_inside_and_as_before_outside(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)

    def flags() -> tuple[bool, bool, bool]:
        cudnn = torch.backends.cudnn
        return cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark

    before = flags()
    with reproducible_arithmetic():
        assert flags() == (False, True, False)
    with reproducible_arithmetic(tf32=True):
        assert flags() == (True, True, False)
    assert flags() == before == (True, False, False)


def operators(backends):
    """What has a precision of its own: three of CUDA, three of the CPU."""
    cudnn, cpu = backends.cudnn, backends.mkldnn
    return backends.cuda.matmul, cudnn.conv, cudnn.rnn, cpu.matmul, cpu.conv, cpu.rnn


@pytest.fixture
def newer(monkeypatch):
    """PyTorch's newer settings of float32's precision, as they were again after the test."""
    backends = torch.backends
    if not hasattr(backends.cudnn, "conv"):
        pytest.skip("this PyTorch has the older setting only")
    monkeypatch.setattr(backends.cudnn, "is_available", lambda: True)
    backends.cudnn.conv.fp32_precision = backends.cudnn.rnn.fp32_precision = "none"  # as the general one says
    yield backends
    for each in (backends, backends.cudnn, *operators(backends)):
        each.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    backends.cudnn.allow_tf32 = True


@pytest.mark.parametrize("everywhere", ["ieee", "tf32"])
def test_convolutions_are_full_float32_inside_where_the_newer_setting_says_something_else(newer, everywhere):
    """Where ``cudnn.flags`` raises (ieee) or leaves the convolutions in TF32 (tf32)."""
    newer.fp32_precision = everywhere
    cudnn = newer.cudnn
    with reproducible_arithmetic():
        assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision, cudnn.deterministic) == ("ieee", "ieee", True)
        with reproducible_arithmetic(tf32=True):
            assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("tf32", "tf32")
        assert cudnn.conv.fp32_precision == "ieee"
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == (everywhere, everywhere)
    assert newer.fp32_precision == everywhere


def test_a_precision_that_was_set_for_convolutions_alone_is_kept(newer):
    newer.cudnn.conv.fp32_precision, newer.cudnn.rnn.fp32_precision = "ieee", "tf32"
    with reproducible_arithmetic(tf32=True):
        assert newer.cudnn.conv.fp32_precision == "tf32"
    assert (newer.cudnn.conv.fp32_precision, newer.cudnn.rnn.fp32_precision) == ("ieee", "tf32")


def precisions(backends):
    """Of the operators, and what the older settings read; not setting one is full float32."""

    def older(read):
        try:
            return read()
        except RuntimeError:
            return "cannot be read"

    cublas, cudnn = backends.cuda.matmul, backends.cudnn
    found = [each.fp32_precision.replace("none", "ieee") for each in operators(backends)]
    readers = torch.get_float32_matmul_precision, lambda: cublas.allow_tf32, lambda: cudnn.allow_tf32
    return found, [older(read) for read in readers]


@pytest.mark.parametrize("tf32", [False, True])
def test_whatever_the_older_and_the_newer_settings_say_it_is_right_inside_and_as_before_outside(newer, tf32):
    cublas, conv, rnn, cpu = operators(newer)[:4]
    own = "none", "ieee", "tf32"
    mixes = itertools.product(
        ("highest", "high", "medium"), (True, False), ("none", "tf32", "bf16"), own, own, own, ("none", "bf16")
    )
    for older, switch, newer.fp32_precision, *single in mixes:
        torch.set_float32_matmul_precision(older)
        newer.cudnn.allow_tf32 = switch
        cublas.fp32_precision, conv.fp32_precision, rnn.fp32_precision, cpu.fp32_precision = single
        mix, before = (older, switch, newer.fp32_precision, *single), precisions(newer)
        with reproducible_arithmetic(tf32):
            inside = precisions(newer)[0]
        assert [each == "tf32" for each in inside[:3]] == [tf32] * 3, mix
        assert tf32 or inside[3:] == ["ieee"] * 3, mix
        assert precisions(newer) == before, mix


class Told(torch.nn.Module):
    """A network that notes whether cuDNN would compute it."""

    seen: set[bool]

    def __init__(self, kind):
        super().__init__()
        self.first, self.last = kind(3, 2), torch.nn.Linear(2, 2)

    def forward(self, x):
        self.seen.add(torch.backends.cudnn.enabled)
        found = self.first(x)
        return self.last(found[0] if isinstance(found, tuple) else found)


@pytest.mark.parametrize(("kind", "enabled"), [(torch.nn.LSTM, False), (torch.nn.GRU, False), (torch.nn.Linear, True)])
def test_derivatives_of_recurrent_layers_are_not_cudnns(monkeypatch, kind, enabled):
    """cuDNN's raise in evaluation mode, and have no second ones."""
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    function = Landscape(Told(kind), (torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])), device="cpu")
    for derivative in (function.gradient, lambda: function.hvp(None, function.weights)):
        Told.seen = set()
        derivative()
        assert Told.seen == {enabled}
    assert torch.backends.cudnn.enabled


@pytest.fixture
def precision():
    """PyTorch's precision of float32 products, as it was again after the test."""
    before = torch.get_float32_matmul_precision()
    yield torch.get_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("own", ["highest", "high", "medium"])
def test_products_are_full_float32_inside_unless_tf32_and_as_before_outside(precision, own):
    torch.set_float32_matmul_precision(own)
    with reproducible_arithmetic():
        assert precision() == "highest"
        with reproducible_arithmetic(tf32=True):
            assert precision() == "high"
        assert precision() == "highest"
    assert precision() == own
    with pytest.raises(ZeroDivisionError), reproducible_arithmetic(tf32=True):
        _ = 1 / 0
    assert precision() == own


def test_pytorchs_newer_setting_of_the_precision_is_kept_too(precision, monkeypatch):
    matmul = torch.backends.cuda.matmul
    if getattr(matmul, "fp32_precision", None) is None:
        pytest.skip("this PyTorch has the older setting only")
    matmul.fp32_precision = "tf32"
    with reproducible_arithmetic():
        assert matmul.fp32_precision == "ieee"
    assert matmul.fp32_precision == "tf32"


class Watching(torch.nn.Linear):
    """Notes the precision of its products."""

    seen: set[str]

    def forward(self, x):
        self.seen.add(torch.get_float32_matmul_precision())
        return super().forward(x)


@pytest.mark.parametrize(("tf32", "expected"), [(False, "highest"), (True, "high")])
def test_all_that_a_landscape_computes_is_in_its_arithmetic(precision, tf32, expected):
    torch.set_float32_matmul_precision("medium")
    net = Watching(3, 2)
    Watching.seen = set()
    function = Landscape(net, (torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])), device="cpu")
    function._batches.tf32 = tf32  # as on CUDA
    Watching.seen.clear()  # of the forward pass that tells the cost of a sample
    assert function.precision == ("tf32" if tf32 else "float32")
    function.evaluate()
    function.gradient()
    function.hvp(None, function.weights)
    function.gauss_newton()(function.weights)
    assert Watching.seen == {expected}


def test_tf32_is_refused_on_the_cpu():
    with pytest.raises(FedscapeError, match="tf32 is arithmetic of CUDA devices and this one is cpu: give float32"):
        Landscape(torch.nn.Linear(3, 2), (torch.ones(5, 3), torch.ones(5, 2)), device="cpu", dtype="tf32")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), (12, 12), ("500MB", 5e8), ("1.5 GB", 1.5e9), ("3kb", 3000), ("7B", 7), ("2TB", 2e12), (" 1 MB ", 1e6)],
)
def test_amounts_of_memory(text, size):
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", -1, "lots", "5 miles", "1e9", "MB", "1,5GB"])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(FedscapeError, match="is no amount of memory: give a number of bytes, or one such as 500MB"):
        memory_size(text)


def test_what_pytorch_holds_for_later_tensors_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 70)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 30)
    assert free_memory(torch.device("cuda")) == 140


def test_threads_are_as_many_as_asked_for_inside_and_as_before_outside():
    before = torch.get_num_threads()
    with cpu_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    with cpu_threads(None):
        assert torch.get_num_threads() == before
    with pytest.raises(FedscapeError, match="0 CPU threads are asked for: give 1 or more"), cpu_threads(0):
        pass
    assert torch.get_num_threads() == before
