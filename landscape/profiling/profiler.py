"""The profiler: a few units of the work, after the first ones, by ``torch.profiler``."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function

from landscape.compute.regions import Unit, watch
from landscape.errors import FedscapeError
from landscape.profiling.kinds import COUNTED, DISPATCH, kind_of, product_flops
from landscape.profiling.peak import measured_peak, wait
from landscape.profiling.profile import PROFILE, TRACE, DeviceTime, OperatorTime, Profile

_MARK = "fedscape: "
_REST: dict[str, str] = {"round": "aggregation and server", "product": "product", "point": "point"}
"""What of a unit no mark lies around."""


class Profiler:
    """Profiles units number ``skip`` + 1 to ``skip`` + ``count`` of the work inside :func:`profiled`.

    Nothing is computed otherwise because of it: results are the same, bit for bit.

    Args:
        kind: of the units.
        skip: units before: the first one prepares caches and chooses kernels.
        count: units that are profiled, at most.
    """

    def __init__(self, kind: Unit, skip: int = 1, count: int = 3) -> None:
        self._kind, self._skip, self._count = kind, skip, count
        self._seen = self._profiled = 0
        self._inside = self._recording = False
        self._recorder: Any = None
        self._before = 0.0
        self._threads = 1
        self._device, self._precision = torch.device("cpu"), "float32"

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """A part of a unit."""
        if not self._inside:
            yield
            return
        self._threads = max(self._threads, torch.get_num_threads())
        with record_function(_MARK + name):
            yield

    @contextmanager
    def unit(self, name: Unit, device: torch.device, precision: str) -> Iterator[None]:
        """A unit; those of another kind, or within one, are no units of this profiler's."""
        if name != self._kind or self._inside or self._profiled == self._count:
            yield
            return
        self._seen += 1
        start = time.perf_counter()
        if self._seen <= self._skip:
            yield
            wait(device)
            self._before = time.perf_counter() - start
            return
        if self._recorder is None:
            self._device, self._precision = device, precision
            kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
            self._recorder = torch.profiler.profile(activities=kinds, record_shapes=True, acc_events=True)
            self._recorder.start()
            self._recording = True
        self._inside = True
        try:
            with self.region(_REST[name]):
                yield
                wait(device)  # what a GPU has still to do is of this unit
                self._profiled += 1
        finally:
            self._inside = False
            if self._profiled == self._count:
                self.stop()

    def stop(self) -> None:
        """Record nothing any more."""
        if self._recording:
            self._recording = False
            self._recorder.stop()

    def profile(self) -> Profile:
        """What was found; measures the machine's peak for half a second.

        Raises:
            FedscapeError: there were too few units.
        """
        if self._recorder is None or not self._profiled:
            raise FedscapeError(
                f"nothing was profiled: of {self._seen} {self._kind}s the first {self._skip} are left out; give more"
            )
        self.stop()
        with tempfile.TemporaryDirectory() as folder:
            self._recorder.export_chrome_trace(f"{folder}/trace.json")
            trace = Path(folder, "trace.json").read_bytes()
        found = _Reading(self._recorder.events())
        peak = measured_peak(self._device, self._precision, self._threads)
        return Profile(
            self._kind, self._skip + 1, self._profiled, sum(found.parts.values()), self._before, dict(found.parts),
            dict(found.kinds), found.operators(), found.flops, peak, str(self._device), self._precision,
            found.gpu if self._device.type == "cuda" else None, trace,
        )  # fmt: skip


@contextmanager
def profiled(kind: Unit, skip: int = 1, count: int = 3) -> Iterator[Profiler]:
    """Inside, units of this kind are profiled; :meth:`Profiler.profile` then says what was found.

    Example:
        >>> import tempfile
        >>> from landscape.profiling import profiled
        >>> from trainers import FedAvg, Settings, train
        >>> settings = Settings(rounds=2, clients=4, per_round=2, local_steps=1, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder, profiled("round") as profiler:
        ...     run = train(FedAvg(), settings, out=folder)
        >>> profile = profiler.profile()
        >>> profile.count, abs(sum(profile.kinds.values()) / profile.seconds - 1) < 1e-9
        (1, True)
    """
    profiler = Profiler(kind, skip, count)
    before = watch(profiler)
    try:
        yield profiler
    finally:
        watch(before)
        profiler.stop()  # else it would record, and keep, whatever the process does from here on


@contextmanager
def told(kind: Unit, folder: Path | None) -> Iterator[None]:
    """What ``--profile`` does around a command's work: profile, print, and write into the folder; ``None``: nothing.

    Where the work fails nothing is printed or written; where it had too few units it says so.
    """
    if folder is None:
        yield
        return
    with profiled(kind) as profiler:
        yield
    try:
        found = profiler.profile()
    except FedscapeError as error:  # the work is done: what it found is shown all the same
        print(error)
        return
    found.save(folder)
    print(f"{found}\n\nprofile: {folder / PROFILE}\ntrace, for https://ui.perfetto.dev: {folder / TRACE}")


class _Reading:
    """Seconds by part, kind and operator, from the events of ``torch.profiler``.

    The time of a part is that of its mark without the marks in it; of it, what is no operator's own is of the
    interpreter, of autograd or of dispatch.
    """

    def __init__(self, events: Any) -> None:
        self.parts: defaultdict[str, float] = defaultdict(float)
        self.kinds: defaultdict[str, float] = defaultdict(float)
        self._each: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        self.flops = kernels = copies = 0.0
        host = [event for event in events if event.device_type == DeviceType.CPU]
        units = [event.time_range for event in host if event.name.startswith(_MARK) and event.cpu_parent is None]
        on_host = [event for event in host if _during(event, units)]
        holding = {id(parent) for event in on_host if event.name in COUNTED for parent in _above(event)}
        for event in on_host:
            if event.name.startswith(_MARK):
                name, spent = event.name.removeprefix(_MARK), 1e-6 * event.time_range.elapsed_us()
                self.parts[name] += spent
                outer = next((one for one in _above(event) if one.name.startswith(_MARK)), None)
                if outer is not None:
                    self.parts[outer.name.removeprefix(_MARK)] -= spent
                continue
            spent, kind = 1e-6 * event.self_cpu_time_total, kind_of(event.name)
            self.kinds[kind] += spent
            self._each[event.name][0] += 1
            self._each[event.name][1] += spent
            if event.name in COUNTED and id(event) not in holding:  # one operator may be computed by another
                self.flops += product_flops(event.name, event.input_shapes, event.concrete_inputs)
        for event in events:
            # A mark's span over the kernels in it is an event of the GPU, too.
            if event.device_type == DeviceType.CUDA and not (event.name.startswith(_MARK) or event.is_user_annotation):
                spent = 1e-6 * event.time_range.elapsed_us()
                moved = event.name.startswith("Memcpy") and "DtoD" not in event.name
                copies, kernels = copies + spent * moved, kernels + spent * (not moved)
        self.gpu = DeviceTime(kernels, copies)
        others = sum(spent for kind, spent in self.kinds.items() if kind != DISPATCH)
        self.kinds[DISPATCH] = sum(self.parts.values()) - others

    def operators(self) -> tuple[OperatorTime, ...]:
        """By name, the longest first."""
        found = (OperatorTime(name, kind_of(name), int(n), spent) for name, (n, spent) in self._each.items())
        return tuple(sorted(found, key=lambda one: (-one.seconds, one.name)))


def _during(event: Any, units: list[Any]) -> bool:
    """Whether an event, of whichever thread, lies in one of the units: between them files are written."""
    return any(unit.start <= event.time_range.start <= unit.end for unit in units)


def _above(event: Any) -> Iterator[Any]:
    """The events that an event lies in, the nearest first."""
    while (event := event.cpu_parent) is not None:
        yield event
