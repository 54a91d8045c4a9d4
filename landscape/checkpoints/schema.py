"""What a checkpoint file must hold, declared."""

from __future__ import annotations

from typing import get_args

from landscape.checkpoints import client_work
from landscape.storage.plain import AnyTensor
from landscape.storage.schema import Items, Keyed, Maybe, Number, OneOf, Record, Text
from landscape.tasks import Task

_WHOLE = Number(whole=True)
_SIZE = Number(1, 1 << 20, whole=True)
_MODEL = Record({"name": Text(1000)}, {"kwargs": Record({}, {"input_shape": Items(_SIZE, 1, 8), "classes": _SIZE})})
_DATA = Record(
    {"name": Text(10_000)},
    {
        "kwargs": Record({}, {"data_dir": Text()}),
        "partition": Maybe(Record({}, {"spec": Text(200), "clients": Number(1, whole=True), "digest": Text(200)})),
        "seed": _WHOLE,
        "task": OneOf(get_args(Task)),
    },
)
SCHEMA = Record(
    {
        "model": _MODEL,
        "data": _DATA,
        "algorithm": Record({}, {"name": Text(1000)}),
        "round": Number(0, whole=True),
        "seed": _WHOLE,
        "parameters": Keyed(Text(), AnyTensor()),
        "buffers": Keyed(Text(), AnyTensor()),
        "metrics": Record({}),
        "versions": Record({}),
    },
    {"clients": Keyed(Number(0, whole=True), AnyTensor()), "work": client_work.SCHEMA, "format": Text()},
)
"""What a checkpoint must hold (:mod:`landscape.storage.schema`); the tensors are looked at one by one."""
