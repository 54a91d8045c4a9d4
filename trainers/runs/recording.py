"""Recording of a training loop that is not ours, in a run directory that everything here reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np

from landscape.checkpoints.checkpoint import Checkpoint
from landscape.data.normalisation import normalised, recorded
from landscape.datasets import load_dataset, recorded_name
from landscape.errors import FedscapeError
from landscape.models import build_model
from landscape.models.outputs import require_outputs
from landscape.partitions.partition import Partition
from landscape.storage.files import json_ready, make_directory, write_json
from landscape.storage.schema import require
from landscape.version import versions
from trainers.federation.weights import ClientWeights, objective_weights
from trainers.runs.directory import RunDirectory
from trainers.runs.recorder import Callback, Recipe, Recorder, number
from trainers.runs.stored import CONFIG
from trainers.settings import Weighting


@contextmanager
def recording(
    out: str | Path,
    *,
    model: str,
    data: str,
    data_dir: str | Path | None = None,
    normalise: str | None = None,
    name: str = "own loop",
    settings: Mapping[str, Any] | None = None,
    partition: Partition | Sequence[Sequence[int]] | None = None,
    weights: Weighting | Sequence[float] | None = None,
    every: int = 0,
    callback: Callback | None = None,
    evaluate: bool = True,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
) -> Iterator[Recorder]:
    """Record a training loop of one's own: checkpoints and metrics as those of :func:`trainers.train`.

    ``hessian``, ``surface``, ``compare``, ``runs`` and :func:`figures.open_run` then read the run directory.

    Args:
        out: the run directory.
        model: the network's name, a registered one or ``package.module:callable``, by which its checkpoints are built
            again.
        data: the data set: a registered name, an ``.npz`` file or ``package.module:callable``.
        data_dir: the folder of the data set's own folder.
        normalise: what the inputs are normalised by (``--normalise``); the data set's own unless given.
        name: what tables and legends call the loop.
        settings: numbers and texts to record, such as ``{"lr": 0.1, "batch_size": 32}``.
        partition: the samples of each client, for a federated loop.
        weights: each client's weight p_i in what the loop minimises, F = Σ p_i f_i, for ``weights.json``, which
            ``alignment`` reads: ``samples`` where it weights clients by their numbers of samples, ``uniform`` where all
            count alike, or numbers in proportion; unless given they are not known, and there is no such file.
        every: steps between two kept models (``rounds/NNNNN.pt``); 0: the last one alone (``ckpt.pt``).
        callback: measures more of each kept model; it must leave the model as it is.
        evaluate: measure test loss and accuracy (and mIoU of a segmentation) of kept models whose step does not come
            with them.
        seed: to record.
        resume: go on after the last kept model (:meth:`Recorder.restore`); later records are dropped.
        force: take a directory that holds other files.

    Raises:
        FedscapeError: model or data cannot be loaded or do not fit together; the weights are not those of the
            partition's clients; the directory holds something else, or another run; a setting is no plain value.
        LockedError: another process records there.

    Example:
        >>> import tempfile, torch
        >>> from landscape import build_model, load_dataset
        >>> from trainers import recording
        >>> digits = load_dataset("digits")
        >>> net = build_model("digits_mlp", seed=0, input_shape=digits.input_shape, classes=10)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> x, y = digits.train.batch(slice(0, 64), torch.float32)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with recording(folder, model="digits_mlp", data="digits", every=2) as record:
        ...         for step in range(1, 5):
        ...             loss = torch.nn.functional.cross_entropy(net(x), y)
        ...             optimizer.zero_grad()
        ...             loss.backward()
        ...             optimizer.step()
        ...             told = record(net, step, loss=loss, lr=0.1)
        ...     files = sorted(path.name for path in (record.path / "rounds").iterdir())
        >>> sorted(told), files
        (['lr', 'round', 'seconds', 'test_accuracy', 'test_loss', 'train_loss'], ['00002.pt', '00004.pt'])
    """
    if every < 0:
        raise FedscapeError(f"every is {every}: give the steps between two kept models, or 0 for the last one alone")
    dataset = normalised(load_dataset(data, data_dir), normalise)
    kwargs: dict[str, Any] = {"input_shape": list(dataset.input_shape), "classes": dataset.classes}
    module = build_model(model, seed=seed, **kwargs)
    require_outputs(module, dataset.task, dataset.classes, dataset.train)
    clients = _partition(partition)
    p = _client_weights(weights, clients)
    told = {"model": model, "data": recorded_name(data), "seed": seed, "normalise": normalise or "auto"}
    told |= {} if clients is None else {"partition": "own", "clients": len(clients)}
    told |= {} if p is None else {"client_weights": weights if isinstance(weights, str) else p.objective.tolist()}
    told |= {} if data_dir is None else {"data_dir": str(data_dir)}
    config = json_ready({"algorithm": {"name": name}, "parts": {}, "settings": {**(settings or {}), **told}})
    require(config, CONFIG, "the settings")
    recipe = Recipe(
        {"name": model, "kwargs": kwargs},
        {
            "name": recorded_name(data),
            "kwargs": {} if data_dir is None else {"data_dir": str(data_dir)},
            "partition": None
            if clients is None
            else {"spec": "own", "clients": len(clients), "digest": clients.digest()},
            "seed": seed,
            "task": dataset.task,
            "normalisation": recorded(dataset),
        },
        {"name": name, "training": config["settings"]},
        seed,
    )
    directory = RunDirectory(out)
    with directory.owned(resume=resume, force=force):
        recorder = Recorder(directory, recipe, dataset.test if evaluate else None, module, every, callback)
        recorder.step = _opened(directory, config)
        if clients is not None:
            directory.save_partition(clients)
        if p is not None:
            directory.save_weights(p)
        try:
            yield recorder
            recorder.close()
        finally:
            recorder.release()


def _opened(directory: RunDirectory, config: dict[str, Any]) -> int:
    """Prepare the directory; the step to go on after.

    Raises:
        FedscapeError: it holds another run.
    """
    if (directory.path / "config.json").exists():
        earlier = directory.config()
        differing = [part for part in ("algorithm", "settings") if earlier.get(part) != config[part]]
        if differing:
            raise FedscapeError(
                f"{directory.path} holds another run, which differs in its {' and '.join(differing)}: give the same to "
                "resume it, or another folder"
            )
    make_directory(directory.path / "rounds")
    (directory.path / "result.json").unlink(missing_ok=True)
    write_json(directory.path / "config.json", {**config, "versions": versions()})
    file = directory.path / "ckpt.pt"
    step = Checkpoint.load(file).round if file.exists() else 0
    directory.cut_metrics(step)
    return step


def _partition(given: Partition | Sequence[Sequence[int]] | None) -> Partition | None:
    if given is None or isinstance(given, Partition):
        return given
    return Partition(tuple(np.asarray(indices, dtype=np.int64) for indices in given))


def _client_weights(given: Weighting | Sequence[float] | None, clients: Partition | None) -> ClientWeights | None:
    """p_i of a loop's objective; what a round's mean has on average is the loop's own.

    Raises:
        FedscapeError: they are not those of the clients.
    """
    if given is None:
        return None
    if clients is None or not clients.sizes.any():
        raise FedscapeError("clients' weights are given without their samples: give partition, too")
    if isinstance(given, str):
        if given not in get_args(Weighting):
            raise FedscapeError(f"the clients' weights are {given!r}: give samples, uniform, or a number for each")
        return ClientWeights(objective_weights(clients.sizes.tolist(), given), None)
    p = np.array([number("a client's weight", weight) for weight in given])
    if len(p) != len(clients):
        raise FedscapeError(
            f"there are {len(p)} weights, and the partition has {len(clients)} clients: give one for each"
        )
    if not (np.isfinite(p).all() and (p >= 0).all() and p.any()):
        raise FedscapeError("the clients' weights are not finite numbers of 0 or more, some above 0: give such")
    if idle := [i for i, size in enumerate(clients.sizes) if p[i] > 0 and not size]:
        raise FedscapeError(f"client {idle[0]} has the weight {p[idle[0]]:g} and no samples: give it the weight 0")
    return ClientWeights(p / p.sum(), None)
