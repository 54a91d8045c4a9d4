"""Pictures of several spectra: their names are legible, and hide no panel."""

from dataclasses import replace

import pytest
import torch

from analysis import measure_hessian
from analysis.hessian.plots.spectrum import plot_spectra
from landscape import Landscape


@pytest.mark.parametrize(
    ("path", "above"), [("digits", False), ("/home/somebody/with/a/rather/long/path/to/my-own-images.npz", True)]
)
def test_names_that_no_panel_has_room_for_stand_above_all_panels(path, above):
    data = (torch.eye(4), torch.tensor([0, 1, 2, 0]))
    report = measure_hessian(Landscape(torch.nn.Linear(4, 3), data), 2, density=True, trace=False)
    names = [f"fedavg on {path} (runs/{run})" for run in "ab"]
    figure = plot_spectra([replace(report, title=name) for name in names])
    figure.draw_without_rendering()
    legends = figure.legends if above else [ax.get_legend() for ax in figure.axes]
    assert len(legends) == (1 if above else 2)
    for legend in legends:
        assert [text.get_text().replace("\n", " ") for text in legend.get_texts()] == names
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        others = [ax for ax in figure.axes if above or ax is not legend.axes]
        places = [part.get_window_extent() for ax in others for part in (ax, ax.title, ax.yaxis.label)]
        assert not any(box.overlaps(place) for place in places)
