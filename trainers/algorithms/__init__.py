"""The federated algorithms, one file each or a row of ``combinations`` or ``newer_combinations``, and their names."""

from landscape.registry import Registry
from trainers.algorithm import Algorithm
from trainers.algorithms.adabest import AdaBest
from trainers.algorithms.centralised import Centralised
from trainers.algorithms.combinations import (
    FedAdagrad,
    FedAdam,
    FedASAM,
    FedAvgM,
    FedGAMMA,
    FedGSAM,
    FedRobust,
    FedSAM,
    FedYogi,
    MoFedSAM,
)
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.fedcm import FedCM
from trainers.algorithms.feddc import FedDC
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.fedgf import FedGF
from trainers.algorithms.fedgloss import FedGloSS
from trainers.algorithms.fedlesam import FedLESAM
from trainers.algorithms.fedprox import FedProx
from trainers.algorithms.fedsmoo import FedSMOO
from trainers.algorithms.fedspeed import FedSpeed
from trainers.algorithms.fedvarp import FedVARP
from trainers.algorithms.fedwmsam import FedWMSAM
from trainers.algorithms.mimelite import MimeLite
from trainers.algorithms.newer_combinations import FedACG, FedExP, FedInit, FedNova, FedNSAM, FedSWA
from trainers.algorithms.scaffold import Scaffold

__all__ = ["ALGORITHMS", "algorithm_name"]

ALGORITHMS: Registry[type[Algorithm]] = Registry("algorithm")
for _kind in (
    FedAvg, FedProx, FedAvgM, FedAdam, FedAdagrad, FedYogi, Scaffold, FedDyn, FedDC, FedSpeed, FedCM, MimeLite,
    FedRobust, FedSAM, FedGSAM, FedASAM, MoFedSAM, FedSMOO, AdaBest, FedGAMMA, FedLESAM, FedGloSS, Centralised,
    FedInit, FedACG, FedNSAM, FedNova, FedExP, FedVARP, FedGF, FedWMSAM, FedSWA,
):  # fmt: skip
    ALGORITHMS.register(_kind.__name__.lower())(_kind)
    __all__ += [_kind.__name__]


def algorithm_name(algorithm: Algorithm) -> str:
    """The registered name of an algorithm; its class's ``module:name`` where it is the user's own.

    Example:
        >>> from trainers.algorithms import ALGORITHMS, FedASAM, algorithm_name
        >>> algorithm_name(FedASAM(rho=0.7)), ALGORITHMS.get("fedasam")
        ('fedasam', <class 'trainers.algorithms.combinations.FedASAM'>)
    """
    for name, kind in ALGORITHMS.items():
        if type(algorithm) is kind:
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"
