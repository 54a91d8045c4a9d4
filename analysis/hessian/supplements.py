"""What the Hessian command measures beside the spectrum: layers, sharpness, clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from analysis.hessian.clients import client_eigenvalues, plot_clients
from analysis.hessian.layers import activation_norms, layer_eigenvalues, norm_product
from analysis.hessian.sharpness import adaptive_sharpness, average_sharpness, gradient_noise, m_sharpness, sam_sharpness
from analysis.source import Source, option
from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from landscape.terminal.progress import Progress
from landscape.terminal.table import Table

_M = 128


@dataclass(frozen=True)
class Measured:
    """One more table: ``key`` in the JSON file, ``title`` above it on the screen, all numbers by name, the result."""

    key: str
    title: str
    table: Table
    numbers: dict[str, Any]
    found: Any


@dataclass(frozen=True)
class Extras:
    """More to measure, each on its own."""

    layers: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """λ_max of each layer's Hessian block, weight and activation norms, FedSAM's norm product (Theorem 3.5)"""
    sharpness: Annotated[float | None, option("RHO", "none")] = None
    """SAM, adaptive, m- and average-direction sharpness at radius RHO, gradient norm and noise"""
    per_client: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """λ_max, loss and accuracy on each client's own data (of --clients, or of all)"""
    local: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """with --per-client: at each client's local model (trained with --save-clients), not at the global one"""

    def measure(
        self, path: Path, source: Source, seed: int, progress: bool, penalty: MAN | None = None
    ) -> Iterator[Measured]:
        """The tables asked for, of one checkpoint; of the loss with the penalty where there is one.

        Raises:
            FedscapeError: ``local`` without ``per_client``; what the measurements refuse.
        """
        if self.local and not self.per_client:
            raise FedscapeError("--local says where clients are measured: give --per-client too")
        if self.layers or self.sharpness is not None:
            landscape = Landscape.from_checkpoint(path, **vars(source), penalty=penalty)
            if self.layers:
                with Progress("layers", enabled=progress):
                    yield _layers(landscape, seed)
                    yield _activations(landscape)
            if self.sharpness is not None:
                with Progress("sharpness", enabled=progress):
                    yield _sharpness(landscape, self.sharpness, seed)
        if self.per_client:
            with Progress("clients", unit="clients", enabled=progress) as bar:
                found = client_eigenvalues(
                    path,
                    local=self.local,
                    **vars(source),
                    penalty=penalty,
                    seed=seed,
                    told=lambda done, _: bar.update(done),
                )
            yield Measured("clients", f"clients of {found.title}", found.summary(), found.to_dict(), found)


def save_pictures(measured: Sequence[tuple[str, Sequence[Measured]]], folder: Path) -> list[Path]:
    """Draw what can be drawn of what was measured, each checkpoint's under its label; the files written.

    ``layers.png`` and ``clients.png``, all checkpoints on common axes.

    Raises:
        FedscapeError: a file cannot be written.
    """
    from analysis.hessian.plots.layers import plot_layers
    from landscape.storage.pictures import save_figure

    results = [(label, {one.key: one.found for one in several}) for label, several in measured]
    written = []
    layers = [(label, found["layers"], found["activations"]) for label, found in results if "layers" in found]
    if layers:
        written.append(folder / "layers.png")
        save_figure(plot_layers(layers), written[-1])
    clients = [found["clients"] for _, found in results if "clients" in found]
    if clients:
        written.append(folder / "clients.png")
        plot_clients(clients, written[-1])
    return written


def _layers(landscape: Landscape, seed: int) -> Measured:
    blocks, norms = layer_eigenvalues(landscape, seed=seed), norm_product(landscape)
    spectral = dict(zip(norms.layers, zip(norms.spectral, norms.frobenius, strict=True), strict=True))
    rows = []
    for i, name in enumerate(blocks.layers):
        two = spectral.get(name, (None, None))
        sizes = (None if value is None else float(value) for value in two)
        rows.append((name, float(blocks.parameters[i]), float(blocks.values[i, 0]), float(blocks.bounds[i, 0]), *sizes))
    table = Table(("layer", "parameters", "λ_max", "error bound", "‖W‖", "‖W‖_F"), tuple(rows))
    title = f"layers (FedSAM's norm product: {norms.value:.4g})"
    return Measured("layers", title, table, {**blocks.to_dict(), "norm_product": norms.to_dict()}, blocks)


def _activations(landscape: Landscape) -> Measured:
    found = activation_norms(landscape)
    rows = tuple((name, float(value)) for name, value in found.outputs.items())
    return Measured("activations", "activations", Table(("after", "mean a²"), rows), found.to_dict(), found)


def _sharpness(landscape: Landscape, rho: float, seed: int) -> Measured:
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
    return Measured("sharpness", f"sharpness at ρ = {rho:g}", table, numbers, found)
