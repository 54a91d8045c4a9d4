"""What a measurement computed is freed when it is over: a graph that saves a tensor which leads back to it never is."""

import gc
import weakref
from typing import ClassVar

import pytest
import torch
from torch import nn

from analysis.hessian.spectrum.operators import GaussNewton, Hessian
from landscape import Landscape
from landscape.compute.cost import sample_cost


class Watched(nn.Module):
    """A sigmoid, whose node saves its result, that remembers its results without keeping them."""

    results: ClassVar[list[weakref.ref]] = []

    def forward(self, x):
        found = torch.sigmoid(x)
        self.results.append(weakref.ref(found))
        return found


def net():
    return nn.Sequential(nn.Linear(3, 4), Watched(), nn.Linear(4, 2))


def landscape():
    return Landscape(net(), (torch.randn(10, 3), torch.randint(0, 2, (10,))), device="cpu", batch_size=4)


def products(memory):
    def work(there):
        operator = Hessian(there, graph_memory=memory)
        for _ in range(2):
            operator @ torch.ones_like(there.weights)

    return work


WORK = {
    "all graphs kept": products(None),
    "one graph kept": products(400),
    "no graph kept": products(0),
    "gauss-newton": lambda there: GaussNewton(there) @ torch.ones_like(there.weights),
    "gradient": lambda there: there.gradient(),
    "evaluation": lambda there: there.evaluate(),
    "cost": lambda there: sample_cost(net(), torch.randn(4, 3)),
}


@pytest.mark.parametrize("name", WORK)
def test_nothing_of_a_graph_stays(name):
    torch.manual_seed(0)
    Watched.results.clear()
    WORK[name](landscape())
    gc.collect()
    assert Watched.results
    assert not [result for result in Watched.results if result() is not None]
