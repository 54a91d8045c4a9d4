"""What was measured of one round: its parts, and means over the clients with their errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy

from analysis.alignment.curvature import Curvature
from analysis.alignment.gradients import Gradients
from analysis.alignment.local_models import LocalModels
from analysis.alignment.options import OF_THE_RUN, PARTS
from analysis.alignment.perturbations import USED_TITLES, Perturbations, UsedPerturbations, share_error
from analysis.alignment.sampling import Mean, mean_over_clients, mean_over_pairs

TITLES = {
    "loss": "loss of the federation, f(w)",
    "gradient_cosine": "cosine of the gradients of two clients",
    "gradient_cosine_with_global": "cosine of a client's gradient and ∇f",
    "gradient_along_global": "share of ‖∇f_i‖² along ∇f",
    "own_gain": "rise of f_i by client i's own ascent step",
    "gain_of_others": "rise of f_j by another client's ascent step",
    "global_gain": "rise of f by one client's ascent step",
    "worst_gain": "rise of f by its own ascent step",
    "worst_case_found": "share of that rise which the clients' mean step finds",
    "worst_case_found_lengthened": "the same, the mean step lengthened to ρ",
    "lambda_max": "λ_max of f_i at w",
    "lambda_max_global": "λ_max of f at w",
    "overlap": "overlap of two clients' top-K eigenspaces",
    "overlap_with_global": "overlap of a client's top-K eigenspace and f's",
    "curvature_carried": "share of f's top-K curvature in a client's eigenspace",
    "heterogeneity": "E‖(H_i − H)v‖² / E‖Hv‖²",
    "barrier_to_aggregate": "barrier of f from a local model to the aggregate",
    "barrier_between": "barrier of f between two local models",
    "distance_to_aggregate": "‖w_i − w⁺‖",
}
"""What the quantities of :meth:`RoundAlignment.quantities` are; those of the four ways say it by their names."""
_FOUR = {
    "own_received": "f_i at the received w",
    "own_local": "f_i at its own w_i",
    "own_aggregate": "f_i at the aggregate w⁺",
    "global_received": "f at the received w",
    "global_local": "f at a client's w_i",
    "global_aggregate": "f at the aggregate w⁺",
}
_WHAT = ("loss", "accuracy", "rise by one ascent step", "λ_max", "trace")
_SHORT = ("loss", "accuracy", "sharpness", "lambda_max", "trace")
TITLES |= USED_TITLES
TITLES |= {f"{short}_{way}": f"{what} of {told}" for short, what in zip(_SHORT, _WHAT, strict=True)
           for way, told in _FOUR.items()}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """A mean over clients with both of its errors.

    Attributes:
        name: of :data:`TITLES`.
        mean: the mean, its range over the clients, and its standard error where some clients were measured.
        error: what the mean may be off by its measurement: bounds of eigenvalues and eigenspaces, standard errors of
            probes, roundings of gains; 0 where it is exact but for the rounding of one evaluation.
    """

    name: str
    mean: Mean
    error: float

    @property
    def title(self) -> str:
        """What it is."""
        return TITLES[self.name]


@dataclass(frozen=True)
class RoundAlignment:
    """One round: n clients of N.

    Attributes:
        round: completed rounds of the model.
        clients: the measured ones.
        population: N.
        weighted: what the p_i are, in words (:func:`analysis.alignment.opening.open_round`).
        shares: p̃_i, their weights among themselves, [n].
        histograms: their samples by class, empty without classes.
        local_clients: those whose local models were measured.
        used_clients: those whose used perturbations were.
        gradients, perturbations, used, curvature, local: the parts; ``None`` where not asked for or not to be had.
        missing: what cannot be had, and why.
        digest: of the model (:meth:`landscape.Checkpoint.digest`).
    """

    round: int
    clients: tuple[int, ...]
    population: int
    weighted: str
    shares: np.ndarray
    histograms: list[list[int]]
    local_clients: tuple[int, ...]
    used_clients: tuple[int, ...]
    gradients: Gradients | None
    perturbations: Perturbations | None
    used: UsedPerturbations | None
    curvature: Curvature | None
    local: LocalModels | None
    missing: dict[str, str]
    digest: str = ""

    def order(self) -> tuple[np.ndarray, str]:
        """The clients' places in an order that puts alike ones side by side, [n], and by what: their labels, or the
        cosines of their gradients, by average linkage; else their ids."""
        n = len(self.clients)
        if n < 3:
            return np.arange(n), "by id"
        if self.histograms:
            mixes = np.array(self.histograms, dtype=float)
            mixes /= mixes.sum(axis=1, keepdims=True)
            apart = np.abs(mixes[:, None] - mixes[None]).sum(axis=2) / 2
            by = "clustered by label mix"
        elif self.gradients is not None and np.isfinite(self.gradients.cosines).all():
            apart = 1 - self.gradients.cosines
            by = "clustered by the cosine of gradients"
        else:
            return np.arange(n), "by id"
        apart = np.clip((apart + apart.T) / 2, 0.0, None)
        upper = apart[np.triu_indices(n, 1)]
        links = scipy.cluster.hierarchy.linkage(upper, "average", optimal_ordering=n <= 200)
        return scipy.cluster.hierarchy.leaves_list(links), by

    def quantities(self) -> list[Quantity]:
        """Every mean over the clients, with its errors."""
        return [*self._first_order(), *self._of_used(), *self._second_order(), *self._of_local_models()]

    def _clients(self, name: str, values: np.ndarray, error: float = 0.0) -> Quantity:
        return Quantity(name, mean_over_clients(values, self.shares, self.population), error)

    def _pairs(self, name: str, matrix: np.ndarray, error: float = 0.0) -> Iterator[Quantity]:
        if len(matrix) > 1:
            yield Quantity(name, mean_over_pairs(matrix, self.population), error)

    def _first_order(self) -> Iterator[Quantity]:
        if (g := self.gradients) is not None:
            yield _exact("loss", g.loss)
            yield from self._pairs("gradient_cosine", g.cosines)
            yield self._clients("gradient_cosine_with_global", g.with_global)
            yield self._clients("gradient_along_global", g.along_global)
        if (p := self.perturbations) is not None:
            yield self._clients("own_gain", np.diag(p.gains), p.rounding)
            yield from self._pairs("gain_of_others", (p.gains + p.gains.T) / 2, p.rounding)
            yield self._clients("global_gain", p.global_gains, p.rounding)
            yield _exact("worst_gain", p.worst, p.rounding)
            off = share_error(p.found, p.worst, p.rounding)
            found = replace(Mean.exact(p.found), stderr=p.found_stderr, count=len(self.clients))
            yield Quantity("worst_case_found", found, off)
            yield _exact("worst_case_found_lengthened", p.lengthened_found, off)

    def _of_used(self) -> Iterator[Quantity]:
        if (found := self.used) is None:
            return
        shares = self.shares[[self.clients.index(client) for client in self.used_clients]]
        for name, values, error in found.of_clients():
            yield Quantity(name, mean_over_clients(values, shares, self.population), error)
        for name, value, stderr, error in found.of_all(self.population):
            yield Quantity(name, replace(Mean.exact(value), stderr=stderr, count=len(self.used_clients)), error)

    def _second_order(self) -> Iterator[Quantity]:
        if (c := self.curvature) is None:
            return
        off = ~np.eye(len(self.clients), dtype=bool)
        yield self._clients("lambda_max", c.values[:, 0], float(self.shares @ c.bounds[:, 0]))
        yield _exact("lambda_max_global", c.global_values[0], c.global_bounds[0])
        yield from self._pairs("overlap", c.overlaps, float(c.overlap_errors[off].mean()) if off.any() else 0.0)
        yield self._clients("overlap_with_global", c.with_global, float(self.shares @ c.with_global_errors))
        yield self._clients("curvature_carried", c.carried, float(self.shares @ c.carried_errors))
        yield self._clients("heterogeneity", c.heterogeneity, c.mean_heterogeneity_error)

    def _of_local_models(self) -> Iterator[Quantity]:
        if (found := self.local) is None:
            return
        places = [self.clients.index(client) for client in self.local_clients]
        shares, sound = self.shares[places], found.diverged == 0
        for i, short in enumerate(_SHORT):
            for k, way in enumerate(_FOUR):
                of, errors = (found.own, found.own_errors) if k < 3 else (found.everybody, found.everybody_errors)
                values = np.where(sound, of[:, k % 3, i], np.nan)
                if not np.isfinite(values).any():
                    continue
                q = np.where(np.isfinite(values), shares, 0.0)
                q = q / q.sum()
                error = float(q @ np.nan_to_num(errors[:, k % 3, i]))  # the same probes: errors may all be alike
                name = f"{short}_{way}"
                if k in (3, 5):  # one number of f, the same for every client
                    yield _exact(name, float(values[np.isfinite(values)][0]), error)
                else:
                    yield Quantity(name, mean_over_clients(values, shares, self.population), error)
        yield Quantity("barrier_to_aggregate", mean_over_clients(found.to_aggregate, shares, self.population), 0.0)
        if np.isfinite(found.between).any():
            yield Quantity("barrier_between", mean_over_pairs(found.between, self.population), 0.0)
        yield Quantity("distance_to_aggregate", mean_over_clients(found.distances[:, 1], shares, self.population), 0.0)

    @property
    def diverged(self) -> tuple[int, ...]:
        """The clients whose local models or losses are not finite: reported, and in no mean."""
        if self.local is None:
            return ()
        return tuple(c for c, bad in zip(self.local_clients, self.local.diverged, strict=True) if bad)

    def notes(self) -> list[str]:
        """Weights that are not the run's, what cannot be had, who is in no mean, and what has not converged."""
        lines = [] if self.weighted == OF_THE_RUN else [f"the weights p_i are {self.weighted}"]
        lines += [f"not measured at round {self.round}: {what}: {why}" for what, why in self.missing.items()]
        at_it = any(part is not None for part in (self.gradients, self.perturbations, self.curvature, self.local))
        if at_it and len(self.clients) < self.population and set(self.clients) & set(self.local_clients):
            lines.append(
                f"the model of round {self.round} was just trained by some of the measured clients: at it they are no "
                "random draw of all, as the standard errors of the means take them for (--clients all, or others)"
            )
        if self.diverged:
            lines.append(f"diverged at round {self.round}, and in no mean: client {', '.join(map(str, self.diverged))}")
        if self.used is not None and not self.used.lengths.any():
            lines.append(f"every perturbation that was used in round {self.round} is 0: it has no direction")
        if self.curvature is not None:
            short = int((self.curvature.converged == 0).sum() + (self.curvature.global_converged == 0).sum())
            lines += [f"{short} eigenvalues at round {self.round} have NOT CONVERGED"] if short else []
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists by name."""
        parts = {name: getattr(self, name) for name in PARTS}
        order, by = self.order()
        return {
            "round": self.round,
            "model_digest": self.digest,
            "notes": self.notes(),
            "clients": list(self.clients),
            "clients_with_data": self.population,
            "weights": self.weighted,
            "weights_among_measured": self.shares.tolist(),
            "samples_by_class": self.histograms,
            "order": [self.clients[i] for i in order],
            "ordered": by,
            "local_models_of": list(self.local_clients),
            "used_perturbations_of": list(self.used_clients),
            "diverged": list(self.diverged),
            "not_measured": self.missing,
            "means": {q.name: {**asdict(q.mean), "measurement_error": q.error} for q in self.quantities()},
            **{name: part.to_dict() for name, part in parts.items() if part is not None},
        }


def _exact(name: str, value: float, error: float = 0.0) -> Quantity:
    return Quantity(name, Mean.exact(float(value)), float(error))
