"""Federated training: algorithms, the parts that go with them, and runs that write checkpoints."""

import landscape.starting  # noqa: F401 - first: Ctrl-C is quiet from here on
from landscape.activations import MAN
from trainers.algorithm import Algorithm, Mean, Round, State, unit
from trainers.algorithms import (
    ALGORITHMS,
    AdaBest,
    Centralised,
    FedAdagrad,
    FedAdam,
    FedASAM,
    FedAvg,
    FedAvgM,
    FedCM,
    FedDC,
    FedDyn,
    FedGAMMA,
    FedGloSS,
    FedGSAM,
    FedLESAM,
    FedProx,
    FedRobust,
    FedSAM,
    FedSMOO,
    FedSpeed,
    FedYogi,
    MimeLite,
    MoFedSAM,
    Scaffold,
)
from trainers.parts.adversary import Affine
from trainers.parts.ascent import ASAM, GSAM, LESAM, SAM
from trainers.parts.local_optimizers import LocalAdamW, LocalMomentum
from trainers.parts.parts import Parts
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, Yogi
from trainers.parts.swa import SWA
from trainers.runs.run import Run, train
from trainers.settings import Settings

__all__ = [
    "ALGORITHMS",
    "ASAM",
    "GSAM",
    "LESAM",
    "MAN",
    "SAM",
    "SWA",
    "AdaBest",
    "Adagrad",
    "Adam",
    "Affine",
    "Algorithm",
    "Centralised",
    "FedASAM",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDC",
    "FedDyn",
    "FedGAMMA",
    "FedGSAM",
    "FedGloSS",
    "FedLESAM",
    "FedProx",
    "FedRobust",
    "FedSAM",
    "FedSMOO",
    "FedSpeed",
    "FedYogi",
    "LocalAdamW",
    "LocalMomentum",
    "Mean",
    "MimeLite",
    "MoFedSAM",
    "Momentum",
    "Parts",
    "Round",
    "Run",
    "Scaffold",
    "Settings",
    "State",
    "Yogi",
    "train",
    "unit",
]
