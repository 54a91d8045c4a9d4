"""What nodes cost on one core: from the shapes of the work and a measured speed, before anything is loaded or made."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from figures.graph.nodes import FileModel, Measure, Node, RunModel, with_runs
from figures.graph.store import Store
from landscape.autograd.flat import FlatModule
from landscape.data.corruptions import CORRUPTIONS
from landscape.data.samples import Samples
from landscape.partitions.partition import Partition
from trainers.algorithm import Algorithm
from trainers.federation.execution import SequentialExecutor
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork
from trainers.parts.parts import Parts
from trainers.runs.planned import PlannedRun
from trainers.settings import Settings


@dataclass(frozen=True)
class Speed:
    """Seconds on one core.

    Attributes:
        shape: of the inputs that they were measured on; with others they grow as the pixels do.
        step: of a gradient whatever its batch; of small nets with several clients at once.
        gradient, forward, product: of each sample of a gradient, of an evaluation and of a Hessian's product.
    """

    shape: tuple[int, ...]
    step: float
    gradient: float
    forward: float
    product: float


SPEEDS: dict[str, Speed] = {
    "digits_mlp": Speed((1, 8, 8), 1.5e-04, 1.0e-06, 7.0e-07, 2.0e-06),
    "digits_cnn": Speed((1, 8, 8), 3.5e-04, 2.2e-05, 1.3e-05, 2.4e-05),
    "lenet_fed": Speed((3, 32, 32), 4.8e-03, 1.1e-03, 4.4e-04, 2.3e-03),
    "convnet_tiny": Speed((3, 64, 64), 0.0e00, 9.1e-03, 2.1e-03, 2.3e-02),
    "cnn_emnist": Speed((1, 28, 28), 2.4e-04, 1.5e-03, 6.1e-04, 2.3e-03),
    "resnet18_gn": Speed((3, 32, 32), 5.9e-02, 3.6e-03, 1.1e-03, 7.3e-03),
    "resnet18_gn_cifar": Speed((3, 32, 32), 3.8e-02, 3.4e-02, 1.2e-02, 1.3e-01),
    "resnet20_gn": Speed((3, 32, 32), 6.1e-03, 3.5e-03, 1.0e-03, 8.0e-03),
    "mobilenet_v2_gn": Speed((3, 224, 224), 1.5e-02, 6.7e-02, 2.3e-02, 2.0e-01),
    "bisenet_v2_gn": Speed((3, 512, 1024), 0.0e00, 5.9e00, 4.4e00, 1.9e01),
}
"""By network, with GroupNorm; BatchNorm counts the same.  One core of a virtual machine on an AMD EPYC of 2.6 GHz
(family 25, model 17; AVX-512), PyTorch 2.13, by ``python benchmarks/figures_speed.py``, while other work went
on; runs and measurements that are done in the store correct them."""


@dataclass(frozen=True)
class Size:
    """Of a data set: samples for training and for the test, shape of an input."""

    train: int
    test: int
    shape: tuple[int, ...]


_CIFAR = Size(50_000, 10_000, (3, 32, 32))
SIZES: Mapping[str, Size] = {
    "digits": Size(1442, 355, (1, 8, 8)),
    "cifar10": _CIFAR,
    "cifar100": _CIFAR,
    "cifar100_pam": _CIFAR,
    "mnist": Size(60_000, 10_000, (1, 28, 28)),
    "fashion_mnist": Size(60_000, 10_000, (1, 28, 28)),
    "emnist": Size(697_932, 116_323, (1, 28, 28)),
    "emnist_20": Size(139_586, 23_264, (1, 28, 28)),
    "emnist_10": Size(69_793, 11_632, (1, 28, 28)),
    "tiny_imagenet": Size(100_000, 10_000, (3, 64, 64)),
    "landmarks": Size(164_172, 19_526, (3, 224, 224)),
    "cityscapes": Size(2975, 500, (3, 512, 1024)),
}
"""Of the data sets whose sizes are known without reading them."""

ROUND, CLIENT, MEASUREMENT = 2e-3, 1e-3, 0.1
"""Seconds of a round, of a sampled client and of a measurement beside their arithmetic."""
ADAPTIVE = 0.2
"""The share of a surface's points that is measured unless all are (``exact``)."""
_LAYERS = 8
"""Layers of a network, about: finished nodes correct it."""
_CALIBRATING = 5
"""Finished nodes of a sort that correct its speed."""


class Costs:
    """Seconds of nodes on one core.

    Args:
        store: its finished nodes correct the table of speeds, by network and by kind of measurement.
        nodes: among which the finished ones are sought.
    """

    def __init__(self, store: Store, nodes: Iterable[Node] = ()) -> None:
        self._factors: dict[tuple[str, ...], float] = {}
        found: defaultdict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
        for node in with_runs(nodes):
            sort = _sort(node)
            if len(found[sort]) < _CALIBRATING and (taken := store.seconds(node)) and (told := shapes_seconds(node)):
                found[sort].append((taken, told))
        for sort, pairs in found.items():
            if pairs:
                self._factors[sort] = sum(taken for taken, _ in pairs) / sum(told for _, told in pairs)

    def seconds(self, nodes: Iterable[Node]) -> float | None:
        """Of all of these together, each once; ``None`` where the network or the data are not known here."""
        each = [self._of(node) for node in dict.fromkeys(nodes)]
        return None if None in each else sum(told for told in each if told is not None)

    def text(self, nodes: Iterable[Node]) -> str:
        """Hours and minutes; ``>h:min`` where some of the nodes are not known, ``?`` where none is."""
        each = [self._of(node) for node in dict.fromkeys(nodes)]
        known = [told for told in each if told is not None]
        if each and not known:
            return "?"
        return ("" if len(known) == len(each) else ">") + duration(sum(known))

    def _of(self, node: Node) -> float | None:
        told = shapes_seconds(node)
        return None if told is None else told * self._factors.get(_sort(node), 1.0)


def duration(seconds: float) -> str:
    """Hours and minutes, rounded up to whole minutes.

    Example:
        >>> from figures.graph.cost import duration
        >>> duration(61), duration(7200)
        ('0:02', '2:00')
    """
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d}"


def shapes_seconds(node: Node) -> float | None:
    """What a node costs by the table of speeds; ``None`` where its network or its data are not in the tables."""
    if isinstance(node, PlannedRun):
        return _of_run(node)
    if any(isinstance(model, FileModel) for model in node.models):
        return None
    run = next(model.run for model in node.models if isinstance(model, RunModel))
    work = _Work.of(run)
    return None if work is None else MEASUREMENT + _KINDS[node.kind](node, work)


@dataclass(frozen=True)
class _Work:
    """A run's size, the speed of its network on its inputs, and its settings with one client where data are pooled."""

    size: Size
    speed: Speed
    settings: Settings

    @classmethod
    def of(cls, run: PlannedRun) -> _Work | None:
        """``None`` where its network or its data are not known."""
        settings = run.settings
        if run.algorithm.pooled:
            settings = replace(settings, clients=1, per_round=1, sampling="exact", partition="iid")
        size, speed = SIZES.get(settings.data), SPEEDS.get(_table_name(settings.model))
        if size is None or speed is None:
            return None
        more = math.prod(size.shape[1:]) / math.prod(speed.shape[1:])
        scaled = replace(
            speed, gradient=speed.gradient * more, forward=speed.forward * more, product=speed.product * more
        )
        return cls(size, scaled, settings)

    @property
    def of_client(self) -> float:
        """Samples of a client, on average."""
        return self.size.train / self.settings.clients

    def split(self, options: Mapping[str, Any]) -> float:
        """Samples that a measurement is over."""
        whole = self.size.test if options.get("split") == "test" else self.size.train
        clients, samples = options.get("clients"), options.get("samples")
        mine = whole if clients is None else len(clients) * self.of_client
        return min(mine, samples) if isinstance(samples, int) else mine

    def kept(self, every: int) -> int:
        """Kept models of rounds that are multiples of ``every``, with the initial one."""
        if self.settings.save_every == 0:
            return 1
        return 1 + self.settings.rounds // math.lcm(self.settings.save_every, max(every, 1))


def _of_run(run: PlannedRun) -> float | None:
    work = _Work.of(run)
    if work is None:
        return None
    settings, speed = work.settings, work.speed
    batch = work.of_client if settings.batch_size == "full" else min(int(settings.batch_size), work.of_client)
    steps = settings.local_steps or settings.local_epochs * math.ceil(work.of_client / batch)
    seen = steps * batch if settings.local_steps else settings.local_epochs * work.of_client
    gradients = gradients_a_step(run.algorithm, run.parts)
    local = settings.rounds * settings.per_round * (CLIENT + gradients * (steps * speed.step + seen * speed.gradient))
    evaluations = 2 + (settings.rounds // settings.eval_every if settings.eval_every else 0)
    if run.parts.swa is not None:
        evaluations *= 2
    by_client = settings.rounds // settings.client_accuracy if settings.client_accuracy else 0
    tested = evaluations * work.size.test + by_client * (work.size.train + work.size.test)
    return settings.rounds * ROUND + local + tested * speed.forward


_COUNTED: dict[str, float] = {}


def gradients_a_step(algorithm: Algorithm, parts: Parts) -> float:
    """Mini-batch gradients that a local step takes: counted in a round of two tiny clients.

    Example:
        >>> from figures.graph.cost import gradients_a_step
        >>> from trainers import SAM, FedAvg, FedSMOO, Parts
        >>> gradients_a_step(FedAvg(), Parts()), gradients_a_step(FedAvg(), Parts(ascent=SAM(0.1)))
        (1.0, 2.0)
        >>> gradients_a_step(FedSMOO(), Parts())
        2.0
    """
    variants = [v for v in algorithm.hyper_parameters().values() if isinstance(v, (str, bool))]  # numbers change none
    key = repr((type(algorithm), variants, type(parts.ascent), type(parts.adversary)))
    if key not in _COUNTED:
        torch_state = torch.get_rng_state()
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
        torch.set_rng_state(torch_state)
        model = FlatModule(net, torch.device("cpu"), torch.float32)
        data = Samples(torch.linspace(0, 1, 64).reshape(4, 1, 4, 4), torch.tensor([0, 1, 0, 1]))
        only = Parts(ascent=parts.ascent, adversary=parts.adversary)
        local = LocalWork(1, 1, 0.0, "none", 0, None, "keep", 0.0, "direction", "average", only, "classification")
        split = Partition((torch.arange(2).numpy(), torch.arange(2, 4).numpy()))
        executor = SequentialExecutor(model, data, split, algorithm, local)
        settings = Settings(clients=2, per_round=2, batch_size=1, local_epochs=1, client_store="device")
        taken = Federation(algorithm, executor, settings, model.buffer.clone(), only, torch.zeros(0)).step()
        _COUNTED[key] = taken.gradients / taken.steps
    return _COUNTED[key]


def lanczos_products(top: int) -> float:
    """Products that the ``top`` largest eigenvalues take, about."""
    return 25 + 3 * top


def _hessian(node: Measure, work: _Work) -> float:
    o = node.options
    products = lanczos_products(o.get("top", 5)) + (o.get("trace_probes", 100) / 2 if o.get("trace", True) else 0)
    if o.get("density"):
        products += o.get("density_probes", 16) * o.get("density_steps", 100) / 16  # it stops when it is narrow
    return products * work.split(o) * work.speed.product


def _surface(node: Measure, work: _Work) -> float:
    o, points = node.options, node.options.get("points", 51)
    along = list(points) if isinstance(points, (list, tuple)) else [points]
    number = along[0] if o.get("plane") == "line" else math.prod(along) if len(along) > 1 else along[0] ** 2
    samples = work.split(o) + (work.size.test if o.get("test") else 0)
    sought = 30 * work.split(o) * work.speed.product if o.get("lambda_max") else 0.0
    share = 1.0 if o.get("exact") else ADAPTIVE
    return share * number * (samples * work.speed.forward + sought) * o.get("seeds", 1)


def _clients(node: Measure, work: _Work) -> float:
    number = work.settings.clients if node.options.get("clients") is None else len(node.options["clients"])
    products = lanczos_products(node.options.get("top", 1))
    return number * (CLIENT + products * (work.speed.step + work.of_client * work.speed.product))


def _layers(node: Measure, work: _Work) -> float:
    return _LAYERS * lanczos_products(node.options.get("top", 1)) * work.split(node.options) * work.speed.product


def _client_eigenvalues(node: Measure, work: _Work) -> float:
    o, s = node.options, work.settings
    local = bool(o.get("local"))
    clients = s.per_round if local else s.clients if o.get("clients") is None else len(o["clients"])
    rounds = work.kept(o.get("every", 1)) - local
    products = lanczos_products(o.get("top", 1))
    return rounds * clients * (CLIENT + products * (work.speed.step + work.of_client * work.speed.product))


def _client_accuracy(node: Measure, work: _Work) -> float:
    return work.kept(node.options.get("every", 1)) * (work.size.train + work.size.test) * work.speed.forward


def _corruptions(node: Measure, work: _Work) -> float:
    o = node.options
    kinds, severities = len(o.get("corruptions") or CORRUPTIONS), len(o.get("severities", range(5)))
    samples = o.get("samples") or work.size.test
    return len(node.models) * (1 + kinds * severities) * samples * work.speed.forward


def _evaluation(node: Measure, work: _Work) -> float:
    return work.split(node.options) * work.speed.forward


_KINDS: dict[str, Callable[[Measure, _Work], float]] = {
    "hessian": _hessian,
    "surface": _surface,
    "clients": _clients,
    "layers": _layers,
    "client-eigenvalues": _client_eigenvalues,
    "client-accuracy": _client_accuracy,
    "corruptions": _corruptions,
    "evaluation": _evaluation,
}


def _table_name(model: str) -> str:
    """The network whose speed is measured: that with GroupNorm."""
    named = model.replace("_bn", "_gn")
    return f"{named}_gn" if named == "bisenet_v2" else named


def _sort(node: Node) -> tuple[str, ...]:
    """Nodes whose speeds are alike."""
    if isinstance(node, PlannedRun):
        return ("run", node.settings.model)
    models = {model.run.settings.model for model in node.models if isinstance(model, RunModel)}
    return (node.kind, *sorted(models))
