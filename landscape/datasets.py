"""Data sets by name: tensors with their normalisation, read from files.

Nothing is downloaded here: use ``python -m landscape.data fetch NAME --data-dir DIR``.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from landscape.data.dataset import DATASETS, Dataset, Loader, make_dataset
from landscape.data.formats import corrupted, user_files  # the folder registers every data set
from landscape.data.loaders import LOADER, loaded
from landscape.errors import FedscapeError, running

__all__ = ["DATASETS", "Dataset", "Loader", "load_dataset", "make_dataset", "recorded_name"]


def load_dataset(name: str, data_dir: str | Path | None = None, *, imports: bool = True) -> Dataset:
    """The data set called ``name``, from ``data_dir`` if its files are on disk.

    Args:
        name: a registered name (``-`` may be written for ``_``); ``cifar10_c/CORRUPTION/SEVERITY``; the path of a
            ``.npz`` file; ``folder:PATH[@SIDE]`` or the path of a folder of images; or ``package.module:callable``,
            which is called with the data directory (a ``Path`` or ``None``) and returns a :class:`Dataset`; or
            ``loader:package.module:callable``, a pipeline that gives batches (:func:`landscape.data.loaders.loaded`).
        data_dir: the folder that holds the data set's own folder (torchvision's ``root``).
        imports: whether a ``package.module:callable`` may be imported.

    Raises:
        FedscapeError: the name is unknown; the files are missing, damaged or of the wrong shape.

    Example:
        >>> from landscape import load_dataset
        >>> digits = load_dataset("digits")
        >>> digits.input_shape, digits.classes, len(digits.train), len(digits.test)
        ((1, 8, 8), 10, 1442, 355)
    """
    folder = Path(data_dir) if data_dir is not None else None
    if name.startswith(LOADER):
        return loaded(name, folder, imports=imports)
    if name.endswith(".npz"):
        return user_files.archive(Path(name))
    if name.startswith(user_files.FOLDER) or _is_folder(name):
        return user_files.image_folder(name.removeprefix(user_files.FOLDER))
    first, slash, rest = name.partition("/")
    known = first.replace("-", "_")
    if slash and known in corrupted.CLEAN:
        return corrupted.corrupted_dataset(f"{known}/{rest}", folder)
    make = DATASETS.get(known if known in DATASETS and not slash else name, imports=imports)
    with running(f"the data set '{name}'") if ":" in name else nullcontext():
        dataset = make(folder)
    if not isinstance(dataset, Dataset):
        raise FedscapeError(
            f"the data set '{name}' returned {type(dataset).__name__}, not a landscape.Dataset: "
            "landscape.make_dataset(name, (x_train, y_train), (x_test, y_test)) makes one"
        )
    return dataset


def _is_folder(name: str) -> bool:
    return name.replace("-", "_") not in DATASETS and Path(name.partition("@")[0]).is_dir()


def recorded_name(name: str) -> str:
    """The name to record for a run's data set: paths are made absolute, to be found from another working directory."""
    if name.endswith(".npz"):
        return str(Path(name).resolve())
    if name.startswith(user_files.FOLDER) or _is_folder(name):
        return f"{user_files.FOLDER}{Path(name.removeprefix(user_files.FOLDER)).resolve()}"
    return name
