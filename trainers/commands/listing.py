"""The command ``python -m trainers list``: what each algorithm keeps, sends and combines with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import nn

from landscape.autograd.flat import FlatModule
from landscape.compute.randomness import torch_generator
from landscape.data.samples import Samples
from landscape.partitions.partition import make_partition
from landscape.terminal.command import read
from trainers.algorithm import Algorithm
from trainers.algorithms import ALGORITHMS
from trainers.federation.execution import SequentialExecutor
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork
from trainers.parts.parts import OWN, Parts
from trainers.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table  # takes its time

PROGRAM = "python -m trainers list"

_CAPTION = """
State: vectors of the model's size (adabest's last, fedexp's eps, fedgf's c and fedwmsam's alpha: one number; fedgf's
window: a few; fedrobust's: of the inputs' size).  Traffic: model sizes that a sampled client receives/sends each round,
without single numbers, counted in a dry run with the default hyper-parameters.
At rest: ∇F = 0 where, with the default hyper-parameters, it comes to rest at a stationary point of F = Σ p_i f_i, with
unequal clients of whom some are sampled, and several full-batch local steps of a constant rate; or why it does not."""
_CLIENTS, _FEATURES, _CLASSES = 2, 3, 2


@dataclass(frozen=True)
class Entry:
    """The state and the traffic of an algorithm, and the parts that it can be combined with.

    Attributes:
        name: of the algorithm, as on the command line.
        paper: the paper it follows.
        client: names of the tensors that a client keeps.
        server: names of those that the server keeps in addition to the model.
        down, up: what a sampled client receives and sends in a round, in whole model sizes.
        parts: names of the parts that it can be combined with.
        bias: why it does not come to rest at a stationary point of the objective; empty if it does.
    """

    name: str
    paper: str
    client: tuple[str, ...]
    server: tuple[str, ...]
    down: int
    up: int
    parts: tuple[str, ...]
    bias: str


def entry(name: str, algorithm: Algorithm) -> Entry:
    """The entry of an algorithm, from one round with two clients on tiny data.

    Example:
        >>> from trainers import Scaffold
        >>> from trainers.commands.listing import entry
        >>> scaffold = entry("scaffold", Scaffold())
        >>> scaffold.client, scaffold.server, scaffold.down, scaffold.up
        (('c',), ('c',), 2, 2)
    """
    federation = _tiny(algorithm)
    record = federation.step()
    models = _CLIENTS * federation.server.w.nbytes
    server = {**federation.server.tensors(), **federation.optimizer_state}
    return Entry(
        name,
        algorithm.paper,
        tuple(federation.store.fetch(record.clients[0]).tensors()),
        tuple(key for key in server if key != "w"),
        record.bytes_down // models,  # single numbers beside the models are none
        record.bytes_up // models,
        tuple(field.name.replace("_", "-") for field in fields(Parts) if _allowed(algorithm, field.name)),
        algorithm.bias,
    )


def _allowed(algorithm: Algorithm, part: str) -> bool:
    return part not in algorithm.excludes and getattr(algorithm, OWN.get(part, part), None) is None


def _tiny(algorithm: Algorithm) -> Federation:
    draw = torch_generator(0, "dry run")
    labels = torch.arange(8) % _CLASSES
    data = Samples(torch.randn(8, _FEATURES, generator=draw), labels)
    partition = make_partition("iid", labels.numpy(), _CLIENTS, 0)
    model = FlatModule(nn.Linear(_FEATURES, _CLASSES), torch.device("cpu"), torch.float32)
    local = LocalWork(epochs=1, batch_size=None, weight_decay=0.0, augment="none", seed=0)
    executor = SequentialExecutor(model, data, partition, algorithm, local)
    settings = Settings(clients=_CLIENTS, per_round=_CLIENTS, client_store="host")
    return Federation(algorithm, executor, settings, model.buffer.clone())


def table(entries: Sequence[Entry]) -> Table:
    """The entries as a table for the terminal."""
    from rich.table import Table

    every = [field.name.replace("_", "-") for field in fields(Parts)]
    rich = Table(box=None, pad_edge=False, caption_justify="left", caption=_CAPTION)
    for column in ("algorithm", "client state", "server state", "traffic", "parts", "at rest", "paper"):
        rich.add_column(column, overflow="fold", no_wrap=column == "algorithm")
    for one in entries:
        refused = [part for part in every if part not in one.parts]
        rich.add_row(
            one.name,
            ", ".join(one.client) or "–",
            ", ".join(one.server) or "–",
            f"{one.down:g}/{one.up:g}",
            "all but " + ", ".join(refused) if refused else "all",
            f"biased: {one.bias}" if one.bias else "∇F = 0",
            one.paper,
        )
    return rich


@dataclass(frozen=True)
class Command:
    """What each algorithm keeps, sends and combines with."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    given = sys.argv[1:] if arguments is None else arguments
    read(Command, PROGRAM, given)
    from rich.console import Console

    # The terminal's width; a fixed one if the output is not a terminal, where the default would be 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table([entry(name, kind()) for name, kind in ALGORITHMS.items()]))
    return 0
