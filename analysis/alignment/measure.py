"""Measure how the clients' losses lie to one another and to the federation's, over the rounds of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from analysis.alignment.cost import announce, expected_work
from analysis.alignment.curvature import Curvature, compare_curvature
from analysis.alignment.gradients import Gradients, compare_gradients
from analysis.alignment.local_models import LocalModels, compare_local_models
from analysis.alignment.opening import OpenedRound, Who, open_round, rounds_to_measure
from analysis.alignment.options import Asked
from analysis.alignment.perturbations import Perturbations, UsedPerturbations, cross_gains, measure_used, used_work
from analysis.alignment.plain import Plain
from analysis.alignment.results import Alignment, RunAlignment
from analysis.alignment.rounds import RoundAlignment
from analysis.alignment.state import Kept, opened_state
from analysis.arguments import grouped
from analysis.kept import key_of
from analysis.source import Place
from landscape import FedscapeError
from landscape.checkpoints.foreign import file_and_client
from landscape.compute.cost import threads_for
from landscape.several import several
from landscape.terminal.progress import Progress
from landscape.version import versions

P = TypeVar("P", bound=Plain)
_DECIDES = {
    "gradients": (),
    "perturbations": ("rho", "ascent", "eta"),
    "used": ("rho", "ascent", "eta"),
    "curvature": ("top", "probes", "tolerance", "seed"),
    "local": (
        *("rho", "ascent", "eta", "tolerance", "trace_tolerance", "trace_probes", "seed"),
        *("barrier_points", "barrier_pairs"),
    ),
}
"""The options that decide each part's numbers."""
_OF_A_STEP = 4 * 64
"""Operations for each coordinate in a Lanczos step, as :mod:`analysis.hessian.measure` counts them."""


def measure_alignment(
    runs: Sequence[str | Path] | str | Path,
    clients: Who = "sampled",
    *,
    rounds: bool = False,
    asked: Asked | None = None,
    place: Place | None = None,
    state: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> Alignment:
    """How the clients' losses f_i lie to one another and to f = Σ p_i f_i, at the global models of training runs.

    Gradients, ascent steps and Hessians are compared at the model w that a round ended with; the local models w_i of
    the round against the model before it and w.  f is over all clients of the run, whoever is measured; the p_i are
    those of the run's objective (``weights.json``), unless ``weights="samples"`` asks for others.  Models with
    BatchNorm are measured with the global statistics.

    Under ``torchrun`` every rank makes the same call and gets the same result: passes over data are divided by samples,
    eigen-solves and lines by clients.

    Args:
        runs: run directories, or checkpoints in them; one or several.
        clients: ``sampled``: those whose local models the round kept (``--save-clients``), else all; ``all``; or ids.
        rounds: every round that a run kept, instead of its last.
        asked, place: what is measured and how exactly; the model, the data and the device.  ``samples`` is at most so
            many of each client's samples.
        state: a file to keep measured parts in; after a kill the same call continues there.
        progress: say how much work there is, and show progress on stderr.
        options: any option of ``asked`` and ``place`` by its name.

    Raises:
        FedscapeError: what :func:`analysis.alignment.opening.open_round` raises; nothing could be measured of a run;
            options that make no sense.
        LockedError: another process keeps its measurements in the same file.
        TypeError: an option that there is not.
    """
    asked, place = grouped("measure_alignment", options, (asked or Asked(), place or Place()))
    given: list[str | Path] = several(runs)
    paths = [Path(run) for run in given]
    if not paths:
        raise FedscapeError("no run is given: give at least one")
    for path in paths:
        if file_and_client(path)[1] is not None:
            raise FedscapeError(f"{path} is a client's local model: give the run, whose local models are measured")
    files = [(path, rounds_to_measure(path, rounds)) for path in paths]
    count = sum(len(some) for _, some in files)
    with opened_state(state) as kept, Progress("alignment", count, unit="rounds", enabled=progress) as bar:
        found = []
        done = 0
        machine = ("", "")
        for path, some in files:
            opened = []
            left_out: dict[int, str] = {}
            title = ""
            for file in some:
                one = open_round(file, clients, place, asked.weights)
                if progress and done == 0:
                    _announce(one, asked, count)
                machine = (str(one.federation.whole.device), one.federation.whole.precision)
                title = one.checkpoint.label
                part = one.federation.clients[0]
                try:
                    with threads_for(max(part.micro_batches.flops, _OF_A_STEP * part.dimension)):
                        opened.append(_Round(one, asked, kept, bar, done).measure())
                except _NotFinite as error:
                    left_out[one.checkpoint.round] = str(error)
                done += 1
                bar.update(done)
            if not opened:
                raise FedscapeError(f"{path}: nothing can be measured: {next(iter(left_out.values()))}")
            opened.sort(key=lambda one: one.round)
            found.append(RunAlignment(title, str(path), tuple(opened), left_out))
    return Alignment(tuple(_told_apart(found)), asked, *machine)


class _NotFinite(FedscapeError):
    """A global model whose loss is not finite."""


@dataclass
class _Round:
    """One round, of which parts may have been measured before."""

    opened: OpenedRound
    asked: Asked
    kept: Kept
    bar: Progress
    done: int

    def measure(self) -> RoundAlignment:
        """Measure what is asked for and can be had.

        Raises:
            _NotFinite: the loss at the global model is not finite.
        """
        opened, asked = self.opened, self.asked
        federation, w = opened.federation, opened.weights
        if not bool(w.isfinite().all()):
            raise _NotFinite("the global model is not finite")
        here, loss, accuracy = federation.evaluate(w)
        losses = np.array([one.loss for one in here]), loss
        if not np.isfinite(loss):
            raise _NotFinite(f"the loss of the global model is {loss}")
        slopes = None

        def gradients() -> Gradients:
            nonlocal slopes
            slopes = federation.gradients(w)
            accuracies = [float("nan") if one.accuracy is None else one.accuracy for one in here]
            shares = float("nan") if accuracy is None else accuracy
            return compare_gradients(*slopes, losses, (np.array(accuracies), shares))

        def perturbations() -> Perturbations:
            return cross_gains(federation, w, losses, *(slopes or federation.gradients(w)), asked, self._told)

        lengths = {"n": len(federation.measured)}
        found: dict[str, Any] = {
            "gradients": self._part("gradients", Gradients, lengths, gradients),
            "perturbations": self._part("perturbations", Perturbations, lengths, perturbations),
            "used": self._used(),
            "curvature": self._part(
                "curvature", Curvature, lengths | {"k": asked.top},
                lambda: compare_curvature(federation, w, asked, self._told),
            ),
            "local": self._local(),
        }  # fmt: skip
        return RoundAlignment(
            round=opened.checkpoint.round,
            clients=federation.measured,
            population=federation.population,
            weighted=opened.weighted,
            shares=federation.shares,
            histograms=opened.histograms,
            local_clients=tuple(opened.local),
            used_clients=() if opened.used is None else tuple(opened.used.steps),
            **found,
            missing={what: why for what, why in opened.missing.items() if self._concerns(what)},
            digest=opened.checkpoint.digest(),
        )

    def _concerns(self, missing: str) -> bool:
        """Whether something that cannot be had was asked for."""
        if missing == "sampled":
            return True
        return ("used" if missing.startswith("used") else "local") in self.asked.parts

    def _used(self) -> UsedPerturbations | None:
        opened = self.opened
        if opened.used is None or opened.received is None:
            return None
        used, received = opened.used, opened.received
        federation, steps = replace(opened.federation, measured=tuple(used.steps)), torch.stack([*used.steps.values()])
        return self._part(
            "used",
            UsedPerturbations,
            {"n": len(steps)},
            lambda: measure_used(federation, received, steps, used.server, self.asked, self._told),
        )

    def _local(self) -> LocalModels | None:
        opened = self.opened
        if not opened.local:
            return None
        federation = replace(opened.federation, measured=tuple(opened.local))
        return self._part(
            "local",
            LocalModels,
            {"n": len(opened.local)},
            lambda: compare_local_models(
                federation, opened.received, list(opened.local.values()), opened.weights, self.asked, self._told
            ),
        )

    def _part(self, name: str, kind: type[P], lengths: dict[str, int], measure: Callable[[], P]) -> P | None:
        """A part as it was measured before, or now."""
        asked, whole = self.asked, self.opened.federation.whole
        if name not in asked.parts:
            return None
        decides = {option: getattr(asked, option) for option in _DECIDES[name]}
        if name == "local":
            decides["curvature"] = "curvature" in asked.parts
        arithmetic = [str(whole.device), whole.precision, versions()]
        key = key_of([name, self.opened.digest, self.opened.federation.measured, decides, arithmetic])
        before = self.kept.get(key, kind, lengths)
        if before is not None:
            return before
        self._doing = name
        part = measure()
        self.kept.put(key, part)
        return part

    _doing = ""

    def _told(self, clients: int) -> None:
        self.bar.update(self.done, part=self._doing, clients=clients)


def _announce(opened: OpenedRound, asked: Asked, rounds: int) -> None:
    federation = opened.federation
    one = expected_work(federation, len(opened.local), opened.received is not None, asked)
    if (used := opened.used) is not None and "used" in asked.parts:
        one += used_work(len(used.steps), used.server is not None, used.elsewhere)
    announce(one * rounds, federation, rounds, f"{len(federation.measured)} of {federation.population} clients")


def _told_apart(runs: Sequence[RunAlignment]) -> list[RunAlignment]:
    """With the names of their folders where several have the same label."""
    labels = [run.label for run in runs]
    named = [run if labels.count(run.label) == 1 else replace(run, label=f"{run.label} ({Path(run.path).name})")
             for run in runs]  # fmt: skip
    twice = [run.label for run in named]
    return [run if twice.count(run.label) == 1 else replace(run, label=run.path) for run in named]
