"""Pictures of federations: how a data set is divided over clients, and how training went."""

from trainers.plots.curves import plot_metrics
from trainers.plots.partitions import plot_partitions

__all__ = ["plot_metrics", "plot_partitions"]
