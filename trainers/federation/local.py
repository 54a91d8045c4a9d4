"""A client's local work: loss and gradient of mini-batches, and the operations of one local step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.compute.cost import SampleCost
from landscape.compute.precision import Precision
from landscape.compute.randomness import global_seed
from landscape.compute.regions import marked
from landscape.data.micro_batches import micro_batch_size
from landscape.data.samples import Samples
from landscape.errors import FedscapeError
from landscape.tasks import IGNORED, Task, loss_of
from trainers.algorithm import Algorithm, Gradient, Round, State
from trainers.federation.perturbation import Noted
from trainers.parts.adversary import Adversary
from trainers.parts.ascent import Ascent, Surroundings
from trainers.parts.augmentation import CROPPED, cutout, flip_crop, mixup
from trainers.parts.local_optimizers import LocalOptimizer, optimized
from trainers.parts.parts import Parts
from trainers.settings import Augmentation, ClipAt, LastBatch

_MICRO_BATCH = 256
SINGLE = (
    "BatchNorm has no variance in a batch of a single sample: give --last-batch drop or another --batch-size, and "
    "clients more than one sample each"
)
"""What is told of a mini-batch that BatchNorm cannot normalise."""


@dataclass(frozen=True)
class LocalWork:
    """The settings of local work, the same for all clients.

    Attributes:
        epochs: passes over its samples.
        steps: number of local steps in place of ``epochs``, if given.
        batch_size: samples per step; ``None`` is the full batch.
        weight_decay: c of the decay, added to the direction as c w, or as the local optimiser has it.
        augment: augmentation of training images.
        seed: of batches, augmentation and dropout.
        last_batch: whether an epoch's last short batch is kept.
        clip: largest norm, over all coordinates, of what ``clip_at`` names; 0: no clipping.
        clip_at: ``direction``, with the algorithm's correction in it, ``gradient``, without, or ``linear``, without the
            w of a proximal term.
        batchnorm: whether BatchNorm's running statistics are averaged, or kept by each client (SiloBN).
        parts: ascent, MAN, mixup, cutout, adversary and local optimiser.
        task: kind of targets, which decides the loss.
        precision: of the network's products.
        clip_eps: added to the norm that clipping divides by.
        save_clients: whether results say where the local steps began, and the last one's perturbation.
    """

    epochs: int
    batch_size: int | None
    weight_decay: float
    augment: Augmentation
    seed: int
    steps: int | None = None
    last_batch: LastBatch = "keep"
    clip: float = 0.0
    clip_at: ClipAt = "direction"
    batchnorm: Literal["average", "silo"] = "average"
    parts: Parts = field(default_factory=Parts)
    task: Task = "classification"
    precision: Precision = field(default_factory=Precision)
    clip_eps: float = 0.0
    save_clients: bool = False


def local_step(
    w: Tensor,
    gradient: Gradient,
    algorithm: Algorithm,
    client: State,
    server: State,
    round: Round,
    weight_decay: float,
    clip: float = 0.0,
    optimizer: LocalOptimizer | None = None,
    fused: bool = False,
    *,
    clip_eps: float = 0.0,
    linear: bool = False,
) -> Tensor:
    """One local step, [..., d] -> [..., d].

    The order is fixed: the mini-batch gradient (of the objective with its penalty and mixup, through the ascent
    part), the algorithm's own correction, clipping, weight decay (so that no ascent sees it), the step; with an
    ``optimizer`` these last two are its own, and its memory is among the client's tensors.  With ``linear`` the α w of
    the correction's proximal term is not clipped.  ``fused`` steps of plain SGD go over the vectors half as often, and
    are equal to rounding.

    Raises:
        FedscapeError: the algorithm's direction is no tensor of w's shape.

    Example:
        >>> import torch
        >>> from trainers import FedAvg, Round, State
        >>> from trainers.federation import local_step
        >>> w, round = torch.tensor([4.0]), Round(1, lr=0.5, participation=1.0)
        >>> local_step(w, lambda w: w, FedAvg(), State(), State(w=w), round, weight_decay=0.25)  # 4 − 0.5 (4 + 1)
        tensor([1.5000])
    """
    direction, rate = algorithm.direction(w, gradient, client, server, round), round.lr * round.share
    if getattr(direction, "shape", None) != w.shape:  # PyTorch would broadcast it
        shape = f"of shape {list(direction.shape)}" if isinstance(direction, Tensor) else f"no tensor: {direction!r}"
        raise FedscapeError(
            f"the direction that {type(algorithm).__name__} returns is {shape}: "
            f"return one of w's shape, {list(w.shape)}"
        )
    if clip and linear:
        pull = algorithm.pull(client) * w
        direction = clipped(direction - pull, clip, clip_eps) + pull
    else:
        direction = clipped(direction, clip, clip_eps)
    if optimizer is not None:
        return optimized(optimizer, w, direction, client, rate, weight_decay)
    if fused and not isinstance(rate, Tensor):
        if not weight_decay:
            return torch.sub(w, direction, alpha=rate)
        decayed = torch.add(direction, w, alpha=weight_decay)
        return torch.sub(w, decayed, alpha=rate, out=decayed)
    if weight_decay:
        direction = direction + weight_decay * w
    return w - rate * direction


def clipped(v: Tensor, largest: float, eps: float = 0.0) -> Tensor:
    """v, scaled down to the norm ``largest`` over its last axis if it is longer; 0: unchanged.

    With ``eps`` times largest/(‖v‖ + eps) if that is below 1, as ``torch.nn.utils.clip_grad_norm_``.

    Example:
        >>> import torch
        >>> from trainers.federation.local import clipped
        >>> clipped(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0)
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    if not largest:
        return v
    norm = v.norm(dim=-1, keepdim=True)
    return v * (largest / (norm + eps if eps else norm.clamp_min(torch.finfo(v.dtype).tiny))).clamp_max(1.0)


def ascending(
    plain: Gradient, ascent: Ascent | None, local: LocalWork, around: Surroundings, noted: Noted | None = None
) -> Gradient:
    """The gradient that an algorithm uses: through the ascent part, then clipped if gradients are to be clipped.

    ``noted`` notes the perturbation.
    """
    below = plain if noted is None else noted.of_batch(plain)
    climbing = below if ascent is None else lambda w: ascent.gradient(w, below, around)
    through = climbing if noted is None else noted.of_algorithm(climbing)
    if not local.clip or local.clip_at != "gradient":
        return through
    return lambda w: clipped(through(w), local.clip, local.clip_eps)


@dataclass(frozen=True)
class Drawn:
    """A mini-batch with its augmentation drawn: all points of a step have the same inputs.

    Attributes:
        inputs: as the model takes them, [n, ...].
        targets: [n, ...].
        partners: targets of the samples that mixup mixed in; none without it.
        share: mixup's λ, the share of a sample in its mixture.
    """

    inputs: Tensor
    targets: Tensor
    partners: Tensor | None = None
    share: float = 1.0


@marked("data")
def draw(data: Samples, indices: Tensor, local: LocalWork, generator: torch.Generator, dtype: torch.dtype) -> Drawn:
    """The samples at these positions, augmented as ``local`` says by draws from ``generator``."""
    inputs, targets = data.stored(indices)
    if local.augment == "flip-crop":
        inputs, targets = _flipped(inputs, targets, local, generator)
    inputs = data.prepare(inputs, dtype)
    if local.augment == "flip-crop-half":
        inputs, targets = _flipped(inputs, targets, local, generator)
    if local.parts.cutout:
        inputs = cutout(inputs, local.parts.cutout, generator)
    if not local.parts.mixup:
        return Drawn(inputs, targets)
    inputs, partners, share = mixup(inputs, generator)
    return Drawn(inputs, targets, targets[partners], share)


def _flipped(inputs: Tensor, targets: Tensor, local: LocalWork, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Flipped and cropped images, and the labels of their pixels, which move by the same draws."""
    before, cropped = generator.get_state(), CROPPED[local.augment]
    inputs = flip_crop(inputs, generator, cropped=cropped)
    if local.task == "segmentation":
        generator.set_state(before)
        targets = flip_crop(targets[:, None], generator, fill=IGNORED, cropped=cropped)[:, 0]
    return inputs, targets


class Batch:
    """The loss and gradient of one mini-batch.

    Only the first point that the gradient is evaluated at updates BatchNorm's running statistics.

    Attributes:
        loss: at the first point, without the penalty.
        gradients: how many were taken.
        slopes: at the first point, the loss's gradients by the tensors that move the inputs, by name.
    """

    def __init__(self, model: FlatModule, drawn: Drawn, local: LocalWork, statistics: BatchStatistics) -> None:
        self.model, self._parts, self._loss_of = model, local.parts, loss_of(local.task)
        self._drawn, self._statistics, self._precision = drawn, statistics, local.precision
        self.loss: Tensor | None = None
        self.gradients = 0
        self.slopes: State | None = None
        self._move: Callable[[Tensor], Tensor] = lambda inputs: inputs
        self._moved: dict[str, Tensor] = {}

    def move_by(self, adversary: Adversary, client: State) -> None:
        """Move the inputs as the adversary does; ``slopes`` are then computed with the first loss."""
        self._moved = {name: getattr(client, name).detach().requires_grad_() for name in adversary.moving}
        seen = State.of({**client.tensors(), **self._moved})
        self._move = lambda inputs: adversary.move(inputs, seen)

    @marked("gradients")
    def gradient(self, w: Tensor) -> Tensor:
        """The mini-batch gradient at ``w``, [d]."""
        self.model.load(w)
        self.gradients += 1
        first = self.loss is None
        # Around the backward pass too: autograd saves the running statistics for it.
        with torch.enable_grad(), nullcontext() if first else self._statistics.untouched():
            loss, penalty = self._losses()
            if first:
                self.loss = loss.detach()
                if self._moved:
                    slopes = torch.autograd.grad(loss, list(self._moved.values()), retain_graph=True)
                    self.slopes = State.of(dict(zip(self._moved, slopes, strict=True)))
            return self.model.gradient(loss if penalty is None else loss + penalty)

    @marked("gradients")
    def divergence(self, w: Tensor, reference: Tensor, temperature: float) -> Tensor:
        """The gradient of KL(softmax(z(reference)/T) ‖ softmax(z(w)/T)) at ``w``, [d] all."""
        self.gradients += 1
        inputs = self._move(self._drawn.inputs).detach()
        with torch.enable_grad(), self._statistics.untouched():
            with torch.random.fork_rng(_drawing(self.model.device)):  # dropout draws the same for both
                self.model.load(reference)
                there = self._outputs(inputs).detach()
            self.model.load(w)
            here = self._outputs(inputs)
            pull = divergence_slope(here, there, temperature, axis=1)
            return self.model.gradient((here * pull).sum() / (here.numel() // here.shape[1]))

    def _losses(self) -> tuple[Tensor, Tensor | None]:
        inputs, man = self._move(self._drawn.inputs), self._parts.man
        if man is None:
            return self._score(self._outputs(inputs)), None
        with man.watching(self.model.module) as penalty:
            outputs = self._outputs(inputs)
        return self._score(outputs), penalty()

    def _outputs(self, inputs: Tensor) -> Tensor:
        try:
            with self._precision.forward(self.model.device):
                return self._precision.raised(self.model.module(inputs))
        except ValueError as error:
            if len(self._drawn.targets) > 1 or not len(self._statistics):
                raise
            raise FedscapeError(SINGLE) from error

    def _score(self, outputs: Tensor) -> Tensor:
        drawn = self._drawn
        loss = self._loss_of(outputs, drawn.targets)
        if drawn.partners is None:
            return loss
        return drawn.share * loss + (1 - drawn.share) * self._loss_of(outputs, drawn.partners)


def _drawing(device: torch.device) -> list[torch.device]:
    """The devices beside the CPU whose random numbers a pass draws: none while a CUDA graph is recorded.

    What draws is not recorded, and CUDA refuses to tell a generator's state meanwhile.
    """
    return [device] if device.type == "cuda" and not torch.cuda.is_current_stream_capturing() else []


def divergence_slope(logits: Tensor, reference: Tensor, temperature: float, axis: int) -> Tensor:
    """The derivative of KL(softmax(reference/T) ‖ softmax(logits/T)) by the logits, classes along ``axis``.

    As a difference of probabilities it is exactly 0 where the logits are the reference; autograd leaves rounding there.

    Example:
        >>> import torch
        >>> from trainers.federation.local import divergence_slope
        >>> logits, reference = torch.tensor([[2 * 1.0986, 0.0]]), torch.zeros(1, 2)  # odds of √9 at T = 2
        >>> divergence_slope(logits, reference, 2.0, axis=1)  # (3/4 − 1/2)/2, (1/4 − 1/2)/2
        tensor([[ 0.1250, -0.1250]])
    """
    here, there = (torch.softmax(z.detach() / temperature, dim=axis) for z in (logits, reference))
    return (here - there) / temperature


class WholeData:
    """All of a client's data, for :meth:`Algorithm.prepare`.

    The gradient is that of the mean loss, in micro-batches, without augmentation, penalty or ascent.  The model stays
    in training mode, so that the loss is the one the client trains on.  Dropout has a random stream of its own, so that
    the random numbers of the local steps do not change; BatchNorm's running statistics are not updated.

    Attributes:
        samples: n_i.
        size: N n_i/n, the client's number of samples over the mean client's.
        epochs: passes over them in the round's local steps.
    """

    def __init__(
        self,
        model: FlatModule,
        data: Samples,
        indices: Tensor,
        stream: tuple[int, str, int, int],
        task: Task = "classification",
        cost: SampleCost | None = None,
        precision: Precision | None = None,
        *,
        size: float = 1.0,
        epochs: float = 1.0,
    ) -> None:
        self._model, self._data, self._indices, self._stream, self._task = model, data, indices, stream, task
        self._cost, self._precision = cost, precision or Precision()
        self.samples, self.size, self.epochs = len(indices), size, epochs

    @marked("gradients")
    def gradient(self, w: Tensor) -> Tensor:
        """The gradient at ``w`` of the mean loss over all of the client's samples, [d]."""
        total = torch.zeros_like(w)
        self._model.load(w)
        with global_seed(*self._stream), BatchStatistics(self._model.module).untouched():
            size = micro_batch_size(self._model.device, self._task, self._data.targets, self._cost)
            for indices in self._indices.split(min(size, _MICRO_BATCH)):
                inputs, targets = self._data.batch(indices, self._model.dtype)
                with torch.enable_grad():
                    with self._precision.forward(self._model.device):
                        outputs = self._model.module(inputs)
                    loss = loss_of(self._task)(self._precision.raised(outputs), targets)
                total += len(indices) / len(self._indices) * self._model.gradient(loss)
        return total
