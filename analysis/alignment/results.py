"""What was measured of runs: their rounds, beside each other as a table, in files and as pictures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.alignment.options import Asked
from analysis.alignment.rounds import TITLES, Quantity, RoundAlignment
from landscape.storage.display import Shown
from landscape.storage.style import PictureStyle, StyleName
from landscape.terminal.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RunAlignment:
    """The rounds of one run, ascending; rounds where nothing could be measured are in ``left_out``, with the reason."""

    label: str
    path: str
    rounds: tuple[RoundAlignment, ...]
    left_out: dict[int, str]


@dataclass(frozen=True, repr=False)
class Alignment(Shown):
    """What :func:`analysis.alignment.measure_alignment` found.

    Attributes:
        runs: each with its rounds.
        asked: what was asked for.
        device, dtype: the device and the arithmetic.
    """

    runs: tuple[RunAlignment, ...]
    asked: Asked
    device: str
    dtype: str

    def _heading(self) -> str:
        return ", ".join(run.label for run in self.runs)

    def _facts(self) -> dict[str, str]:
        return {
            f"{run.label}, round {run.rounds[-1].round}": "; ".join(
                f"{q.title} {q.mean.value:.3g}" for q in run.rounds[-1].quantities()[1:4]
            )
            for run in self.runs
        }

    def _picture(self) -> Figure:
        return self.plot()

    def value(self, run: int, name: str, round: int | None = None) -> Quantity:
        """One quantity of one run, at its last round unless another is named.

        Raises:
            KeyError: it was not measured there.

        """
        rounds = {one.round: one for one in self.runs[run].rounds}
        one = self.runs[run].rounds[-1] if round is None else rounds[round]
        return {q.name: q for q in one.quantities()}[name]

    def comparison(self) -> Table:
        """A row for each quantity, a column for each run: mean ± both errors at its last round."""
        head = ("quantity", *(f"{run.label}, round {run.rounds[-1].round}" for run in self.runs))
        found = [{q.name: q for q in run.rounds[-1].quantities()} for run in self.runs]
        rows = [(TITLES[name], *(_told(one.get(name)) for one in found)) for name in TITLES]
        return Table(head, tuple(row for row in rows if any(row[1:])))

    def details(self) -> Table:
        """A row for each run, round and quantity."""
        head = ("run", "round", "quantity", "mean", "sampling_error", "measurement_error", "low", "high", "clients",
                "left_out")  # fmt: skip
        rows: list[tuple[str | float | None, ...]] = []
        for run in self.runs:
            for one in run.rounds:
                for q in one.quantities():
                    numbers = (q.mean.value, q.mean.stderr, q.error, q.mean.low, q.mean.high)
                    known = [float(x) if np.isfinite(x) else None for x in numbers]
                    rows.append((run.label, one.round, q.name, *known, q.mean.count, q.mean.left_out))
        return Table(head, tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists by name."""
        runs = [
            {
                "run": run.path,
                "label": run.label,
                "rounds": [one.to_dict() for one in run.rounds],
                "left_out": {str(k): v for k, v in run.left_out.items()},
            }
            for run in self.runs
        ]
        return {"asked": asdict(self.asked), "device": self.device, "dtype": self.dtype, "runs": runs}

    def _notes(self) -> str:
        lines = [f"{run.label}: {note}" for run in self.runs for one in run.rounds for note in one.notes()]
        lines += [f"{run.label}: round {k} is left out: {why}" for run in self.runs for k, why in run.left_out.items()]
        return "".join(f"\n{line}" for line in dict.fromkeys(lines))

    @property
    def key(self) -> str:
        """What the cells of the comparison say, and which clients they are of."""
        last = [run.rounds[-1] for run in self.runs]
        of = sorted({f"{len(one.clients)} of {one.population}" for one in last})
        fewer = any(0 < len(some) < len(one.clients) for one in last for some in (one.local_clients, one.used_clients))
        worked = "; of w_i and perturbations used: over those of them that worked in the round" if fewer else ""
        return (
            f"means over {', '.join(of)} clients, weighted by p_i (over pairs: alike){worked}; first error: for the "
            f"mean of all clients, where some were measured; second: of the measurement; K = {self.asked.top}, "
            f"{self.asked.ascent}, ρ = {self.asked.rho:g}"
        )

    def __str__(self) -> str:
        return f"{self.key}\n{self.comparison()}{self._notes()}"

    def on_screen(self) -> str:
        """The text, its table folded to the width of a terminal."""
        return f"{self.key}\n{self.comparison().on_screen()}{self._notes()}"

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """Curves over the rounds, or bars of the one round, several runs on common axes; written to ``path``.

        Raises:
            FedscapeError: the file cannot be written or is of no kind Matplotlib writes.
        """
        from analysis.alignment.plots import plot_alignment
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: plot_alignment(self), path, style)

    def plot_matrices(
        self, run: int = 0, path: str | Path | None = None, style: PictureStyle | StyleName = "screen"
    ) -> Figure:
        """Heat maps of one run at its last round: cosines, gains, overlaps; written to ``path`` where given.

        Raises:
            FedscapeError: as :meth:`plot`.
        """
        from analysis.alignment.plots import plot_matrices
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: plot_matrices(self.runs[run], self.asked), path, style)


def _told(quantity: Quantity | None) -> str | None:
    """``0.31 ± 0.02 ± 0.001``: the mean, the sampling error and that of the measurement, each where it is not 0."""
    if quantity is None or not np.isfinite(quantity.mean.value):
        return None
    parts = [f"{quantity.mean.value:.4g}"]
    parts += [f"± {e:.1g}" for e in (quantity.mean.stderr, quantity.error) if np.isfinite(e) and e > 0]
    return " ".join(parts) + (" (sampling error unknown)" if np.isnan(quantity.mean.stderr) else "")
