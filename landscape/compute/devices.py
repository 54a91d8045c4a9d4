"""Devices, data types and arithmetic by name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from landscape.errors import FedscapeError

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TF32 = "tf32"
"""float32 numbers whose products and convolutions round their factors to TF32's ten-bit mantissas, on CUDA only."""
TF32_EPSILON = 2.0**-10
_Setting = TypeVar("_Setting", str, bool)
_THREADS_GIVEN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device called ``name``; ``auto`` is the first CUDA device if there is one, else the CPU.

    Raises:
        FedscapeError: the name is not a device, or the device is not on this machine.

    Example:
        >>> from landscape.compute.devices import resolve_device
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise FedscapeError(f"unknown device '{name}': give auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise FedscapeError(f"device '{name}' is not supported: give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise FedscapeError(
            f"device '{name}' is not on this machine, which has {torch.cuda.device_count()} CUDA devices: "
            "give --device cpu or auto"
        )
    return device


def resolve_dtype(name: str | torch.dtype) -> torch.dtype:
    """The floating-point type called ``name`` (``float32`` or ``float64``).

    Raises:
        FedscapeError: any other name.
    """
    dtype = DTYPES.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in DTYPES.values():
        raise FedscapeError(f"unknown dtype '{name}': give float32 or float64")
    return dtype


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host's memory on a device; the host does not wait for a copy to CUDA.

    Such a copy goes through pinned memory, which PyTorch keeps until it is done.

    Example:
        >>> import torch
        >>> from landscape.compute.devices import on_device
        >>> on_device(torch.tensor([1.0]), torch.device("cpu"))
        tensor([1.])
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def memory_size(text: str | int) -> int:
    """Bytes from a size such as ``0``, ``500MB`` or ``1.5 GB`` (powers of 1000).

    Raises:
        FedscapeError: the text is not a size.

    Example:
        >>> from landscape.compute.devices import memory_size
        >>> memory_size("1.5 GB"), memory_size(4096)
        (1500000000, 4096)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGT]?B)?", str(text).strip(), re.IGNORECASE)
    if found is None:
        raise FedscapeError(f"'{text}' is no amount of memory: give a number of bytes, or one such as 500MB or 2GB")
    prefix = (found[2] or "B")[0].upper()
    return int(float(found[1]) * 1000 ** "BKMGT".index(prefix))


@contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Inside, PyTorch uses ``count`` CPU threads; ``None`` leaves the number as it is.

    Raises:
        FedscapeError: a number below one.
    """
    if count is not None and count < 1:
        raise FedscapeError(f"{count} CPU threads are asked for: give 1 or more")
    if count is None:
        yield
        return
    global _asked_for
    before, asked_before = torch.get_num_threads(), _asked_for
    try:
        torch.set_num_threads(count)
        _asked_for = True
        yield
    finally:
        torch.set_num_threads(before)
        _asked_for = asked_before


_asked_for = False
"""Whether the present number of threads was asked for by :func:`cpu_threads`."""


@contextmanager
def at_most_one_thread() -> Iterator[None]:
    """Inside, PyTorch uses one CPU thread, unless a number was chosen.

    It was inside :func:`cpu_threads` with a number, and where ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS`` is set.  The
    former number is restored.
    """
    if _asked_for or any(os.environ.get(name) for name in _THREADS_GIVEN):
        yield
        return
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, NumPy's and SciPy's linear algebra takes one CPU thread, also where more were chosen.

    For matrices of a few hundred rows between the steps of an iteration: there the threads of OpenBLAS gain nothing,
    and where other work keeps a core busy each step waits for it (top 50 of ``digits_mlp`` on four busy cores: 3 s of
    CPU time with one thread, 250 s with four).
    """
    with _blas().limit(limits=1, user_api="blas"):
        yield


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all libraries of the process, which takes 20 ms


def free_memory(device: torch.device) -> int:
    """Free bytes on a device (for the CPU: of the machine); 2 GiB if the system does not say.

    On CUDA what PyTorch holds for later tensors is free, too: the driver does not count it so.
    """
    if device.type == "cuda":
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + idle
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2 << 30


def memory_ran_out(error: BaseException | None) -> bool:
    """Whether an error says that a device has too little memory.

    Where no algorithm of a convolution gets its workspace, PyTorch raises an error of other words, which are found
    here, in place of :class:`torch.OutOfMemoryError` (issue 108645 of pytorch/pytorch; the words are in 2.11).

    Example:
        >>> import torch
        >>> from landscape.compute.devices import memory_ran_out
        >>> memory_ran_out(torch.OutOfMemoryError("CUDA out of memory")), memory_ran_out(ValueError("too many"))
        (True, False)
    """
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "was unable to find an engine" in str(error)
    )


@contextmanager
def reproducible_arithmetic(tf32: bool = False, *, cudnn: bool = True) -> Iterator[None]:
    """Inside, float32 products and convolutions are exact to rounding (unless ``tf32``) and deterministic on CUDA.

    By default cuDNN convolutions use TF32 (10-bit mantissa), and so do matrix products if the user has lowered
    PyTorch's precision, which on a CPU can mean bfloat16 (7 bits) in both.  The relative error is about 1e-3 and more,
    too large for small eigenvalues, so measurements and runs switch it off.  cuDNN's choice of algorithms by timing
    them stays off, too: another process could choose others.  The settings are restored on exit.

    Some other operators are not deterministic on CUDA (PyTorch lists them under
    :func:`torch.use_deterministic_algorithms`, which is left to the user): bilinear upsampling, as in BiSeNet, adaptive
    pooling to more than one number, transposed convolutions.  Their results differ by rounding from call to call.

    Args:
        tf32: round the factors of products and convolutions.
        cudnn: whether cuDNN is used: its recurrent layers have no derivatives in evaluation mode, and no second ones.
    """
    with _rounding(tf32):
        settings = torch.backends.cudnn
        if not settings.is_available():
            yield
            return
        before = settings.enabled, settings.benchmark, settings.deterministic
        settings.enabled, settings.benchmark, settings.deterministic = cudnn, False, True
        try:
            yield
        finally:
            settings.enabled, settings.benchmark, settings.deterministic = before


@contextmanager
def _rounding(tf32: bool) -> Iterator[None]:
    """How factors are rounded, by both of PyTorch's ways to say it.

    The older one is a precision of all products and a switch of cuDNN, the newer one (2.9) ``fp32_precision`` of each
    operator, which counts where there is one.  To set the older one sets the operators, too, also to the value it had;
    to read it raises where the newer one says something else.  So it is set only where it can be read, and the
    operators after it, those that differ, on exit as well.  ``torch.backends.cudnn.flags`` raises, and does not reach
    convolutions, where the user has set the newer one.
    """
    cudnn = torch.backends.cudnn
    on_cuda, on_cpu = _operators(cudnn.is_available())
    before = [(each, each.fp32_precision) for each in (*on_cuda, *on_cpu)]
    wanted, products = "high" if tf32 else "highest", _read(torch.get_float32_matmul_precision)
    switch = _read(lambda: cudnn.allow_tf32) if cudnn.is_available() else None
    products, switch = None if products == wanted else products, None if switch == tf32 else switch
    asked = on_cuda if tf32 else [*on_cuda, *on_cpu]
    if products is None and switch is None and not any(_wrong(value, tf32) for _, value in before[: len(asked)]):
        yield
        return
    try:
        if products is not None:
            torch.set_float32_matmul_precision(wanted)
        if switch is not None:
            cudnn.allow_tf32 = tf32
        for each in asked:
            if _wrong(each.fp32_precision, tf32):
                each.fp32_precision = TF32 if tf32 else "ieee"
        yield
    finally:
        if products is not None:
            torch.set_float32_matmul_precision(products)
        if switch is not None:
            cudnn.allow_tf32 = switch
        for each, precision in before:
            if each.fp32_precision != precision:
                each.fp32_precision = precision


def _wrong(precision: str, tf32: bool) -> bool:
    return precision != TF32 if tf32 else precision in (TF32, "bf16")


@cache
def _operators(cudnn: bool) -> tuple[list[Any], list[Any]]:
    """The operators with a precision of their own, on CUDA, with cuDNN or without, and on a CPU; before 2.9 none."""
    backends = torch.backends
    cuda = [(backends.cuda, "matmul"), *([(backends.cudnn, "conv"), (backends.cudnn, "rnn")] if cudnn else [])]
    cpu = [(backends.mkldnn, name) for name in ("matmul", "conv", "rnn")]

    def found(names: Iterable[tuple[Any, str]]) -> list[Any]:
        return [each for name in names if hasattr(each := getattr(*name, None), "fp32_precision")]

    return found(cuda), found(cpu)


def _read(older: Callable[[], _Setting]) -> _Setting | None:
    """The value of an older setting; ``None`` where the user's newer one cannot be told in its words."""
    try:
        return older()
    except RuntimeError:
        return None
