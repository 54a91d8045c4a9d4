"""What a CUDA graph cannot hold is found on any device, and a recorded step that goes wrong is found before its use."""

import gc
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from landscape import FedscapeError
from landscape.compute import graphs
from landscape.compute.devices import on_device
from landscape.compute.graphs import Again, CudaGraph, NotCapturable, OnlyCapturable, captured
from tests.processes import python, run_process
from tests.tape import Tape

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
META = torch.device("meta")
NET = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU())

REFUSED = {
    "item": (lambda: X.sum().item(), "Python waits"),
    "if": (lambda: 1 if X.sum() > 0 else 2, "Python waits"),
    "equal": (lambda: torch.equal(X, X), "Python waits"),
    "nonzero": (lambda: X.nonzero(), "shape of a result"),
    "mask": (lambda: X[X > 0], "shape of a result"),
    "masked select": (lambda: X.masked_select(X > 0), "shape of a result"),
    "unique": (lambda: torch.unique(X), "shape of a result"),
    "assigned mask": (lambda: X.clone().__setitem__(X > 0, X.clone()[X > 0]), "shape of a result"),
    "dropout": (lambda: nn.Dropout(0.5)(X), "random numbers"),
    "drawn": (lambda: torch.rand(2), "random numbers"),
    "dropped attention": (
        lambda: nn.functional.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
        "random numbers",
    ),
    "to a device": (lambda: X.to(META), "several devices"),
    "a number of the host": (lambda: torch.ones(2, device=META) * torch.tensor(3.0), "several devices"),
    "backward": (lambda: _through_a_bool(), "Python waits"),
}


def _through_a_bool():
    class Waits(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            return slope if slope.sum() > 0 else -slope

    x = X.clone().requires_grad_()
    Waits.apply(x).sum().backward()


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_graph_cannot_hold_is_refused(name):
    work, told = REFUSED[name]
    with OnlyCapturable(), pytest.raises(NotCapturable, match=told):
        work()


HELD = {
    "gather": lambda: X[torch.tensor([1, 0])],
    "choose": lambda: torch.where(X > 0, X, 0.0),
    "attention": lambda: nn.functional.scaled_dot_product_attention(X[None], X[None], X[None]),
    "a network": lambda: NET(X).sum().backward(),
    "constants": lambda: torch.full_like(X, 3.0) + torch.arange(2),
    "another device alone": lambda: torch.arange(3, device=META) + torch.ones(3, device=META),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_graph_can_hold_is_let_through(name):
    with OnlyCapturable():
        HELD[name]()


def test_a_recorded_step_leaves_everything_as_it_was_until_it_is_replayed():
    x, count = torch.tensor([1.0, 2.0]), torch.zeros((), dtype=torch.long)

    def work():
        x.mul_(2)
        count.add_(1)

    for record in (Again.record, Tape):
        x.copy_(torch.tensor([1.0, 2.0]))
        count.zero_()
        step = captured(work, [x, count], record)
        assert (x.tolist(), count.item()) == ([1.0, 2.0], 0)
        step.replay()
        step.replay()
        assert (x.tolist(), count.item()) == ([4.0, 8.0], 2)


def test_a_step_that_python_changes_each_time_is_refused():
    x, calls = torch.zeros(3), []

    def work():
        calls.append(None)
        x.add_(len(calls))

    with pytest.raises(FedscapeError, match="computes something else than the work itself"):
        captured(work, [x], Tape)
    assert torch.equal(x, torch.zeros(3))


def test_a_replay_may_differ_by_rounding():
    x = torch.tensor([1e6, 1.0])
    noise = iter([0.0, 1e-3])
    captured(lambda: x.mul_(2).add_(next(noise)), [x], Again.record)
    assert next(noise, None) is None


def test_not_a_number_is_a_result_too():
    x = torch.tensor([-1.0, 1.0])
    captured(lambda: x.sqrt_(), [x], Tape).replay()
    assert x.isnan().tolist() == [True, False]


@pytest.fixture
def told(monkeypatch):
    """The calls of PyTorch's interface, on stand-ins: whether CUDA takes them only a GPU tells."""
    calls = []

    @contextmanager
    def entered(name):
        calls.append(name)
        yield
        calls.append(f"/{name}")

    @contextmanager
    def capture(graph, stream):
        """As PyTorch does it: an error within leaves the capture unable to end."""
        calls.append(f"capture {stream.name}")
        try:
            yield
        except RuntimeError:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")  # noqa: B904
        calls.append("/capture")

    present = SimpleNamespace(wait_stream=lambda other: calls.append("wait"), name="present")
    aside = SimpleNamespace(wait_stream=lambda other: calls.append("wait"), name="aside")
    monkeypatch.setattr(torch.cuda, "device", lambda which: entered(str(which)))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(graphs, "_aside", {1: aside}.__getitem__)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: present)
    monkeypatch.setattr(torch.cuda, "stream", lambda which: entered(which.name))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: calls.append("replay")))
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    return calls


def test_a_capture_warms_up_aside_and_records_once(told):
    CudaGraph(lambda: told.append("work"), lambda: told.append("warm"), torch.device("cuda", 1)).replay()
    assert told == [
        "cuda:1", "wait", "aside", "warm", "warm", "/aside", "wait", "present", "collect", "capture aside", "work",
        "/capture", "/present", "/cuda:1", "replay",
    ]  # fmt: skip


def test_what_cuda_cannot_record_is_told_and_memory_that_runs_out_stays_what_it_is(told):
    """Both where the capture fails at its end too, as it does after an error within."""

    def broken():
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    with pytest.raises(FedscapeError, match=r"previous error during capture\): do it without .*--executor sequential"):
        CudaGraph(broken, lambda: None)

    def large():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        CudaGraph(large, lambda: None)

    def convolution():
        raise RuntimeError("FIND was unable to find an engine to execute this computation")

    with pytest.raises(RuntimeError, match="unable to find an engine"):
        CudaGraph(convolution, lambda: None)


def test_recordings_on_a_device_share_a_stream(monkeypatch):
    """cuBLAS keeps a workspace for each stream it was ever used on."""
    made = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: made.append(device) or object())
    graphs._aside.cache_clear()
    try:
        assert graphs._aside(0) is graphs._aside(0) is not graphs._aside(1)
        assert made == [0, 1]
    finally:
        graphs._aside.cache_clear()


@pytest.mark.parametrize("on", [True, False])
def test_nothing_is_collected_while_a_graph_is_recorded(told, on):
    """The collector may find an older graph, and CUDA refuses to destroy one meanwhile."""
    before, seen = gc.isenabled(), []
    try:
        (gc.enable if on else gc.disable)()
        CudaGraph(lambda: seen.append(gc.isenabled()), lambda: None)
        assert (seen, gc.isenabled()) == ([False], on)
    finally:
        (gc.enable if before else gc.disable)()


def test_a_copy_to_the_device_itself_is_none():
    x = torch.ones(2)
    assert on_device(x, torch.device("cpu")) is x


UNCOMPILED = """
import sys
import torch
from landscape.autograd.dropout import plan_of
from landscape.compute.graphs import OnlyCapturable

before = "torch._dynamo" in sys.modules
with OnlyCapturable():
    torch.ones(2) + 1
plan_of(lambda: torch.nn.functional.dropout(torch.ones(2)))
print(before, "torch._dynamo" in sys.modules)
"""


def test_watching_loads_no_compiler():
    """It takes two seconds, at the start of every training of several clients at once."""
    assert run_process(python, UNCOMPILED) == (0, "False False\n")
