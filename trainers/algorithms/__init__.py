"""The algorithms by name: one file and one line here each."""

from landscape.registry import Registry
from trainers.algorithm import Algorithm
from trainers.algorithms.fedasam import FedASAM
from trainers.algorithms.fedavg import FedAvg
from trainers.algorithms.fedprox import FedProx
from trainers.algorithms.fedsam import FedSAM
from trainers.algorithms.scaffold import Scaffold

ALGORITHMS: Registry[type[Algorithm]] = Registry("algorithm")
ALGORITHMS.register("fedavg")(FedAvg)
ALGORITHMS.register("fedprox")(FedProx)
ALGORITHMS.register("fedsam")(FedSAM)
ALGORITHMS.register("fedasam")(FedASAM)
ALGORITHMS.register("scaffold")(Scaffold)


def algorithm_name(algorithm: Algorithm) -> str:
    """The registered name of an algorithm; its class's ``module:name`` where it is the user's own."""
    for name, kind in ALGORITHMS.items():
        if type(algorithm) is kind:
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"


__all__ = ["ALGORITHMS", "FedASAM", "FedAvg", "FedProx", "FedSAM", "Scaffold", "algorithm_name"]
