"""Parts that go with any algorithm: ascent, starts, optimisers, schedules, averaging, augmentation, adversaries."""

from trainers.parts.adversary import Adversary, Affine
from trainers.parts.ascent import ASAM, GSAM, LESAM, SAM, Ascent, Surroundings
from trainers.parts.augmentation import cutout, flip_crop, mixup
from trainers.parts.local_optimizers import LocalAdamW, LocalMomentum, LocalOptimizer
from trainers.parts.local_schedules import Linear
from trainers.parts.parts import Parts
from trainers.parts.schedules import Schedule
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, ServerOptimizer, Yogi
from trainers.parts.server_steps import Extrapolation, Nesterov, Normalised
from trainers.parts.start import Relaxed
from trainers.parts.swa import SWA, RunningMean

__all__ = [
    "ASAM",
    "GSAM",
    "LESAM",
    "SAM",
    "SWA",
    "Adagrad",
    "Adam",
    "Adversary",
    "Affine",
    "Ascent",
    "Extrapolation",
    "Linear",
    "LocalAdamW",
    "LocalMomentum",
    "LocalOptimizer",
    "Momentum",
    "Nesterov",
    "Normalised",
    "Parts",
    "Relaxed",
    "RunningMean",
    "Schedule",
    "ServerOptimizer",
    "Surroundings",
    "Yogi",
    "cutout",
    "flip_crop",
    "mixup",
]
