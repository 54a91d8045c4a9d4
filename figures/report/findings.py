"""What the page says first: the verdict, and what to trust of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.surface.points import LAMBDA_TOLERANCE
from figures.report.alignments import ASKED
from figures.report.effects import Group, difference, ratio, sentence
from figures.report.subjects import Subject
from landscape.errors import FedscapeError
from trainers.runs.protocol import differences
from trainers.runs.records import SAME_RESULT

Weight = Literal["void", "care", "sound"]
_FREE = {*SAME_RESULT, "seed"}
_MAP_TOLERANCE = 2 * LAMBDA_TOLERANCE
"""How far apart, as a share, λ_max of a map and λ1 may be: the former's error bound, and what differs in rounding."""
_FEW = 3
"""Models whose like remarks are told one by one."""


@dataclass(frozen=True)
class Note:
    """Something to know about the numbers.

    Attributes:
        weight: ``void``: it can void a conclusion; ``care``: it narrows it; ``sound``: it was checked, and is well.
        text: a sentence.
    """

    weight: Weight
    text: str


def verdict(subjects: Sequence[Subject]) -> list[str]:
    """A sentence for each group against the first one: λ1 and test accuracy, with intervals over the seeds.

    The intervals hold together: with m comparisons each has the level 1 − 0.05/m (Bonferroni).
    """
    names = list(dict.fromkeys(one.group for one in subjects))
    if len(names) == 1:
        return [f"All models are of one group, {names[0]}: there is nothing to compare it with."]
    base, level = names[0], 1 - 0.05 / (2 * (len(names) - 1))
    told = []
    for name in names[1:]:
        pair = [[one for one in subjects if one.group == group] for group in (name, base)]
        mine, others = (_sharpness(group) for group in pair)
        try:
            of_curvature = ratio(mine, others, level)
        except FedscapeError:  # not above 0
            of_curvature = difference(mine, others, level)
        told.append(f"{sentence('λ1', of_curvature, name, base)}.")
        mine, others = (_accuracy(group) for group in pair)
        if mine.values and others.values:
            effect = difference(mine, others, level)
            told.append(f"{sentence('Test accuracy', effect, name, base, points=True)}.")
    return told


def _sharpness(group: Sequence[Subject]) -> Group:
    values, errors = {}, {}
    for place, one in enumerate(group):
        eigen, sampling = one.report.eigen, one.report.sampling
        values[_seed(group, place)] = float(eigen.values[0])
        subset = 0.0 if sampling is None else float(sampling.high[0] - sampling.low[0]) / 2
        errors[_seed(group, place)] = max(float(eigen.bounds[0]), subset)
    return Group(group[0].group, values, errors)


def _accuracy(group: Sequence[Subject]) -> Group:
    found = {_seed(group, i): one.test.accuracy for i, one in enumerate(group) if one.test.accuracy is not None}
    return Group(group[0].group, found)


def _seed(group: Sequence[Subject], place: int) -> int:
    """The seed; numbers that pair with nothing where models of a group share one."""
    seeds = [one.seed for one in group]
    return seeds[place] if len(set(seeds)) == len(seeds) else -1 - place


def notes(subjects: Sequence[Subject], remarks: Sequence[str] = ()) -> list[Note]:
    """What can void a conclusion first, then what narrows it, then what is well.

    Args:
        subjects: the models.
        remarks: what else narrows it, in sentences.
    """
    said = [Note("care", f"{text[0].upper()}{text[1:]}.") for text in remarks]
    return [*_voiding(subjects), *_narrowing(subjects), *said, *_well(subjects)]


def _voiding(subjects: Sequence[Subject]) -> list[Note]:
    found = [Note("void", text) for text in _remarks(subjects, largest=True)]
    found += [
        Note("void", f"{one.label}: the run {one.origin.recorded.status_text}; the model is that of round "
             f"{one.origin.checkpoint.round}.")
        for one in subjects
        if one.origin.recorded is not None and one.origin.recorded.status == "diverged"
    ]  # fmt: skip
    found += [
        Note("void", f"{one.label}: its measured loss, {one.report.loss:.3g}, is above ln {classes} = "
             f"{math.log(classes):.3g}, that of a guess: how flat it is there says nothing of an algorithm.")
        for one in subjects
        if (classes := _classes(one)) and one.report.loss > math.log(classes)
    ]  # fmt: skip
    told = {one.group: one.origin.recorded.protocol for one in subjects if one.origin.recorded is not None}
    found += [Note("void", f"{text[0].upper()}{text[1:]}.") for text in differences(told)]
    for name in ("samples", "split", "matrix"):
        values = sorted({str(getattr(one.report, name)) for one in subjects})
        if len(values) > 1:
            found.append(Note("void", f"The spectra are of different {name}: {', '.join(values)}."))
    nets = sorted({f"{one.origin.checkpoint.model.get('name')} ({one.report.parameters:,})" for one in subjects})
    if len(nets) > 1:
        several = f"The models are of different networks (parameters): {', '.join(nets)}. Their λ1 do not compare."
        found.append(Note("void", several))
    for one in subjects:
        if (apart := _apart(one)) is not None and apart > _MAP_TOLERANCE:
            wrong = f"{one.label}: λ_max at the centre of its map and λ1 differ by {apart:.1%}: one of them is wrong."
            found.append(Note("void", wrong))
    return found


def _classes(one: Subject) -> int:
    """Classes that a model tells apart by cross-entropy; 0 of another task, or where the file does not say."""
    checkpoint = one.origin.checkpoint
    if checkpoint.data.get("task") != "classification":
        return 0
    return int(checkpoint.model.get("kwargs", {}).get("classes", 0))


def _apart(one: Subject) -> float | None:
    """How far λ_max in the centre of the map is from λ1, which must be the same; ``None`` without both."""
    surface, eigen = one.curvature_map, one.report.eigen
    if surface is None or surface.lambda_max is None or surface.centre is None or not eigen.converged[0]:
        return None
    first = float(eigen.values[0])
    return abs(float(surface.lambda_max[surface.centre]) - first) / abs(first) if first else None


def _remarks(subjects: Sequence[Subject], *, largest: bool) -> list[str]:
    """What the measurements say of themselves that concerns λ1 or the products, or else trace and density; what many
    models have in common, in one sentence."""
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for one in subjects:
        for said in one.report.remarks([0]):
            if said.startswith(("trace", "density")) != largest:
                by_kind.setdefault(said.partition(":")[0], []).append((one.label, said))
    found = []
    for kind, each in by_kind.items():
        if len(each) > _FEW:
            found.append(f"{kind} in {len(each)} of {len(subjects)} models (see Provenance for each).")
        else:
            found += [f"{label}: {said}." for label, said in each]
    return found


def _narrowing(subjects: Sequence[Subject]) -> list[Note]:
    found = [Note("care", text) for text in _remarks(subjects, largest=False)]
    for name, values in _differing(subjects).items():
        told = ", ".join(f"{value} ({', '.join(groups)})" for value, groups in values.items())
        found.append(Note("care", f"The runs differ in {name.replace('_', ' ')}: {told}."))
    counts = {group: sum(one.group == group for one in subjects) for group in dict.fromkeys(o.group for o in subjects)}
    if few := [group for group, count in counts.items() if count == 1]:
        found.append(
            Note("care", f"There is one seed of {', '.join(few)}: how much another seed would change is not known.")
        )
    elif min(counts.values()) < 5 and len(counts) > 1:
        found.append(
            Note("care", f"{min(counts.values())} seeds are few: intervals are wide, and rest on normal scatter.")
        )
    subset = next((one.report for one in subjects if one.report.sampling), None)
    if subset is not None and subset.sampling is not None:
        found.append(
            Note(
                "care",
                f"Spectra are of {subset.samples:,} of {subset.sampling.population:,} samples; the intervals of λ1 "
                "hold what the subset leaves open, those of the density do not.",
            )
        )
    worst = [
        (one.surface.estimated_error, one.label) for one in subjects if one.surface and one.surface.estimated_error
    ]
    if worst:
        error, label = max(worst)
        found.append(
            Note(
                "care",
                f"Surfaces are interpolated between measured points, by up to {error:.2g} (relative) in {label}.",
            )
        )
    return [*found, *_unconverged(subjects), *_other_alignments(subjects)]


def _other_alignments(subjects: Sequence[Subject]) -> list[Note]:
    """In what the alignments differ that are shown beside each other."""
    given = [(one.label, one.alignment.asked) for one in subjects if one.alignment is not None]
    found = []
    for name, told in ASKED.items():
        values: dict[str, list[str]] = {}
        for label, asked in given:
            values.setdefault(str(asked[name]), []).append(label)
        if len(values) > 1:
            each = "; ".join(f"{value} ({', '.join(labels)})" for value, labels in values.items())
            found.append(Note("care", f"Local against global was measured with different {told}: {each}."))
    return found


def _unconverged(subjects: Sequence[Subject]) -> list[Note]:
    """Which eigenvalues of clients and layers have not converged."""
    found = []
    for name in ("clients", "layers"):
        measured = [(one.label, getattr(one, name)) for one in subjects]
        doubtful = {label: int((~each.converged[:, 0]).sum()) for label, each in measured if each is not None}
        worst = {label: count for label, count in doubtful.items() if count}
        if worst:
            most = max(worst, key=lambda label: worst[label])
            found.append(
                Note(
                    "care",
                    f"λ_max of {name} has NOT CONVERGED in {len(worst)} of {len(doubtful)} models, of {most} "
                    f"in {worst[most]} {name}: they are drawn with a cross.",
                )
            )
    return found


def _well(subjects: Sequence[Subject]) -> list[Note]:
    eigen = [one.report.eigen for one in subjects]
    found = []
    if all(bool(each.converged[0]) for each in eigen):
        worst = max(float(each.bounds[0] / abs(each.values[0])) if each.values[0] else 0.0 for each in eigen)
        found.append(Note("sound", f"Every λ1 has converged; its numerical error is at most {worst:.1g} of it."))
    looked = [each.asymmetry for each in eigen if each.asymmetry is not None]
    if len(looked) == len(eigen):
        found.append(
            Note(
                "sound",
                f"Hessian-vector products are symmetric, as they must be, to {max(looked):.1g} beyond rounding.",
            )
        )
    maps = [apart for one in subjects if (apart := _apart(one)) is not None and apart <= _MAP_TOLERANCE]
    if maps:
        found.append(
            Note(
                "sound",
                f"λ_max at the centre of {len(maps)} maps, measured by itself, is λ1 to {max(maps):.1g} of it.",
            )
        )
    if not any(one.report.sampling for one in subjects):
        report = subjects[0].report
        found.append(Note("sound", f"Spectra are of all {report.samples:,} {report.split} samples."))
    return found


def _differing(subjects: Sequence[Subject]) -> dict[str, dict[str, list[str]]]:
    """Settings in which groups differ: value, and the groups that have it, by name."""
    groups: dict[str, dict[str, Any]] = {}
    for one in subjects:
        groups.setdefault(one.group, one.origin.settings)
    known = {group: settings for group, settings in groups.items() if settings}
    found: dict[str, dict[str, list[str]]] = {}
    for name in dict.fromkeys(name for settings in known.values() for name in settings if name not in _FREE):
        values: dict[str, list[str]] = {}
        for group, settings in known.items():
            values.setdefault(str(settings.get(name, "not recorded")), []).append(group)
        if len(values) > 1:
            found[name] = values
    return found
