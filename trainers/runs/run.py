"""Training: a whole run, from its settings to its checkpoints."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from landscape.compute.memory import keep_freed_memory
from landscape.compute.regions import region, unit
from landscape.data.normalisation import Normalisation
from landscape.terminal.progress import Progress
from landscape.terminal.stopping import deferring
from landscape.terminal.table import Share
from trainers.algorithm import Algorithm
from trainers.algorithms import algorithm_name
from trainers.federation.privacy import guarantee, require_private, spent
from trainers.parts.parts import Parts
from trainers.ranks import finish, joined_ranks, serve
from trainers.runs.directory import RunDirectory
from trainers.runs.events import LogName, events, summary_writer
from trainers.runs.objects import RunObjects
from trainers.runs.result import Run, Status, divergence
from trainers.settings import Settings

_SAVING_SHARE = 0.05


def train(
    algorithm: Algorithm,
    settings: Settings | None = None,
    parts: Parts | None = None,
    *,
    out: str | Path,
    resume: bool = False,
    force: bool = False,
    progress: bool = False,
    protocol: str = "",
    log: LogName | None = None,
) -> Run:
    """Train with one federated algorithm and write a run directory.

    Under ``torchrun``, or in a process group, the ranks share the clients' local work; the first one writes.

    Args:
        algorithm: e.g. ``FedASAM(rho=0.7)``.
        settings: model, data, clients and rounds; the defaults train on the embedded digits.
        parts: added to the algorithm, e.g. ``Parts(ascent=SAM(0.05), swa=SWA())``.
        out: the run directory.
        resume: continue from the last state of the run in ``out``: as if it had never stopped, bit for bit on one CPU.
        force: take a directory that holds other files; those of a run's names are replaced.
        progress: show a progress bar on stderr.
        protocol: whose the settings are (:mod:`trainers.protocols`), for ``config.json``; nothing follows from it.
        log: ``tensorboard`` writes the metrics as its event files, too, into the run directory's ``tensorboard``.

    Raises:
        FedscapeError: settings, parts, data and model do not fit together; the directory cannot be written, holds
            another run, or something else; ``log`` needs a package that is not installed.
        LockedError: another process is training there.

    Example:
        >>> import tempfile
        >>> from trainers import SAM, Parts, Scaffold, Settings, train
        >>> settings = Settings(rounds=2, clients=4, per_round=2, local_steps=1, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = train(Scaffold(), settings, Parts(ascent=SAM(0.05)), out=folder)
        ...     written = run.checkpoint.exists()
        >>> run.status, written, [record["round"] for record in run.metrics]
        ('finished', True, [1, 2])
    """
    keep_freed_memory()
    settings, parts = settings or Settings(), parts or Parts()
    parts.check(algorithm)
    if parts.swa is not None:
        parts.swa.check(settings.rounds)
    require_private(parts.dp, algorithm, settings)
    if algorithm.pooled:
        settings = replace(settings, clients=1, per_round=1, sampling="exact", partition="iid")
    directory = RunDirectory(out, protocol)
    with joined_ranks(settings.device) as ranks:
        if ranks.rank:
            return _Training(algorithm, settings, parts, directory, ranks).serve()
        if log is not None:
            summary_writer()  # before the work, whether it is there
        with directory.owned(resume=resume, force=force):
            training = _Training(algorithm, settings, parts, directory, ranks)
            return training.run(resume=resume, progress=progress, log=log)


class _Training(RunObjects):
    """The rounds of one run."""

    def serve(self) -> Run:
        """On another rank than the first: share the work until that one has finished the run."""
        ended = serve(self.ranks, self.federation)
        return Run(self.directory.path, ended["status"], ended["metrics"], ended["reason"])

    def run(self, *, resume: bool, progress: bool, log: LogName | None = None) -> Run:
        """Run all rounds that are not done yet."""
        settings, federation = self.settings, self.federation
        state = self.directory.open(self.algorithm, settings, self.parts, resume=resume)
        self.directory.save_weights(federation.weights)
        if progress:
            self._announce()
        if self.test_partition is not None:
            self.directory.save_test_partition(self.test_partition)
        if state is None:
            self.directory.save_partition(self.partition)
            initial = self.checkpoint(federation.model, self.evaluate(federation.model, clients=False))
            self.directory.save_round(initial)
            self.directory.save_latest(initial, federation.export())
            federation.settle()
        else:
            federation.restore(state)
        reason: str | None = None
        last_save, cost = time.perf_counter(), 0.0
        title = algorithm_name(self.algorithm)
        with (
            Progress(title, settings.rounds, done=federation.round, unit="rounds", enabled=progress) as bar,
            events(log, self.directory.path, self.directory.metrics) as logged,
            deferring() as stop,
        ):
            while federation.round < settings.rounds:
                good = federation.model, federation.statistics, federation.local_models, federation.client_work
                record, reason = self._round()
                if reason:
                    if state is None or federation.round - 1 > state["round"]:  # else it is ckpt.pt as it is
                        w, federation.statistics, models, work = good
                        before_it = (self.directory.metrics() or [{}])[-1]
                        self.directory.save_model(self.checkpoint(w, before_it, federation.round - 1, models, work))
                    break
                number = federation.round
                self.directory.append(record)
                logged.add(record)
                last = number == settings.rounds
                keep = settings.save_every > 0 and number % settings.save_every == 0
                # Save whenever it costs little of the time since: a kill then loses few rounds.
                if last or keep or stop.asked or cost < _SAVING_SHARE * (time.perf_counter() - last_save):
                    before = time.perf_counter()
                    self._save(record, keep=keep)
                    last_save = time.perf_counter()
                    cost = last_save - before
                shown: dict[str, Any] = {"test_loss": record.get("test_loss")}
                shown |= {name: Share(record[name]) for name in ("test_accuracy", "test_miou") if name in record}
                bar.update(number, loss=record["train_loss"], **shown)
                if not last:
                    stop.now(f"after round {number}")
        status: Status = "diverged" if reason else "finished"
        self.directory.save_result(self._ended(status, reason))
        metrics = self.directory.metrics()
        finish(self.ranks, {"status": status, "reason": reason, "metrics": metrics})
        return Run(self.directory.path, status, metrics, reason)

    def _ended(self, status: Status, reason: str | None) -> dict[str, Any]:
        ended = {"status": status, "round": self.federation.round, "reason": reason}
        return ended | guarantee(self.parts.dp, self.settings, self.federation.round)

    def _round(self) -> tuple[dict[str, Any], str | None]:
        """One round: its record, with the scores where they are due, and why the run has diverged in it, if it has."""
        federation, start, exchanged = self.federation, time.perf_counter(), self.ranks.bytes
        with unit("round", self.model.device, self.settings.dtype):
            record = asdict(federation.step()) | spent(self.parts.dp, self.settings, federation.round)
            if reason := divergence(federation, record):
                return record, reason
            before = time.perf_counter()
            with region("evaluation"):
                record |= self._scores(federation.round)
        record["seconds_evaluation"] = time.perf_counter() - before
        record["seconds"] = time.perf_counter() - start
        if self.ranks.world > 1:
            record |= {"ranks": self.ranks.world, "bytes_between_ranks": self.ranks.bytes - exchanged}
        return record, None

    def _announce(self) -> None:
        """Tell on stderr what is trained and how."""
        print(self._in_a_line(), file=sys.stderr)
        print(f"the inputs of {self.dataset.name} are {Normalisation.of(self.dataset)}", file=sys.stderr)
        print(self.federation.weights.describe(), self.choice, sep="\n", file=sys.stderr)
        if self.ranks.world > 1:
            print(f"{self.ranks.world} ranks, CPU threads of each: {torch.get_num_threads()}", file=sys.stderr)
        if self.federation.store.peak_memory:
            print(self.federation.store.describe(), file=sys.stderr)

    def _in_a_line(self) -> str:
        s, dp = self.settings, self.parts.dp
        private = "" if dp is None else "\n" + dp.told(s.rounds, s.per_round / s.clients)
        return (
            f"{algorithm_name(self.algorithm)} on {s.data}: {s.model}, {self.model.space.dimension:,} parameters; "
            f"{s.clients} clients by {s.partition}, {s.per_round} a round, {s.rounds} rounds{private}"
        )

    def _scores(self, number: int) -> dict[str, Any]:
        settings = self.settings
        last = number == settings.rounds

        def due(every: int) -> bool:
            return every > 0 and (last or number % every == 0)

        if not (last or due(settings.eval_every) or due(settings.client_accuracy)):
            return {}
        scores = self.evaluate(self.federation.model, clients=due(settings.client_accuracy))
        averaged = self.federation.averaged.value
        if averaged is not None:
            of_mean = self.evaluate(averaged, clients=False, averaged=True)
            scores |= {f"swa_{name}": value for name, value in of_mean.items()}
        return scores

    def _save(self, record: dict[str, Any], *, keep: bool) -> None:
        """Write the model and the state to go on from; with ``keep`` the model once more, as the round's."""
        federation = self.federation
        checkpoint = self.checkpoint(federation.model, record, None, federation.local_models, federation.client_work)
        if keep:
            self.directory.save_round(checkpoint)
        self._save_averaged()
        self.directory.save_latest(checkpoint, self.federation.export())
        self.federation.settle()

    def _save_averaged(self) -> None:
        w = self.federation.averaged.value
        if w is not None:
            metrics = self.evaluate(w, clients=False, averaged=True)
            self.directory.save_averaged(self.checkpoint(w, metrics, averaged=True))
