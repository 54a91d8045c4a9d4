"""Devices and precisions by name."""

import pytest
import torch

from landscape import FedscapeError
from landscape.devices import reproducible_arithmetic, resolve_device, resolve_dtype


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
    assert flags() == before == (True, False, False)
