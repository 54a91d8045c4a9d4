"""Which training sample belongs to which client."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from landscape.compute.randomness import numpy_generator
from landscape.errors import FedscapeError
from landscape.partitions import samplers
from landscape.partitions.published import fl_simulator
from landscape.partitions.spec import Spec, read_spec
from landscape.storage.display import Shown
from landscape.storage.files import atomic_write
from landscape.storage.reading import open_archive
from landscape.storage.schema import printable

if TYPE_CHECKING:
    from landscape.datasets import Dataset


@dataclass(frozen=True, repr=False)
class Partition(Shown):
    """The training samples of each client: ``clients[i]`` are client i's sample indices (int64, sorted).

    Example:
        >>> import numpy as np
        >>> from landscape import Partition
        >>> two = Partition((np.array([0, 2]), np.array([1, 3, 4])))
        >>> len(two), two.sizes
        (2, array([2, 3]))
        >>> two.label_counts(np.array([0, 0, 1, 1, 1]), classes=2)
        array([[1, 1],
               [1, 2]])
    """

    clients: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.clients)

    def _facts(self) -> dict[str, str]:
        sizes = self.sizes
        facts = {"clients": f"{len(self):,}", "samples": f"{sizes.sum():,}"}
        return facts | ({"of a client": f"{sizes.min():,} to {sizes.max():,}"} if len(sizes) else {})

    @property
    def sizes(self) -> np.ndarray:
        """Samples per client, [clients]."""
        return np.array([len(indices) for indices in self.clients])

    def label_counts(self, labels: np.ndarray, classes: int) -> np.ndarray:
        """Samples per client and class, [clients, classes]."""
        return np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])

    def digest(self) -> str:
        """A SHA-256 digest of sizes and indices: equal for equal partitions."""
        sha = hashlib.sha256(self.sizes.astype("<i8").tobytes())
        for indices in self.clients:
            sha.update(indices.astype("<i8").tobytes())
        return sha.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write ``.npz`` with one array of indices per client: ``client_00000``, ``client_00001``, ...

        Raises:
            FedscapeError: the file cannot be written.
        """
        with atomic_write(path) as file:
            arrays = {f"client_{i:05d}": indices for i, indices in enumerate(self.clients)}
            np.savez(file, **cast("Any", arrays))

    @classmethod
    def load(cls, path: str | Path) -> Partition:
        """Read a file written by :meth:`save`.

        Raises:
            FedscapeError: the file is missing or damaged, or would take more memory than the limit
                (:mod:`landscape.storage.limits`).
        """
        with open_archive(path) as (arrays, _):
            names = sorted(arrays, key=lambda name: (len(name), name))
            if not names:
                raise FedscapeError(f"{path} is not a partition: it holds no clients")
            return cls(tuple(_indices(arrays[name], f"{path}: {printable(name)}") for name in names))


def _indices(array: np.ndarray, where: str) -> np.ndarray:
    """The indices of a client's samples as int64 [n].

    Raises:
        FedscapeError: they are none.
    """
    if (
        array.ndim != 1
        or array.dtype.kind not in "iu"
        or (array.size and not 0 <= array.min() <= array.max() < 1 << 62)
    ):
        raise FedscapeError(
            f"{where} holds {array.dtype} {array.shape}: whole numbers from 0, one a sample, are needed"
        )
    return array.astype(np.int64)


def make_partition(
    spec: str,
    labels: np.ndarray,
    clients: int,
    seed: int,
    *,
    owners: np.ndarray | None = None,
    superclasses: np.ndarray | None = None,
) -> Partition:
    """Divide samples among clients.

    Args:
        spec: ``NAME[:PARAMETERS][+replacement][+sizes:DEVIATION]``; sizes are equal, or log-normal with ``+sizes``:

            - ``iid``;
            - ``dirichlet:ALPHA``: label ratios ~ Dir(α·1_C), FedDyn's parameter for each class;
            - ``dirichlet-hsu:ALPHA``: label ratios ~ Dir(α·p), Hsu's total concentration; with 0, one class per client;
            - ``pathological:CLASSES``: that number of classes per client;
            - ``pam[:ALPHA:BETA]``: Pachinko allocation, superclasses ~ Dir(α·1), classes below each ~ Dir(β·1);
            - ``natural``: the data set's own clients;
            - ``fl-simulator:ALPHA``, ``fl-simulator-pathological:CLASSES``: those of FL-Simulator's code, to the last
              draw for the same seed.

            Each sample is used once; with ``+replacement``, as often as it is drawn
            (:mod:`landscape.partitions.samplers`).
        labels: the class of each training sample, [n] (``iid`` and ``natural``: anything with one entry per sample).
        clients: the number of clients.
        seed: the same seed gives the same partition.
        owners: the natural client of each sample, [n].
        superclasses: the superclass of each class, [classes].

    Raises:
        FedscapeError: an invalid spec, or one that these data do not fit; a client without samples.

    Example:
        >>> import numpy as np
        >>> from landscape import make_partition
        >>> labels = np.arange(20) % 4
        >>> make_partition("iid", labels, clients=5, seed=0).sizes
        array([4, 4, 4, 4, 4])
        >>> (make_partition("pathological:1", labels, clients=4, seed=0).label_counts(labels, 4) > 0).sum(axis=1)
        array([1, 1, 1, 1])
    """
    asked = read_spec(spec)
    if not 1 <= clients <= len(labels):
        raise FedscapeError(f"{clients} clients cannot share {len(labels)} samples: give 1 to {len(labels)} clients")
    random = numpy_generator(seed, "partition")
    if asked.name == "natural":
        if owners is None:
            raise FedscapeError("the data set has no clients of its own: give another --partition than natural")
        parts = samplers.natural(owners, clients, random)
    elif asked.name.startswith("fl-simulator"):
        if not is_labels(labels):
            raise FedscapeError(f"the partition '{asked.name}' needs one class a sample: give iid or natural")
        parts = fl_simulator(labels, clients, seed, asked.parameters[0], pathological=asked.name != "fl-simulator")
    else:
        parts = _divided(asked, labels, _sizes(len(labels), clients, asked.deviation, seed), random, superclasses)
    empty = [client for client, part in enumerate(parts) if not len(part)]
    if empty:
        raise FedscapeError(
            f"the partition '{spec}' leaves {len(empty)} of {clients} clients without a sample (the first is client "
            f"{empty[0]}): give fewer clients{' or a smaller deviation of sizes' if asked.deviation else ''}"
        )
    return Partition(tuple(np.sort(part).astype(np.int64) for part in parts))


def partition_dataset(spec: str, dataset: Dataset, clients: int, seed: int) -> Partition:
    """:func:`make_partition` of a data set's training samples."""
    known = {"owners": dataset.clients, "superclasses": dataset.superclasses}
    arrays = {name: None if ids is None else ids.cpu().numpy() for name, ids in known.items()}
    return make_partition(spec, dataset.train.targets.cpu().numpy(), clients, seed, **arrays)


def is_labels(targets: np.ndarray) -> bool:
    """Whether targets are one class per sample."""
    return targets.ndim == 1 and targets.dtype.kind in "iu"


def _sizes(samples: int, clients: int, deviation: float, seed: int) -> np.ndarray:
    if not deviation:
        return samplers.equal_sizes(samples, clients)
    # A purpose of its own, so that no other draw changes.
    return samplers.log_normal_sizes(samples, clients, deviation, numpy_generator(seed, "partition sizes"))


def _divided(
    asked: Spec, labels: np.ndarray, sizes: np.ndarray, random: np.random.Generator, superclasses: np.ndarray | None
) -> list[np.ndarray]:
    if asked.name == "iid" and not asked.replacement:
        return samplers.iid(labels, sizes, random)
    if not is_labels(labels):
        raise FedscapeError(
            f"the partition '{asked.name}' needs one class a sample, these data have targets of another kind: "
            "give iid or natural"
        )
    if asked.name == "iid":
        return samplers.iid(labels, sizes, random, True)
    if asked.name == "pam":
        if superclasses is None:
            raise FedscapeError("the labels of these data have no superclasses: pam needs data such as cifar100")
        alpha, beta = asked.parameters
        return samplers.pam(labels, sizes, random, asked.replacement, alpha, beta, superclasses)
    if asked.name == "pathological":
        return samplers.pathological(labels, sizes, random, asked.replacement, int(asked.parameters[0]))
    sampler = samplers.dirichlet if asked.name == "dirichlet" else samplers.dirichlet_hsu
    return sampler(labels, sizes, random, asked.replacement, *asked.parameters)
