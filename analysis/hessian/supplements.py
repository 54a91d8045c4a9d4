"""What the Hessian command measures beside the spectrum: layers, sharpness, clients; a table of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.hessian.client_results import ClientCurves, ClientEigenvalues
from analysis.hessian.clients import client_eigenvalues, local_clients
from analysis.hessian.layers import activation_norms, layer_eigenvalues, norm_product
from analysis.hessian.options import Supplements
from analysis.hessian.report import HessianReport
from analysis.hessian.sharpness import adaptive_sharpness, average_sharpness, gradient_noise, m_sharpness, sam_sharpness
from analysis.hessian.spectrum.refinement import doubts
from analysis.source import Source
from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from landscape.checkpoints.foreign import open_checkpoint
from landscape.storage.display import Shown
from landscape.terminal.progress import Progress
from landscape.terminal.table import Table

_M = 128
"""Samples per batch of the m-sharpness and of the gradient noise."""


@dataclass(frozen=True, repr=False)
class Supplement(Shown):
    """One table.

    Attributes:
        key: its name in the JSON file.
        title: the line above it on the screen.
        table: what the screen shows.
        numbers: all numbers by name, for the JSON file.
        result: the measurement itself, for the pictures.
    """

    key: str
    title: str
    table: Table
    numbers: dict[str, Any]
    result: Any

    def _heading(self) -> str:
        return self.title

    def _table(self) -> str:
        return self.table.html()


def measure_supplements(
    asked: Supplements,
    path: Path,
    source: Source,
    seed: int = 0,
    progress: bool = False,
    penalty: MAN | None = None,
    sampled: bool = False,
    refine: bool = True,
) -> Iterator[Supplement]:
    """The tables asked for, of one checkpoint.

    Args:
        asked: which.
        path: the checkpoint.
        source: on which data, where.
        seed: of all random vectors.
        progress: show progress on stderr.
        penalty: MAN's regulariser, added to the loss.
        refine: end eigenvalues in float32 with a product in float64.
        sampled: with ``local``, of ``source.clients`` only those whose local models the checkpoint carries.

    Raises:
        FedscapeError: ``local`` without ``per_client``; what the measurements refuse.
    """
    if asked.local and not asked.per_client:
        raise FedscapeError("--local says where clients are measured: give --per-client too")
    if asked.layers or asked.sharpness is not None:
        landscape = Landscape.from_checkpoint(path, **vars(source), penalty=penalty)
        if asked.layers:
            with Progress("layers", enabled=progress):
                yield _layers(landscape, seed, refine)
                yield _activations(landscape)
        if asked.sharpness is not None:
            with Progress("sharpness", enabled=progress):
                yield _sharpness(landscape, asked.sharpness, seed)
    if asked.per_client:
        subject = open_checkpoint(path, **source.naming)
        if asked.local and sampled:
            source = replace(source, clients=tuple(local_clients(subject, source.clients)[0]))
        with Progress("clients", unit="clients", enabled=progress) as bar:
            found = client_eigenvalues(
                subject,
                local=asked.local,
                **vars(source),
                penalty=penalty,
                seed=seed,
                refine=refine,
                told=lambda done, _: bar.update(done),
            )
        yield Supplement("clients", found.heading, found.summary(), found.to_dict(), found)


def client_rounds(
    measured: Sequence[tuple[Path, HessianReport, Sequence[Supplement]]], left_out: Mapping[Path, str]
) -> list[ClientCurves]:
    """The curves of clients over the rounds of each run.

    Args:
        measured: of each ``rounds/NNNNN.pt``, in order: the file, the global model's spectrum, and the tables.
        left_out: the files of which no client was measured, and why.

    Returns:
        A result for each run of which some client was measured, named by its algorithm, or where several runs have the
        same by algorithm and folder.
    """
    runs: dict[Path, list[tuple[Path, HessianReport, ClientEigenvalues]]] = {}
    for file, report, tables in measured:
        for found in (one.result for one in tables if one.key == "clients"):
            runs.setdefault(file.parent.parent, []).append((file, report, found))
    labels = [points[-1][2].label for points in runs.values()]
    folders = [f"{label} ({run.name})" for label, run in zip(labels, runs, strict=True)]
    paths = [f"{label} ({run})" for label, run in zip(labels, runs, strict=True)]
    names = next(names for names in (labels, folders, paths) if len(set(names)) == len(names))
    curves = []
    for (run, points), name in zip(runs.items(), names, strict=True):
        together = {
            int(file.stem): (float(report.eigen.values[0]), float(report.eigen.bounds[0]))
            for file, report, _ in measured
            if file.parent.parent == run and report.matrix == "hessian" and report.largest
        }
        gone = {int(file.stem): why for file, why in left_out.items() if file.parent.parent == run}
        results = sorted((found for *_, found in points), key=lambda found: found.round)
        curves.append(ClientCurves(tuple(results), gone, name, together, points[0][1].samples))
    return curves


def _layers(landscape: Landscape, seed: int, refine: bool) -> Supplement:
    blocks, norms = layer_eigenvalues(landscape, seed=seed, refine=refine), norm_product(landscape)
    rows: list[tuple[str | float | None, ...]] = []
    for i, name in enumerate(blocks.layers):
        # A recurrent layer has several weight matrices: their norms, in their order.
        own = [k for k, layer in enumerate(norms.layers) if layer == name]
        sizes = (" / ".join(f"{of[k]:.4g}" for k in own) or None for of in (norms.spectral, norms.frobenius))
        noise = None if blocks.noise is None else blocks.noise[i]
        doubt = doubts(blocks.values[i, 0], blocks.converged[i, 0], noise)
        value, bound = f"{blocks.values[i, 0]:.6g}", f"{blocks.bounds[i, 0]:.1e}{doubt}"
        rows.append((name or "model", f"{blocks.parameters[i]:,}", value, bound, *sizes))
    columns = ("layer", "parameters", "λ_max of its block", "error bound", "‖W‖ spectral", "‖W‖ Frobenius")
    title = f"layers: each one's own block of the Hessian, biases included (FedSAM's norm product: {norms.value:.4g})"
    numbers = {**blocks.to_dict(), "norm_product": norms.to_dict()}
    return Supplement("layers", title, Table(columns, tuple(rows)), numbers, blocks)


def _activations(landscape: Landscape) -> Supplement:
    found = activation_norms(landscape)
    rows = tuple((name, float(value)) for name, value in found.outputs.items())
    title = f"activations after the non-linearity that follows each layer (their sum, MAN's L^act: {found.total:.4g})"
    return Supplement("activations", title, Table(("layer", "mean a²"), rows), found.to_dict(), found)


def _sharpness(landscape: Landscape, rho: float, seed: int) -> Supplement:
    m = min(_M, landscape.samples)
    noise = gradient_noise(landscape, m, seed=seed)
    found = {
        "SAM": sam_sharpness(landscape, rho),
        "adaptive": adaptive_sharpness(landscape, rho),
        f"m = {m}": m_sharpness(landscape, rho, m, seed=seed),
        "average direction": average_sharpness(landscape, rho, seed=seed),
    }
    uphill = "one gradient step, from below"
    drawn = {
        "SAM": uphill,
        "adaptive": uphill,
        f"m = {m}": f"{uphill}, for each of {found[f'm = {m}'].draws} batches",
        "average direction": f"over {found['average direction'].draws} pairs of random directions",
    }
    rows: list[tuple[str | float | None, ...]] = [
        (f"rise of the loss, {name}", s.value, s.stderr, drawn[name]) for name, s in found.items()
    ]
    rows += [
        ("norm of the gradient", noise.norm, None, "of the whole loss, exact"),
        (f"variance of the gradient of {m} samples", noise.trace, noise.stderr, f"over {noise.draws} random batches"),
    ]
    numbers = {name: s.to_dict() for name, s in found.items()} | {"gradient_noise": noise.to_dict()}
    table = Table(("quantity", "value", "standard error", "how"), tuple(rows))
    at = f"loss {found['SAM'].loss:.6g}, mean over {landscape.samples:,} samples"
    return Supplement("sharpness", f"sharpness at ρ = {rho:g} ({at})", table, numbers, found)
