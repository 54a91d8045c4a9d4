"""How a valid file is spoilt: its bytes, or any value in what it holds."""

from __future__ import annotations

import copy
import io
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

ESCAPES = "\x1b]0;owned\x07\x1b[2J$\\frac{$ =cmd|' /C calc'!A0 <b>&\u202e"


def deep(levels: int) -> Any:
    """A list in a list in a list ..."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def laughing(levels: int = 40) -> Any:
    """A small value that has 2^levels parts for whoever walks through it."""
    value: Any = [1]
    for _ in range(levels):
        value = [value, value]
    return value


_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, -4, 2, 10**9, -(10**9), 2**31, 2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, -1.5,
    1e308, 5e-324, float("nan"), float("inf"), float("-inf"), "", " ", "0", "nan", "/dev/zero", "os:system",
    "../../../../etc/passwd", ESCAPES, "x" * 100_000, "é" * 50, [], [None], [[]], [1], [1.0, "a"], [0] * 1000,
    [float("nan")] * 3, {}, {"": None}, {"name": 3}, {"name": "digits_mlp", "kwargs": {}}, [{}], [[1, 2], [3]],
    ["a", ["b"]],
)  # fmt: skip
PLAIN: tuple[Callable[[], Any], ...] = (
    *(lambda value=value: copy.deepcopy(value) for value in _VALUES),  # type: ignore[misc]
    lambda: deep(60),
    lambda: deep(900),
)
"""Values that JSON can hold; not-a-number and the infinities as Python writes them."""


def _storage() -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.tensor([1.0]), (10**6, 10**6))


TENSORS: tuple[Callable[[], Any], ...] = (
    lambda: torch.zeros(0),
    lambda: torch.zeros(()),
    lambda: torch.zeros(3),
    lambda: torch.full((3,), torch.nan),
    lambda: torch.zeros(3, dtype=torch.complex64),
    lambda: torch.zeros(3, dtype=torch.int64),
    lambda: torch.zeros(3, dtype=torch.bool),
    lambda: torch.zeros(3, dtype=torch.float16),
    lambda: torch.zeros(2, 3),
    lambda: torch.ones(1).expand(10**9),
    lambda: torch.ones(1).expand(10**5, 10**5),
    lambda: torch.empty(10**12, device="meta"),
    _storage,
    lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    lambda: {"w": torch.zeros(3)},
    lambda: [torch.zeros(3)],
    lambda: {0: 1},
    lambda: {-1: {"c": torch.zeros(3)}},
    lambda: {10**9: 1},
    lambda: (1, 2),
    laughing,
    lambda: {"a": laughing()},
    lambda: b"\x00\xff",
    lambda: bytearray(b"abc"),
    lambda: {1, 2},
    lambda: torch.float64,
    lambda: torch.Size([3]),
    lambda: torch.device("cuda:7"),
    lambda: 1j,
)
"""Values that torch's files can hold and JSON cannot."""


def kin(tensor: torch.Tensor) -> tuple[Callable[[], Any], ...]:
    """Tensors nearly like one: of another type, shape, layout, or with values that are no numbers."""
    return (
        lambda: tensor.to(torch.complex64),
        lambda: tensor.to(torch.int64),
        lambda: tensor.to(torch.bool),
        lambda: tensor.to(torch.float16) if tensor.is_floating_point() else tensor.to(torch.float32),
        lambda: tensor.to(torch.float64),
        lambda: torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else torch.full_like(tensor, -1),
        lambda: torch.full_like(tensor, 2**31 if tensor.dtype == torch.int64 else 1),
        lambda: tensor.flatten()[:-1],
        lambda: tensor[None],
        lambda: tensor.to("meta"),
        lambda: tensor.flatten()[:1].expand(tensor.shape) if tensor.numel() else tensor,
        lambda: tensor.to_sparse(),
        lambda: torch.cat([tensor.flatten(), tensor.flatten()]),
    )


def kin_array(array: np.ndarray) -> tuple[Callable[[], Any], ...]:
    """Arrays nearly like one."""
    return (
        lambda: array.astype(np.float64),
        lambda: array.astype(np.complex128),
        lambda: array.astype(bool),
        lambda: array.astype("U8") if array.size < 10_000 else array.astype(np.int8),
        lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else np.full_like(array, 10**9 % 127),
        lambda: np.full(array.shape, 10**9, dtype=np.int64),
        lambda: np.full(array.shape, -1, dtype=np.int64),
        lambda: array.reshape(-1)[:-1],
        lambda: array[None],
        lambda: array.reshape(-1),
        lambda: array[:0],
        lambda: np.zeros((), array.dtype),
        lambda: array.astype(np.float32),
        lambda: np.full(array.shape, 2**63, dtype=np.uint64),
        lambda: np.zeros(array.shape, dtype=[("a", "i4"), ("b", "f4")]),
        lambda: np.zeros(array.shape, dtype="M8[s]"),
    )


def places(tree: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a tree, but the whole."""
    items: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    found = []
    for key, value in items:
        found += [(*here, key), *places(value, (*here, key))]
    return found


def spoilt(tree: Any, draw: random.Random, torchs: bool, arrays: bool = False) -> Any:
    """A copy of a tree with one value replaced, removed, added or renamed."""
    found = places(tree)
    # Long lists of numbers would otherwise take all the draws from the few names that matter.
    by_depth: dict[int, list[tuple[Any, ...]]] = {}
    for place in found:
        by_depth.setdefault(len(place), []).append(place)
    path = draw.choice(by_depth[draw.choice(sorted(by_depth))])
    tree = _copied(tree)
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    how = draw.choice(["replace"] * 7 + ["remove", "add", "rename"])
    old = parent[path[-1]]
    values = [*PLAIN, *(TENSORS if torchs else ())]
    if isinstance(old, torch.Tensor) and draw.random() < 0.7:
        values = list(kin(old))
    if isinstance(old, np.ndarray):
        values = list(kin_array(old))
    elif arrays and draw.random() < 0.3:
        values = [lambda: np.zeros(3), lambda: np.array("x")]
    value = draw.choice(values)()
    if how == "replace":
        parent[path[-1]] = value
    elif how == "remove":
        del parent[path[-1]]
    elif isinstance(parent, list):
        parent.insert(path[-1], value)
    else:
        name = draw.choice(["", ESCAPES, "name", 5 if torchs else "5"])
        parent[name] = value if how == "add" else parent.pop(path[-1])
    return tree


def _copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(value) for value in tree] if isinstance(tree, list) else tree


def damaged(raw: bytes, draw: random.Random) -> bytes:
    """A copy with bits flipped, bytes replaced, inserted or removed, or cut short."""
    how, changed = draw.choice(["flip", "flips", "cut", "zero", "insert", "repeat"]), bytearray(raw)
    place = draw.randrange(max(1, len(raw)))
    if how in ("flip", "flips"):
        for _ in range(1 if how == "flip" else 30):
            if raw:
                changed[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    elif how == "cut":
        del changed[place:]
    elif how == "zero":
        changed[place : place + 16] = bytes(draw.choice([0, 255]) for _ in changed[place : place + 16])
    elif how == "insert":
        changed[place:place] = draw.randbytes(draw.choice([1, 4, 100]))
    else:
        changed[place:place] = changed[max(0, place - 50) : place]
    return bytes(changed)


def rezipped(raw: bytes, draw: random.Random) -> bytes:
    """An archive with one member damaged and its check sum right again, or compressed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as archive, zipfile.ZipFile(out, "w") as target:
        names = archive.namelist()
        chosen = draw.choice([name for name in names if name.endswith("data.pkl")] * len(names) + names)
        for name in names:
            contents = archive.read(name)
            kind = zipfile.ZIP_DEFLATED if draw.random() < 0.1 else zipfile.ZIP_STORED
            target.writestr(name, damaged(contents, draw) if name == chosen else contents, kind)
    return out.getvalue()
