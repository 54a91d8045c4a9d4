"""The layout of a model's parameters in one flat vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from landscape.errors import FedscapeError

Kind = Literal["weight", "bias", "scale"]
_NORMALISATIONS = (_NormBase, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Entry:
    """The coordinates of one parameter tensor: ``w[start:stop].view(shape)``.

    ``kind`` is ``weight`` (matrices, filters, embeddings), ``bias``, or ``scale`` (the multiplicative
    parameter of a normalisation layer, and any other vector that is not a bias).
    """

    name: str
    shape: torch.Size
    start: int
    stop: int
    kind: Kind

    @property
    def layer(self) -> str:
        """The name of the module that owns the parameter (``''`` for the model itself)."""
        return self.name.rpartition(".")[0]


def _kind(name: str, parameter: Tensor, owner: nn.Module) -> Kind:
    if "bias" in name.rpartition(".")[2]:
        return "bias"
    return "scale" if parameter.dim() <= 1 or isinstance(owner, _NORMALISATIONS) else "weight"


class ParameterSpace:
    """The trainable parameters of a module as coordinates of R^d, in ``named_parameters()`` order.

    Tied parameters are one block; parameters with ``requires_grad=False`` are constants of the model, not coordinates.

    Example:
        >>> import torch
        >>> from landscape import ParameterSpace
        >>> net = torch.nn.Linear(2, 1)
        >>> space = ParameterSpace.of(net)
        >>> space
        ParameterSpace(3 parameters in 2 tensors)
        >>> space.unflatten(torch.tensor([1.0, 2.0, 3.0]))
        {'weight': tensor([[1., 2.]]), 'bias': tensor([3.])}
        >>> space.flatten({"weight": torch.zeros(1, 2), "bias": torch.ones(1)})
        tensor([0., 0., 1.])
        >>> space.mask("bias")
        tensor([False, False,  True])
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)
        self.sizes = [entry.stop - entry.start for entry in self.entries]
        self.dimension = sum(self.sizes)
        self._masks: dict[tuple[tuple[Kind, ...], torch.device], Tensor] = {}

    @classmethod
    def of(cls, module: nn.Module) -> ParameterSpace:
        """The space of a module's trainable parameters.

        Raises:
            FedscapeError: the module has no trainable parameters.
        """
        entries, start = [], 0
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                stop = start + parameter.numel()
                owner = module.get_submodule(name.rpartition(".")[0])
                entries.append(Entry(name, parameter.shape, start, stop, _kind(name, parameter, owner)))
                start = stop
        if not entries:
            raise FedscapeError(f"{type(module).__name__} has no trainable parameters: there is no landscape")
        return cls(entries)

    def __repr__(self) -> str:
        return f"ParameterSpace({self.dimension:,} parameters in {len(self.entries)} tensors)"

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """Tensors by name -> one vector ``[d]`` (a copy).

        Raises:
            FedscapeError: a name is missing or a shape differs.
        """
        for entry in self.entries:
            if entry.name not in named:
                raise FedscapeError(f"the parameter '{entry.name}' is missing")
            if named[entry.name].shape != entry.shape:
                raise FedscapeError(
                    f"the parameter '{entry.name}' has shape {tuple(named[entry.name].shape)}, "
                    f"the model wants {tuple(entry.shape)}"
                )
        return torch.cat([named[entry.name].detach().reshape(-1) for entry in self.entries])

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """A vector ``[d]`` (or stacked ones ``[..., d]``) -> views by name, ``[..., *shape]``.

        Uses one ``split``, whose backward is a single ``cat``.
        """
        self.check(w)
        parts = w.split(self.sizes, dim=-1)
        return {
            entry.name: part.reshape(w.shape[:-1] + entry.shape)
            for entry, part in zip(self.entries, parts, strict=True)
        }

    def check(self, w: Tensor) -> None:
        """Refuse a vector that is not in this space.

        Raises:
            FedscapeError: its last dimension is not d.
        """
        if w.shape[-1:] != (self.dimension,):
            raise FedscapeError(
                f"a vector of shape {tuple(w.shape)} is not in this space of {self.dimension} parameters"
            )

    def layers(self) -> dict[str, slice]:
        """The coordinates of each layer (module that owns parameters), by module name."""
        slices: dict[str, slice] = {}
        for entry in self.entries:
            start = slices[entry.layer].start if entry.layer in slices else entry.start
            slices[entry.layer] = slice(start, entry.stop)
        return slices

    def filters(self, w: Tensor) -> Iterator[tuple[Entry, Tensor]]:
        """For each weight tensor, its filters as rows of a view ``[filters, size]`` of ``w`` ([d]).

        A filter is a slice of the tensor along its first axis: an output channel of a convolution, an
        output unit of a dense layer (Li et al., NeurIPS 2018, section 4).
        """
        for entry in self.entries:
            if entry.kind == "weight":
                yield entry, w[entry.start : entry.stop].view(entry.shape[0], -1)

    def mask(self, *kinds: Kind, device: torch.device | str = "cpu") -> Tensor:
        """A boolean vector ``[d]``: which coordinates belong to parameters of these kinds.

        The mask is cached: do not write to it.
        """
        key = kinds, torch.device(device)
        if key not in self._masks:
            chosen = torch.tensor([entry.kind in kinds for entry in self.entries])
            self._masks[key] = chosen.repeat_interleave(torch.tensor(self.sizes)).to(device)
        return self._masks[key]
