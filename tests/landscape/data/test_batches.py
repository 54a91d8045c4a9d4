"""Any scalar loss of any module over batches of any kind: exact means, exact derivatives, and clear refusals."""

import copy
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from analysis import GaussNewton, Hessian, largest_eigenpairs
from landscape import FedscapeError, Landscape
from tests.landscape.nets import case

SIZES = (4, 1, 7)


class Net(nn.Module):
    """Takes no plain tensor, and has layers that behave otherwise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.head = (
            nn.Linear(3, 4),
            nn.BatchNorm1d(4),
            nn.Dropout(0.5),
            nn.Linear(4, 2),
        )

    def forward(self, batch: dict[str, Any]) -> Tensor:
        return self.head(self.drop(torch.tanh(self.norm(self.first(batch["nested"][0])))))


def masked_error(module: nn.Module, batch: dict[str, Any]) -> Tensor:
    """The mean squared error over what is not masked."""
    error = (module(batch) - batch["wanted"]).square()
    return error[batch["mask"]].mean()


def kept(batch: dict[str, Any]) -> int:
    return int(batch["mask"].sum())


@pytest.fixture(scope="module")
def net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        net = Net().double()
        net.norm.running_mean.normal_()
        net.norm.running_var.uniform_(0.5, 2)
        return net.train()


@pytest.fixture(scope="module")
def batches() -> list[dict[str, Any]]:
    """Of uneven sizes, masked, float32 (the network is float64), with things that are no tensors."""
    generator = torch.Generator().manual_seed(6)
    return [
        {
            "name": f"batch of {n}",
            "mask": torch.rand(n, 2, generator=generator) < 0.7,
            "nested": [torch.randn(n, 3, generator=generator), None],
            "wanted": torch.randn(n, 2, generator=generator),
        }
        for n in SIZES
    ]


@pytest.fixture(scope="module")
def landscape(net, batches) -> Landscape:
    return Landscape.of(net, batches, masked_error, size=kept, device="cpu")


@pytest.fixture(scope="module")
def dense(net, batches):
    """Value, gradient and Hessian of the mean over all that is not masked, all batches in one."""
    whole = {
        "nested": [torch.cat([b["nested"][0] for b in batches]).double()],
        "wanted": torch.cat([b["wanted"] for b in batches]).double(),
        "mask": torch.cat([b["mask"] for b in batches]),
    }
    named = dict(net.named_parameters())
    still = Net().double().eval()
    still.load_state_dict(net.state_dict())

    def loss(w: Tensor) -> Tensor:
        parts = w.split([p.numel() for p in named.values()])
        point = {name: part.view_as(p) for (name, p), part in zip(named.items(), parts, strict=True)}
        error = (functional_call(still, point, (whole,)) - whole["wanted"]).square()
        return (error * whole["mask"]).sum() / whole["mask"].sum()

    w = torch.cat([p.detach().flatten() for p in named.values()]) + 0.1
    point = w.clone().requires_grad_()
    value = loss(point)
    (gradient,) = torch.autograd.grad(value, point)
    return w, value.item(), gradient, torch.autograd.functional.hessian(loss, w)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)


def test_all_is_that_of_one_mean_over_everything(landscape, dense):
    w, value, gradient, hessian = dense
    found = landscape.evaluate(w)
    assert found.loss == pytest.approx(value, rel=1e-12)
    assert found.accuracy is None
    close(landscape.gradient(w), gradient)
    close(landscape.hvp(w, torch.eye(len(w), dtype=torch.float64)), hessian)
    assert len({kept(batch) / n for batch, n in zip(landscape._batches.data.batches, SIZES, strict=True)}) > 1


def test_operators_work_and_graphs_are_kept(landscape, dense):
    w, _, _, hessian = dense
    products = landscape.hessian(w)
    for _ in range(2):
        close(products(hessian), hessian @ hessian)
        assert products.graphs_kept == len(SIZES)
    found = largest_eigenpairs(Hessian(landscape, w), 3, tolerance=1e-9)
    close(torch.from_numpy(found.values), torch.linalg.eigvalsh(hessian).flip(0)[:3])


def test_the_network_is_measured_as_in_evaluation_and_stays_as_it_was(net, landscape, batches):
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    assert landscape.value() == landscape.value()
    assert torch.equal(landscape.gradient(), landscape.gradient())
    assert net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_another_precision_has_the_same_objective(landscape, dense):
    w, value, gradient, _ = dense
    other = landscape.to("float32")
    assert other.value(w.float()) == pytest.approx(value, rel=1e-5)
    torch.testing.assert_close(other.gradient(w.float()).double(), gradient, rtol=1e-4, atol=1e-5)
    assert repr(other) == f"Landscape(34 parameters, {sum(landscape._batches.data._sizes)} samples, cpu, float32)"


def test_a_classifier_as_an_objective_is_the_classifier():
    net = case("GroupNorm")
    plain = Landscape(net.model, (net.x, net.y), device="cpu")

    def objective(module: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(module(batch[0]), batch[1])

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(net.x, net.y), batch_size=4)
    function = Landscape.of(net.model, loader, objective, device="cpu")
    v = torch.randn(2, len(net.w), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert function.value(net.w) == pytest.approx(plain.value(net.w), rel=1e-13)
    close(function.gradient(net.w), plain.gradient(net.w))
    close(function.hvp(net.w, v), plain.hvp(net.w, v))
    assert function.space.layers() == plain.space.layers()


def test_a_closed_form_with_batches_of_every_kind():
    """½ w² x² over x = 1 … 6: the Hessian is the mean of x²."""
    line = nn.Linear(1, 1, bias=False).double()
    x = torch.arange(1.0, 7.0)[:, None]
    Pair = namedtuple("Pair", "x rest")

    def take(batch: Any) -> Tensor:
        while not isinstance(batch, Tensor):
            batch = batch["x"] if isinstance(batch, dict) else batch.x if isinstance(batch, Pair) else batch[0]
        return batch

    kinds = [x[:1], (x[1:3],), [x[3:4], "words"], Pair(x[4:5], 7), {"x": (x[5:], None)}]
    function = Landscape.of(line, kinds, lambda net, batch: net(take(batch)).square().mean() / 2, device="cpu")
    mean = x.double().square().mean().item()
    one = torch.ones(1, dtype=torch.float64)
    assert function.hvp(None, one).item() == pytest.approx(mean, rel=1e-14)
    assert function.value(2 * one) == pytest.approx(2 * mean, rel=1e-14)


def test_a_batch_of_size_0_is_left_out(net, batches, landscape):
    nothing = batches[0] | {"mask": torch.zeros(4, 2, dtype=torch.bool)}
    assert masked_error(copy.deepcopy(net), nothing | {"nested": [nothing["nested"][0].double()]}).isnan()
    function = Landscape.of(net, [nothing, *batches, nothing], masked_error, size=kept, device="cpu")
    assert function.value() == landscape.value()
    assert torch.equal(function.gradient(), landscape.gradient())


def test_ranks_take_turns(landscape, batches):
    data = landscape._batches.data
    shares: dict[int, float] = {}
    for rank in range(5):
        part = {number: share for number, _, _, share in data.portion(1, torch.float64, rank, 5)}
        assert set(part) == ({rank} if rank < len(SIZES) else set())
        shares |= part
    assert [shares[i] for i in range(3)] == [kept(b) / sum(map(kept, batches)) for b in batches]


class TestRefusals:
    def test_gauss_newton_does_not_know_the_outputs(self, landscape):
        with pytest.raises(FedscapeError, match="need the model's outputs, which an objective of its own hides: take"):
            GaussNewton(landscape)

    def test_there_are_no_samples_and_no_accuracy(self, landscape):
        with pytest.raises(FedscapeError, match="this needs inputs and targets"):
            landscape.data  # noqa: B018
        with pytest.raises(FedscapeError, match="accuracy needs integer class targets"):
            landscape.accuracy()

    def test_batches_that_can_be_gone_through_once(self, net, batches):
        with pytest.raises(FedscapeError, match="only once: give a list, a DataLoader or the like"):
            Landscape.of(net, iter(batches), masked_error, device="cpu")

    def test_no_batches(self, net):
        with pytest.raises(FedscapeError, match="there are no samples"):
            Landscape.of(net, [], masked_error, device="cpu")

    @pytest.mark.parametrize("batch", [{"words": "none"}, [torch.tensor(1.0)]])
    def test_a_size_that_cannot_be_told(self, net, batch):
        with pytest.raises(FedscapeError, match=r"the size of a batch cannot be told, .*: give size"):
            Landscape.of(net, [batch], masked_error, device="cpu")

    def test_a_negative_size(self, net, batches):
        with pytest.raises(FedscapeError, match="the size of a batch is -1: it must be 0 or more"):
            Landscape.of(net, batches, masked_error, size=lambda batch: -1, device="cpu")

    @pytest.mark.parametrize(
        ("returned", "what"), [(lambda y: y, r"a tensor of shape \(4, 2\)"), (lambda y: y.mean().item(), "float")]
    )
    def test_an_objective_that_is_no_scalar(self, net, batches, returned, what):
        function = Landscape.of(net, batches[:1], lambda module, batch: returned(module(batch)), device="cpu")
        for ask in (function.value, function.gradient, lambda: function.hvp(None, function.weights)):
            with pytest.raises(FedscapeError, match=f"the objective returned {what}: it must return a scalar tensor"):
                ask()

    @pytest.mark.parametrize(
        ("change", "number"),
        [
            (lambda b: b.reverse(), 0),
            (lambda b: b.pop(), 2),
            (lambda b: b.append(b[0]), 3),
            (lambda b: b[1]["wanted"].add_(1), 1),
        ],
    )
    def test_batches_that_change_between_passes(self, net, change, number):
        mine = [{"nested": [torch.randn(n, 3)], "wanted": torch.zeros(n, 2)} for n in SIZES]
        function = Landscape.of(net, mine, lambda m, b: (m(b) - b["wanted"]).square().mean(), device="cpu")
        hessian = function.hessian()
        hessian(function.weights)
        change(mine)
        with pytest.raises(FedscapeError, match=f"batch {number} is not what it was at first: .*no shuffling"):
            hessian(function.weights)

    def test_a_loader_that_shuffles(self, net):
        data = torch.utils.data.TensorDataset(torch.randn(40, 3))
        loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        function = Landscape.of(net, loader, lambda m, b: m({"nested": b}).square().mean(), device="cpu")
        with pytest.raises(FedscapeError, match="is not what it was at first"):
            function.value()

    def test_memory_that_runs_out_goes_through(self, net, batches):
        def greedy(module: nn.Module, batch: Any) -> Tensor:
            raise torch.OutOfMemoryError("too much")

        with pytest.raises(torch.OutOfMemoryError):
            Landscape.of(net, batches, greedy, device="cpu").value()
