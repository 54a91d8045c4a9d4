"""Labelled arrays of what a picture shows: the panels that it is drawn from, line by line and point by point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.hessian.plots.spectrum import on_one_ruler
from analysis.hessian.report import EigenvalueAxis
from analysis.surface.plots.captions import label_of
from figures.contents.content import CURVATURE, Picture
from figures.labels.arrays import Variables, aligned, ragged, tree, whole
from figures.labels.results import labelled
from figures.plots import (
    BarPanel,
    ClientPanel,
    CountPanel,
    Curve,
    CurvePanel,
    DensityPanel,
    HistogramPanel,
    PlanePanel,
    ScatterPanel,
    SpectraPanel,
    SurfacePanel,
    SweepPanel,
)
from landscape import FedscapeError

if TYPE_CHECKING:
    from xarray import DataTree


def panels_of(picture: Picture) -> dict[str, DataTree]:
    """The panels of a picture as labelled arrays, by their titles (with ``-`` for ``/``, which names of nodes cannot
    have; the attribute ``title`` is the title as it is drawn).

    Where lines of a panel have rounds, ranks or values of their own, the arrays have not-a-number where a line has no
    point.

    Raises:
        FedscapeError: a panel of a kind that has no labelled form; two with one title; xarray is not installed.

    Example:
        >>> import numpy as np
        >>> from figures.contents.content import Picture
        >>> from figures.labels.pictures import panels_of
        >>> from figures.plots import Curve, CurvePanel, plot_curves
        >>> panel = CurvePanel("iid", [Curve("FedAvg", np.array([1, 2]), np.array([0.5, 0.75]))])
        >>> picture = Picture([panel], plot_curves, {"ylabel": "test accuracy (%)", "percent": True})
        >>> found = panels_of(picture)["iid"]
        >>> float(found["value"].sel(curve="FedAvg", round=2)), found["value"].attrs
        (0.75, {'units': '1', 'long_name': 'test accuracy'})
    """
    found: dict[str, DataTree] = {}
    for panel in picture.panels:
        if type(panel) not in _FORMS:
            raise FedscapeError(f"a {type(panel).__name__} has no labelled form: give it one in {__name__}")
        name = panel.title.replace("/", "-") or "panel"
        if name in found:
            raise FedscapeError(f"two panels are called '{panel.title}': their numbers would be one")
        found[name] = _FORMS[type(panel)](panel, picture)
        found[name].attrs["title"] = panel.title
    return found


def _values(picture: Picture) -> dict[str, str]:
    """Unit and name of what the vertical axis shows; shares are shares, also where the axis is in percent."""
    name = str(picture.options.get("ylabel", "")).partition(" (")[0]
    return {"units": picture.unit, "long_name": name} if name else {"units": picture.unit}


def _lines(curves: Sequence[Curve], places: str, name: str, attributes: Mapping[str, str]) -> Variables:
    """Curves as ``name`` (curve, places) with the edges of their bands, where some have them."""
    found: Variables = {name: (places, aligned([(c.x, c.mean) for c in curves])[1], attributes)}
    if any(c.low is not None for c in curves):
        for edge in ("low", "high"):
            ends = [(c.x, np.full(len(c.x), np.nan) if getattr(c, edge) is None else getattr(c, edge)) for c in curves]
            found[edge] = (places, aligned(ends)[1], {**attributes, "long_name": f"{edge} edge of the band"})
    return found


def _curves(panel: CurvePanel, picture: Picture) -> DataTree:
    about = _values(picture)
    variables = {
        name: (("curve", "round"), *rest) for name, (_, *rest) in _lines(panel.curves, "round", "value", about).items()
    }
    coordinates: dict[str, Any] = {
        "curve": [c.label for c in panel.curves],
        "round": aligned([(c.x, c.mean) for c in panel.curves])[0],
    }
    if panel.levels:
        variables["level_value"] = ("level", [level.value for level in panel.levels], about)
        coordinates["level"] = [level.label for level in panel.levels]
    return tree(variables, coordinates, {"percent_axis": picture.options.get("percent")})


def _bold(curves: Sequence[Curve], rounds: np.ndarray, about: Mapping[str, str]) -> tuple[Any, ...]:
    """Curves on rounds that have theirs among them."""
    empty = (rounds, np.full(len(rounds), np.nan))
    values = aligned([empty, *((c.x, c.mean) for c in curves)])[1][1:]
    return ("curve", "round"), values, about


def _client_lines(panel: ClientPanel, picture: Picture) -> DataTree:
    about = _values(picture)
    rounds = whole(np.unique(np.concatenate([panel.x, *(curve.x for curve in panel.bold)])))
    values = aligned([(panel.x, line) for line in panel.clients] + [(rounds, np.full(len(rounds), np.nan))])[1][:-1]
    variables: Variables = {"value": (("client", "round"), values, about)}
    ids = np.arange(len(panel.clients)) if panel.ids is None else panel.ids
    coordinates = {"client": ids, "round": rounds}
    if panel.bold:
        variables["bold"] = _bold(panel.bold, rounds, about)
        coordinates["curve"] = np.array([curve.label for curve in panel.bold])
    return tree(variables, coordinates, {"percent_axis": picture.options.get("percent")})


def _client_values(panel: ScatterPanel, picture: Picture) -> DataTree:
    about = _values(picture)
    all_x = [group.x for group in panel.values] + [curve.x for curve in panel.beside]
    rounds = whole(np.unique(np.concatenate(all_x)))
    numbers = [_client_numbers(group.x, group.ids) for group in panel.values]
    clients = np.unique(np.concatenate(numbers))
    values = np.full((len(panel.values), len(rounds), len(clients)), np.nan)
    for of, group, ids in zip(values, panel.values, numbers, strict=True):
        of[np.searchsorted(rounds, group.x), np.searchsorted(clients, ids)] = group.y
    variables: Variables = {"value": (("label", "round", "client"), values, about)}
    if picture.options.get("kind") == "band":
        for name, edge in (("low", np.nanmin), ("median", np.nanmedian), ("high", np.nanmax)):
            variables[name] = (("label", "round"), _over_clients(values, edge), about)
    coordinates = {"label": [group.label for group in panel.values], "round": rounds, "client": clients}
    if panel.beside:
        variables["beside"] = _bold(panel.beside, rounds, about)
        coordinates["curve"] = [curve.label for curve in panel.beside]
    return tree(variables, coordinates, {})


def _client_numbers(rounds: np.ndarray, ids: np.ndarray | None) -> np.ndarray:
    """The clients' numbers; where they are not known, their places among those of their round."""
    return np.array([int((rounds[:i] == at).sum()) for i, at in enumerate(rounds)]) if ids is None else ids


def _over_clients(values: np.ndarray, edge: Callable[[np.ndarray], Any]) -> np.ndarray:
    """One number of each round in which some client has a value, [labels, rounds]."""
    return np.array([[edge(row) if np.isfinite(row).any() else np.nan for row in of] for of in values])


def _spectra(panel: SpectraPanel, picture: Picture) -> DataTree:
    known = [s.bounds if s.bounds is not None else np.full(len(s.values), np.nan) for s in panel.spectra]
    done = [s.converged if s.converged is not None else np.ones(len(s.values), bool) for s in panel.spectra]
    of = ("curve", "rank")
    variables: Variables = {
        "value": (of, ragged([s.values for s in panel.spectra]), {"units": CURVATURE, "long_name": "eigenvalue"}),
        "error_bound": (of, ragged(known), {"units": CURVATURE}),
        "converged": (of, ragged(done, False)),
        "doubtful": (of, ragged([s.doubtful for s in panel.spectra], False), {"long_name": "not told from 0"}),
    }
    ranks = np.arange(1, max(len(s.values) for s in panel.spectra) + 1)
    return tree(variables, {"curve": [s.label for s in panel.spectra], "rank": ranks}, {})


def _densities(panel: DensityPanel, picture: Picture) -> DataTree:
    every = [report for each in picture.panels for report in each.reports]
    axis: EigenvalueAxis = picture.options.get("eigenvalue_axis", "auto")
    curves, of = on_one_ruler(panel.reports, axis, ruler=every), ("curve", "point")
    unit = {"units": f"1 / ({CURVATURE})"}
    variables: Variables = {
        "density": (of, ragged([c.values for c in curves]), {**unit, "long_name": "per unit of the axis as drawn"}),
        "half_band": (of, ragged([c.band for c in curves]), {**unit, "long_name": "half of the 95 % band"}),
    }
    grid = (of, ragged([c.grid for c in curves]), {"units": CURVATURE, "long_name": "eigenvalue"})
    coordinates = {"curve": list(panel.labels), "eigenvalue": grid}
    return tree(variables, coordinates, {"kernel_width": curves[0].width})


def _bars(panel: BarPanel, picture: Picture) -> DataTree:
    of, about = ("bar", "group"), _values(picture)
    variables: Variables = {"value": (of, np.array([bars.values for bars in panel.bars]), about)}
    if any(bars.deviations is not None for bars in panel.bars):
        none = np.full(len(panel.groups), np.nan)
        apart = [none if bars.deviations is None else bars.deviations for bars in panel.bars]
        variables["deviation"] = (of, np.array(apart), about)
    coordinates = {"bar": [bars.label for bars in panel.bars], "group": list(panel.groups)}
    return tree(variables, coordinates, {"percent_axis": picture.options.get("percent")})


def _sweeps(panel: SweepPanel, picture: Picture) -> DataTree:
    of, about = ("curve", "parameter"), _values(picture)
    places, values = aligned([(s.x, s.mean) for s in panel.sweeps])
    variables: Variables = {"value": (of, values, about)}
    if any(s.deviation is not None for s in panel.sweeps):
        apart = [(s.x, np.full(len(s.x), np.nan) if s.deviation is None else s.deviation) for s in panel.sweeps]
        variables["deviation"] = (of, aligned(apart)[1], about)
    coordinates: dict[str, Any] = {
        "curve": [s.label for s in panel.sweeps],
        "parameter": ("parameter", places, {"long_name": panel.xlabel}),
    }
    if panel.levels:
        variables["level_value"] = ("level", [level.value for level in panel.levels], about)
        coordinates["level"] = [level.label for level in panel.levels]
    return tree(variables, coordinates, {"default": panel.default, "spacing": panel.spacing})


def _counts(panel: CountPanel, picture: Picture) -> DataTree:
    clients, classes = np.shape(panel.counts)
    variables: Variables = {"samples": (("client", "class"), np.asarray(panel.counts), {"units": "sample"})}
    return tree(variables, {"client": np.arange(clients), "class": np.arange(classes)}, {})


def _histograms(panel: HistogramPanel, picture: Picture) -> DataTree:
    both = {"with_replacement": panel.with_replacement, "without_replacement": panel.without}
    variables: Variables = {name: ("class", np.asarray(found), {"units": "sample"}) for name, found in both.items()}
    return tree(variables, {"class": np.arange(len(panel.without))}, {})


def _surface(panel: SurfacePanel, picture: Picture) -> DataTree:
    found = labelled(panel.surface)
    about = {"units": "1", "long_name": f"ln(min(loss, {panel.cap:g}) + 0.1)"}
    found.dataset = found.to_dataset().assign(height=(("y", "x"), panel.heights, about))
    found.attrs["cap"] = panel.cap
    return found


def _plane(panel: PlanePanel, picture: Picture) -> DataTree:
    found = labelled(panel.surface)
    unit = {"loss": "nat", "lambda_max": CURVATURE}.get(panel.quantity, "%")
    about = {"units": unit, "long_name": label_of([panel.surface], panel.quantity)}
    found.dataset = found.to_dataset().assign(value=(("y", "x"), panel.values, about))
    found.attrs["quantity"] = panel.quantity
    return found


_FORMS: Mapping[type, Callable[[Any, Picture], DataTree]] = {
    CurvePanel: _curves,
    ClientPanel: _client_lines,
    ScatterPanel: _client_values,
    SpectraPanel: _spectra,
    DensityPanel: _densities,
    BarPanel: _bars,
    SweepPanel: _sweeps,
    CountPanel: _counts,
    HistogramPanel: _histograms,
    SurfacePanel: _surface,
    PlanePanel: _plane,
}
"""How the panels of each kind of picture become labelled arrays."""
