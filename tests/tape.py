"""What a CUDA graph does, on any device: a list of operations, replayed on the same memory without Python."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from landscape.compute.graphs import OnlyCapturable


class Tape(TorchDispatchMode):
    """The operations of a piece of work with the tensors they read and wrote, and the plain numbers they were given.

    As in a CUDA graph, Python has no more say in a replay: numbers stay what they were, and results go where they went.
    What a CUDA graph cannot hold is an error.
    """

    def __init__(self, work, warm) -> None:
        super().__init__()
        self._operations: list[tuple[Any, Any, Any, Any]] = []
        warm()
        with OnlyCapturable(), self:
            work()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self._operations.append((func, args, kwargs or {}, found))
        return found

    def replay(self) -> None:
        """Do the operations again; views are there already."""
        with torch.no_grad():
            for func, args, kwargs, found in self._operations:
                aliases = [result.alias_info for result in func._schema.returns]
                if aliases and all(alias is not None and not alias.is_write for alias in aliases):
                    continue
                again = func(*args, **kwargs)
                for old, new in zip(_flat(found), _flat(again), strict=True):
                    if new is not old:
                        old.detach().copy_(new)


def _flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in _flat(part)] if isinstance(value, tuple | list) else []
