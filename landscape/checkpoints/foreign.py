"""Weights of other programs: a state dict becomes a :class:`Checkpoint` by naming its model and data.

The formats are ``torch.save(model.state_dict(), ...)``, a state dict under a key such as ``state_dict`` or ``model``,
and ``.safetensors`` (package ``safetensors``).  None of them can run code: torch's files are read with
``weights_only=True``, and safetensors hold nothing but tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from landscape.checkpoints.checkpoint import UNKNOWN, Checkpoint
from landscape.checkpoints.fitting import fitted, listed, state_tensors
from landscape.data.loaders import data_named
from landscape.data.normalisation import Normalisation, normalised, recorded
from landscape.datasets import Dataset, load_dataset
from landscape.errors import FedscapeError
from landscape.models import build_model
from landscape.models.outputs import require_outputs
from landscape.storage.files import RunsCodeError, load_torch
from landscape.storage.limits import read_bytes
from landscape.storage.plain import require_plain
from landscape.storage.schema import printable
from landscape.terminal.notices import notice

WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
"""Keys under which training scripts save the state dict."""


def open_checkpoint(
    path: str | Path | Checkpoint,
    model: str | None = None,
    data: str | None = None,
    data_dir: str | Path | None = None,
    normalise: str | None = None,
    key: str | None = None,
    loader: str | None = None,
) -> Checkpoint:
    """Open a Fedscape checkpoint, or make a checkpoint of the weights of another program.

    A state dict does not name its model and data, so the user must; ``input_shape`` and ``classes`` of the model
    are those of the data set.  Half-precision weights become float32, which represents them exactly.

    Args:
        path: a file, or a run directory for its ``ckpt.pt``; ``FILE@ID``: the local model of client ID in it (training
            with ``--save-clients``), unless a file has that very name.  A loaded checkpoint is returned as it is.
        model: the network of the weights, a registered name or ``package.module:callable``.
        data: the data set to measure it on: a registered name, a ``.npz`` file or ``package.module:callable``.
        data_dir: the folder that holds the data set's own folder.
        normalise: what the inputs were normalised by (:func:`landscape.data.normalisation.normalised`), which such a
            file does not say; that of the data set unless given.  Which it is, a line on stderr tells.
        key: the name under which a file holds the state dict, with dots where it is nested (``ema.model``).
        loader: a pipeline in place of ``data``: ``package.module:callable`` (:func:`landscape.data.loaders.loaded`).

    For the global model of a Fedscape checkpoint, all but ``path`` is not used: these are arguments of
    :meth:`Checkpoint.build_model` and :meth:`Checkpoint.load_dataset`.

    Raises:
        FedscapeError: the file cannot be read, would run code or holds no weights; ``model`` or ``data`` is missing or
            cannot be loaded; the weights do not fit the model; the file holds no local model of the client.
    """
    return opened(path, model, data, data_dir, normalise, key, loader)[0]


def opened(
    path: str | Path | Checkpoint,
    model: str | None = None,
    data: str | None = None,
    data_dir: str | Path | None = None,
    normalise: str | None = None,
    key: str | None = None,
    loader: str | None = None,
) -> tuple[Checkpoint, Dataset | None]:
    """:func:`open_checkpoint`, and the data set if it was loaded to get the model's shapes."""
    if isinstance(path, Checkpoint):
        return path, None
    client = file_and_client(path)[1]
    checkpoint, dataset = _opened(checkpoint_file(path), model, data_named(data, loader), data_dir, normalise, key)
    return checkpoint if client is None else checkpoint.of_client(client, model), dataset


def file_and_client(subject: str | Path) -> tuple[Path, int | None]:
    """``FILE@ID`` as the file and the id; any other name, and that of a file that there is, as it is.

    Example:
        >>> from landscape.checkpoints.foreign import file_and_client
        >>> [(file.as_posix(), client) for file, client in map(file_and_client, ("rounds/00006.pt@3", "me@home.pt"))]
        [('rounds/00006.pt', 3), ('me@home.pt', None)]
    """
    file, at, client = str(subject).rpartition("@")
    if file and at and client.isascii() and client.isdigit() and not Path(subject).exists():
        return Path(file), int(client)
    return Path(subject), None


def checkpoint_file(subject: str | Path) -> Path:
    """The file that a checkpoint's name stands for: a run directory is its ``ckpt.pt``, ``@ID`` is left out.

    Raises:
        FedscapeError: a directory without one.
    """
    file = file_and_client(subject)[0]
    if not file.is_dir():
        return file
    if not (file / "ckpt.pt").exists():
        raise FedscapeError(f"{file} is a directory without ckpt.pt: give a checkpoint file, or a run directory")
    return file / "ckpt.pt"


def _opened(
    path: Path,
    model: str | None,
    data: str | None,
    data_dir: str | Path | None,
    normalise: str | None,
    key: str | None,
) -> tuple[Checkpoint, Dataset | None]:
    """:func:`opened` of a file."""
    contents = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    if isinstance(contents, dict) and _is_native(contents):
        if key is not None:
            raise FedscapeError(f"{path} is a Fedscape checkpoint, whose parameters have their place: leave out --key")
        return Checkpoint.of_contents(contents, path), None
    state = _state_dict(contents, path) if key is None else _state_dict_at(contents, path, key)
    for name, tensor in state.items():
        require_plain(tensor, f"{path}: '{printable(name)}'")
    if model is None or data is None:
        wanted = [option for option, value in (("model", model), ("data", data)) if value is None]
        numbers = sum(tensor.numel() for tensor in state.values())
        raise FedscapeError(
            f"{path} is a plain state dict ({len(state)} tensors, {numbers:,} numbers) and does not say what it is of: "
            f"give {' and '.join(f'--{option} NAME' for option in wanted)} "
            f"(in Python {', '.join(f'{option}=' for option in wanted)})"
        )
    dataset = normalised(load_dataset(data, data_dir), normalise)
    kwargs: dict[str, Any] = {"input_shape": list(dataset.input_shape), "classes": dataset.classes}
    module = build_model(model, seed=0, **kwargs)
    parameters, buffers = fitted(state, module, f"{path} does not fit '{model}' on {data}")
    require_outputs(module, dataset.task, dataset.classes, dataset.train)
    checkpoint = Checkpoint(
        model={"name": model, "kwargs": kwargs},
        data={
            "name": data,
            "kwargs": {} if data_dir is None else {"data_dir": str(data_dir)},
            "normalisation": recorded(dataset),
        },
        algorithm={"name": UNKNOWN},
        round=0,
        seed=0,
        parameters=parameters,
        buffers=buffers,
        versions={},
        path=path,
    )
    _tell_normalisation(path, dataset, normalise)
    return checkpoint, dataset


def _tell_normalisation(path: Path, dataset: Dataset, normalise: str | None) -> None:
    """Say what the inputs are normalised by: with other numbers than in training, eigenvalues are others."""
    whose = "as asked for" if normalise is not None else "by default; if it was trained otherwise, say so (--normalise)"
    notice(f"{path.name}: the inputs of {dataset.name} are {Normalisation.of(dataset)}, {whose}")


def _is_native(contents: dict[Any, Any]) -> bool:
    """Whether a file has a Fedscape format, of any version."""
    return isinstance(name := contents.get("format"), str) and name.startswith("fedscape/")


def _read_torch(path: Path) -> Any:
    """The contents of a torch file; of a whole module, what to do instead."""
    try:
        return load_torch(path)
    except RunsCodeError as error:
        converted = str(path.with_name(f"{path.stem}-weights.pt"))
        raise FedscapeError(
            f"{error}; of a module that you trust, these two lines, where its code can be imported, save what is:\n"
            f"module = torch.load({str(path)!r}, map_location='cpu', weights_only=False)\n"
            f"torch.save(module.state_dict(), {converted!r})"
        ) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load
    except ImportError:
        raise FedscapeError(
            f"{path} needs the package safetensors, which is not installed: pip install safetensors"
        ) from None
    try:
        return load(read_bytes(path))
    except FedscapeError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise FedscapeError(f"{path} is not a safetensors file or is damaged: {_line(error)}") from error


def _state_dict(contents: Any, path: Path) -> dict[str, Tensor]:
    """Find the state dict in a file's contents.

    Raises:
        FedscapeError: there is none, or there are several.
    """
    if (state := state_tensors(contents)) is not None:
        return state
    if isinstance(contents, Mapping):
        inner = {key: found for key in WRAPPERS if (found := state_tensors(contents.get(key))) is not None}
        if len(inner) == 1:
            return next(iter(inner.values()))
        if inner:
            raise FedscapeError(f"{path} holds several state dicts ({listed(inner)}): say which with --key")
        what = f"a dictionary of {listed(contents)}" if contents else "an empty dictionary"
        what += "".join(f"; --key {printable(name)} takes what is there" for name in _found(contents)[:1])
    else:
        what = f"a {type(contents).__name__}"
    raise FedscapeError(
        f"{path} is neither a Fedscape checkpoint nor a state dict, plain or under {', '.join(WRAPPERS)}: it is {what}"
    )


def _state_dict_at(contents: Any, path: Path, key: str) -> dict[str, Tensor]:
    """The state dict under a key, with dots where it is nested.

    Raises:
        FedscapeError: there is no such key, or something else under it.
    """
    found, rest = contents, key
    while rest and isinstance(found, Mapping):
        # The longest key that fits, as a key itself may have dots.
        parts = rest.split(".")
        fits = [n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in found]
        if not fits:
            break
        found, rest = found[".".join(parts[: fits[0]])], ".".join(parts[fits[0] :])
    if not rest and (state := state_tensors(found)) is not None:
        return state
    known = _found(contents)
    hint = f"there are {listed(known)}" if known else "there is no state dict under any key: leave out --key"
    raise FedscapeError(f"{path} holds no state dict under '{printable(key)}': {hint}")


def _found(contents: Any, deep: int = 3) -> list[str]:
    """The keys of all state dicts in a file, with dots where they are nested."""
    found: list[str] = []
    if deep and isinstance(contents, Mapping):
        for name, value in contents.items():
            if isinstance(name, str) and state_tensors(value) is not None:
                found.append(name)
            elif isinstance(name, str):
                found += [f"{name}.{inner}" for inner in _found(value, deep - 1)]
    return found


def _line(error: BaseException) -> str:
    return printable(str(error).partition("\n")[0])
