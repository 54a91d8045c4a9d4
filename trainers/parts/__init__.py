"""Parts that can be added to any algorithm: ascent steps, optimisers, rate schedules, averaging, augmentation."""

from trainers.parts.ascent import ASAM, GSAM, SAM, Ascent
from trainers.parts.augmentation import cutout, flip_crop, mixup
from trainers.parts.local_optimizers import LocalAdamW, LocalMomentum, LocalOptimizer
from trainers.parts.parts import Parts
from trainers.parts.schedules import Schedule
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, ServerOptimizer, Yogi
from trainers.parts.swa import SWA, RunningMean

__all__ = [
    "ASAM",
    "GSAM",
    "SAM",
    "SWA",
    "Adagrad",
    "Adam",
    "Ascent",
    "LocalAdamW",
    "LocalMomentum",
    "LocalOptimizer",
    "Momentum",
    "Parts",
    "RunningMean",
    "Schedule",
    "ServerOptimizer",
    "Yogi",
    "cutout",
    "flip_crop",
    "mixup",
]
