"""The random numbers of dropout for several models at once: for each those that it would draw alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from landscape.compute.graphs import Watching, by_chance, named_arguments

_WHOLE_CHANNELS = (F.dropout1d, F.dropout2d, F.dropout3d, F.feature_alpha_dropout)
_ALPHA = (F.alpha_dropout, F.feature_alpha_dropout)
_DROPOUTS = frozenset({F.dropout, *_WHOLE_CHANNELS, *_ALPHA})
_SELU = 1.7580993408473766
"""α of alpha dropout: SELU's value far on the left is −α, which replaces what is dropped."""


class OtherDraws(Exception):
    """A forward pass draws random numbers that are not dropout's; the message says which, in half a sentence."""


@dataclass(frozen=True)
class Draw:
    """A tensor that dropout fills with 1 and, at random, 0.

    Attributes:
        shape, strides: of the tensor; numbers are drawn in the order of its memory.
        dtype: its type, on which the draws depend too.
        keep: the probability of a 1, 1 − p.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    keep: float


Plan = tuple[Draw, ...]
"""What a forward pass draws, in order."""


class _Watch(Watching):
    """Notes what is drawn inside."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Draw] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = named_arguments(func, args, kwargs)
        if by_chance(func, given):
            device = next((each.device for each in args if isinstance(each, Tensor)), torch.device("cpu"))
            if device.type != "cpu":
                raise OtherDraws(
                    f"dropout draws on the device ({device.type}), where several clients at once get other random "
                    "numbers than one after the other"
                )
            if func is not torch.ops.aten.bernoulli_.float or given.get("generator") is not None:
                raise OtherDraws(
                    f"it draws random numbers otherwise than dropout does ({func.overloadpacket.__name__})"
                )
            into = given["self"]
            draw = Draw(tuple(into.shape), tuple(into.stride()), into.dtype, given.get("p", 0.5))  # bernoulli_'s own p
            self.found.append(draw)
        return func(*args, **(kwargs or {}))


def plan_of(forward: Callable[[], object]) -> Plan:
    """What a forward pass draws from the CPU's global generator, which is left as it was.

    Raises:
        OtherDraws: it draws what dropout on a CPU does not.

    Example:
        >>> import torch
        >>> from landscape.autograd.dropout import plan_of
        >>> plan_of(lambda: torch.nn.functional.dropout(torch.ones(3, 2), 0.25))
        (Draw(shape=(3, 2), strides=(2, 1), dtype=torch.float32, keep=0.75),)
    """
    with torch.random.fork_rng([]), _Watch() as watch:
        forward()
    return tuple(watch.found)


def alike(plans: Sequence[Plan], counts: Sequence[int]) -> bool:
    """Whether passes of these numbers of samples draw so many numbers for each sample, along a first axis of samples.

    Then the draws of a smaller batch are those of its samples in a batch that is filled up.

    Example:
        >>> import torch
        >>> from landscape.autograd.dropout import alike, plan_of
        >>> by_sample, by_place = (
        ...     [plan_of(lambda: torch.nn.functional.dropout(torch.ones(n, 2).reshape(shape))) for n in (3, 4)]
        ...     for shape in ((-1, 2), (2, -1))
        ... )
        >>> alike(by_sample, (3, 4)), alike(by_place, (3, 4))
        (True, False)
    """
    most = max(counts)
    longest = plans[counts.index(most)]

    def fits(draw: Draw, whole: Draw, count: int) -> bool:
        by_sample = (draw.shape, whole.shape) == ((count, *whole.shape[1:]), (most, *whole.shape[1:]))
        return (by_sample or draw.shape == whole.shape) and (draw.dtype, draw.keep) == (whole.dtype, whole.keep)

    return all(
        plan is longest or (len(plan) == len(longest) and all(map(fits, plan, longest, repeat(count))))
        for plan, count in zip(plans, counts, strict=True)
    )


def drawn(plans: Sequence[Plan], generators: Sequence[torch.Generator]) -> list[Tensor]:
    """The draws of S models' passes in rows, [S, ...] each; those of the first sample behind those of fewer samples.

    Args:
        plans: of each model, all alike (:func:`alike`).
        generators: of each model, on the CPU: in the state of the global one where the model is computed alone.

    Example:
        >>> import torch
        >>> from landscape.autograd.dropout import drawn, plan_of
        >>> plans = [plan_of(lambda: torch.nn.functional.dropout(torch.ones(n, 3))) for n in (2, 1)]
        >>> (both,) = drawn(plans, [torch.Generator().manual_seed(seed) for seed in (0, 1)])
        >>> both
        tensor([[[0., 0., 1.],
                 [0., 0., 0.]],
        <BLANKLINE>
                [[1., 1., 1.],
                 [1., 1., 1.]]])
    """
    found: list[Tensor] = []
    for draws in zip(*plans, strict=True):
        longest = max(draws, key=lambda draw: draw.shape[:1])
        size, strides = (len(plans), *longest.shape), (prod(longest.shape), *longest.strides)
        found.append(torch.empty_strided(size, strides, dtype=longest.dtype))
    by_row = [rows.unbind() for rows in found]
    for row, (plan, generator) in enumerate(zip(plans, generators, strict=True)):
        for rows, draw in zip(by_row, plan, strict=True):
            part = tensor = rows[row]
            if tensor.shape != draw.shape:
                part = tensor[: draw.shape[0]]
            if part.stride() == draw.strides:
                part.bernoulli_(draw.keep, generator=generator)
            else:
                alone = torch.empty_strided(draw.shape, draw.strides, dtype=draw.dtype)
                part.copy_(alone.bernoulli_(draw.keep, generator=generator))
            if part is not tensor:
                tensor[draw.shape[0] :] = part[:1]
    return found


class Given(TorchFunctionMode):
    """Inside, dropout takes noise that is given in the place of drawing some.

    Args:
        noise: of 0 and 1, for each dropout that would draw, in order.

    Example:
        >>> import torch
        >>> from landscape.autograd.dropout import Given
        >>> with Given([torch.tensor([1.0, 0.0])]):
        ...     torch.nn.Dropout(0.75)(torch.tensor([1.0, 2.0]))  # what is kept is divided by 1 − p
        tensor([4., 0.])
    """

    def __init__(self, noise: Sequence[Tensor]) -> None:
        super().__init__()
        self._left: Iterator[Tensor] = iter(noise)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do dropout with the next noise, and anything else as it is."""
        if func not in _DROPOUTS:
            return func(*args, **(kwargs or {}))
        return self._dropped(func, *args, **(kwargs or {}))

    def _dropped(self, func: Any, input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
        if not training or p in (0.0, 1.0) or not input.numel():
            found: Tensor = func(input, p=p, training=training, inplace=inplace)  # draws nothing
            return found
        shape = (*input.shape[:2], *(1 for _ in input.shape[2:])) if func in _WHOLE_CHANNELS else input.shape
        noise = next(self._left, None)
        if noise is None or noise.shape != shape:
            raise OtherDraws(f"its {func.__name__} on a tensor of shape {list(input.shape)} draws otherwise alone")
        if func not in _ALPHA:
            scale = noise / (1 - p)
            return input.mul_(scale) if inplace else input * scale
        a = 1 / sqrt((_SELU**2 * p + 1) * (1 - p))
        scale, shift = noise * a, (noise - 1) * (_SELU * a) + _SELU * a * p
        return input.mul_(scale).add_(shift) if inplace else input * scale + shift

    def require_all_taken(self) -> None:
        """Refuse noise that is left.

        Raises:
            OtherDraws: dropout has drawn less often than alone.
        """
        if next(self._left, None) is not None:
            raise OtherDraws("a layer of it drops numbers by itself, as attention and recurrent layers do")
