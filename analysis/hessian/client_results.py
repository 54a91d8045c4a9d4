"""The results of client by client measurements: of one checkpoint, and over the rounds of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.hessian.spectrum.refinement import doubts
from landscape.storage.display import Shown
from landscape.storage.schema import Agree, Anything, Items, Maybe, Number, Record, Text, Truth, printable
from landscape.storage.schema import Table as Rows
from landscape.storage.style import PictureStyle, StyleName
from landscape.terminal.table import Share, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REAL, _ID = Number(-1e60, 1e60), Number(0, 1 << 60, whole=True)
_OF_CLIENTS = Agree(
    Record(
        {
            "title": Text(1000), "label": Text(1000), "round": _ID, "local": Truth(), "hvps": _ID,
            "clients": Items(_ID, least=1), "samples": Items(_ID, least=1), "losses": Items(_REAL, least=1),
            "values": Rows(_REAL), "bounds": Rows(Number(0, 1e60)), "converged": Rows(Truth()),
            "accuracies": Maybe(Items(Number(0, 1), least=1)), "consistency": Maybe(Number(0, 1e60)),
            "client": Maybe(_ID), "noise": Items(Number(0, 1e60), least=1), "label_counts": Maybe(Rows(_ID)),
        }
    ),
    ("clients", "samples", "losses", "values", "bounds", "converged", "noise"),
)  # fmt: skip


def clients_rule(value: Any, place: str) -> None:
    """What a file of :class:`ClientEigenvalues` must hold (:mod:`landscape.storage.schema`)."""
    _OF_CLIENTS(value, place)
    some = [name for name in ("accuracies", "label_counts") if value.get(name) is not None]
    Agree(Anything(), ("clients", *some))(value, place)


def on_own_data(model: str) -> str:
    """Which model was measured on which data, in words."""
    whose = "its" if model.startswith("each client") else "each client's"
    return f"{model} on {whose} own training data"


@dataclass(frozen=True, repr=False)
class ClientEigenvalues(Shown):
    """Results on each client's own data at one checkpoint; means and deviations give each client the same weight.

    Attributes:
        title: the checkpoint, and the penalty where there is one, in a line.
        round: communication rounds done.
        local: whether each client's own local model w_i was measured, not the global one.
        clients: their ids, [n].
        values: the largest eigenvalues of ∇²L_i, descending, [n, k]; the first is λ_max^i.
        bounds: their error bounds, [n, k].
        converged: which are within the wanted tolerance, [n, k].
        losses: L_i, [n].
        accuracies: on the client's own data, [n]; ``None`` where the targets are not classes.
        samples: how many each was measured on, [n].
        consistency: (1/n) Σ ‖w_i − w‖² (Sun et al., ICML 2023, Table 2); ``None`` where the global model was measured.
        hvps: Hessian-vector products spent in all.
        label: the checkpoint's short name, the algorithm's.
        client: whose local model was measured on the data of every client (a checkpoint ``FILE@ID``); ``None``: the
            global model was, or with ``local`` each client's own.
        noise: of the float32 products on each client's data, below which eigenvalues are not told from 0, [n]; 0 where
            it was not measured (float64, or nothing refined).
        label_counts: how many samples of each class a client has, whichever of them were measured, [n, classes];
            ``None`` where the targets are not classes.
    """

    title: str
    round: int
    local: bool
    clients: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    converged: np.ndarray
    losses: np.ndarray
    accuracies: np.ndarray | None
    samples: np.ndarray
    consistency: float | None
    hvps: int
    label: str = ""
    client: int | None = None
    noise: np.ndarray | None = None
    label_counts: np.ndarray | None = None

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> ClientEigenvalues:
        """The results that :meth:`to_dict` gave, as a JSON file holds them (:func:`clients_rule`)."""
        known = {field.name: numbers[field.name] for field in fields(cls) if field.name in numbers}
        arrays = {name: np.array(value) for name, value in known.items() if isinstance(value, list)}
        return cls(**{**known, **arrays, "title": printable(known["title"]), "label": printable(known["label"])})

    def _heading(self) -> str:
        return self.heading

    def _facts(self) -> dict[str, str]:
        return {
            "clients": f"{len(self.clients):,}",
            "λ_max": f"{self.largest.min():.4g} to {self.largest.max():.4g}, mean {self.mean:.4g}{self.doubtful}",
        }

    def _picture(self) -> Figure:
        return self.plot()

    def _table(self) -> str:
        return self.summary().html()

    @property
    def model(self) -> str:
        """Which model was measured, in words."""
        if self.client is not None:
            return f"client {self.client}'s local model"
        return "each client's local model" if self.local else "the global model"

    @property
    def heading(self) -> str:
        """Which model on which data, and of which checkpoint, in a line."""
        model = self.model if self.client is None else "the model"  # the title says whose
        apart = "" if self.consistency is None else f"; mean ‖w_i − w‖² = {self.consistency:.4g}"
        return f"{on_own_data(model)}: {self.title}{apart}"

    @property
    def largest(self) -> np.ndarray:
        """λ_max of each client, [n]."""
        return self.values[:, 0]

    @property
    def mean(self) -> float:
        """The mean of λ_max over the clients."""
        return float(self.largest.mean())

    @property
    def deviation(self) -> float:
        """The standard deviation of λ_max over the clients, √((1/n) Σ (λ_i − mean)²)."""
        return float(self.largest.std())

    @property
    def mean_error(self) -> float:
        """How far ``mean`` may be off, by the error bounds of all clients."""
        return float(self.bounds[:, 0].mean())

    @property
    def deviation_error(self) -> float:
        """How far ``deviation`` may be off: errors e_i change it by √((1/n) Σ e_i²) at most."""
        return float(np.sqrt((self.bounds[:, 0] ** 2).mean()))

    @property
    def doubtful(self) -> str:
        """How many of the clients' λ_max have not converged, to follow an error; empty where all have."""
        count = int((~self.converged[:, 0]).sum())
        return f", {count} NOT CONVERGED" if count else ""

    def to_dict(self) -> dict[str, Any]:
        """Numbers, text and lists by name; ``mean`` and ``deviation`` are of λ_max, as ``lambda_max_mean`` and
        ``lambda_max_deviation``, with their error bounds."""
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}
        plain |= {"model": self.model, "lambda_max_mean": self.mean, "lambda_max_deviation": self.deviation}
        plain |= {
            "lambda_max_mean_error_bound": self.mean_error,
            "lambda_max_deviation_error_bound": self.deviation_error,
        }
        summary: dict[str, float | None] = {"mean": self.mean, "deviation": self.deviation}
        for name, numbers in (("loss", self.losses), ("accuracy", self.accuracies)):
            summary[f"{name}_mean"] = None if numbers is None else float(numbers.mean())
            summary[f"{name}_deviation"] = None if numbers is None else float(numbers.std())
        return {**plain, **summary}

    def summary(self) -> Table:
        """Client, λ_max, error bound, loss, accuracy, samples; then means and deviations over the clients."""
        accuracies = np.full(len(self.clients), np.nan) if self.accuracies is None else self.accuracies
        rows = []
        for i, client in enumerate(self.clients):
            doubt = doubts(self.largest[i], self.converged[i, 0], None if self.noise is None else self.noise[i])
            spectrum = f"{self.largest[i]:.6g}", f"{self.bounds[i, 0]:.1e}{doubt}"
            rows.append(
                (str(client), *spectrum, f"{self.losses[i]:.4f}", _share(accuracies[i]), f"{self.samples[i]:,}")
            )
        for name, of, error in (
            ("mean, each client the same", np.mean, self.mean_error),
            ("standard deviation of the clients", np.std, self.deviation_error),
        ):
            spectrum = f"{of(self.largest):.6g}", f"{error:.1e}{self.doubtful}"
            rows.append((name, *spectrum, f"{of(self.losses):.4f}", _share(of(accuracies)), ""))
        return Table(("client", "λ_max", "error bound", "loss", "accuracy", "samples"), tuple(rows))

    def __str__(self) -> str:
        return f"{self.heading}\n{self.summary()}"

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """λ_max of each client, with the mean and a band of one deviation, for the screen or a paper; written to
        ``path`` where one is given.

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write.
        """
        from analysis.hessian.plots.clients import plot_clients
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: plot_clients([self]), path, style)


@dataclass(frozen=True, repr=False)
class ClientCurves(Shown):
    """The clients' λ_max over the rounds (Caldarola et al., ECCV 2022, fig. 4).

    Attributes:
        measured: one result for each checkpoint, by ascending round.
        left_out: the rounds of which no client could be measured, and why.
        name: of the run, in pictures and tables.
        together: beside them, where it was measured, λ_max of the global model's Hessian over ``samples`` training
            samples together, and its error bound, by round.
    """

    measured: tuple[ClientEigenvalues, ...]
    left_out: Mapping[int, str] = field(default_factory=dict)
    name: str = ""
    together: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    samples: int = 0

    def _heading(self) -> str:
        return (
            f"{self.name}: {on_own_data(self.measured[0].model)}" if self.name else on_own_data(self.measured[0].model)
        )

    def _facts(self) -> dict[str, str]:
        first, last = self.measured[0], self.measured[-1]
        return {
            "rounds": f"{len(self.measured)}, {first.round} to {last.round}",
            "clients": f"{len(self.clients):,}",
            "mean λ_max": f"{first.mean:.4g} in the first, {last.mean:.4g} in the last",
        }

    def _picture(self) -> Figure:
        return self.plot()

    def _table(self) -> str:
        return self.summary().html(self.left_out_line())

    @property
    def rounds(self) -> np.ndarray:
        """The rounds, [r]."""
        return np.array([found.round for found in self.measured])

    @property
    def clients(self) -> np.ndarray:
        """The ids of all clients that were measured in some round, ascending, [n]."""
        return np.unique(np.concatenate([found.clients for found in self.measured]))

    def table(self) -> np.ndarray:
        """λ_max, [r, n]: NaN where a client was not measured in a round (it was not sampled)."""
        clients = self.clients
        values = np.full((len(self.measured), len(clients)), np.nan)
        for row, found in zip(values, self.measured, strict=True):
            row[np.searchsorted(clients, found.clients)] = found.largest
        return values

    def to_dict(self) -> dict[str, Any]:
        """The rounds, a list of the results of each, and the rounds left out."""
        return {
            "rounds": self.rounds.tolist(),
            "measured": [found.to_dict() for found in self.measured],
            "left_out": {str(round): why for round, why in self.left_out.items()},
        }

    def summary(self) -> Table:
        """A row a round: λ_max's mean, deviation and range over the clients and its largest error bound, mean loss and
        accuracy; the global model's λ_max with its error bound where it was measured."""
        head = ["round", "clients", "λ_max: mean", "deviation of the clients", "smallest", "largest", "error bound"]
        head += ["mean loss", "mean accuracy"]
        rows = []
        for found in self.measured:
            rows.append(
                [
                    str(found.round),
                    str(len(found.clients)),
                    f"{found.mean:.6g}",
                    f"{found.deviation:.3g}",
                    f"{found.largest.min():.6g}",
                    f"{found.largest.max():.6g}",
                    f"{found.bounds[:, 0].max():.1e}{found.doubtful}",
                    f"{found.losses.mean():.4f}",
                    None if found.accuracies is None else _share(found.accuracies.mean()),
                ]
            )
            if self.together:
                value, bound = self.together.get(found.round, (None, None))
                rows[-1] += [None, None] if value is None else [f"{value:.6g}", f"{bound:.1e}"]
        head += [f"λ_max of {self.beside}", "its error bound"] if self.together else []
        return Table(tuple(head), tuple(map(tuple, rows)))

    def __str__(self) -> str:
        return self._text(str(self.summary()))

    def on_screen(self) -> str:
        """The text, its table folded to the width of a terminal."""
        return self._text(self.summary().on_screen())

    def _text(self, table: str) -> str:
        name = f"{self.name}: " if self.name else ""
        over = "means over the clients measured in a round, each client the same"
        text = f"{name}{on_own_data(self.measured[0].model)}, {over}\n{table}"
        return f"{text}\n{told}" if (told := self.left_out_line()) else text

    @property
    def beside(self) -> str:
        """What ``together`` is of, in words."""
        return f"the global model, {self.samples:,} samples together"

    def left_out_line(self) -> str:
        """Which rounds were left out, and why, in a line; empty where none was."""
        reasons: dict[str, list[int]] = {}
        for round, why in sorted(self.left_out.items()):
            reasons.setdefault(why, []).append(round)
        parts = [f"round{'s' * (len(of) > 1)} {', '.join(map(str, of))} ({why})" for why, of in reasons.items()]
        return f"left out: {'; '.join(parts)}" if parts else ""

    def plot(self, path: str | Path | None = None, style: PictureStyle | StyleName = "screen") -> Figure:
        """The mean of the clients over the rounds with a band from the smallest to the largest client, for the
        screen or a paper; written to ``path`` where one is given.

        Raises:
            FedscapeError: the file cannot be written or has a format that Matplotlib does not write.
        """
        from analysis.hessian.plots.clients import plot_client_curves
        from landscape.storage.pictures import draw_picture

        return draw_picture(lambda: plot_client_curves([self]), path, style)


def _share(accuracy: float) -> Share | None:
    return None if np.isnan(accuracy) else Share(accuracy)
