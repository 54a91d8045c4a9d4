"""What the Hessian command measures beside the spectrum: layers, sharpness, clients; a table of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.hessian.clients import client_eigenvalues
from analysis.hessian.layers import activation_norms, layer_eigenvalues, norm_product
from analysis.hessian.options import Supplements
from analysis.hessian.sharpness import adaptive_sharpness, average_sharpness, gradient_noise, m_sharpness, sam_sharpness
from analysis.source import Source
from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from landscape.terminal.progress import Progress
from landscape.terminal.table import Table

_M = 128
"""Samples per batch of the m-sharpness and of the gradient noise."""


@dataclass(frozen=True)
class Supplement:
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


def measure_supplements(
    asked: Supplements, path: Path, source: Source, seed: int = 0, progress: bool = False, penalty: MAN | None = None
) -> Iterator[Supplement]:
    """The tables asked for, of one checkpoint.

    Args:
        asked: which.
        path: the checkpoint.
        source: on which data, where.
        seed: of all random vectors.
        progress: show progress on stderr.
        penalty: MAN's regulariser, added to the loss.

    Raises:
        FedscapeError: ``local`` without ``per_client``; what the measurements refuse.
    """
    if asked.local and not asked.per_client:
        raise FedscapeError("--local says where clients are measured: give --per-client too")
    if asked.layers or asked.sharpness is not None:
        landscape = Landscape.from_checkpoint(path, **vars(source), penalty=penalty)
        if asked.layers:
            with Progress("layers", enabled=progress):
                yield _layers(landscape, seed)
                yield _activations(landscape)
        if asked.sharpness is not None:
            with Progress("sharpness", enabled=progress):
                yield _sharpness(landscape, asked.sharpness, seed)
    if asked.per_client:
        with Progress("clients", unit="clients", enabled=progress) as bar:
            found = client_eigenvalues(
                path,
                local=asked.local,
                **vars(source),
                penalty=penalty,
                seed=seed,
                told=lambda done, _: bar.update(done),
            )
        yield Supplement("clients", f"clients of {found.title}", found.summary(), found.to_dict(), found)


def _layers(landscape: Landscape, seed: int) -> Supplement:
    blocks, norms = layer_eigenvalues(landscape, seed=seed), norm_product(landscape)
    spectral = dict(zip(norms.layers, zip(norms.spectral, norms.frobenius, strict=True), strict=True))
    rows = []
    for i, name in enumerate(blocks.layers):
        two = spectral.get(name, (None, None))
        sizes = (None if value is None else float(value) for value in two)
        rows.append((name, float(blocks.parameters[i]), float(blocks.values[i, 0]), float(blocks.bounds[i, 0]), *sizes))
    table = Table(("layer", "parameters", "λ_max", "error bound", "‖W‖", "‖W‖_F"), tuple(rows))
    title = f"layers (FedSAM's norm product: {norms.value:.4g})"
    return Supplement("layers", title, table, {**blocks.to_dict(), "norm_product": norms.to_dict()}, blocks)


def _activations(landscape: Landscape) -> Supplement:
    found = activation_norms(landscape)
    rows = tuple((name, float(value)) for name, value in found.outputs.items())
    return Supplement("activations", "activations", Table(("after", "mean a²"), rows), found.to_dict(), found)


def _sharpness(landscape: Landscape, rho: float, seed: int) -> Supplement:
    m = min(_M, landscape.samples)
    noise = gradient_noise(landscape, m, seed=seed)
    found = {
        "SAM": sam_sharpness(landscape, rho),
        "adaptive": adaptive_sharpness(landscape, rho),
        f"m = {m}": m_sharpness(landscape, rho, m, seed=seed),
        "average direction": average_sharpness(landscape, rho, seed=seed),
    }
    rows: list[tuple[str | float | None, ...]] = [(name, s.value, s.stderr) for name, s in found.items()]
    rows += [("gradient norm", noise.norm, None), (f"gradient noise, batch {m}", noise.trace, noise.stderr)]
    numbers = {name: s.to_dict() for name, s in found.items()} | {"gradient_noise": noise.to_dict()}
    table = Table(("sharpness", "value", "standard error"), tuple(rows))
    return Supplement("sharpness", f"sharpness at ρ = {rho:g}", table, numbers, found)
