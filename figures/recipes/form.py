"""The form of a paper's runs: what the paper prints, or what its authors' code does (:mod:`trainers.protocols`)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from figures.recipes.recipe import Choice, Order
from landscape.errors import FedscapeError
from trainers.algorithms import algorithm_name
from trainers.protocols import protocol
from trainers.runs import PlannedRun

FORM = {
    "form": Choice(
        "code",
        "code: the runs take from the authors' code what the paper does not print, or prints otherwise "
        "(`fedscape train ALGORITHM --protocol NAME --show`); paper: they do not",
        {"smoke": "paper", "small": "paper"},
    )
}
"""The choice of the form, of every recipe whose runs have a code."""
_SETTINGS = (
    "sampling", "last_batch", "weighting", "clip", "clip_at", "clip_eps", "norm_eps", "dual_steps", "dual_lr",
    "augment", "normalise", "evaluated_model",
)  # fmt: skip
_HYPER_PARAMETERS = ("variant", "sizes", "v0", "proximal", "server_correction")
_PARTS = {"swa": {"swa_variant": "variant"}, "man": {"man_layers": "layers", "man_variance": "variance"}}


def in_form(order: Order, run: PlannedRun, name: str, but: tuple[str, ...] = ()) -> PlannedRun:
    """A run in the form that is chosen.

    Args:
        order: for the choice; at the smaller scales the paper's form is the default.
        run: in the paper's form.
        name: of the protocol.
        but: options that stay as they are, because the recipe has a choice of its own for them.

    Raises:
        FedscapeError: another form than those there are.
    """
    asked = order.choice("form") if "form" in order.recipe.choices else FORM["form"].value(order.scale, None)
    if asked not in ("code", "paper"):
        raise FedscapeError(f"the form of the runs is '{asked}': choose form=code or form=paper")
    if asked == "paper":
        return run
    given = {"data": run.settings.data, "model": run.settings.model, **dict.fromkeys(run.parts.chosen(), "")}
    values = protocol(name).values(algorithm_name(run.algorithm), None, **given)
    values = {option: value for option, value in values.items() if option not in but}
    own = {each.name for each in fields(run.algorithm)} & set(_HYPER_PARAMETERS)
    parts: dict[str, Any] = {
        part: replace(
            getattr(run.parts, part), **{there: values[option] for option, there in names.items() if option in values}
        )
        for part, names in _PARTS.items()
        if part in run.parts.chosen()
    }
    return PlannedRun(
        replace(run.algorithm, **{option: values[option] for option in own & values.keys()}),
        replace(run.settings, **{option: values[option] for option in _SETTINGS if option in values}),
        replace(run.parts, **parts),
    )
