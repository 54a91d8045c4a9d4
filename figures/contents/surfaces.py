"""Loss surfaces: side by side, superimposed, and planes through three models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from analysis import Surface
from analysis.surface.plots.captions import Quantity
from figures.contents.content import Picture, Printings, Product, Results
from figures.graph.nodes import Measure, Node
from figures.plots import PlanePanel, SurfacePanel, plot_loss_surfaces, plot_over, plot_planes
from landscape.terminal.table import Share, Table


@dataclass(frozen=True)
class Surfaces:
    """Loss surfaces side by side, each on a scale of its own, and once more on a joint scale.

    Attributes:
        panels: measurements ``surface`` by title.
        cap: the loss above which each is flat: heights are ln(min(loss, cap) + 0.1).
        kinds: ``relief``, ``contours`` or both.
    """

    panels: Mapping[str, Measure]
    cap: float | Mapping[str, float] = 10.0
    kinds: tuple[Literal["relief", "contours"], ...] = ("relief", "contours")

    def nodes(self) -> Sequence[Node]:
        """All surfaces."""
        return list(dict.fromkeys(self.panels.values()))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """A picture for each kind and for own and joint scales, with all values."""
        found: dict[str, Surface] = {title: results[node] for title, node in self.panels.items()}
        own = [SurfacePanel(title, surface, self._cap(title)) for title, surface in found.items()]
        joined = [replace(panel, cap=max(each.cap for each in own)) for panel in own]
        numbers, caption = surface_numbers(found), surface_caption(list(found.values()))
        products = []
        for kind in self.kinds:
            for joint in (False, True):
                options = {"kind": kind, "joint": joint, "caption": caption}
                picture = Picture(joined if joint else own, plot_loss_surfaces, options)
                scale = "One scale for all panels." if joint else "Each panel has a scale of its own."
                name = f"{kind}-{'joint' if joint else 'own'}-scale"
                products.append(Product(name, numbers, picture, caption=f"{scale} {caption}"))
        return products

    def _cap(self, title: str) -> float:
        return self.cap if isinstance(self.cap, (int, float)) else self.cap[title]


@dataclass(frozen=True)
class Superimposed:
    """One loss surface as a grid over each of the others.

    Attributes:
        above: label and measurement of the grid.
        below: measurements by label.
    """

    above: tuple[str, Measure]
    below: Mapping[str, Measure]

    def nodes(self) -> Sequence[Node]:
        """All surfaces."""
        return [self.above[1], *self.below.values()]

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, with all values."""
        above: tuple[str, Surface] = self.above[0], results[self.above[1]]
        below: list[tuple[str, Surface]] = [(label, results[node]) for label, node in self.below.items()]
        caption = surface_caption([above[1], *(surface for _, surface in below)])

        picture = Picture([PlanePanel(*each) for each in (above, *below)], _over, {"caption": caption})
        return [Product("", surface_numbers(dict([above, *below])), picture, caption=f"Grid: {above[0]}. {caption}")]


def _over(panels: Sequence[PlanePanel], *, caption: str) -> Figure:
    above, *below = [(panel.title, panel.surface) for panel in panels]
    return plot_over(above, below, caption=caption)


@dataclass(frozen=True)
class Planes:
    """Planes through three models, with a joint scale for each quantity.

    Attributes:
        panels: by title: the measurement ``surface``, the quantity, and the split it is of.
        models: what the three are called, by title; by algorithm and run unless given.
    """

    panels: Mapping[str, tuple[Measure, Quantity, Literal["train", "test"]]]
    models: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)

    def nodes(self) -> Sequence[Node]:
        """All planes."""
        return list(dict.fromkeys(node for node, _, _ in self.panels.values()))

    def products(self, results: Results, printed: Printings) -> Sequence[Product]:
        """The picture, with all values."""
        found: dict[str, tuple[Surface, Quantity]] = {}
        for title, (node, quantity, split) in self.panels.items():
            surface: Surface = results[node]
            test = surface.test if split == "test" and surface.provenance.split != "test" else surface
            assert test is not None, "the recipe measures the test data"
            found[title] = (named(test, self.models[title]) if title in self.models else test), quantity
        surfaces = {title: surface for title, (surface, _) in found.items()}
        caption = surface_caption(list(surfaces.values()))

        panels = [PlanePanel(title, s, quantity) for title, (s, quantity) in found.items()]
        picture = Picture(panels, plot_planes, {"caption": caption})
        return [Product("", surface_numbers(surfaces), picture, caption=caption)]


def named(surface: Surface, labels: tuple[str, str, str]) -> Surface:
    """A plane through three models with other labels of them."""
    marks = tuple(replace(mark, label=label) for mark, label in zip(surface.marks, labels, strict=True))
    axes = f"distance from {labels[0]} towards {labels[1]}", f"distance towards {labels[2]}"
    return replace(surface, marks=marks, axis_labels=axes)


def surface_numbers(surfaces: Mapping[str, Surface]) -> Table:
    """Every point: loss and accuracy, whether it was measured or interpolated."""
    rows: list[tuple[str | float | None, ...]] = []
    for title, s in surfaces.items():
        computed = np.ones(s.loss.shape, bool) if s.computed is None else s.computed
        for j, y in enumerate(s.y):
            for i, x in enumerate(s.x):
                accuracy = None if s.accuracy is None else Share(s.accuracy[j, i])
                how = "measured" if computed[j, i] else "interpolated"
                rows.append((title, float(x), float(y), float(s.loss[j, i]), accuracy, how))
    return Table(("panel", "x", "y", "loss", "accuracy", "how"), tuple(rows))


def surface_caption(surfaces: Sequence[Surface]) -> str:
    """Which data, which directions, and what was interpolated and how well."""
    samples = dict.fromkeys(f"{s.provenance.samples:,} {s.split_word}" for s in surfaces)
    told = [f"{' and '.join(samples)} samples, {surfaces[0].recipe}."]
    errors = [s.estimated_error for s in surfaces if s.estimated_error]
    if errors:
        told.append(f"Interpolated between measured points; estimated error of the loss up to {max(errors):.2g} of it.")
    else:
        told.append("Every point was measured.")
    return " ".join(told)
