"""Parts that can be added to any algorithm: ascent steps, server optimisers, averaging, augmentation, adversaries."""

from trainers.parts.adversary import Adversary, Affine
from trainers.parts.ascent import ASAM, GSAM, LESAM, SAM, Ascent, Surroundings
from trainers.parts.augmentation import cutout, flip_crop, mixup
from trainers.parts.parts import Parts
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, ServerOptimizer, Yogi
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
    "Momentum",
    "Parts",
    "RunningMean",
    "ServerOptimizer",
    "Surroundings",
    "Yogi",
    "cutout",
    "flip_crop",
    "mixup",
]
