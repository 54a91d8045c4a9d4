"""What the sharpness-aware papers say of clients' and the federation's losses, measured alike on one data set.

    python -m benchmarks.local_against_global            # some ten minutes on one core; what is there is kept
    python -m benchmarks.local_against_global --study cifar10 --data-dir DIR          # some hours
    python -m benchmarks.local_against_global --seeds 0 1 --rounds 20 --out /tmp/short --page /tmp/short.md

The tables go between the two marks of the page, docs/local-against-global.md; the text around them is kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro

from analysis import measure_alignment
from analysis.alignment.options import PARTS
from benchmarks.all_algorithms import write
from figures.report.effects import Effect, Group, difference, ratio
from landscape.terminal.table import Share, Table
from trainers import train
from trainers.__main__ import read

ALGORITHMS = (
    "fedavg", "fedsam", "fedasam", "fedgamma", "fedsmoo", "fedlesam", "fedgloss", "fednsam", "fedwmsam", "fedgf",
    "fedswa",
)  # fmt: skip
PARTITIONS = {"0": "dirichlet-hsu:0", "0.5": "dirichlet-hsu:0.5"}
"""The partition by α of Hsu et al.; 0: every client has one class."""


@dataclass(frozen=True)
class Study:
    """What is trained and how it is measured.

    Attributes:
        algorithms: at their defaults.
        budget: the options that are the same for all.
        seeds: of data, sampling and initial models.
        save_every: the distance of rounds that are kept; the last one is measured.
        measured: options of :func:`analysis.measure_alignment`.
        local: those whose local models are measured, which costs most.
    """

    algorithms: tuple[str, ...]
    budget: str
    seeds: tuple[int, ...]
    save_every: int
    measured: Mapping[str, Any]
    local: tuple[str, ...]


STUDIES = {
    "digits": Study(
        ALGORITHMS,
        "--data digits --model digits_mlp --clients 20 --per-round 5 --local-epochs 2 --batch-size 16 --lr 0.05",
        (0, 1, 2), 1, {"barrier_pairs": 0}, ALGORITHMS,
    ),
    "cifar10": Study(
        ("fedavg", "fedsam", "fedsmoo", "fedlesam"),
        "--data cifar10 --model lenet_fed --clients 100 --per-round 10 --local-epochs 1 --batch-size 50 --lr 0.1",
        (0,), 100, {"barrier_pairs": 0, "samples": 25, "tolerance": 0.05, "trace_probes": 2},
        ("fedsam",),
    ),
}  # fmt: skip
SHOWN = {
    "loss": "f(w)",
    "gradient_cosine_with_global": "cos(∇f_i, ∇f)",
    "worst_case_found": "worst rise found",
    "overlap_with_global": "overlap",
    "heterogeneity": "E‖(H_i − H)v‖² / E‖Hv‖²",
    "lambda_max_global": "λ_max of f at w",
    "lambda_max_own_local": "λ_max of f_i at w_i",
    "lambda_max_global_local": "λ_max of f at w_i",
}
"""Columns of the table of means, beside the accuracy."""
USED = {
    "used_length": "‖ε_i‖",
    "used_cosine_with_own": "cos(ε_i, ∇f_i)",
    "used_cosine_with_global": "cos(ε_i, ∇f)",
    "used_global_gain_at_rho": "rise of f by ε_i, at ρ",
    "used_agreement": "‖Σ p_i ε_i‖ / Σ p_i ‖ε_i‖",
    "used_worst_case_found": "worst rise found by Σ p_i ε_i, at ρ",
    "server_cosine_with_global": "cos(u, ∇f)",
    "server_worst_case_found": "worst rise found by u, at ρ",
}
"""Columns of the table of the perturbations that algorithms used: ε_i of their clients, u of their servers."""

Numbers = Mapping[str, float]
"""Quantities of one run by name, as in :data:`analysis.alignment.rounds.TITLES`, and ``test_accuracy``."""
Results = Mapping[tuple[str, str, int], Numbers]
"""By algorithm, α and seed."""


@dataclass(frozen=True)
class Claim:
    """What a paper says, in our words, as the sign of a comparison.

    Attributes:
        paper: which.
        sentence: the claim.
        quantity: what is compared, of :data:`SHOWN`, :data:`USED` and others; or two, whose ratio within a run is.
        runs: the algorithm, and the one that it is compared with; ``None``: with the number ``than``.
        sign: whether the first must be ``lower`` or ``higher``.
        kind: whether values are divided or subtracted.
        than: what a quantity on its own is compared with.
    """

    paper: str
    sentence: str
    quantity: str | tuple[str, str]
    runs: tuple[str, str | None]
    sign: Literal["lower", "higher"]
    kind: Literal["ratio", "difference"] = "ratio"
    than: float = 1.0


def _flatter(paper: str, name: str, than: str) -> list[Claim]:
    """A paper's method reaches a flatter minimum of f, and a better model, than another."""
    words = f"{name}'s model is at a flatter point of f than {than}'s"
    better = f"{name}'s model is more accurate than {than}'s on test data"
    return [
        Claim(paper, f"{words} (λ_max)", "lambda_max_global", (name, than), "lower"),
        Claim(paper, better, "test_accuracy", (name, than), "higher", "difference"),
    ]


def _closer(paper: str, name: str) -> Claim:
    """What a paper's method perturbs clients by is nearer to f's ascent than FedSAM's steps are."""
    sentence = f"{name}'s clients perturb nearer to f's ascent than fedsam's (cosine of ε_i and ∇f)"
    return Claim(paper, sentence, "used_cosine_with_global", (name, "fedsam"), "higher", "difference")


CLAIMS = [
    *_flatter("FedSAM (Qu et al. 2022; Caldarola et al. 2022)", "fedsam", "fedavg"),
    *_flatter("FedASAM (Caldarola et al. 2022)", "fedasam", "fedavg"),
    *_flatter("FedGAMMA (Dai et al. 2023)", "fedgamma", "fedsam"),
    *_flatter("FedSMOO (Sun et al. 2023)", "fedsmoo", "fedsam"),
    _closer("FedSMOO (Sun et al. 2023)", "fedsmoo"),
    Claim(
        "FedLESAM (Fan et al. 2024), FedGF (Lee & Yoon 2024)",
        "FedSAM's clients do not perturb towards the worst case of f (share of the rise found below one half)",
        "worst_case_found", ("fedsam", None), "lower", "difference", 0.5,
    ),
    *_flatter("FedLESAM (Fan et al. 2024)", "fedlesam", "fedsam"),
    _closer("FedLESAM (Fan et al. 2024)", "fedlesam"),
    Claim(
        "FedGloSS (Caldarola et al. 2025)",
        "FedSAM's local models are at flatter points of their own losses than of f (λ_max at w_i)",
        ("lambda_max_own_local", "lambda_max_global_local"), ("fedsam", None), "lower",
    ),
    Claim(
        "FedGloSS (Caldarola et al. 2025)",
        "FedSAM's aggregate is at a sharper point of f than its local models are of theirs (λ_max)",
        ("lambda_max_global", "lambda_max_own_local"), ("fedsam", None), "higher",
    ),
    *_flatter("FedGloSS (Caldarola et al. 2025)", "fedgloss", "fedsam"),
    Claim(
        "FedGloSS (Caldarola et al. 2025)",
        "FedGloSS's server perturbs uphill on f (cosine with ∇f above 0)",
        "server_cosine_with_global", ("fedgloss", None), "higher", "difference", 0.0,
    ),
    *_flatter("FedGF (Lee & Yoon 2024)", "fedgf", "fedsam"),
    _closer("FedGF (Lee & Yoon 2024)", "fedgf"),
    *_flatter("FedSWA (Liu et al. 2025)", "fedswa", "fedsam"),
    *_flatter("FedNSAM", "fednsam", "fedsam"),
    *_flatter("FedWMSAM", "fedwmsam", "fedsam"),
    _closer("FedWMSAM", "fedwmsam"),
]  # fmt: skip
"""In our words: what follows for λ_max, accuracy and the clients' steps if a paper's argument holds here."""


@dataclass(frozen=True)
class Settings:
    """What is run and measured, and where it goes."""

    study: Literal["digits", "cifar10"] = "digits"
    """of STUDIES"""
    rounds: int = 100
    """communication rounds"""
    seeds: tuple[int, ...] | None = None
    """of data, sampling and initial models (default: the study's)"""
    alphas: tuple[str, ...] = ("0", "0.5")
    """of PARTITIONS"""
    out: Path = Path("runs/local-against-global")
    """folder of the runs and of what was measured"""
    page: Path = Path("docs/local-against-global.md")
    """the page"""
    data_dir: Path | None = None
    """the folder that holds the data set's own folder"""


def measured(settings: Settings) -> dict[tuple[str, str, int], Numbers]:
    """Train what is not there yet, measure it, and take the numbers of the last round; runs that diverged have none."""
    start, found, study = time.perf_counter(), {}, STUDIES[settings.study]
    for alpha in settings.alphas:
        for name in study.algorithms:
            for seed in settings.seeds or study.seeds:
                out = settings.out / f"{name}-{alpha}-{seed}"
                command = read([*words(settings, name, alpha), "--seed", str(seed), "--out", str(out)])
                run = train(command.algorithm, command.settings, command.parts, out=out, resume=True)
                print(f"{time.perf_counter() - start:6.0f} s  {out.name}: {run.status}", file=sys.stderr, flush=True)
                if run.status != "finished":
                    continue
                parts = tuple(part for part in PARTS if part != "local" or name in study.local)
                options = {"parts": parts, "data_dir": settings.data_dir, "device": "cpu", **study.measured}
                kept = settings.out / f"{out.name}.jsonl"
                one = measure_alignment(out, "all", state=kept, **options).runs[0].rounds[-1]
                numbers = {q.name: q.mean.value for q in one.quantities()}
                found[name, alpha, seed] = numbers | {"test_accuracy": float(run.metrics[-1]["test_accuracy"])}
                print(f"{time.perf_counter() - start:6.0f} s  {out.name}: measured", file=sys.stderr, flush=True)
    return found


def words(settings: Settings, name: str, alpha: str) -> list[str]:
    """The command line of a run, without its seed and folder."""
    study = STUDIES[settings.study]
    rounds = ["--rounds", str(settings.rounds), "--eval-every", str(settings.rounds)]
    kept = ["--save-clients", "--save-every", str(min(study.save_every, settings.rounds))]
    data = [] if settings.data_dir is None else ["--data-dir", str(settings.data_dir)]
    common = [*study.budget.split(), "--partition", PARTITIONS[alpha], "--device", "cpu", "--quiet"]
    return [name, *common, *rounds, *kept, *data]


def _group(found: Results, name: str, alpha: str, quantity: str | tuple[str, str]) -> Group:
    runs = {seed: numbers for (n, a, seed), numbers in found.items() if (n, a) == (name, alpha)}
    if isinstance(quantity, str):
        values = {seed: numbers.get(quantity, np.nan) for seed, numbers in runs.items()}
    else:
        above, below = ({seed: numbers.get(name, np.nan) for seed, numbers in runs.items()} for name in quantity)
        values = {seed: above[seed] / below[seed] for seed in runs}
    return Group(name, {seed: value for seed, value in values.items() if np.isfinite(value)})


def judged(claim: Claim, alpha: str, found: Results) -> tuple[str, str]:
    """``confirmed``, ``not confirmed`` (the interval is on the other side) or ``undecided``, and the evidence.

    One seed has no interval: the verdict is then the side that it is on, and says so.
    """
    compare: Callable[[Group, Group], Effect] = ratio if claim.kind == "ratio" else difference
    first = _group(found, claim.runs[0], alpha, claim.quantity)
    if claim.runs[1] is None:
        second = Group("", dict.fromkeys(first.values, claim.than))
    else:
        second = _group(found, claim.runs[1], alpha, claim.quantity)
    if not (first.values and second.values):
        return "undecided", "not measured"
    effect = compare(first, second)
    shares = claim.quantity == "test_accuracy"
    scale, unit = (100.0, " points") if shares else (1.0, "")
    low, middle, high = (scale * x for x in (effect.low, effect.estimate, effect.high))
    text = f"{'×' if claim.kind == 'ratio' else ''}{middle:{'.3g' if claim.kind == 'ratio' else '+.2g'}}{unit}"
    holds = (effect.estimate < (1.0 if claim.kind == "ratio" else 0.0)) == (claim.sign == "lower")
    if effect.seeds < 2:
        return ("on its side" if holds else "on the other side"), f"{text} (one seed)"
    evidence = f"{text} ({low:.2g} to {high:.2g})"
    if not effect.decided:
        return "undecided", evidence
    return ("confirmed" if holds else "not confirmed"), evidence


def claims_table(settings: Settings, found: Results) -> Table:
    """A row for each claim about the study's algorithms: the verdict and the evidence at each α."""
    known = {*STUDIES[settings.study].algorithms, None}
    columns = ["paper", "claim, in our words"]
    for alpha in settings.alphas:
        columns += [f"α = {alpha}", f"evidence at α = {alpha}"]
    rows = [
        (claim.paper, claim.sentence, *(cell for alpha in settings.alphas for cell in judged(claim, alpha, found)))
        for claim in CLAIMS
        if known.issuperset(claim.runs)
    ]
    return Table(tuple(columns), tuple(rows))


def means_table(alpha: str, found: Results) -> Table:
    """A row for each algorithm: means over the seeds."""
    rows: list[tuple[str | float | None, ...]] = []
    for name, runs in _by_algorithm(alpha, found).items():
        accuracy = Share(np.mean([numbers["test_accuracy"] for numbers in runs]))
        rows.append((name, len(runs), accuracy, *(_mean(runs, quantity) for quantity in SHOWN)))
    return Table(("algorithm", "seeds", "test accuracy", *SHOWN.values()), tuple(rows))


def used_table(alpha: str, found: Results) -> Table:
    """A row for each algorithm that perturbs: means over the seeds of what it perturbed by."""
    rows: list[tuple[str | float | None, ...]] = []
    for name, runs in _by_algorithm(alpha, found).items():
        means = [_mean(runs, quantity) for quantity in USED]
        if any(mean is not None for mean in means):
            rows.append((name, *means))
    return Table(("algorithm", *USED.values()), tuple(rows))


def _by_algorithm(alpha: str, found: Results) -> dict[str, list[Numbers]]:
    """The runs of each algorithm, in their order."""
    every = {name: [numbers for (n, a, _), numbers in found.items() if (n, a) == (name, alpha)] for name in ALGORITHMS}
    return {name: runs for name, runs in every.items() if runs}


def _mean(runs: Sequence[Numbers], quantity: str) -> float | None:
    """Of three digits; ``None`` where a run has no such number."""
    values = [numbers.get(quantity, np.nan) for numbers in runs]
    return float(f"{np.mean(values):.3g}") if np.isfinite(values).all() else None


def main(settings: Settings) -> None:
    """Run and measure what is not there yet, and write the page's tables."""
    torch.set_num_threads(1)
    found = measured(settings)
    of = "" if settings.study == "digits" else f" ({settings.study})"
    parts = [f"## Claims{of}\n\n{claims_table(settings, found).markdown()}"]
    for alpha in settings.alphas:
        parts.append(f"## Means at α = {alpha}{of}\n\n{means_table(alpha, found).markdown()}")
        parts.append(f"## What clients were perturbed by, α = {alpha}{of}\n\n{used_table(alpha, found).markdown()}")
    write(settings.page, "\n".join(parts), "" if settings.study == "digits" else settings.study)
    print(f"tables: {settings.page}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
