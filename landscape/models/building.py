"""The registry of networks, and building one from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from landscape.compute.randomness import global_seed
from landscape.errors import FedscapeError
from landscape.models.factories import call_factory
from landscape.registry import Registry

Builder = Callable[..., nn.Module]
MODELS: Registry[Builder] = Registry("model")


def build_model(
    name: str,
    *,
    seed: int,
    input_shape: Sequence[int],
    classes: int,
    imports: bool = True,
    shapes_only: bool = False,
    **kwargs: Any,
) -> nn.Module:
    """The network called ``name`` with seeded initial parameters, on the CPU in float32.

    Args:
        name: a registered name or ``package.module:callable``; the builder is called with those of ``input_shape``
            (one sample's shape), ``classes`` and ``num_classes`` that it takes, and ``kwargs``
            (:func:`landscape.models.factories.call_factory`).
        seed: the same seed gives the same parameters on every device.
        imports: whether a ``package.module:callable`` may be imported.
        shapes_only: on the meta device, without memory for parameters.

    Raises:
        FedscapeError: an unknown name, or a network that cannot take such inputs.

    Example:
        >>> from landscape import build_model
        >>> net = build_model("digits_mlp", seed=0, input_shape=(1, 8, 8), classes=10)
        >>> sum(parameter.numel() for parameter in net.parameters())
        6570
    """
    builder = MODELS.get(name, imports=imports)
    if isinstance(builder, nn.Module):
        raise FedscapeError(
            f"the model '{name}' is a module that is built already: name a class, or a function that returns one"
        )
    # Always on the CPU, so that the random numbers are the same for every device.
    with global_seed(seed, "initialisation"), torch.device("meta" if shapes_only else "cpu"):
        try:
            known = {"input_shape": tuple(input_shape), "classes": classes, "num_classes": classes}
            model = call_factory(builder, name, known, kwargs)
        except FedscapeError:
            raise
        except (TypeError, ValueError, RuntimeError, ArithmeticError, RecursionError) as error:
            raise FedscapeError(f"the model '{name}' cannot be built: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(model, nn.Module):
        raise FedscapeError(f"the model '{name}' returned {type(model).__name__}, not a torch.nn.Module")
    return model


def image_shape(name: str, shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """One image's (channels, height, width).

    Raises:
        FedscapeError: inputs that are not images, or smaller than the model ``name`` takes.
    """
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise FedscapeError(
            f"the model '{name}' takes images (channels, height, width) of at least {smallest}x{smallest}, "
            f"not inputs of shape {tuple(shape)}"
        )
    return shape[0], shape[1], shape[2]
