"""Planes through three models, with names of their own."""

import matplotlib.pyplot as plt
import pytest

from figures.contents.content import Results
from figures.contents.surfaces import Planes
from figures.graph import Measure, RunModel, Store, execute
from trainers import FedAvg, Settings
from trainers.runs.planned import PlannedRun


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    settings = Settings(rounds=2, clients=4, per_round=2, local_steps=2, save_every=0, device="cpu")
    runs = [PlannedRun(FedAvg(), settings), *(PlannedRun(FedAvg(), settings).seeded(seed) for seed in (1, 2))]
    options = {"plane": "three", "points": 3, "samples": 20, "test": True, "exact": True}
    node = Measure("surface", tuple(RunModel(run) for run in runs), options)
    store = Store(tmp_path_factory.mktemp("store"))
    assert not execute([node], store).failed
    return node, Results({node: store.result(node)})


def test_models_are_called_as_the_recipe_says_and_the_caption_counts_both_splits(plane):
    node, results = plane
    panels = {"a": (node, "loss", "train"), "b": (node, "error", "test"), "c": (node, "error", "test")}
    (product,) = Planes(panels, {"b": ("one", "two", "three")}).products(results, {})
    assert product.caption.startswith("20 training and 20 test samples, the plane through three models")
    figure = product.shows.draw()
    axes = {ax.get_title(): ax for ax in figure.axes}
    assert axes["b"].get_xlabel() == "distance from one towards two"
    assert axes["b"].get_ylabel() == "distance towards three"
    assert {"one", "two", "three"} <= {text.get_text() for text in axes["b"].texts}
    assert "fedavg" in axes["a"].get_xlabel()
    assert "fedavg" in axes["c"].get_xlabel()
    plt.close(figure)


def test_a_panel_names_all_three(plane):
    node, results = plane
    with pytest.raises(ValueError, match="shorter"):
        Planes({"a": (node, "loss", "train")}, {"a": ("one", "two")}).products(results, {})
