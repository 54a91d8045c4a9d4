"""The recipes of FedSMOO: settings against the protocol of the paper, rows and columns against its printed numbers."""

from __future__ import annotations

from figures.contents.surfaces import Superimposed
from figures.recipes import Asked
from figures.recipes.fedsmoo import FEDSMOO
from trainers import FedAvg, FedSMOO, MoFedSAM, Scaffold


def test_f3_superimposes_fedsmoo_on_three_runs_of_the_papers_protocol() -> None:
    content = FEDSMOO.recipes["F3"].content(Asked("paper"))
    assert isinstance(content, Superimposed)
    runs = [content.above[1].models[0].run, *(node.models[0].run for node in content.below.values())]
    # section 5.1, and 5.2 "Loss landscape"; β, r, ρ and momentum of B.4
    assert [run.algorithm for run in runs] == [
        FedSMOO(r=0.1, beta=10), FedAvg(), Scaffold(), MoFedSAM(rho=0.01, beta=0.1),
    ]  # fmt: skip
    assert [run.settings.lr_decay for run in runs] == [0.9995, 0.998, 0.998, 0.998]
    assert {run.settings.partition for run in runs} == {"dirichlet:0.1+replacement"}
