"""Directions in parameter space: drawn at random and scaled; and the file that they are saved in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from landscape import FedscapeError, ParameterSpace
from landscape.compute.randomness import torch_generator
from landscape.storage.digests import tensor_digest
from landscape.storage.files import load_torch, save_torch
from landscape.storage.plain import Numbers
from landscape.storage.schema import Items, Keyed, Number, Record, Row, Text, require

FILTER = "filter"
"""The normalisation of Li et al.: each filter of a direction is as long as the same filter of the point."""

Normalisation = Literal["filter", "layer", "model", "none"]

FORMAT = "fedscape-directions/1"

_NOTHING_LEFT = 1e-9
"""Smaller parts, relative to the draw, are rounding: what orthogonalisation leaves of a filter with too few entries."""


def random_directions(
    w: Tensor,
    space: ParameterSpace,
    seed: int = 0,
    count: int = 2,
    *,
    normalisation: str = FILTER,
    biases: bool = False,
    orthogonal: bool = True,
) -> Tensor:
    """Draw Gaussian directions and scale them as the point is.

        d_f ← d_f / ‖d_f‖ · ‖w_f‖   for each filter f, with d ~ N(0, I)   (Li et al., NeurIPS 2018, section 4);

    ``layer`` does so for each parameter tensor, ``model`` for the whole vector, ``none`` leaves the draw as it is
    (with ``biases``: the plain Gaussian directions of Qu et al., ICML 2022).  Filters that are zero in ``w`` are zero
    in the direction.

    Args:
        w: the point, [d].
        space: its layout.
        seed: draws and norms are taken on the CPU in float64, so every device and dtype has the same directions up
            to the rounding to the type of ``w``.
        count: how many, k; the first ones are the same whatever k.
        normalisation: ``filter``, ``layer``, ``model`` or ``none``.
        biases: move biases and the parameters of normalisation layers too, each tensor scaled as one filter; unless
            given they are fixed, as in the paper.
        orthogonal: orthogonalise filter by filter (layer by layer, ...) before scaling, so that the directions are
            both orthogonal and scaled.  Of a filter with n entries the directions from the (n+1)-th on are 0.

    Returns:
        The directions [k, d], with the dtype and on the device of ``w``.

    Raises:
        FedscapeError: an unknown normalisation, or a direction without length: nothing in ``w`` to scale by.
    """
    if normalisation not in get_args(Normalisation):
        raise FedscapeError(f"unknown normalisation '{normalisation}': give {', '.join(get_args(Normalisation))}")
    space.check(w)
    moved = space.mask("weight", "bias", "scale") if biases else space.mask("weight")
    point = w.detach().to("cpu", torch.float64) * moved
    found: list[Tensor] = []
    for k in range(count):
        draw = torch.randn(space.dimension, generator=torch_generator(seed, "direction", k), dtype=torch.float64)
        draw *= moved
        earlier = found if orthogonal else []
        parts = [_parts(vector, space, normalisation) for vector in (draw, point, *earlier)]
        for rows, of_point, *others in zip(*parts, strict=True):
            drawn = rows.norm(dim=1, keepdim=True)
            for other in others:
                square = other.square().sum(dim=1, keepdim=True)
                rows -= torch.where(square > 0, (rows * other).sum(dim=1, keepdim=True) / square, 0.0) * other
            left = rows.norm(dim=1, keepdim=True)
            wanted = drawn if normalisation == "none" else of_point.norm(dim=1, keepdim=True)
            rows *= torch.where(left > _NOTHING_LEFT * drawn, wanted / left, 0.0)
        found.append(draw)
    if not all(direction.any() for direction in found):
        raise FedscapeError(
            "every weight matrix of the model is zero, too small or there is none: the directions have no length, "
            "so there is no plane"
        )
    return torch.stack(found).to(w)


def _parts(vector: Tensor, space: ParameterSpace, normalisation: str) -> Iterator[Tensor]:
    """The parts that are scaled as one each: the rows of views [rows, size] of the vector."""
    if normalisation in ("model", "none"):
        yield vector.view(1, -1)
        return
    for entry in space.entries:
        filters = entry.shape[0] if normalisation == FILTER and entry.kind == "weight" else 1
        yield vector[entry.start : entry.stop].view(filters, -1)


_SCHEMA = Record(
    {
        "format": Text(100),
        "vectors": Numbers((None, None), finite=True),
        "recipe": Text(1000),
        "seed": Number(whole=True),
        "labels": Row((Text(1000), Text(1000))),
        "source": Text(1000),
        "parameters": Keyed(Text(), Items(Number(0, whole=True))),
        "digest": Text(1000),
    },
    extra=False,
)
"""What a file of directions must hold."""


class Directions(NamedTuple):
    """Directions with what a file says about them.

    Attributes:
        vectors: [k, d].
        recipe: how they were made.
        seed: of what is random in them.
        labels: of the axes along the first two.
        source: a fingerprint of the landscape they were made on.
    """

    vectors: Tensor
    recipe: str
    seed: int
    labels: tuple[str, str]
    source: str

    def save(self, path: str | Path, space: ParameterSpace) -> None:
        """Save them in a file, for other checkpoints of the same model.

        Raises:
            FedscapeError: it cannot be written.
        """
        contents = {
            "format": FORMAT,
            **self._asdict(),
            "vectors": self.vectors.cpu(),
            "labels": list(self.labels),
            "parameters": {entry.name: list(entry.shape) for entry in space.entries},
            "digest": tensor_digest(self.vectors),
        }
        save_torch(path, contents)

    @classmethod
    def load(cls, path: str | Path, space: ParameterSpace) -> Directions:
        """Read the directions of a file, on the CPU.

        Raises:
            FedscapeError: there is no such file, it holds no directions or those of another model, or it is damaged.
        """
        contents = load_torch(path)
        if (
            not isinstance(contents, dict)
            or not isinstance(contents.get("format"), str)
            or contents["format"] != FORMAT
        ):
            raise FedscapeError(f"{path} does not hold directions: it does not say format '{FORMAT}'")
        require(contents, _SCHEMA, path)
        if contents.get("parameters") != {entry.name: list(entry.shape) for entry in space.entries}:
            raise FedscapeError(f"{path} holds directions of another model: the parameters differ in name or shape")
        vectors, labels = contents["vectors"], [str(label) for label in contents["labels"]]
        whole = vectors.dim() == 2 and vectors.shape[1] == space.dimension and bool(vectors.isfinite().all())
        if not whole or len(labels) != 2 or tensor_digest(vectors) != contents.get("digest"):
            raise FedscapeError(f"{path} is damaged: the directions are not those that were saved")
        return cls(vectors, contents["recipe"], contents["seed"], (labels[0], labels[1]), contents["source"])
