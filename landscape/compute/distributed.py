"""Several processes on one data set: ranks, sums over all ranks, failures, and the start under ``torchrun``."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from landscape.compute.devices import resolve_device
from landscape.errors import FedscapeError

PATIENCE = timedelta(seconds=10)
"""How long a failing rank 0 waits for the messages of the other ranks; these wait twice as long for rank 0."""


class RanksLostError(FedscapeError):
    """The other ranks cannot be reached: usually a consequence of a failure that another rank reports."""


_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


_apart = ContextVar("apart", default=False)


def rank_and_world() -> tuple[int, int]:
    """The rank of this process and the number of processes; (0, 1) without a process group or inside :func:`apart`."""
    if not _apart.get() and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def first_rank() -> bool:
    """Whether this process is the first of its group, or alone; also inside :func:`apart`."""
    return not (dist.is_available() and dist.is_initialized() and dist.get_rank())


@contextmanager
def apart() -> Iterator[None]:
    """Inside, this process computes as if it were the only one: over all samples, without communication."""
    token = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(token)


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """Sum the tensors of all ranks, in place, with one all-reduce.

    Every rank must call it, in the same order; all get the same bits.  Without a group the tensor is returned as it is.

    Raises:
        RanksLostError: the other ranks cannot be reached, for example because one has stopped.
    """
    if rank_and_world()[1] > 1:
        try:
            dist.all_reduce(tensor)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise RanksLostError(f"the other processes cannot be reached, one may have stopped ({reason})") from error
    return tensor


def report_failure(message: str, *, consequence: bool = False) -> None:
    """Print an error message on stderr: once if all ranks have the same message, else with the rank.

    Under ``torchrun`` the ranks exchange messages through its store, which exists before, during and after a group.

    Args:
        message: the error.
        consequence: whether the error follows from a failure of another rank (:class:`RanksLostError`), whose message
            is printed instead.
    """
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if _speaks is not None:
        if _speaks:
            _print_error(message)
    elif not (rank.isdigit() and world.isdigit()) or world == "1":
        print(f"error: {message}", file=sys.stderr)
    elif (store := _torchrun_store()) is None:
        print(f"error: rank {rank}: {message}", file=sys.stderr)
    else:
        report_once(store, "" if consequence else message, int(rank), int(world), PATIENCE, message)


_speaks: bool | None = None
"""Whether this rank alone reports failures; ``None`` where the ranks must find out who does."""


def leave_reports_to_first(speaks: bool | None) -> None:
    """The ranks have told one another why they end: one of them reports it, and the others are silent.

    Args:
        speaks: whether it is this one; ``None``: it is not known yet.
    """
    global _speaks
    _speaks = speaks


def may_tell(rank: int) -> bool:
    """Whether this rank is the one to report that another one is gone: the first, or of those that miss it one."""
    if rank == 0 or (store := _torchrun_store()) is None:
        return rank <= 1
    return store.add("gone", 1) == 1


def report_once(
    store: dist.Store, message: str, rank: int, world: int, patience: timedelta, otherwise: str = ""
) -> None:
    """As :func:`report_failure`, with any store of the ranks; no rank waits longer than three times ``patience``.

    Rank 0 reads the messages of the others and prints the common one if all are equal.  A rank returns only after its
    failure was reported, because ``torchrun`` ends all processes as soon as one has failed.

    Args:
        store: shared by the ranks.
        message: the error; empty for the consequence of another rank's failure.
        rank, world: the number of this process, and the number of processes.
        patience: how long rank 0 waits for the others.
        otherwise: the message of a consequence, printed if no other rank reports a failure.
    """
    store.set(f"failed/{rank}", message)
    alike = False
    if rank == 0:
        others = [f"failed/{other}" for other in range(1, world)]
        alike = bool(message) and _received(store, others, patience) == [message] * (world - 1)
    elif message and _received(store, ["said for all"], 2 * patience) == [message]:
        return
    if message:
        _print_error(message if alike else f"rank {rank}: {message}")
        store.set("told", message)
    if rank == 0:
        store.set("said for all", message if alike else "")
    if not message and _received(store, ["told"], 3 * patience) is None:
        _print_error(f"rank {rank}: {otherwise}")


def _print_error(message: str) -> None:
    """Print in one write, because several ranks print at once and ``print`` may write the newline separately."""
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()


def _received(store: dist.Store, keys: list[str], patience: timedelta) -> list[str] | None:
    """The values of the keys in the store; ``None`` if some are not set in time."""
    try:
        store.wait(keys, patience)
    except RuntimeError:
        return None
    return [store.get(key).decode() for key in keys]


def _torchrun_store() -> dist.Store | None:
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None  # the store is in rank 0 and ends with it
    try:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, is_master=False, timeout=PATIENCE)
    except (KeyError, ValueError, RuntimeError):
        return None
    return dist.PrefixStore(f"fedscape/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)


@contextmanager
def joined(device: str | torch.device = "auto") -> Iterator[torch.device]:
    """Inside, this process belongs to the group that ``torchrun`` started; yields the device for this process.

    Without ``torchrun``'s environment no group is made; a group that exists already is used and not ended.

    Raises:
        FedscapeError: as :func:`start_from_environment`.
    """
    before = dist.is_available() and dist.is_initialized()
    place = start_from_environment(device)
    try:
        yield place
        if not before:
            _part()
    finally:
        if not before and dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


_groups = itertools.count()
"""How many groups this process has been part of, which torchrun's ranks have in common."""


def _part() -> None:
    """Wait until all ranks are done with the group, as far as they are within :data:`PATIENCE`.

    The first to close its connections would end those ranks' last sums that have not yet seen their results arrive.
    """
    rank, world = rank_and_world()
    if world > 1 and (store := _torchrun_store()) is not None:
        group = next(_groups)
        store.set(f"done/{group}/{rank}", "")
        _received(store, [f"done/{group}/{other}" for other in range(world)], PATIENCE)


def start_from_environment(device: str | torch.device = "auto") -> torch.device:
    """Join the group that ``torchrun``'s environment describes, if any, and return the device of this rank.

    Tensors are summed by gloo on the CPU and by NCCL on CUDA, where a rank's device is ``cuda:LOCAL_RANK``.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``; without a group also ``cuda:N``.

    Raises:
        FedscapeError: the environment is incomplete or contradictory, the device is not on this machine, one
            GPU is given for several ranks, or the group cannot be made.
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
        # With gloo in addition to NCCL, CPU tensors can be summed too.
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
