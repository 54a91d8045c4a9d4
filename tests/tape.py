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


class Alive:
    """Marks the nodes of autograd in which the graphs of a module's passes end, to see whether a graph is still there.

    A node is of the stream on which its graph was made.  One of the default stream, from a pass before, spoils a CUDA
    graph that is recorded.

    Args:
        module: whose passes are marked, from now on.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        module.register_forward_hook(lambda *_: self.mark())

    def _ends(self) -> list[Any]:
        with torch.enable_grad():
            return [p.view_as(p).grad_fn.next_functions[0][0] for p in self._module.parameters()]

    def mark(self) -> None:
        """Mark the present ones, which live as long as a graph does."""
        for end in self._ends():
            end.metadata["marked"] = True

    def __bool__(self) -> bool:
        return any("marked" in end.metadata for end in self._ends())
