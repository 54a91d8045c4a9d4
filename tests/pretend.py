"""A device that is not there: tensors that say they are on it, refuse others, and compute on the CPU all the same.

Unlike PyTorch's fake tensors these have values, so that whatever asks for one (a loss, whether all is finite, an
eigenvalue) goes on.  As on a GPU, an operator whose tensors are on two devices raises; a number (a tensor without
axes) may be anywhere, and indices may be on the CPU.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only

from landscape.compute.precision import Precision

HERE = torch.device("meta")
"""The device's name: the one that PyTorch knows without a driver, and of which nothing real is computed."""
_TABLES = ("landscape.evaluation._ELEMENTS", "landscape.evaluation._SAMPLES", "landscape.data.micro_batches._SAMPLES")
_ANYWHERE = {"copy_", "_to_copy", "to"}
_INDICES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


class WrongDeviceError(Exception):
    """Tensors of two devices met."""


class There(torch.Tensor):
    """A tensor on the device; ``held`` has its values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, real: torch.Tensor) -> "There":
        made = torch.Tensor._make_wrapper_subclass(
            cls, real.size(), strides=real.stride(), storage_offset=real.storage_offset(), dtype=real.dtype,
            layout=real.layout, device=HERE, requires_grad=real.requires_grad,
        )  # fmt: skip
        made.held = real
        return made

    def __repr__(self) -> str:
        return f"There({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator's result, on the device where its tensors are or where it is asked for."""
    name = func.overloadpacket.__name__
    given = [tensor for tensor in tree_flatten((args, kwargs))[0] if isinstance(tensor, torch.Tensor)]
    if name in _INDICES:
        given = [args[0], *(tensor for tensor in tree_flatten(args[2:])[0] if isinstance(tensor, torch.Tensor))]
    there = any(isinstance(tensor, There) for tensor in given)
    if there and name not in _ANYWHERE:
        wrong = [tensor for tensor in given if not isinstance(tensor, There) and tensor.dim()]
        if wrong:
            raise WrongDeviceError(f"{name}: {tuple(wrong[0].shape)} is on the CPU, beside tensors that are not")
    target = kwargs.get("device")
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
        there = torch.device(target).type == HERE.type
    elif name == "copy_":
        there = isinstance(args[0], There)
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    plain_args, plain_kwargs = tree_map_only(There, lambda tensor: tensor.held, (args, kwargs))
    found = func(*plain_args, **plain_kwargs)
    if not there:
        return found
    found = tree_map_only(torch.Tensor, lambda tensor: tensor if isinstance(tensor, There) else There(tensor), found)
    return return_and_correct_aliasing(func, args, kwargs, found) if given else found


class _Calls(TorchFunctionMode):
    """What PyTorch does of such tensors without calling an operator: tensors and indices of Python's numbers, and
    ``x.data =``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == torch.Tensor.data.__set__ and isinstance(args[0], There):
            func(*args, **kwargs)
            args[0].held = args[1].held
            return None
        if func == torch.Tensor.tolist and isinstance(args[0], There):
            return args[0].held.tolist()
        if func == torch.Tensor.new_tensor and isinstance(args[0], There):
            return There(torch.tensor(args[1], dtype=kwargs.get("dtype", args[0].dtype)))
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == HERE.type:
            return func(*args, **{**kwargs, "device": "cpu"}).to(HERE)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):  # makes indices on the tensor's device
            where = args[1] if isinstance(args[1], tuple) else (args[1],)
            where = tuple(torch.tensor(one) if isinstance(one, list) else one for one in where)
            args = (args[0], where if isinstance(args[1], tuple) else where[0], *args[2:])
        return func(*args, **kwargs)


class _Making(TorchDispatchMode):
    """Makes what is asked for on the device, and notes what is made on the CPU, by the line of ours that did."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = computed(func, args, kwargs or {})
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        if not tensors and isinstance(found, torch.Tensor) and not isinstance(found, There) and found.dim():
            where = _ours()
            self.made[where] = self.made.get(where, 0) + 1
        return found


def _ours() -> str:
    """The innermost function of ours that is being executed: ``folder/module.py: name``."""
    root = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if path.is_relative_to(root) and path != Path(__file__) and ".venv" not in path.parts:
            return f"{path.relative_to(root).as_posix()}: {frame.name}"
    return "?"


@contextmanager
def device() -> Iterator[dict[str, int]]:
    """Inside, :data:`HERE` is a device; the numbers of tensors with axes made on the CPU, by who makes them."""
    mode = _Making()
    with mode, _Calls():
        yield mode.made


def like_a_gpu(patch: pytest.MonkeyPatch) -> None:
    """What the code knows of devices by their types it knows of this one as of a GPU."""
    for name in _TABLES:
        table = resolve_name(name)
        patch.setitem(table, HERE.type, table["cuda"])
    patch.setattr("landscape.placement.resolve_device", torch.device)
    patch.setattr(Precision, "forward", lambda *_: nullcontext())  # autocast knows no such device
