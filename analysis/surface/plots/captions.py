"""Values, labels, titles and captions of pictures of surfaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from analysis.surface.directions import FILTER
from analysis.surface.marked_points import Mark
from landscape import FedscapeError
from landscape.storage.canvas import phrases
from landscape.storage.style import current_style

if TYPE_CHECKING:
    from analysis.surface.values import Surface

Quantity = Literal["loss", "accuracy", "error", "lambda_max"]

WORDS: dict[Quantity, str] = {"loss": "loss", "accuracy": "accuracy", "error": "error", "lambda_max": "λ_max"}
"""The names of quantities in titles."""

NOT_TO_SCALE = "axes not to the same scale"
"""What captions of planes say whose axes are not (:func:`to_scale`)."""

_SCALED = " (filter-normalised)"
_STEP = "step along "
_PLANES = {"three": "three models", "pca": "a run's principal components"}


def values_of(surface: Surface, quantity: Quantity) -> np.ndarray:
    """The values of a quantity: loss or λ_max, or accuracy or error in percent, [ny, nx].

    Raises:
        FedscapeError: the surface has no accuracy or no λ_max, or there is no such quantity.
    """
    if quantity not in get_args(Quantity):
        raise FedscapeError(f"unknown quantity '{quantity}': give {', '.join(get_args(Quantity))}")
    if quantity == "loss":
        return surface.loss
    if quantity == "lambda_max":
        if surface.lambda_max is None:
            raise FedscapeError("λ_max was not measured on this surface: measure it with --lambda-max")
        return surface.lambda_max
    if surface.accuracy is None:
        raise FedscapeError(f"the surface has no {quantity}, because its targets are no classes: draw its loss")
    return 100 * surface.accuracy if quantity == "accuracy" else 100 - 100 * surface.accuracy


def stderr_of(surface: Surface, quantity: Quantity) -> np.ndarray | None:
    """The standard error of :func:`values_of`, where it was measured."""
    if quantity == "loss":
        return surface.loss_stderr
    if quantity == "lambda_max":
        return None
    return None if surface.accuracy_stderr is None else 100 * surface.accuracy_stderr


def label_of(surfaces: Sequence[Surface], quantity: Quantity) -> str:
    """The name of the quantity with its unit, and with the split where all surfaces are of the same."""
    first = surfaces[0]
    of = f"{first.split_word} " if len({surface.provenance.split for surface in surfaces}) == 1 else ""
    if quantity == "lambda_max":
        return f"λ_max of the Hessian ({of}loss)"
    return f"mean {of}{first.loss_name}" if quantity == "loss" else f"{of}{quantity} (%)"


def by_split(surfaces: Sequence[Surface]) -> list[list[Surface]]:
    """The surfaces, and those of the test data in a second list where all have them."""
    tests = [surface.test for surface in surfaces if surface.test is not None]
    return [list(surfaces), tests] if len(tests) == len(surfaces) else [list(surfaces)]


def to_scale(surface: Surface) -> bool:
    """Whether the axes can be drawn to the same scale: neither is more than 2.5 times as long as the other."""
    wide, high = np.ptp(surface.x), np.ptp(surface.y)
    return bool(max(wide, high) <= 2.5 * min(wide, high))


def axis_labels(surface: Surface) -> tuple[str, str]:
    """The labels of x and y."""
    scaled = _SCALED if surface.provenance.normalisation == FILTER else ""
    x, y = surface.axis_labels or (f"{_STEP}direction 1{scaled}", f"{_STEP}direction 2{scaled}")
    if current_style().paper:  # where there is no room for what the caption says too
        x, y = (label.removesuffix(_SCALED).removeprefix(_STEP) for label in (x, y))
    return x, y


def marks_of(surface: Surface) -> tuple[Mark, ...]:
    """The models in the plane; where none is named, the checkpoint in the origin, without a label."""
    return surface.marks or (Mark("", 0.0, 0.0),)


def computed_mask(surface: Surface) -> np.ndarray:
    """Which values are measured and not interpolated, [ny, nx]."""
    return surface.measured if surface.computed is None else surface.computed


def interpolated_mask(surface: Surface) -> np.ndarray:
    """Which values are interpolated, [ny, nx]."""
    return surface.measured & ~computed_mask(surface)


def default_labels(surfaces: Sequence[Surface]) -> list[str]:
    """The shortest labels that differ: the algorithm, else with the round, the split or the model's digest."""
    origins = [s.provenance for s in surfaces]
    rounds = [p.algorithm if p.round is None else f"{p.algorithm}, round {p.round}" for p in origins]
    splits = [f"{name}, {s.split_word}" for name, s in zip(rounds, surfaces, strict=True)]
    digests = [f"{p.algorithm} {p.checkpoint[:8]}" for p in origins]
    seeds = [f"{label}, seed {p.seed}" for label, p in zip(digests, origins, strict=True)]
    for labels in ([p.algorithm for p in origins], rounds, splits, digests, seeds):
        if len(set(labels)) == len(labels):
            return labels
    return [f"{i}: {label}" for i, label in enumerate(digests, 1)]


def line_labels(surfaces: Sequence[Surface]) -> list[str]:
    """Labels of lines: profiles of one checkpoint have the same label, a line between models has their names."""
    if all(len(surface.marks) > 1 for surface in surfaces):
        ends = [f"{s.marks[0].label} → {s.marks[-1].label}" for s in surfaces]
        return ends if len(set(ends)) == len(ends) else default_labels(surfaces)
    by_model = {s.provenance.checkpoint: s for s in surfaces}
    labels = dict(zip(by_model, default_labels(list(by_model.values())), strict=True))
    return [labels[s.provenance.checkpoint] for s in surfaces]


def check_comparable(surfaces: Sequence[Surface], labels: Sequence[str] | None = None) -> list[str]:
    """Check that the surfaces can share one scale, and return their labels.

    Raises:
        FedscapeError: there are none, not as many labels, or losses of several kinds or splits.
    """
    if not surfaces:
        raise FedscapeError("there is no surface to draw: give one or more")
    if labels is not None and len(labels) != len(surfaces):
        raise FedscapeError(f"{len(labels)} labels for {len(surfaces)} surfaces: give one for each")
    for name, of in (("split", [s.provenance.split for s in surfaces]), ("loss", [s.loss_label for s in surfaces])):
        if len(set(of)) > 1:
            found = ", ".join(dict.fromkeys(of))
            raise FedscapeError(f"the surfaces differ in their {name} ({found}): one scale cannot serve all")
    return list(labels) if labels is not None else default_labels(surfaces)


def title_of(surfaces: Sequence[Surface]) -> str:
    """The title: one model, or what several have in common."""
    first = surfaces[0]
    p = first.provenance
    model = p.algorithm + ("" if p.round is None else f", round {p.round}")
    head = "Loss along a line" if first.is_line else "Loss surface" if len(surfaces) == 1 else "Loss surfaces"
    if first.kind in _PLANES:
        head = f"Loss in the plane of {_PLANES[first.kind]}"
    elif len(surfaces) == 1 and first.kind == "profile":
        head = f"Loss along {'a random line' if len(first.y) == 1 else 'random lines'} through {model}"
    elif len(surfaces) == 1 and not first.is_line:
        head += f" around {model}"
    clients = "" if p.clients == "all" else f" of clients {p.clients}" if len(p.clients) < 30 else " of some clients"
    samples, *test_samples = (_common(f"{s.provenance.samples:,}" for s in split) for split in by_split(surfaces))
    also = "".join(f", {count} test samples" for count in test_samples)
    return (
        f"{head}\n{_common(s.provenance.model for s in surfaces)} on {_common(s.provenance.data for s in surfaces)}: "
        f"{samples} {first.split_word} samples{clients}{also}"
    )


def caption_of(surfaces: Sequence[Surface]) -> str:
    """The caption: models, plane, how many points were measured, estimated error, arithmetic; then what is missing."""
    recipes = [_recipe(surface, alone=len(surfaces) == 1) for surface in surfaces]
    parts = {name: _common(recipe[name] for recipe in recipes) for name in recipes[0]}
    sentences = [f"{name} {part}".strip() for name, part in parts.items() if part]
    missing = sum(int((~s.measured).sum()) for s in surfaces)
    not_finite = sum(s.not_finite for split in by_split(surfaces) for s in split)
    if not surfaces[0].is_line and not all(to_scale(surface) for surface in surfaces):
        sentences.append(NOT_TO_SCALE)
    if not_finite or missing:
        gaps = [f"{not_finite:,} not finite"] * bool(not_finite) + [f"{missing:,} not measured"] * bool(missing)
        return f"{'; '.join(sentences)}\nwithout a value: {', '.join(gaps)}"
    return "; ".join(sentences)


def wrapped(text: str, inches: float) -> str:
    """``text`` broken between its phrases into lines that fit a figure of this width, in the font size of captions
    (8 points)."""
    if current_style().paper:  # the caption is no part of the picture
        return text
    return "\n".join(phrases(line, max(30, int(14 * inches))) for line in text.split("\n"))


def _recipe(surface: Surface, *, alone: bool) -> dict[str, str]:
    """The parts of a caption by the word before them; ``alone``: of a single surface, whose accuracy is drawn too."""
    p = surface.provenance
    size = f"{len(surface.x)} × {len(surface.y)} points"
    if surface.is_line:
        size = f"{len(surface.x)} points" + (f" on each of {len(surface.y)} lines" if len(surface.y) > 1 else "")
    guessed = int(interpolated_mask(surface).sum())
    if guessed:
        size += f", {int(computed_mask(surface).sum()):,} of them measured, the others interpolated"
        if surface.estimated_error is not None:
            check = surface.check()
            size += f" (estimated errors: {surface.estimates(accuracy=alone)}{'' if check is None else f'; {check}'})"
    cosine = surface.notes.get("cosine")
    return {
        "checkpoint": _models(surface),
        "": surface.recipe,
        "seed": str(p.seed) if surface.kind in ("random", "profile") else "",
        "cosine": "" if cosine is None or surface.is_line else f"{round(cosine, 3) + 0.0:.3f}",
        "grid": size,
        "in": p.dtype,
    }


def _models(surface: Surface) -> str:
    """The first characters of the models' digests; of more than three, the first digest and how many others."""
    first, *others = [digest[:8] for digest in (surface.provenance.checkpoint, *surface.provenance.others.split())]
    return f"{first} and {len(others)} others" if len(others) > 2 else ", ".join([first, *others])


def _common(texts: Iterable[str]) -> str:
    return " | ".join(text for text in dict.fromkeys(texts) if text)
