"""Parts that can be added to any algorithm: ascent steps, server optimisers, weight averaging, augmentation."""

from trainers.parts.ascent import ASAM, GSAM, SAM, Ascent
from trainers.parts.augmentation import cutout, flip_crop, mixup
from trainers.parts.parts import Parts
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
    "Momentum",
    "Parts",
    "RunningMean",
    "ServerOptimizer",
    "Yogi",
    "cutout",
    "flip_crop",
    "mixup",
]
