"""Parts that go with any algorithm: ascent, optimisers, rate schedules, averaging, augmentation, adversaries."""

from trainers.parts.adversary import Adversary, Affine
from trainers.parts.ascent import ASAM, GSAM, LESAM, SAM, Ascent, MiniBatch, Surroundings
from trainers.parts.augmentation import cutout, flip_crop, mixup
from trainers.parts.local_optimizers import LocalAdamW, LocalMomentum, LocalOptimizer
from trainers.parts.parts import Parts
from trainers.parts.privacy import ClientPrivacy
from trainers.parts.schedules import Schedule
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, ServerOptimizer, Yogi
from trainers.parts.sol import SOL
from trainers.parts.swa import SWA, RunningMean

__all__ = [
    "ASAM",
    "GSAM",
    "LESAM",
    "SAM",
    "SOL",
    "SWA",
    "Adagrad",
    "Adam",
    "Adversary",
    "Affine",
    "Ascent",
    "ClientPrivacy",
    "LocalAdamW",
    "LocalMomentum",
    "LocalOptimizer",
    "MiniBatch",
    "Momentum",
    "Parts",
    "RunningMean",
    "Schedule",
    "ServerOptimizer",
    "Surroundings",
    "Yogi",
    "cutout",
    "flip_crop",
    "mixup",
]
