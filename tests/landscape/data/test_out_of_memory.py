"""Where the device's memory runs out, micro-batches are halved, it is said, and the results are those of small ones."""

import itertools
import warnings

import pytest
import torch
from torch import Tensor

from landscape import Landscape

N, LIMIT = 17, 5
SAID = "the device ran out of memory: the micro-batch size is now {}"


class Small(torch.nn.Module):
    """A network for whose device more than ``limit`` samples are too many, in the forward or the backward pass."""

    def __init__(self, limit: int, backward: bool) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
        self.limit, self.backward = limit, backward

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layers(x)
        if not self.backward:
            self.weigh(x)
        elif hidden.requires_grad:
            hidden.register_hook(self.weigh)
        return hidden

    def weigh(self, batch: Tensor) -> None:
        if len(batch) > self.limit:
            raise torch.OutOfMemoryError(f"{len(batch)} samples are too many")


def landscape(limit: int = LIMIT, *, backward: bool = False, **options) -> Landscape:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        net = Small(limit, backward).double()
        data = torch.randn(N, 4, dtype=torch.float64), torch.randint(3, (N,))
    return Landscape(net, data, device="cpu", **options)


def vectors(function: Landscape) -> Tensor:
    return torch.randn(3, function.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


ASKED = {
    "evaluate": lambda f: torch.tensor([f.value(), f.accuracy()], dtype=torch.float64),
    "gradient": lambda f: f.gradient(),
    "hvp": lambda f: f.hvp(None, vectors(f)),
    "kept graphs": lambda f: f.hessian()(vectors(f)),
    "ggn": lambda f: f.gauss_newton()(vectors(f)),
    "empirical": lambda f: f.gauss_newton(kind="empirical")(vectors(f)),
    "mc": lambda f: f.gauss_newton(kind="mc")(vectors(f)),
}


@pytest.fixture(scope="module")
def expected() -> dict[str, Tensor]:
    return {name: ask(landscape(N, batch_size=4)) for name, ask in ASKED.items()}


@pytest.mark.parametrize(
    ("name", "backward"), [("evaluate", False), *itertools.product(list(ASKED)[1:], (False, True))]
)
def test_results_are_those_of_small_micro_batches_and_the_size_is_said(expected, name, backward):
    function = landscape(backward=backward)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = ASKED[name](function)
    # More samples are asked for than the 17 there are: 17, then 8, then 4 at a time.
    assert [str(warning.message) for warning in said] == [SAID.format(8), SAID.format(4)]
    assert function.batch_size == 4
    torch.testing.assert_close(found, expected[name], rtol=1e-13, atol=1e-15)


@pytest.mark.filterwarnings("ignore:the device ran out of memory.*now 8")
@pytest.mark.parametrize("name", ASKED)
def test_the_size_stays_and_is_said_once(name):
    function = landscape()
    with pytest.warns(UserWarning, match="now 4"):
        function.value()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ASKED[name](function)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.filterwarnings("ignore:the device ran out of memory")
def test_at_size_1_the_error_goes_through(name):
    with pytest.raises(torch.OutOfMemoryError, match="1 samples are too many"):
        ASKED[name](landscape(0))


def test_what_a_convolution_without_workspace_says_counts_as_memory(expected, monkeypatch):
    """PyTorch has tried all algorithms of cuDNN by then, and tells no more."""

    def weigh(net: Small, batch: Tensor) -> None:
        if len(batch) > net.limit:
            raise RuntimeError("GET was unable to find an engine to execute this computation")

    monkeypatch.setattr(Small, "weigh", weigh)
    with pytest.warns(UserWarning, match=SAID.format(4)), pytest.warns(UserWarning, match=SAID.format(8)):
        found = landscape().gradient()
    torch.testing.assert_close(found, expected["gradient"], rtol=1e-13, atol=1e-15)
    with pytest.warns(UserWarning, match=SAID.format(1)), pytest.raises(RuntimeError, match="unable to find an engine"):
        landscape(0, batch_size=2).gradient()


def test_memory_that_is_enough_changes_nothing():
    function = landscape(N)
    before = function.batch_size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ask in ASKED.values():
            ask(function)
    assert function.batch_size == before > N


def test_another_error_goes_through():
    function = landscape(N)

    def broken(outputs: Tensor, targets: Tensor) -> Tensor:
        raise RuntimeError("no memory problem")

    function.loss = broken
    with pytest.raises(RuntimeError, match="no memory problem"):
        function.hessian()(vectors(function))


def test_memory_that_runs_out_between_calls_drops_the_graphs_that_were_kept(monkeypatch):
    function = landscape(8, batch_size=8)
    hessian, v = function.hessian(graph_memory=1 << 20), vectors(function)
    before = hessian(v)
    assert hessian.graphs_kept == 3
    assert torch.equal(hessian(v), before)
    hessian._graphs.popitem()  # one must be made again ...
    refused = []

    def once(net: Small, batch: Tensor) -> None:
        if not refused:
            refused.append(hessian.graphs_kept)
            raise torch.OutOfMemoryError("too much is kept")

    monkeypatch.setattr(Small, "weigh", once)  # ... when memory is short
    with pytest.warns(UserWarning, match=SAID.format(4)):
        after = hessian(v)
    assert refused == [2]
    torch.testing.assert_close(after, before, rtol=1e-13, atol=1e-15)
    assert hessian.graphs_kept == 5, "those of the new micro-batches: 17 = 4 · 4 + 1"


def test_graphs_of_another_micro_batch_size_are_never_used():
    function = landscape(N, batch_size=6)
    hessian, v = function.hessian(), vectors(function)
    before = hessian(v)
    for size in (3, 7, 17):
        function.batch_size = size
        torch.testing.assert_close(hessian(v), before, rtol=1e-13, atol=1e-15)
        assert hessian.graphs_kept == -(-N // size)


def test_products_keep_their_samples_when_the_landscape_gets_others():
    function = landscape(N)
    hessian, v = function.hessian(), vectors(function)
    before, ggn = hessian(v), function.gauss_newton()
    of_ggn, value = ggn(v), function.value()
    function.data = function.data.subset(range(3))
    assert torch.equal(hessian(v), before)
    assert torch.equal(ggn(v), of_ggn)
    assert function.value() != value
    assert len(function.data) == 3
