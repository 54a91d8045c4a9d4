"""The options of a command: all of them, the commonest for a short ``--help``, the one that was meant."""

from __future__ import annotations

import difflib
import re
import textwrap
import warnings
from argparse import SUPPRESS
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from landscape.terminal.guides import Guide, screen_width
from landscape.terminal.program import spoken

_MEANT = {
    "--lr": ("learning-rate", "local-lr", "client-lr", "local-learning-rate", "client-learning-rate", "eta-l"),
    "--server-lr": ("global-lr", "global-learning-rate", "server-learning-rate", "eta-g"),
    "--lr-decay": ("learning-rate-decay", "lr-gamma"),
    "--weight-decay": ("wd", "weightdecay", "l2", "l2-reg"),
    "--local-epochs": ("epochs", "epoch", "num-epochs", "local-epoch", "client-epochs"),
    "--local-steps": ("local-iterations", "num-local-steps"),
    "--rounds": ("comm-rounds", "num-rounds", "communication-rounds", "global-rounds", "comms", "num-server-rounds"),
    "--batch-size": ("batchsize", "bs", "local-batch-size", "mini-hessian-batch-size"),
    "--clients": ("num-clients", "total-client", "n-clients", "num-supernodes", "num-users", "n-parties"),
    "--per-round": ("clients-per-round", "active-ratio", "fraction-fit", "num-clients-per-round", "join-ratio", "frac"),
    "--partition": ("split-rule", "split-coef", "alpha", "dirichlet", "dirichlet-alpha", "non-iid", "iid"),
    "--model": ("model-name", "arch", "architecture", "net", "network"),
    "--data": ("dataset", "data-name", "data-file", "loader"),
    "--data-dir": ("datapath", "data-root", "dataroot", "root", "data-path", "data-folder"),
    "--out": ("out-file", "out-dir", "output", "output-dir", "out-path", "save-dir", "surf-file", "log-dir"),
    "--resume": ("continue", "restart"),
    "--device": ("gpu", "cuda", "cpu", "use-cuda", "gpus", "ngpu"),
    "--top": ("topk", "top-k", "top-n", "num-eigenthings", "neigs", "num-eigenvalues", "k"),
    "--density": ("esd", "spectrum", "spectral-density"),
    "--trace-probes": ("hutchinson", "n-v"),
    "--tolerance": ("tol",),
    "--samples": ("num-samples", "hessian-batch-size", "n-samples", "num-data"),
    "--checkpoints": ("resume-path",),
    "--points": ("xnum", "grid", "resolution", "num-points", "steps-per-axis"),
    "--span": ("distance", "x", "y", "range", "radius"),
    "--normalisation": ("normalization", "norm", "xnorm", "ynorm", "norm-type"),
    "--normalise": ("normalize",),
    "--directions": ("dir-file", "dir-type"),
    "--plane": ("type", "plane-type", "method"),
    "--plot": ("figure-file", "save-plot", "show", "png"),
    "--workers": ("num-workers", "threads", "processes", "nproc"),
    "--threads": ("num-threads", "workers"),
    "--jobs": ("workers", "parallel", "n-jobs"),
    "--seed": ("random-seed", "rand-seed", "manual-seed"),
    "--quiet": ("silent", "no-progress", "q"),
    "--targets": ("target", "target-accuracy"),
}  # fmt: skip
"""Our options, and what FL-Simulator, Flower, PyHessian, loss-landscape and others call them."""


@dataclass(frozen=True)
class Option:
    """An option, or a pair of them such as ``--trace`` and ``--no-trace``.

    Attributes:
        names: with their dashes.
        value: what follows, such as ``INT``; empty for a switch.
        text: its help, with its default.
    """

    names: tuple[str, ...]
    value: str
    text: str


def options(kind: Any, config: Sequence[Any] = ()) -> list[Option]:
    """The options of a dataclass or function, as tyro makes them of its fields.

    Example:
        >>> from landscape.storage.style import PictureStyle
        >>> from landscape.terminal.options import options
        >>> [(option.names, option.value) for option in options(PictureStyle)][:2]
        [(('--style',), '{screen,paper}'), (('--venue',), '{aaai2024,aistats2025,colm2026,...}')]
    """
    with warnings.catch_warnings():
        # Tyro says that this will go; its own --help is a text alone, and its parsers are private.
        warnings.simplefilter("ignore", DeprecationWarning)
        parser = tyro.extras.get_parser(kind, config=tuple(config))
    return [
        Option(tuple(action.option_strings), _value(action.metavar), " ".join((action.help or "").split()))
        for action in parser._actions
        if action.option_strings and action.help != SUPPRESS and "--help" not in action.option_strings
    ]


def short_help(guide: Guide, every: Sequence[Option], common: Sequence[str]) -> str:
    """What a command does, its examples, its commonest options, and how many there are."""
    width = screen_width()
    by_name = {name: option for option in every for name in option.names}
    shown = list(dict.fromkeys(by_name[name] for name in common if name in by_name))
    heads = [f"  {', '.join(option.names)} {option.value}".rstrip() for option in shown]
    column = min(28, max((len(head) for head in heads), default=0)) + 2
    lines = []
    for head, option in zip(heads, shown, strict=True):
        told = textwrap.wrap(_first_words(option.text), width - column)
        if len(head) > column - 2:
            lines.append(head)
            head = ""
        lines += [f"{head.ljust(column)}{told[0]}".rstrip(), *(" " * column + line for line in told[1:])]
    count = len(every)
    rest = f"--help-all lists all {count} options" if count > len(shown) else "--help-all says more of them"
    return spoken("\n".join([guide.text(), "", *lines, *[""] * bool(lines), rest]))


def misspelt(words: Sequence[str], every: Sequence[Option]) -> str | None:
    """The sentence about the first word that looks like an option and is none; ``None`` if all are there.

    Example:
        >>> from landscape.terminal.options import Option, misspelt
        >>> every = [Option(("--lr",), "FLOAT", ""), Option(("--rounds",), "INT", "")]
        >>> misspelt(["--learning-rate", "0.1"], every), misspelt(["--lr=0.1"], every)
        ('there is no option --learning-rate: did you mean --lr?', None)
    """
    known = [name for option in every for name in option.names]
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name = word.partition("=")[0]
            plain = name.replace("_", "-")
            if plain not in (*known, "--help", "--help-all", "-h"):
                near = meant(plain, known)
                return f"there is no option {name}" + (f": did you mean {near}?" if near else "")
    return None


def meant(name: str, known: Sequence[str]) -> str | None:
    """The option of a command that goes by another name elsewhere, or looks most like it."""
    words = name.lstrip("-").lower()
    for ours, others in _MEANT.items():
        if ours in known and words in others:
            return ours
    near = difflib.get_close_matches(f"--{words}", known, n=1, cutoff=0.7)
    return near[0] if near else None


def _value(metavar: Any) -> str:
    """What follows an option, with three of many choices."""
    text = str(metavar or "")
    choices = text[1:-1].split(",")
    return "{" + ",".join(choices[:3]) + ",...}" if text.startswith("{") and len(choices) > 6 else text


def _first_words(text: str) -> str:
    """The help of an option as far as its first semicolon outside brackets, with the default where it says something.

    Example:
        >>> from landscape.terminal.options import _first_words
        >>> _first_words("one (two; three); four (default: 1)"), _first_words("do it; more (default: False)")
        ('one (two; three) (default: 1)', 'do it')
    """
    told, _, default = text.rpartition(" (default: ")
    if not told:
        return text
    end = next((at for at, c in enumerate(told) if c == ";" and told.count("(", 0, at) == told.count(")", 0, at)), None)
    return told[:end] + (f" (default: {default}" if default not in ("False)", "'')", "none)") else "")
