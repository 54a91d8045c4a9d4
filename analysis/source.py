"""Which function is measured: the options that every measuring command shares."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


def option(metavar: str, default: str) -> Any:
    """How an option without a plain default shows in ``--help``."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class Source:
    """Data, device and arithmetic: the arguments of ``Landscape.from_checkpoint`` by name."""

    split: Literal["train", "test"] = "train"
    """data to measure on"""
    samples: Annotated[int | None, option("N", "all")] = None
    """a random subset of so many samples, the same for every checkpoint of the same data"""
    clients: Annotated[tuple[int, ...] | None, option("ID [ID ...]", "all")] = None
    """only the training data of these clients"""
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N"""
    dtype: Annotated[Literal["float32", "float64"] | None, option("{float32,float64}", "the checkpoint's")] = None
    """floating-point type of the arithmetic"""
    data_dir: Annotated[Path | None, option("DIR", "as in training")] = None
    """folder that holds the data set's own folder (cifar-10-batches-py, ...)"""
    model: Annotated[str | None, option("NAME", "the checkpoint's")] = None
    """the network: of a state dict from elsewhere, or where the checkpoint names it as package.module:callable"""
    data: Annotated[str | None, option("NAME", "the checkpoint's")] = None
    """the data set: of a state dict from elsewhere, or where the checkpoint names it as package.module:callable"""
    batch_size: Annotated[int | None, option("N", "256 on the CPU, 1024 on CUDA")] = None
    """samples per micro-batch: speed and memory, not results"""
