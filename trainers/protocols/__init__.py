"""What a repository's code does, as options of ours with their sources: ``--protocol NAME``, a declaration each."""

from landscape.errors import FedscapeError
from landscape.registry import unknown_name
from trainers.protocols.adabest import ADABEST
from trainers.protocols.feddc import FEDDC
from trainers.protocols.feddyn import FEDDYN
from trainers.protocols.fedgloss import FEDGLOSS
from trainers.protocols.fedlesam import FEDLESAM
from trainers.protocols.fedman import FEDMAN
from trainers.protocols.fedsam import FEDSAM
from trainers.protocols.fl_simulator import FL_SIMULATOR
from trainers.protocols.protocol import Expanded, Line, Protocol, given_options

__all__ = ["PROTOCOLS", "Expanded", "Line", "Protocol", "expanded", "protocol"]

PROTOCOLS = {each.name: each for each in (FL_SIMULATOR, FEDDYN, FEDDC, FEDSAM, FEDMAN, FEDLESAM, FEDGLOSS, ADABEST)}
"""The repositories by the names of ``--protocol``."""


def protocol(name: str) -> Protocol:
    """The protocol of a name.

    Raises:
        FedscapeError: there is none.

    Example:
        >>> from trainers.protocols import protocol
        >>> protocol("feddyn").lines("feddyn")["alpha"]
        Line(value=0.01, source='example_cifar_10.py:65')
    """
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, list(PROTOCOLS))
    return PROTOCOLS[name]


def expanded(algorithm: str, arguments: list[str]) -> Expanded | None:
    """The options that a command line's ``--protocol`` stands for, ``None`` where it has none.

    Args:
        algorithm: its name.
        arguments: what follows it on the command line.

    Raises:
        FedscapeError: there is no such protocol, or its name is missing.

    Example:
        >>> from trainers.protocols import expanded
        >>> expanded("fedavg", ["--protocol", "fl-simulator", "--rounds", "5"]).arguments()[:4]
        ['--data', 'cifar10', '--partition', 'fl-simulator:0.6']
    """
    given = given_options(arguments)
    if "protocol" not in given:
        return None
    name = given["protocol"]
    if not name:
        raise FedscapeError(f"--protocol needs a name: give one of {', '.join(PROTOCOLS)}")
    return Expanded(protocol(name), algorithm, given)
