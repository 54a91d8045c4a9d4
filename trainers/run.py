"""A whole run: from settings to checkpoints."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from landscape.checkpoint import Checkpoint
from landscape.datasets import Dataset, load_dataset
from landscape.devices import resolve_device, resolve_dtype
from landscape.flat import FlatModule
from landscape.landscape import Landscape
from landscape.models import build_model
from landscape.partition import Partition, make_partition
from landscape.progress import Progress
from trainers.algorithm import Algorithm
from trainers.algorithms import algorithm_name
from trainers.directory import RunDirectory
from trainers.execution import LocalWork, SequentialExecutor
from trainers.federation import Federation
from trainers.settings import Settings

Status = Literal["finished", "diverged"]

_SAVING_SHARE = 0.05


@dataclass(frozen=True)
class Run:
    """What a run came to.

    Attributes:
        path: the run directory; its ``ckpt.pt`` is the last good model.
        status: ``finished``, or ``diverged`` where the model stopped being finite.
        metrics: one record a round, as in ``metrics.jsonl``.
    """

    path: Path
    status: Status
    metrics: list[dict[str, Any]]

    @property
    def checkpoint(self) -> Path:
        """The latest checkpoint."""
        return self.path / "ckpt.pt"


def train(
    algorithm: Algorithm,
    settings: Settings | None = None,
    *,
    out: str | Path,
    resume: bool = False,
    progress: bool = False,
) -> Run:
    """Train with one federated algorithm and write a run directory.

    Args:
        algorithm: e.g. ``FedASAM(rho=0.7)``.
        settings: what, on what, how long; the defaults are the embedded digits.
        out: the run directory.
        resume: go on from the last state of the run in ``out``; a killed run ends with the parameters of
            one that was never killed, bit for bit on one CPU.
        progress: show a progress bar on stderr.

    Raises:
        FedscapeError: settings, data or model that do not fit, a directory that cannot be written or that
            holds another run.
    """
    return _Training(algorithm, settings or Settings(), RunDirectory(out)).run(resume=resume, progress=progress)


class _Training:
    """The parts of one run, wired together."""

    def __init__(self, algorithm: Algorithm, settings: Settings, directory: RunDirectory) -> None:
        self.algorithm, self.settings, self.directory = algorithm, settings, directory
        device, dtype = resolve_device(settings.device), resolve_dtype(settings.dtype)
        self.dataset: Dataset = load_dataset(settings.data, settings.folder)
        labels = self.dataset.train.targets.numpy()
        self.partition: Partition = make_partition(settings.partition, labels, settings.clients, settings.seed)
        self.model_kwargs: dict[str, Any] = {
            "input_shape": list(self.dataset.input_shape),
            "classes": self.dataset.classes,
        }
        module = build_model(settings.model, seed=settings.seed, **self.model_kwargs)
        self.test = Landscape(module, self.dataset.test, device=device, dtype=dtype)
        self.model = FlatModule(module, device, dtype)
        local = LocalWork(
            settings.local_epochs,
            None if settings.batch_size == "full" else int(settings.batch_size),
            settings.weight_decay,
            settings.augment,
            settings.seed,
        )
        executor = SequentialExecutor(self.model, self.dataset.train.to(device), self.partition, algorithm, local)
        self.federation = Federation(algorithm, executor, settings, self.model.buffer.clone())
        self.partition_recipe = {
            "spec": settings.partition,
            "clients": settings.clients,
            "digest": self.partition.digest(),
        }

    def run(self, *, resume: bool, progress: bool) -> Run:
        """Rounds until the last one asked for."""
        settings, federation = self.settings, self.federation
        state = self.directory.open(self.algorithm, settings, resume=resume)
        if state is None:
            self.directory.save_partition(self.partition)
            initial = self.checkpoint(federation.server.w, self.evaluate())
            self.directory.save_round(initial)
            self.directory.save_latest(initial, federation.export())
        else:
            federation.restore(state)
        status: Status = "finished"
        last_save, cost = time.perf_counter(), 0.0
        title = algorithm_name(self.algorithm)
        with Progress(title, settings.rounds, done=federation.round, unit="rounds", enabled=progress) as bar:
            while federation.round < settings.rounds:
                start, good, local_models = time.perf_counter(), federation.server.w, federation.local_models
                record = asdict(federation.step())
                if not federation.finite():
                    status = "diverged"
                    self.directory.save_model(self.checkpoint(good, {}, federation.round - 1, local_models))
                    break
                number, last = federation.round, federation.round == settings.rounds
                evaluated = last or (settings.eval_every > 0 and number % settings.eval_every == 0)
                scores = self.evaluate() if evaluated else {}
                record |= scores
                record["seconds"] = time.perf_counter() - start
                self.directory.append(record)
                keep = settings.save_every > 0 and number % settings.save_every == 0
                # Saving as often as it costs little: a kill then loses little, and a big state slows nothing.
                if last or keep or cost < _SAVING_SHARE * (time.perf_counter() - last_save):
                    before = time.perf_counter()
                    checkpoint = self.checkpoint(federation.server.w, record, clients=federation.local_models)
                    if keep:
                        self.directory.save_round(checkpoint)
                    self.directory.save_latest(checkpoint, federation.export())
                    last_save = time.perf_counter()
                    cost = last_save - before
                bar.update(number, loss=record["train_loss"], **scores)
        return Run(self.directory.path, status, self.directory.metrics())

    def evaluate(self) -> dict[str, Any]:
        """Loss and accuracy of the server's model on the test set."""
        result = self.test.evaluate(self.federation.server.w)
        return {"test_loss": result.loss, "test_accuracy": result.accuracy}

    def checkpoint(
        self,
        w: Tensor,
        metrics: dict[str, Any],
        round: int | None = None,
        clients: dict[int, Tensor] | None = None,
    ) -> Checkpoint:
        """The model at ``w`` after ``round`` rounds (those done, unless given), with all that says what it is.

        ``clients`` are the local models that were averaged into it, by client id, [d] each.
        """
        settings, module = self.settings, self.model.module
        parameters = dict(module.named_parameters()) | self.model.space.unflatten(w)
        folder = settings.folder
        data_kwargs = {"data_dir": str(folder)} if folder else {}
        return Checkpoint(
            model={"name": settings.model, "kwargs": self.model_kwargs},
            data={
                "name": str(Path(settings.data).resolve()) if settings.data.endswith(".npz") else settings.data,
                "kwargs": data_kwargs,
                "partition": self.partition_recipe,
                "seed": settings.seed,
            },
            algorithm={
                "name": algorithm_name(self.algorithm),
                **self.algorithm.hyper_parameters(),
                "training": settings.recorded(),
            },
            round=self.federation.round if round is None else round,
            seed=settings.seed,
            parameters={name: p.detach().cpu().clone() for name, p in parameters.items()},
            buffers={name: b.detach().cpu().clone() for name, b in module.named_buffers()},
            metrics={name: value for name, value in metrics.items() if name != "clients"},
            clients=clients or {},
        )
