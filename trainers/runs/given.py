"""What a recorded run was given, by the names of the command's options: the way back from ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from landscape.errors import FedscapeError
from landscape.storage.schema import shown
from trainers.flags import FLAGS


def given(config: Mapping[str, Any]) -> dict[str, Any]:
    """Algorithm, hyper-parameters, parts and settings of a run by the names of their options (``per_round``).

    A part that no option makes (an ascent of one's own) has its recorded name and none of its numbers.

    Args:
        config: ``algorithm``, ``parts`` and ``settings`` as ``config.json`` has them.

    Raises:
        FedscapeError: a part is none.

    Example:
        >>> from trainers import SAM, FedProx, Parts, Settings
        >>> from trainers.runs import PlannedRun
        >>> from trainers.runs.given import given
        >>> run = PlannedRun(FedProx(mu=0.1), Settings(rounds=5), Parts(ascent=SAM(0.2), mixup=True))
        >>> found = given(run.content)
        >>> [found[name] for name in ("algorithm", "mu", "ascent", "rho", "mixup", "rounds")]
        ['fedprox', 0.1, 'sam', 0.2, True, 5]
    """
    name, hyper = config["algorithm"]["name"], dict(config["algorithm"])
    del hyper["name"]
    found = {"algorithm": name, **hyper}
    parts = config.get("parts") or {}
    for flag in FLAGS:
        if part := parts.get(flag.name):
            try:
                found |= flag.recorded(part)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise FedscapeError(f"config.json is damaged: the part {flag.name} is {shown(part)}") from error
    return {**found, **config["settings"]}
