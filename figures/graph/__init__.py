"""What figures are made of: runs and measurements, named by what decides their result, kept and shared."""

from figures.graph.execution import Outcome, execute
from figures.graph.nodes import FileModel, Measure, Node, RunModel, runs_of
from figures.graph.store import Place, Store

__all__ = ["FileModel", "Measure", "Node", "Outcome", "Place", "RunModel", "Store", "execute", "runs_of"]
