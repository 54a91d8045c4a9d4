"""One door for data: whatever a user has becomes samples, or batches with an objective.

Inputs and targets that are tensors of equal shapes become :class:`Samples`, and everything can be measured.  Other
batches (Hugging Face dictionaries, ragged sequences, several inputs) become :class:`Batches`, whose objective is the
model's own loss or the loss of its outputs.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from landscape.compute.randomness import global_seed
from landscape.data.batches import Batches, Objective
from landscape.data.dataset import Dataset
from landscape.data.loaders import is_pair, joined
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.tasks import Loss

_TARGETS = ("labels", "label", "targets", "target", "y")
_IGNORED = -100
"""A target that PyTorch's and Hugging Face's losses leave out."""
_LOADED = 256
"""Samples at a time of a ``torch.utils.data.Dataset``."""
_WANTED = (
    "give Samples, a pair of tensors (inputs, targets), a DataLoader, a list of batches (inputs, targets) or of "
    "dictionaries, or Landscape.of(model, batches, objective)"
)


def as_data(data: Any, model: nn.Module, loss: Loss | None) -> Samples | Batches:
    """Data of any kind as samples, or as batches with an objective.

    Args:
        data: ``Samples`` or ``Batches``, which are returned as they are; a pair of tensors (inputs, targets); a
            dictionary of tensors; a ``torch.utils.data.Dataset``; or an iterable of batches, such as a ``DataLoader``:
            pairs (inputs, targets), where inputs may be a tensor, or a tuple or dictionary of the model's arguments, or
            dictionaries of them, with the targets under ``labels`` (or ``label``, ``targets``, ``target``, ``y``).
            Batches are read once and kept in memory.
        model: which the data are for.
        loss: (outputs, targets) -> mean; of dictionaries the model's own loss unless given, else cross-entropy.

    Raises:
        FedscapeError: data of another kind; there are no batches; the weights of batches cannot be told.
    """
    if isinstance(data, (Samples, Batches)):
        return data if isinstance(data, Batches) else _integers_kept(data, model)
    if is_pair(data):
        return _integers_kept(Samples(*data), model)
    if isinstance(data, Dataset):
        raise FedscapeError(f"{data.name} is a data set of two splits: give its train or its test")
    if isinstance(data, torch.utils.data.Dataset) and hasattr(data, "__len__"):
        data = torch.utils.data.DataLoader(data, batch_size=_LOADED)
    batches = [data] if isinstance(data, Mapping) else _read(data)
    samples = joined(batches)
    if samples is not None:
        return _integers_kept(samples, model)
    kinds = {_kind(batch) for batch in batches}
    if len(kinds) > 1 or None in kinds:
        raise FedscapeError(f"these data are {_described(batches)}: {_WANTED}")
    if kinds == {"mapping"}:
        return Batches(batches, _objective_of_mappings(loss), _sizes_of_mappings(batches, loss))
    return Batches(batches, _objective_of_pairs(loss), lambda batch: _count(batch[1], loss))


def logits(outputs: Any) -> Any:
    """The logits of a Hugging Face ``ModelOutput`` or of a dictionary that has them; other outputs as they are.

    Example:
        >>> import torch
        >>> from landscape.data.anything import logits
        >>> logits({"logits": torch.zeros(1, 2), "hidden_states": None}).shape
        torch.Size([1, 2])
    """
    found = outputs.get("logits") if isinstance(outputs, Mapping) else None
    return found if isinstance(found, Tensor) else outputs


def _read(data: Any) -> list[Any]:
    if not isinstance(data, Iterable) or isinstance(data, (str, bytes, Tensor)):
        raise FedscapeError(f"these data are a {type(data).__name__}: {_WANTED}")
    if isinstance(data, (Sequence, Iterator)):
        batches = list(data)
    else:
        with global_seed(0, "loader"):  # shuffling and augmentation are the same each time
            batches = list(data)
    if not batches:
        raise FedscapeError("there are no samples: at least one is needed")
    return batches


def _kind(batch: Any) -> str | None:
    if isinstance(batch, Mapping):
        return "mapping"
    return "pair" if isinstance(batch, (tuple, list)) and len(batch) == 2 and isinstance(batch[1], Tensor) else None


def _described(batches: Sequence[Any]) -> str:
    names = sorted({type(batch).__name__ for batch in batches})
    return f"{len(batches)} batches of {', '.join(names)}"


def _integers_kept(data: Samples, model: nn.Module) -> Samples:
    """Token ids as the tables of embeddings take them: uint8 are images unless the model takes integers alone."""
    x, y = data.inputs, data.targets
    if x.dtype in (torch.int8, torch.int16) or (
        x.dtype == torch.uint8 and data.mean is None and _takes_integers_alone(model, x)
    ):
        x = x.long()
    if y.dtype in (torch.int8, torch.int16, torch.int32) or (y.dtype == torch.uint8 and y.dim() == 1):
        y = y.long()
    if x is data.inputs and y is data.targets:
        return data
    return Samples(x, y, data.mean, data.std, data.place)


def _takes_integers_alone(model: nn.Module, x: Tensor) -> bool:
    if not any(isinstance(layer, nn.Embedding) for layer in model.modules()):
        return False
    private = copy.deepcopy(model).eval()
    device = next((p.device for p in private.parameters()), x.device)
    with torch.no_grad(), torch.random.fork_rng([]):
        try:
            private(x[:2].to(device, torch.float32))
        except Exception:  # of any kind: an embedding refuses floating-point numbers
            return True
    return False


def _call(module: nn.Module, inputs: Any) -> Any:
    """The module's outputs for a tensor, for a tuple of arguments, or for a dictionary of them."""
    if isinstance(inputs, Mapping):
        return module(**inputs) if _takes_names(module, inputs) else module(inputs)
    return module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)


def _takes_names(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    parameters = inspect.signature(module.forward).parameters
    named = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return named or all(name in parameters for name in inputs)


def _objective_of_pairs(loss: Loss | None) -> Objective:
    def objective(module: nn.Module, batch: Any) -> Tensor:
        return (loss or cross_entropy)(logits(_call(module, batch[0])), batch[1])

    return objective


def _objective_of_mappings(loss: Loss | None) -> Objective:
    def objective(module: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        if loss is not None:
            name = _target_of(batch)
            inputs = {key: value for key, value in batch.items() if key != name}
            return loss(logits(_call(module, inputs)), batch[name])
        found = _call(module, batch)
        own = found.get("loss") if isinstance(found, Mapping) else None
        if not isinstance(own, Tensor):
            raise FedscapeError(
                f"the model gives no loss for a batch of {', '.join(map(str, batch))}: add the labels to the batches, "
                "or give a loss of outputs and labels"
            )
        return own

    return objective


def _target_of(batch: Mapping[str, Any]) -> str:
    for name in _TARGETS:
        if isinstance(batch.get(name), Tensor):
            return name
    raise FedscapeError(
        f"a batch of {', '.join(map(str, batch))} has no targets: name them labels, or give Landscape.of(model, "
        "batches, objective)"
    )


def _sizes_of_mappings(batches: Sequence[Mapping[str, Any]], loss: Loss | None) -> Callable[[Any], int] | None:
    """What a batch's mean is over: its samples, or the labels in it that are not ignored.

    Raises:
        FedscapeError: that cannot be told: a model for causal language leaves out each sequence's first label.
    """
    if loss is not None:
        return lambda batch: _count(batch[_target_of(batch)], loss)
    if not all(any(isinstance(batch.get(name), Tensor) for name in _TARGETS) for batch in batches):
        return None
    labels = [batch[_target_of(batch)] for batch in batches]
    if all(y.is_floating_point() or y.dim() < 2 for y in labels):
        return lambda batch: _count(batch[_target_of(batch)], None)
    every, later = ([int((y[:, first:] != _IGNORED).sum()) for y in labels] for first in (0, 1))
    if any(a * sum(later) != b * sum(every) for a, b in zip(every, later, strict=True)):
        raise FedscapeError(
            "the batches hold different numbers of labels, and whether the model's loss is a mean over all of them or "
            "over all but each sequence's first cannot be told: give Landscape.of(model, batches, objective, size=...) "
            "with the number that a batch's mean is over"
        )
    return lambda batch: int((batch[_target_of(batch)] != _IGNORED).sum())


def _count(targets: Tensor, loss: Loss | None) -> int:
    """What the mean over a batch is over: its targets, without the ignored ones where the loss leaves such out."""
    if targets.is_floating_point():
        return len(targets)
    by_class = loss is None or loss is cross_entropy or type(loss) is nn.CrossEntropyLoss
    ignored = getattr(loss, "ignore_index", _IGNORED)
    return int((targets != ignored).sum()) if by_class else len(targets)
