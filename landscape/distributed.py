"""Several processes on one data set: who this one is, sums over all, and the start under ``torchrun``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from landscape.devices import resolve_device
from landscape.errors import FedscapeError

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of processes: (0, 1) without a process group."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """The tensor, now holding the sum of all ranks' tensors: one all-reduce, in place.

    Every rank must call it, in the same order; all get the same bits.  Without a group nothing happens.
    """
    if rank_and_world()[1] > 1:
        dist.all_reduce(tensor)
    return tensor


@contextmanager
def joined(device: str | torch.device = "auto") -> Iterator[torch.device]:
    """Inside, this process is one of those that ``torchrun`` started; yields the device it is to use.

    Where nothing says so in the environment, or a group exists already, no group is made (or ended).

    Raises:
        FedscapeError: as :func:`start_from_environment`.
    """
    before = dist.is_available() and dist.is_initialized()
    place = start_from_environment(device)
    try:
        yield place
    finally:
        if not before and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


def start_from_environment(device: str | torch.device = "auto") -> torch.device:
    """Join the group that ``torchrun``'s environment describes, if there is one, and say which device is this rank's.

    Tensors are summed by gloo on the CPU and by NCCL on CUDA, where a rank's device is ``cuda:LOCAL_RANK``.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``; without a group also ``cuda:N``.

    Raises:
        FedscapeError: the environment is incomplete or makes no sense, the device is not on this machine, one
            GPU is named for several ranks, or the group cannot be made.
    """
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return resolve_device(device)
    missing = [name for name in _NEEDED if not os.environ.get(name)]
    if missing:
        raise FedscapeError(
            f"the environment describes a distributed run but lacks {', '.join(missing)}: start it with torchrun, or "
            "unset RANK and WORLD_SIZE"
        )
    rank, world, local = (_number(name) for name in _NEEDED[:3])
    if not (0 <= rank < world and local >= 0):
        raise FedscapeError(
            f"RANK is {rank}, LOCAL_RANK {local} and WORLD_SIZE {world}: ranks must be 0 to {max(world - 1, 0)}"
        )
    place = resolve_device(device)
    if place.type == "cuda":
        if world > 1 and device != "auto" and torch.device(device).index is not None:
            raise FedscapeError(f"{world} ranks cannot share '{device}': give cuda, and each takes a GPU of its own")
        place = resolve_device(f"cuda:{local}") if device == "auto" or torch.device(device).index is None else place
        torch.cuda.set_device(place)
    if not dist.is_available():
        raise FedscapeError("this PyTorch was built without torch.distributed: leave out torchrun")
    if not dist.is_initialized():
        # With gloo beside NCCL, sums of CPU tensors work too.
        backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend, rank=rank, world_size=world)
        except (RuntimeError, ValueError) as error:
            where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            raise FedscapeError(f"rank {rank} cannot join the {world} processes at {where}: {error}") from error
    return place


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise FedscapeError(f"{name} is '{os.environ[name]}' in the environment: it must be a whole number") from None
