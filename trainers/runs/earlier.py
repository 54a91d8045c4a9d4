"""Run directories of versions in which algorithms chose their clients' weights (``--weighting auto``)."""

from __future__ import annotations

from typing import Any

from landscape.errors import FedscapeError

Config = dict[str, Any]

_AUTO = dict.fromkeys(("fedavg", "fedprox", "fedavgm", "fedasam", "feddc", "fedgloss", "centralised"), "samples") | (
    dict.fromkeys(
        ("fedadam", "fedadagrad", "fedyogi", "scaffold", "feddyn", "fedspeed", "fedcm", "mimelite", "fedrobust",
         "fedsam", "fedgsam", "mofedsam", "fedsmoo", "adabest", "fedgamma", "fedlesam"), "uniform",
    )
)  # fmt: skip
"""What ``auto`` meant."""
_UNIFORM_STATES = (
    "scaffold", "feddyn", "feddc", "fedspeed", "fedcm", "mofedsam", "fedsmoo", "fedgamma", "fedlesam", "fedgloss",
)  # fmt: skip
"""Algorithms that had plain means beside the models' whatever the weights of these."""


def recorded_weighting(config: Config) -> str | None:
    """The clients' weights in a recorded run: ``samples``, ``uniform``, or what an earlier version made of them;
    ``None`` if it is not recorded.

    Example:
        >>> from trainers.runs.earlier import recorded_weighting
        >>> recorded_weighting({"algorithm": {"name": "fedsam"}, "settings": {"weighting": "auto"}})
        'uniform'
        >>> recorded_weighting({"algorithm": {"name": "scaffold"}, "settings": {"weighting": "samples"}})
        'samples (states uniform)'
    """
    settings, name = config["settings"], config["algorithm"]["name"]
    weighting = settings.get("weighting")
    if "aggregation" in settings or weighting is None:
        return weighting
    meant = _AUTO.get(name, "auto") if weighting == "auto" else weighting
    return f"{meant} (states uniform)" if meant == "samples" and name in _UNIFORM_STATES else meant


def in_todays_terms(config: Config, asked: str, place: str) -> Config:
    """The configuration of a run that is to be resumed, of an earlier version or not; ``asked`` is its weighting now.

    Raises:
        FedscapeError: this version has no such run, or another weighting must be asked for.
    """
    settings, algorithm = config.get("settings", {}), config.get("algorithm", {})
    if "aggregation" in settings or "weighting" not in settings:
        return config
    name, weighting = algorithm.get("name"), recorded_weighting(config)
    plain = weighting == "uniform" or settings.get("evaluated_model", "server") == "server"
    if weighting not in ("samples", "uniform") or not plain:
        raise FedscapeError(
            f"{place} holds a run of an earlier version, in which the clients' weights of {name} were "
            f"{settings['weighting']} for the models and equal for other means: this version has one kind of weights "
            "for all and cannot go on with it; start it anew with another --out"
        )
    if settings["weighting"] == "auto" and asked != weighting:
        raise FedscapeError(
            f"{place} was begun with --weighting auto, which meant {weighting} for {name}: "
            f"give --weighting {weighting} to resume it, or another --out"
        )
    if name in ("feddc", "fedspeed") and "variant" in algorithm:
        algorithm = {"server_correction": "sampled" if algorithm["variant"] == "paper" else "all"} | algorithm
    if name == "feddc":
        algorithm = {key: value for key, value in algorithm.items() if key != "variant"}
    return {**config, "algorithm": algorithm, "settings": {**settings, "weighting": weighting}}
