"""What one sample costs a model, by shapes alone: the same on every machine."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from landscape.activations import weight_layers, weight_matrices
from landscape.compute.devices import at_most_one_thread, reproducible_arithmetic

THREADED_FLOPS = 1e8
"""From this many floating-point operations in a forward pass on, several CPU threads are worth it.

A training step, an evaluation and a product with a kept graph of ``digits_mlp``, ``digits_cnn`` and ``lenet_fed`` at
batches of 1 to 4000 were timed with one, two and four threads, on four cores that other work kept busy.  At best two
threads gained nothing up to 1e7 operations, and a fifth to two fifths from there to 1e8.  In the median four threads
took 130 to 1600 times as long as one below 1e7, 15 to 120 times at 1e8 (5 to 15 ms on one thread, forward) and 10 to 20
times at 1e9: a thread that waits for another one's core costs milliseconds, each time that threads meet.
"""
EXAMPLES = 2
"""Samples to measure the cost with: a model whose BatchNorm takes the batch's statistics refuses a single one."""


@dataclass(frozen=True)
class SampleCost:
    """One sample's share of a forward pass.

    Attributes:
        flops: floating-point operations, a multiplication and an addition each counted, in the products with weight
            matrices and filters: 2 · (elements of the weights) · (positions at which they are used).  Exact for dense
            layers and convolutions; for recurrent layers and attention that of their weights alone.  Bias,
            normalisation, non-linearities and losses are left out.
        saved: bytes that autograd keeps for the backward pass, without parameters and buffers.
    """

    flops: float
    saved: float


def sample_cost(module: nn.Module, inputs: Tensor) -> SampleCost | None:
    """The cost of one of the samples ``inputs`` ([n, ...], as the model takes them), from one forward pass of them.

    The pass is done in evaluation mode on a copy, so that neither the model's state changes nor anybody's random
    numbers are used up.

    Returns:
        The cost; ``None`` where the model does not take these few samples, as one of a graph takes all nodes or none:
        nothing is then known of its cost.  Whatever it raises here, it raises again where it is really computed.

    Example:
        >>> import torch
        >>> from landscape.compute.cost import sample_cost
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        >>> sample_cost(net, torch.ones(2, 3))  # 2 · (3 · 5 + 5 · 2); 3 inputs and 5 activations of 4 bytes
        SampleCost(flops=50.0, saved=32.0)
    """
    private = copy.deepcopy(module).eval()
    inputs = inputs.clone()  # of a view, the storage would be that of the whole data set
    own = {tensor.untyped_storage().data_ptr() for tensor in itertools.chain(private.parameters(), private.buffers())}
    flops: list[float] = []

    def count(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        flops.append(_flops(layer, args, output))

    for layer in weight_layers(private).values():
        layer.register_forward_hook(count)
    devices = [inputs.device] if inputs.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad(), reproducible_arithmetic(), saved_storages() as storages:
        try:
            outputs = private(inputs)  # held until the storages have been told apart by their addresses
        except Exception:
            return None
    del outputs
    saved = sum(size for address, size in storages.items() if address not in own)
    return SampleCost(sum(flops) / len(inputs), saved / len(inputs))


@contextmanager
def saved_storages() -> Iterator[dict[int, int]]:
    """Inside, the storages of all tensors that autograd saves are noted: their bytes by address."""
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # the tensor itself would hold the node that saves it: a cycle that nothing frees

    with saved_tensors_hooks(note, lambda tensor: tensor):
        yield storages


@contextmanager
def threads_for(flops: float) -> Iterator[None]:
    """Inside, one CPU thread where a piece of work has fewer than ``THREADED_FLOPS`` operations.

    Shapes decide, never the clock, so that a run that is resumed computes with as many threads.  The number is never
    raised, and one that was chosen stays (:func:`landscape.compute.devices.at_most_one_thread`).

    Args:
        flops: of a forward pass of a local step's mini-batch, or of a micro-batch; infinity where they are unknown,
            which leaves the threads as they are.
    """
    with at_most_one_thread() if flops < THREADED_FLOPS else nullcontext():
        yield


def _flops(layer: nn.Module, args: tuple[Any, ...], output: Any) -> float:
    """Of one call of a layer with weight matrices or filters; a table of embeddings is looked up, not multiplied."""
    x, y = next(_tensors(args), None), next(_tensors(output), None)
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) or x is None or y is None:
        return 0.0
    weights = weight_matrices(layer)
    if isinstance(layer, _ConvNd):
        used = x if isinstance(layer, _ConvTransposeNd) else y
        positions = used.numel() / weights[0].shape[0]
    else:
        positions = x.numel() / weights[0].shape[-1]
    return 2 * positions * sum(weight.numel() for weight in weights)


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in arguments or outputs, however nested in tuples and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
