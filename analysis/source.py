"""Options that every measuring command shares: which model, which data, which device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

_STREAM = {"auto": None, "yes": True, "no": False}


def option(metavar: str, default: str) -> Any:
    """How ``--help`` shows an option whose default is no plain value."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


_AUTO_YES_NO: PrimitiveConstructorSpec[bool | None] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="{auto,yes,no}",
    instance_from_str=lambda words: _STREAM[words[0]],
    is_instance=lambda value: value is None or isinstance(value, bool),
    str_from_instance=lambda value: [next(word for word, meant in _STREAM.items() if meant is value)],
    choices=tuple(_STREAM),
)


@dataclass(frozen=True)
class Place:
    """Which model and data set, how many samples, on which device, in which arithmetic."""

    # The names are those of the arguments of Landscape.from_checkpoint.
    samples: Annotated[int | None, option("N", "all")] = None
    """a random subset of so many samples, the same for every checkpoint of the same data"""
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N"""
    dtype: Annotated[
        Literal["float32", "float64", "tf32"] | None, option("{float32,float64,tf32}", "the checkpoint's")
    ] = None
    """arithmetic; tf32: float32 with faster products and convolutions, relative errors of about 1e-3, on CUDA only"""
    data_dir: Annotated[Path | None, option("DIR", "as in training")] = None
    """folder that holds the data set's own folder (cifar-10-batches-py, ...)"""
    model: Annotated[str | None, option("NAME", "the checkpoint's")] = None
    """the network: of a state dict from elsewhere, or where the checkpoint names it as package.module:callable"""
    data: Annotated[str | None, option("NAME", "the checkpoint's")] = None
    """the data set: of a state dict from elsewhere, or where the checkpoint names it as package.module:callable"""
    normalise: Annotated[str | None, option("RULE", "as in training; of a state dict, the data set's own")] = None
    """what inputs are normalised by: MEAN,.../STD,... by channel (of pixels from 0 to 1, or in the units of floats),
    cifar10, cifar100, mnist, fashion_mnist, tiny_imagenet, imagenet, none, or data (the training inputs' statistics)"""
    key: Annotated[str | None, option("NAME", "state_dict, model_state_dict, model or net")] = None
    """where a file from elsewhere holds the state dict, with dots where it is nested (ema.model)"""
    loader: Annotated[str | None, option("MODULE:CALLABLE", "none")] = None
    """a pipeline of yours in place of --data: called with split= (and data_dir= if it takes it), it gives a DataLoader
    or other batches (inputs, targets), which are taken as they are"""
    batch_size: Annotated[int | None, option("N", "by one's memory on the CPU, 1024 on CUDA")] = None
    """samples per micro-batch: speed and memory, not results"""
    stream: Annotated[bool | None, _AUTO_YES_NO] = None
    """samples stay in the host's memory, micro-batches go to the GPU in turn; auto: above half of its free memory"""

    @property
    def naming(self) -> dict[str, Any]:
        """The arguments of :func:`landscape.checkpoints.foreign.open_checkpoint`: what a file may leave unsaid."""
        return {name: getattr(self, name) for name in ("model", "data", "data_dir", "normalise", "key", "loader")}


@dataclass(frozen=True)
class Source(Place):
    """Which data, on which device, in which arithmetic."""

    split: Literal["train", "test"] = "train"
    """data to measure on"""
    clients: Annotated[tuple[int, ...] | None, option("ID [ID ...]", "all")] = None
    """only the training data of these clients"""


@dataclass(frozen=True)
class HessianSource(Source):
    """Which data, on which device, in which arithmetic."""

    # Of a spectrum alone the sampling error is known.
    samples: Annotated[int | Literal["auto"] | None, option("{N,auto}", "all")] = None  # type: ignore[assignment]
    """a random subset of so many samples, the same for every checkpoint of the same data, with intervals of what all
    samples would give; auto: a subset that grows until these are narrow enough (--sampling-tolerance)"""


@dataclass(frozen=True)
class SurfaceSource(Source):
    """Which data, on which device, in which arithmetic."""

    # Surfaces alone can time the micro-batches: they have many points to come.
    batch_size: Annotated[int | Literal["auto"] | None, option("{N,auto}", "by the samples' shape")] = None  # type: ignore[assignment]
    """samples per micro-batch: speed and memory, not results but for rounding; auto: the fastest found, so that results
    differ by rounding from run to run"""
