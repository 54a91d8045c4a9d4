"""Tensors of a state dict, whoever named them, given to the model that they are of.

State dicts name tied tensors under each of their names, and those of wrapped modules have the wrapper's name in theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import FedscapeError
from landscape.storage.plain import require_kind, require_plain
from landscape.storage.schema import printable

_INSERTED = ("module", "_orig_mod")
"""Names that DataParallel and ``torch.compile`` insert into names of parameters."""
_SHOWN = 5


def state_tensors(value: Any) -> dict[str, Tensor] | None:
    """The value as a state dict, or ``None`` if it holds anything else than tensors (and modules' extra states)."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return None
    state = {key: item for key, item in value.items() if not key.endswith("_extra_state")}
    return state if state and all(isinstance(item, Tensor) for item in state.values()) else None


def fitted(
    state: Mapping[str, Tensor], module: nn.Module, mismatch: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The module's parameters and buffers, each under its first name, taken from a state dict.

    Tied tensors may have one of their names or several; a count of BatchNorm's batches, or a buffer that state dicts
    leave out, may be missing, and is the module's own then.

    Args:
        state: tensors by name; names inserted by DataParallel and ``torch.compile`` do not count.
        module: what they must fit.
        mismatch: how errors begin.

    Returns:
        Copies: the parameters, float32 unless one is float64; the buffers.

    Raises:
        FedscapeError: tensors are missing, unexpected, of the wrong shape or type; tied tensors differ.

    Example:
        >>> import torch
        >>> from landscape.checkpoints.fitting import fitted
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
        >>> net[1].weight = net[0].weight
        >>> sorted(net.state_dict()), sorted(fitted(net.state_dict(), net, "the weights do not fit")[0])
        (['0.weight', '1.weight'], ['0.weight'])
    """
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    # Tied tensors are there under all their names, buffers that are not saved only by their own.
    known = {**own, **module.state_dict(keep_vars=True)}
    state = renamed(state, known)
    names: dict[int, list[str]] = {}
    for name, tensor in known.items():
        if isinstance(tensor, Tensor):
            names.setdefault(id(tensor), []).append(name)
    unsaved = own.keys() - module.state_dict().keys()
    # One name of tied tensors is enough (safetensors keep one); BatchNorm's count of batches may be missing.
    missing = [
        aliases[0]
        for aliases in names.values()
        if not any(name in state or name in unsaved for name in aliases)
        and not aliases[0].endswith("num_batches_tracked")
    ]
    unexpected = [name for name in state if name not in known]
    misshapen = [
        f"{name} {_shape(tensor)} instead of {_shape(known[name])}"
        for name, tensor in state.items()
        if name in known and tensor.shape != known[name].shape
    ]
    if missing or unexpected or misshapen:
        parts = (("missing", missing), ("unexpected", unexpected), ("of the wrong shape", misshapen))
        raise FedscapeError(f"{mismatch}: " + "; ".join(f"{what}: {listed(some)}" for what, some in parts if some))
    values = {}
    for name, tensor in own.items():
        found = {alias: state[alias] for alias in names.get(id(tensor), []) if alias in state}
        plain = [_plain(one, tensor, f"{mismatch}: {alias}") for alias, one in found.items()]
        if any(not torch.equal(plain[0].nan_to_num(), other.nan_to_num()) for other in plain[1:]):
            raise FedscapeError(f"{mismatch}: {' and '.join(found)} are one tensor in the model and differ here")
        values[name] = plain[0] if plain else tensor.detach().clone()
    parameters = {name: values.pop(name) for name, _ in module.named_parameters()}
    # One type that represents all exactly: float32, unless some parameter is float64.
    dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters.values()) else torch.float32
    return {name: p.to(dtype) for name, p in parameters.items()}, values


def _plain(found: Tensor, wanted: Tensor, where: str) -> Tensor:
    """A copy of a tensor of the expected kind.

    Raises:
        FedscapeError: other numbers than the model's, such as integers or complex ones for weights.
    """
    if isinstance(wanted, nn.Parameter):
        require_plain(found, where, weights=True)
    require_kind(found, wanted, where)
    return found.detach().clone()


def renamed(state: Mapping[str, Tensor], wanted: Iterable[str]) -> dict[str, Tensor]:
    """The state dict without names inserted by DataParallel and ``torch.compile``; equal names of the model stay."""
    known = set(wanted)
    renamed = {name: tensor for name, tensor in state.items() if name in known}
    for name, tensor in state.items():
        if name not in known:
            short = _shortened(name, known)
            renamed[name if short in renamed else short] = tensor  # two tensors never get one name
    return renamed


def _shortened(name: str, known: set[str]) -> str:
    """A name without inserted parts: removed from the left until the name is known; unchanged if it never is."""
    parts = name.split(".")
    while inserted := [i for i, part in enumerate(parts[:-1]) if part in _INSERTED]:
        del parts[inserted[0]]
        if ".".join(parts) in known:
            return ".".join(parts)
    return name


def listed(names: Iterable[object]) -> str:
    """Up to five printable names, and the number of the others."""
    every = [printable(str(name)) for name in names]
    more = f", … and {len(every) - _SHOWN:,} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def _shape(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"
