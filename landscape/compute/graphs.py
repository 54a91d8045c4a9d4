"""Work that is recorded once and replayed: CUDA graphs, and what stands in for them on other devices.

A step of a small network on a GPU costs the start of its kernels, one after the other, by Python.  A CUDA graph is a
list of kernels with their arguments, recorded in one pass and started at once.  So the work reads and writes the same
memory each time, its numbers are tensors on the device, and nothing in it waits for a value.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from landscape.compute.devices import memory_ran_out
from landscape.errors import FedscapeError

Work = Callable[[], None]
"""A piece of work that reads and writes tensors which stay where they are."""
_WARM_UPS = 2
"""Runs on a stream of its own before a capture: libraries choose algorithms and take memory in their first ones."""
_AGREE = 0.02
"""Share of a change by which a replay may differ: far above rounding, far below work left out."""


class Captured(Protocol):
    """A piece of work that was recorded."""

    def replay(self) -> None:
        """Do the work once more, on the values that its tensors have now."""
        ...


Record = Callable[[Work, Work], Captured]
"""(work, warm) -> the work, recorded; ``warm`` does it too, always from the same values."""


@dataclass(frozen=True)
class Again:
    """What stands in for a CUDA graph: the work is simply done again.

    Example:
        >>> import torch
        >>> from landscape.compute.graphs import Again
        >>> x = torch.zeros(1)
        >>> counting = Again(lambda: x.add_(1))
        >>> counting.replay(), counting.replay(), x
        (None, None, tensor([2.]))
    """

    work: Work

    @classmethod
    def record(cls, work: Work, warm: Work) -> Again:
        """As :data:`Record`; the work needs no warming up."""
        return cls(work)

    def replay(self) -> None:
        """Do it."""
        self.work()


class CudaGraph:
    """A CUDA graph of the work.

    Whoever replays it holds the memory that the work reads and writes, and had better not be held by the work: graphs
    in cycles of references keep their memory until Python's collector finds them.

    Args:
        work: what is recorded.
        warm: the same, from the same values each time.
        device: of the work's tensors.

    Raises:
        FedscapeError: CUDA cannot record it.
        torch.OutOfMemoryError: it takes more memory than there is.
    """

    def __init__(self, work: Work, warm: Work, device: torch.device | None = None) -> None:
        with torch.cuda.device(device):
            self._record(work, warm)

    def _record(self, work: Work, warm: Work) -> None:
        aside = _aside(torch.cuda.current_device())
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                warm()
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        # What the work refers to must live as long as its addresses are in the graph.
        self._work = work
        try:
            # After an error within, PyTorch would leave the stream of the capture as the current one.
            present = torch.cuda.stream(torch.cuda.current_stream())
            with present, _collected_before(), torch.cuda.graph(self._graph, stream=aside):
                work()
        except RuntimeError as error:
            if memory_ran_out(error):
                raise
            if error.__context__ is not None and memory_ran_out(error.__context__):
                raise error.__context__ from None  # of the work; then the capture cannot end either
            told = str(error).splitlines()[0][:160]
            raise FedscapeError(
                f"CUDA could not record the work as a graph ({told}): do it without (training: --executor sequential)"
            ) from error

    def replay(self) -> None:
        """Start all kernels of the work; the host does not wait."""
        self._graph.replay()


@cache
def _aside(device: int) -> torch.cuda.Stream:
    """The stream on which work is warmed up and recorded: one a device, as cuBLAS keeps a workspace (on an H100 of 32
    MiB, for each thread) for every stream that it has been used on.  PyTorch's own is on the device of the first."""
    return torch.cuda.Stream(device)


@contextmanager
def _collected_before() -> Iterator[None]:
    """Inside, Python's collector of cycles is off; all that it would find has been freed before.

    It could find a CUDA graph, and to destroy one while another is recorded is an error of CUDA, which spoils both.
    And a graph of autograd that is still there, from a pass on the default stream, would have that stream wait for the
    one that is recorded, another such error: what PyTorch imports at its first use of a dispatch mode leaves tracebacks
    in cycles, which hold the frames of the pass with all their tensors.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def captured(work: Work, buffers: Iterable[Tensor], record: Record) -> Captured:
    """The work, recorded, after one replay has left in all buffers what the work itself leaves.

    The buffers have their values of before again.

    Args:
        work: reads and writes the buffers.
        buffers: all tensors that the work changes and that are read later.
        record: :class:`CudaGraph`, or :meth:`Again.record`.

    Raises:
        FedscapeError: the work cannot be recorded, or a replay computes something else.

    Example:
        >>> import torch
        >>> from landscape.compute.graphs import Again, captured
        >>> x = torch.zeros(1)
        >>> step = captured(lambda: x.add_(1), [x], Again.record)
        >>> step.replay(), x
        (None, tensor([1.]))
    """
    held = list(buffers)
    before = [buffer.clone() for buffer in held]

    def restore() -> None:
        for buffer, value in zip(held, before, strict=True):
            buffer.copy_(value)

    def warm() -> None:
        restore()
        work()

    work()
    wanted = [buffer.clone() for buffer in held]
    found = record(work, warm)
    restore()
    found.replay()
    same = [_same(*values) for values in zip(before, wanted, held, strict=True)]
    restore()
    if not all(same):
        raise FedscapeError(
            "the recorded work computes something else than the work itself, so something in it is not the same each "
            "time: do it without a recording (training: --executor sequential)"
        )
    return found


def _same(before: Tensor, wanted: Tensor, found: Tensor) -> bool:
    """Whether the change that a replay made is the change that is wanted."""
    if not wanted.is_floating_point():
        return torch.equal(wanted, found)
    change, size = _largest(wanted - before), _largest(wanted)
    allowed = _AGREE * change + 8 * torch.finfo(wanted.dtype).eps * size
    return bool(torch.isclose(found, wanted, rtol=0.0, atol=allowed, equal_nan=True).all())


def _largest(values: Tensor) -> float:
    return float(values.nan_to_num(0.0, 0.0, 0.0).abs().max()) if values.numel() else 0.0


class NotCapturable(Exception):
    """Work does what a CUDA graph cannot hold; the message says what, in half a sentence."""


class Watching(TorchDispatchMode):
    """A dispatch mode that does not load PyTorch's compiler: nothing is compiled inside, and it takes two seconds.

    Loaded within a function it would also keep that function's callers and all they hold, in a cycle of PyTorch's.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class OnlyCapturable(Watching):
    """Inside, work that a CUDA graph cannot hold raises :class:`NotCapturable`, on any device.

    That is: a value that Python waits for (``.item()``, ``bool``, ``nonzero``), a result whose shape depends on values,
    random numbers, and a tensor that comes from or goes to another device, among it a number in host memory, which a
    graph would keep as it was.

    Example:
        >>> import torch
        >>> from landscape.compute.graphs import NotCapturable, OnlyCapturable
        >>> with OnlyCapturable():
        ...     try:
        ...         torch.ones(2).sum().item()
        ...     except NotCapturable as error:
        ...         print(error)
        Python waits for the value of a tensor (_local_scalar_dense)
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at an operation, then do it."""
        if reason := _against(func, named_arguments(func, args, kwargs)):
            raise NotCapturable(reason)
        return func(*args, **(kwargs or {}))


_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")
_CHANCES = ("dropout_p", "dropout")


def _against(func: Any, given: Mapping[str, Any]) -> str | None:
    """Why a graph cannot hold an operation."""
    name, tags = func.overloadpacket.__name__, func.tags
    if torch.Tag.data_dependent_output in tags:
        return f"Python waits for the value of a tensor ({name})"
    if name in _INDEXING:
        chosen = list(_tensors([given["indices"]]))
        dynamic = any(index.dtype in (torch.bool, torch.uint8) for index in chosen)
    else:
        dynamic = torch.Tag.dynamic_output_shape in tags
    if dynamic:
        return f"the shape of a result depends on values ({name})"
    if by_chance(func, given):
        return f"it draws random numbers, as dropout does ({name})"
    places = {tensor.device.type for tensor in _tensors(given.values())}
    if (where := given.get("device")) is not None:
        places.add(torch.device(where).type)
    if len(places) > 1:
        return f"tensors of several devices meet ({name}: {', '.join(sorted(places))})"
    return None


def named_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an operation of PyTorch's dispatcher is given, by the names of its schema; defaults are left out."""
    return {**dict(zip((each.name for each in func._schema.arguments), args, strict=False)), **(kwargs or {})}


def by_chance(func: Any, given: Mapping[str, Any]) -> bool:
    """Whether an operation draws random numbers; attention that drops none at random does not."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    chances = [each for each in func._schema.arguments if each.name in _CHANCES]
    return not chances or any(given.get(each.name, each.default_value) != 0 for each in chances)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
