"""Federated training: algorithms as motion on the loss landscape, leaving checkpoints."""

from trainers.algorithm import Algorithm, Mean, Round, State, unit
from trainers.algorithms import ALGORITHMS, FedASAM, FedAvg, FedProx, FedSAM, Scaffold
from trainers.ascent import ASAM, SAM
from trainers.run import Run, train
from trainers.settings import Settings

__all__ = [
    "ALGORITHMS",
    "ASAM",
    "SAM",
    "Algorithm",
    "FedASAM",
    "FedAvg",
    "FedProx",
    "FedSAM",
    "Mean",
    "Round",
    "Run",
    "Scaffold",
    "Settings",
    "State",
    "train",
    "unit",
]
