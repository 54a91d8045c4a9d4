"""What a profile found, as a table and as files."""

from __future__ import annotations

import gzip
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from landscape.profiling.kinds import DISPATCH, KINDS, PRODUCTS
from landscape.profiling.peak import Peak
from landscape.storage.files import atomic_write, write_json
from landscape.storage.outputs import PRODUCER, Output
from landscape.terminal.table import Share, Table

PROFILE, TRACE = "profile.json", "trace.json.gz"
"""The files of a profile: its numbers, and every operator in the order of time, for chrome://tracing or Perfetto."""
_SHOWN = 8


@dataclass(frozen=True)
class OperatorTime:
    """An operator by its name: how often it was called, and the seconds that are its own."""

    name: str
    kind: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class DeviceTime:
    """What a GPU did meanwhile, in seconds: its kernels, and copies to and from it."""

    kernels: float
    copies: float


@dataclass(frozen=True)
class Profile:
    """Where the time of some rounds, products or points went.

    Attributes:
        unit: ``round``, ``product`` or ``point``.
        first, count: the number of the first one that was profiled, and how many were.
        seconds: of all of them, on the clock; the seconds below add up to it.
        unprofiled: seconds of the one before, without the profiler: the difference is the profiler's cost where one
            is as much work as the other.
        parts: seconds by part of a unit (gradients, evaluation, ...).
        kinds: seconds by kind of operator (:data:`landscape.profiling.kinds.KINDS`).
        operators: by name, the longest first.
        flops: floating-point operations of matrix products and convolutions.
        peak: what the machine does at best, in this precision, with as many threads.
        device, precision: of the arithmetic.
        gpu: what the GPU did; ``None`` on a CPU.
    """

    unit: str
    first: int
    count: int
    seconds: float
    unprofiled: float
    parts: dict[str, float]
    kinds: dict[str, float]
    operators: tuple[OperatorTime, ...]
    flops: float
    peak: Peak
    device: str
    precision: str
    gpu: DeviceTime | None = None
    trace: bytes = field(default=b"", repr=False)

    @property
    def share_of_peak(self) -> float:
        """Of the measured rate of large matrix products, what the units reached in all their time."""
        return self.flops / self.seconds / self.peak.flops

    @property
    def share_in_products(self) -> float:
        """The same within the products and convolutions alone; 0 where there were none."""
        spent = self.kinds.get(PRODUCTS, 0.0)
        return self.flops / spent / self.peak.flops if spent else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Numbers and texts, as in ``profile.json``."""
        found = {"profiled": self.unit, **asdict(self)}
        for name in ("unit", "trace"):
            del found[name]
        return {**found, "share_of_peak": self.share_of_peak, "share_in_products": self.share_in_products}

    def table(self, what: str, seconds: dict[str, float]) -> Table:
        """Shares, and milliseconds a unit."""
        rows = [(name, Share(spent / self.seconds), 1e3 * spent / self.count) for name, spent in seconds.items()]
        rows.append(("all", Share(1.0), 1e3 * self.seconds / self.count))
        return Table((what, "share", f"ms a {self.unit}"), tuple(rows))

    def __str__(self) -> str:
        """Tables of parts, kinds and operators, and how near all of it is to what the machine can do."""
        last = self.first + self.count - 1
        found = [f"Where the time goes: {self.unit}s {self.first} to {last}, {self.device}, {self.precision}"]
        found += [str(self.table("part", self.parts))] if len(self.parts) > 1 else []
        found.append(str(self.table("kind", {kind: self.kinds[kind] for kind in KINDS if kind in self.kinds})))
        named = [one for one in self.operators if one.kind != DISPATCH][:_SHOWN]
        rows = [
            (one.name.removeprefix("aten::"), Share(one.seconds / self.seconds), one.calls / self.count)
            for one in named
        ]
        found.append(str(Table(("operator", "share", f"calls a {self.unit}"), tuple(rows))))
        return "\n\n".join([*found, "\n".join(self._lines())])

    def _lines(self) -> list[str]:
        peak, each = self.peak, self.flops / self.count
        threads = f"{peak.threads} CPU thread{'s' if peak.threads > 1 else ''}"
        lines = [
            f"{each:.3g} floating-point operations a {self.unit} in products and convolutions: "
            f"{self.flops / self.seconds / 1e9:.3g} GFLOP/s, {self.share_of_peak:.1%} of the {peak.flops / 1e9:.3g} "
            f"that large matrix products reach here ({self.precision}, {threads}); within products and convolutions "
            f"{self.share_in_products:.1%}",
            f"memory: {peak.bandwidth / 1e9:.3g} GB/s in large copies, so fewer than {peak.flops / peak.bandwidth:.2g} "
            "operations a byte are bound by memory",
            f"the {self.unit} before took {1e3 * self.unprofiled:.3g} ms without the profiler, these "
            f"{1e3 * self.seconds / self.count:.3g} ms each with it",
        ]
        if self.gpu is not None:
            lines.append(
                f"the GPU computed for {self.gpu.kernels / self.seconds:.1%} of the time and copied to or from the "
                f"host for {self.gpu.copies / self.seconds:.1%}"
            )
        return lines

    def save(self, folder: Path) -> None:
        """Write both files.

        Raises:
            FedscapeError: they cannot be written.
        """
        write_json(folder / PROFILE, self.to_dict())
        with atomic_write(folder / TRACE) as file:
            file.write(gzip.compress(b'{"producer": "' + PRODUCER.encode() + b'",' + self.trace.lstrip()[1:], mtime=0))


def profile_outputs(folder: Path | None) -> list[Output]:
    """The files that ``--profile`` writes, for :func:`landscape.storage.outputs.check_outputs`."""
    if folder is None:
        return []
    return [
        Output("--profile", folder / PROFILE, "json", ("profiled", "kinds", "peak")),
        Output("--profile", folder / TRACE, "trace"),
    ]
