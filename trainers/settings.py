"""The settings of a run that do not belong to an algorithm."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from landscape.compute.precision import PrecisionName
from landscape.errors import FedscapeError
from trainers.parts.schedules import Schedule, ScheduleName

Augmentation = Literal["none", "flip-crop", "flip-crop-half"]
"""Augmentation of training images."""
ClipAt = Literal["direction", "gradient", "linear"]
"""What is clipped: the direction of a local step, the gradient before the algorithm's correction, or the direction but
for the α w of its proximal term α(w − w^t)."""
DualSteps = Literal["own", "first", "mean"]
"""K by which algorithms divide changes."""
Weighting = Literal["samples", "uniform"]
"""The clients' weights p_i: n_i/n, or 1/N."""
Aggregation = Literal["ratio", "unbiased"]
"""How the models of the sampled clients make the server's."""
LastBatch = Literal["keep", "drop"]
"""Whether an epoch's last short batch is kept."""
ExecutorName = Literal["auto", "sequential", "batched", "graphs"]
"""How the local work of the sampled clients is computed."""
Where = Literal["auto", "device", "host", "disk"]
"""Where clients' states are stored; ``auto`` chooses by their size."""


def optional(metavar: str, default: str) -> Any:
    """How ``--help`` shows an option whose default is not a plain value."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class Settings:
    """What is trained, on what, by how many clients and for how long.

    Example:
        >>> from trainers import Settings
        >>> settings = Settings(clients=10, per_round=2, lr=0.05)
        >>> settings.rounds, settings.recorded()["lr"]
        (30, 0.05)
        >>> Settings(clients=2, per_round=5)
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: --per-round is 5: give a number from 1 to the 2 clients there are
    """

    data: str = "digits"
    """data set: digits (embedded), a name that `fedscape data list` shows, a .npz file, a folder of images
    (folder:PATH), package.module:callable, or loader:package.module:callable (a pipeline that gives batches)"""
    data_dir: str = ""
    """folder that holds the data set's own folder (cifar-10-batches-py, ...); digits and .npz need none"""
    normalise: Annotated[str, tyro.conf.arg(metavar="RULE")] = "auto"
    """what inputs are normalised by; auto: uint8 images by their data set's statistics or their own, floats as they
    are; MEAN,.../STD,... by channel (of pixels from 0 to 1, or in the units of floats), cifar10, cifar100, mnist,
    fashion_mnist, tiny_imagenet, imagenet, none (pixels from 0 to 1), or data (the training inputs' statistics)"""
    model: str = "digits_mlp"
    """network: digits_mlp, lenet_fed, resnet18_gn, ... (docs/models.md has the table), or package.module:callable"""
    partition: str = "dirichlet:0.1"
    """which client holds which sample: iid, dirichlet:ALPHA (FedDyn's parameter for each class), dirichlet-hsu:ALPHA
    (Hsu's total concentration; 0: one class a client), pathological:CLASSES, pam[:ALPHA:BETA] (superclasses, then
    classes), natural (the data set's own clients), or fl-simulator:ALPHA and fl-simulator-pathological:CLASSES (that
    code's own draws for the same seed); +replacement deals classes that are used up again,
    +sizes:DEVIATION makes log-normal sizes of equal ones"""
    clients: int = 20
    """N, number of clients"""
    per_round: int = 5
    """clients sampled each round, without replacement (with --sampling bernoulli: on average)"""
    sampling: Literal["exact", "bernoulli"] = "exact"
    """exact: so many clients a round; bernoulli: each with probability per-round/clients, drawn again if none is"""
    rounds: int = 30
    """communication rounds; 0 writes the initial model and the partition"""
    local_epochs: int = 2
    """passes of a client over its samples each round"""
    local_steps: Annotated[int | None, optional("N", "by --local-epochs")] = None
    """so many local steps each round instead, over as many passes as they take"""
    batch_size: int | Literal["full"] = 32
    """samples per local step; full: one step with all of a client's samples each epoch"""
    last_batch: LastBatch = "keep"
    """an epoch's last short batch: keep it, or drop it (never a client's only batch)"""
    lr: float = 0.1
    """η, the local rate: of the first round, or of the first after the warm-up"""
    lr_decay: float = 1.0
    """factor on η after each round; with --lr-schedule step every --lr-step rounds"""
    lr_schedule: ScheduleName = "exponential"
    """η over the rounds: exponential: times --lr-decay each round (so constant while that is 1); step: times --lr-decay
    every --lr-step rounds; cosine: half a cosine from η down to --lr-min, over all of --rounds, whose number then
    cannot change on --resume; constant"""
    lr_step: Annotated[int | None, optional("ROUNDS", "none")] = None
    """rounds between two drops of --lr-schedule step"""
    lr_min: float = 0.0
    """where --lr-schedule cosine ends, one round after the last"""
    lr_warmup: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """first rise linearly for N rounds: η/(N+1), 2η/(N+1), ...; round N+1 has η, and begins --lr-schedule"""
    weight_decay: float = 0.0
    """added to each local step's direction as weight_decay × w, after the ascent and the clipping; with
    --local-optimizer momentum it goes into the momentum, with adamw past it (w shrinks by η × weight_decay)"""
    clip: float = 0.0
    """largest norm, over all coordinates, of what --clip-at names; 0: no clipping"""
    clip_at: ClipAt = "direction"
    """clip the direction, with the algorithm's correction in it; the gradient, before the correction; or (linear) the
    direction without the α w of a proximal term α(w − w^t), which is then added as weight decay is (FL-Simulator, and
    FedDyn's code)"""
    clip_eps: float = 0.0
    """added to the norm that clipping divides by (1e-6 in PyTorch's clip_grad_norm_)"""
    norm_eps: float = 0.0
    """added to the norms that perturbations are divided by, those of SAM and its kin (1e-7 in FL-Simulator)"""
    dual_steps: DualSteps = "own"
    """K by which SCAFFOLD, FedDC, FedCM and FedWMSAM divide changes: a client's own number of local steps; first:
    E n_0/B of client 0 for all, a fraction where it does not divide (FL-Simulator); mean: E ⌈(n/N)/B⌉ (FedDC's code)"""
    dual_lr: Literal["current", "first"] = "current"
    """η by which they divide them: the round's, or the first round's (the code of FedDyn and FedDC)"""
    batchnorm: Literal["average", "silo"] = "average"
    """BatchNorm's running statistics: averaged like the model, or silo: each client keeps its own (SiloBN), and the
    server's model is evaluated with those of all training data"""
    augment: Augmentation = "none"
    """augmentation of training images: horizontal flip and crop with padding 4; flip-crop-half: the crop with
    probability one half only, and of the normalised image (FedDyn's code and all that follow it); or none"""
    weighting: Weighting = "samples"
    """clients' weights p_i in the objective Σ p_i f_i, in every mean of models and in what clients and server keep:
    their shares of the samples, or 1/N each"""
    aggregation: Aggregation = "ratio"
    """of the sampled clients' models: ratio, Σ p_i w_i / Σ p_i, whose expected weights lean to equal ones if few are
    sampled, or unbiased, w + Σ p_i (w_i − w)/π with π the probability to be sampled, whose variance is larger"""
    seed: int = 0
    """seeds the initial model, the partition, the sampling of clients and the batches, each on its own"""
    device: str = "auto"
    """auto (CUDA where there is one), cpu, cuda or cuda:N"""
    dtype: PrecisionName = "float32"
    """floating-point type of parameters and arithmetic: float32, float64; tf32 (CUDA: products and convolutions of
    float32 numbers with ten-bit mantissas) or bf16 (products and convolutions of training and test in bfloat16,
    parameters, losses and the algorithm in float32)"""
    evaluated_model: Literal["server", "sampled-mean", "all-clients-mean", "last-two-mean"] = "server"
    """the model evaluated and saved: the server's, the mean of the sampled clients' local models, or that of all
    clients' latest ones, where a client never sampled counts with the initial model (FedDyn's and MAN's protocol),
    with the clients' weights; last-two-mean: of the server's model and the one of the round before (FedExP's
    protocol)"""
    eval_every: int = 1
    """test the model each so many rounds, and after the last; 0: only after the last"""
    client_accuracy: int = 0
    """evaluate by client each so many rounds, and after the last: mean and deviation over the clients of the accuracy
    on each one's training data, and on the test data as --client-test says; 0: never"""
    client_test: Literal["reweighted", "split"] = "reweighted"
    """a client's test data for --client-accuracy: all of them reweighted to its label ratios, or its own part of them,
    with its label ratios too, by a split over the clients (partition_test.npz)"""
    executor: ExecutorName = "auto"
    """the sampled clients are trained one after the other (sequential), or several at once (batched: as rows of one
    state, equal to rounding, several times as fast on small networks), or by a recorded step (graphs: CUDA graphs, not
    run on a GPU yet); auto: one of the first two, by the sizes of model and batch"""
    clients_at_once: Annotated[int | None, optional("N", "as many as fit")] = None
    """with --executor batched, so many clients at once at most"""
    client_store: Where = "auto"
    """what clients keep between rounds stays on the device, in host memory, or on disk in the run directory; auto: the
    first of them where the states of all clients take less than a quarter of the free memory"""
    save_every: int = 10
    """keep the model as rounds/NNNNN.pt each so many rounds; 0: only the initial one"""
    save_clients: bool = False
    """keep each sampled client's local model in the checkpoints (flat vectors; rounds/NNNNN.pt and ckpt.pt), with what
    it received and the perturbation of its last local step"""

    def __post_init__(self) -> None:
        def require(condition: bool, rule: str) -> None:
            if not condition:
                raise FedscapeError(rule)

        require(self.clients >= 1, f"--clients is {self.clients}: at least 1 is needed")
        require(
            1 <= self.per_round <= self.clients,
            f"--per-round is {self.per_round}: give a number from 1 to the {self.clients} clients there are",
        )
        require(self.rounds >= 0, f"--rounds is {self.rounds}: give 0 or more")
        require(self.local_epochs >= 1, f"--local-epochs is {self.local_epochs}: give at least 1")
        require(
            self.local_steps is None or self.local_steps >= 1, f"--local-steps is {self.local_steps}: give at least 1"
        )
        require(
            self.weighting in get_args(Weighting) and self.aggregation in get_args(Aggregation),
            f"the clients' weights are {self.weighting} and their aggregation is {self.aggregation}: give --weighting "
            "samples or uniform, and --aggregation ratio or unbiased",
        )
        require(
            self.clients_at_once is None or self.clients_at_once >= 1,
            f"--clients-at-once is {self.clients_at_once}: give at least 1",
        )
        require(self.clip >= 0, f"--clip is {self.clip}: give 0 (no clipping) or more")
        require(
            self.clip_at in get_args(ClipAt) and self.dual_steps in get_args(DualSteps),
            f"--clip-at is {self.clip_at} and --dual-steps {self.dual_steps}: give {', '.join(get_args(ClipAt))}, and "
            f"{', '.join(get_args(DualSteps))}",
        )
        require(self.dual_lr in ("current", "first"), f"--dual-lr is {self.dual_lr}: give current or first")
        require(self.clip_eps >= 0, f"--clip-eps is {self.clip_eps}: give 0 or more")
        require(self.norm_eps >= 0, f"--norm-eps is {self.norm_eps}: give 0 or more")
        require(self.client_accuracy >= 0, f"--client-accuracy is {self.client_accuracy}: give 0 or more")
        size = self.batch_size
        require(
            size == "full" or (isinstance(size, int) and size >= 1), f"--batch-size is {size}: give at least 1, or full"
        )
        require(self.lr > 0, f"--lr is {self.lr}: it must be above 0")
        self.schedule.check(self.rounds, self.lr)
        require(self.weight_decay >= 0, f"--weight-decay is {self.weight_decay}: give 0 or more")
        require(self.eval_every >= 0, f"--eval-every is {self.eval_every}: give 0 or more")
        require(self.save_every >= 0, f"--save-every is {self.save_every}: give 0 or more")

    @property
    def schedule(self) -> Schedule:
        """The local rate over the rounds."""
        return Schedule(self.lr_schedule, self.lr_decay, self.lr_step, self.lr_min, self.lr_warmup)

    @property
    def folder(self) -> Path | None:
        """The data folder as an absolute path, or ``None``."""
        return Path(self.data_dir).resolve() if self.data_dir else None

    def recorded(self) -> dict[str, Any]:
        """The fields by name, as ``config.json`` stores them."""
        return asdict(self)


SPEED = ("device", "data_dir", "client_store", "executor", "clients_at_once")
"""Settings that decide where and how a run computes and from where it reads, and not its result (but for rounding)."""
FREE_ON_RESUME = (
    *SPEED, "rounds", "eval_every", "client_accuracy", "client_test", "save_every", "save_clients",
)  # fmt: skip
"""Settings that may change when a run is resumed: they do not change what is computed in a round (another device
or executor changes it by rounding)."""
