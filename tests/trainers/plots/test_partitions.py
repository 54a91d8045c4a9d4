"""Pictures of partitions show the counts."""

import numpy as np

from landscape import load_dataset, make_partition
from trainers.plots.partitions import plot_partitions

LABELS = load_dataset("digits").train.targets.numpy()


def test_the_pictures_show_the_counts():
    available = np.bincount(LABELS)
    specs = ["dirichlet:0.1", "dirichlet:0.1+replacement"]
    counts = [make_partition(spec, LABELS, 20, 0).label_counts(LABELS, 10) for spec in specs]
    figure = plot_partitions(specs, counts, available)
    rows = [row.axes for row in figure.subfigs]
    for axes, numbers in zip(rows, counts, strict=True):
        heat, totals, sizes, classes = axes[:4]
        assert np.array_equal(heat.images[0].get_array(), numbers.T)
        assert [bar.get_height() for bar in totals.patches[:10]] == numbers.sum(axis=0).tolist()
        assert sum(bar.get_height() for bar in sizes.patches) == sum(bar.get_height() for bar in classes.patches) == 20
        assert all(ax.get_xlabel() and ax.get_ylabel() and ax.get_title() for ax in (heat, totals, sizes, classes))
    assert rows[0][1].get_ylim() == rows[1][1].get_ylim(), "with and without replacement are compared"


def test_sizes_are_drawn_where_there_are_no_classes():
    figure = plot_partitions(["natural"], [np.array([[3], [5], [400]])], np.empty(0))
    (axes,) = figure.subfigs[0].axes
    assert sum(bar.get_height() for bar in axes.patches) == 3
