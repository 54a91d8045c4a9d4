"""Pictures of federations: how a data set is divided over clients."""

from trainers.plots.partitions import plot_partitions

__all__ = ["plot_partitions"]
