"""What is no function of the parameters, or no mean over samples, is refused with a reason; what is one, never."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from landscape import FedscapeError, Landscape
from landscape.activations import MAN
from tests.landscape.autograd.test_layer_types import Calls

N, CLASSES = 40, 3
ASKED: dict[str, Callable[[Landscape], object]] = {
    "gradient": lambda around: around.gradient(),
    "hvp": lambda around: around.hvp(None, around.weights),
    "Gauss-Newton": lambda around: around.gauss_newton()(around.weights),
}


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build()


def around(net: nn.Module, loss=F.cross_entropy, x: Tensor | None = None, y: Tensor | None = None, **options):
    x = draw(N, 5) if x is None else x
    y = torch.arange(len(x)) % CLASSES if y is None else y
    return Landscape(net, (x, y), loss, **{"device": "cpu", "batch_size": 16, **options})


def calls(function: Callable[[Tensor], Tensor]) -> nn.Module:
    return seeded(lambda: Calls(function))


class Counter(nn.Module):
    """Remembers how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, CLASSES)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return self.head(x)


class Drifting(Counter):
    """And what it gives depends on it."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.runs


REFUSED = {
    "batch statistics": (lambda x: F.batch_norm(x, None, None, training=True), "other samples of its batch"),
    "centred outputs": (lambda x: x - x.mean(0), "other samples of its batch"),
    "earlier samples": (lambda x: x.cumsum(0), "other samples of its batch"),
    "dropout": (lambda x: F.dropout(x, 0.1), "random numbers"),
    "noise": (lambda x: x + 0.1 * torch.randn_like(x), "random numbers"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_no_function_of_a_sample_are_refused(name, dtype, asked):
    function, said = REFUSED[name]
    for _ in range(2):  # and again: a refusal is not remembered as an agreement
        with pytest.raises(FedscapeError, match=said):
            ASKED[asked](around(calls(function), dtype=dtype))


@pytest.mark.parametrize("asked", ASKED)
def test_a_model_that_changes_its_state_is_refused(asked):
    with pytest.raises(FedscapeError, match="changes its state"):
        ASKED[asked](around(seeded(Drifting)))


WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]))
LOSSES = {
    "sum": (nn.CrossEntropyLoss(reduction="sum"), "is a sum"),
    "none": (nn.CrossEntropyLoss(reduction="none"), "must be a scalar"),
    "class weights": (WEIGHTED, "class weights or ignored"),
    "ignored class": (nn.CrossEntropyLoss(ignore_index=1), "class weights or ignored"),
    "maximum": (lambda o, y: F.cross_entropy(o, y, reduction="none").max(), "not the mean of its samples"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_are_no_mean_are_refused_whatever_is_asked(name):
    loss, said = LOSSES[name]
    for ask in (*ASKED.values(), Landscape.evaluate):
        with pytest.raises(FedscapeError, match=said):
            ask(around(calls(torch.tanh), loss))


def test_one_target_of_a_thousand_that_is_ignored_is_noticed():
    y = torch.arange(1000) % CLASSES
    y[777] = -100
    with pytest.raises(FedscapeError, match="ignored targets"):
        around(calls(torch.tanh), x=draw(1000, 5), y=y).gradient()


def test_a_draw_in_the_loss_or_the_objective_is_noticed():
    with pytest.raises(FedscapeError, match="random numbers"):
        around(calls(torch.tanh), lambda o, y: F.cross_entropy(o + torch.randn_like(o), y), batch_size=N).gradient()
    batches = [(draw(4, 5), torch.arange(4) % CLASSES)]
    of = Landscape.of(calls(F.dropout), batches, lambda net, b: F.cross_entropy(net(b[0]), b[1]), device="cpu")
    with pytest.raises(FedscapeError, match="random numbers"):
        of.hvp(None, of.weights)


def in_place(x: Tensor) -> Tensor:
    return x.mul(1.0).mul_(0.5).add_(1.0)


def autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ draw(6, 6).to(x.dtype) @ draw(6, 6, seed=4).to(x.dtype)).float()


class TimeMajor(nn.Module):
    """[n, 5] -> [n, classes] of n times: a first axis as long as the batch may be, which is none of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        times = torch.linspace(0.5, 1.5, 32)[:, None, None]
        return (times * self.head(x)).tanh()


class Pair(nn.Module):
    """A mapping of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(x), "batch": torch.tensor(float(len(x)))}


class OwnGradient(nn.Module):
    """Differentiates in its forward pass, as models of forces do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        (force,) = torch.autograd.grad(self.body(x).sum(), x, create_graph=True)
        return self.head(force)


def scaled(factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda o, y: factor * F.cross_entropy(o, y)


def certain(o: Tensor, y: Tensor) -> Tensor:
    """Next to 0: every logit is right by 30."""
    return F.cross_entropy(o + 30 * F.one_hot(y, CLASSES), y)


def squeezed(o: Tensor, y: Tensor) -> Tensor:
    """Fails for single samples."""
    return F.binary_cross_entropy_with_logits(o[:, :1].squeeze(), (y > 0).to(o))


def signed(o: Tensor, y: Tensor) -> Tensor:
    """0 but for rounding."""
    return (o - o.mean(1, keepdim=True)).mean()


SOUND: dict[str, Callable[[], Landscape]] = {
    "plain": lambda: around(calls(torch.tanh)),
    "large logits": lambda: around(calls(lambda x: 1e4 * x)),
    "a chaotic function": lambda: around(calls(lambda x: torch.sin(1e5 * x))),
    "loss times 1e-9": lambda: around(calls(torch.tanh), scaled(1e-9)),
    "loss times 1e9": lambda: around(calls(torch.tanh), scaled(1e9)),
    "loss near 0": lambda: around(calls(torch.tanh), certain),
    "loss of 0": lambda: around(calls(torch.tanh), lambda o, y: 0 * o.mean()),
    "loss that cancels": lambda: around(calls(torch.tanh), signed),
    "loss that squeezes": lambda: around(calls(torch.tanh), squeezed, batch_size=20),
    "bfloat16 inside": lambda: around(calls(autocast)),
    "bfloat16 loss": lambda: around(calls(torch.tanh), lambda o, y: F.cross_entropy(o.bfloat16(), y)),
    "works in place": lambda: around(calls(in_place)),
    "one sample": lambda: around(calls(torch.tanh), x=draw(1, 5)),
    "two samples": lambda: around(calls(torch.tanh), x=draw(2, 5), batch_size=1),
    "one class": lambda: around(calls(torch.tanh), WEIGHTED, y=torch.zeros(N).long()),
    "label smoothing": lambda: around(calls(torch.tanh), nn.CrossEntropyLoss(label_smoothing=0.1)),
    "numbers for targets": lambda: around(calls(torch.tanh), F.mse_loss, y=draw(N, CLASSES)),
    "MAN": lambda: around(seeded(lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))), penalty=MAN(0.1)),
    "dropout in evaluation mode": lambda: around(seeded(lambda: nn.Sequential(nn.Dropout(), nn.Linear(5, 3)))),
    "counts its runs": lambda: around(seeded(Counter)),
    "time first": lambda: around(seeded(TimeMajor), lambda o, y: F.cross_entropy(o.mean(0), y)),
    "a mapping": lambda: around(seeded(Pair), lambda o, y: F.cross_entropy(o["logits"], y)),
    "differentiates by itself": lambda: around(seeded(OwnGradient)),
    "class weights over all samples": lambda: around(
        calls(torch.tanh), lambda o, y: F.cross_entropy(o, y, torch.tensor([1.0, 5.0, 0.2]), reduction="none").mean()
    ),
    "statistics of all samples at once": lambda: around(calls(REFUSED["batch statistics"][0]), batch_size=N),
    "a graph's nodes": lambda: around(calls(lambda x: draw(N, N) @ x), batch_size=N),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_what_is_a_mean_over_samples_is_never_refused(name):
    function = SOUND[name]()
    assert function.gradient().isfinite().all()
    assert function.hvp(None, function.weights).isfinite().all()
    if name not in ("time first", "a mapping", "MAN"):  # of which there is none
        assert function.gauss_newton()(function.weights).isfinite().all()
    if name not in ("time first", "a mapping", "differentiates by itself"):
        function.evaluate()


def test_a_point_that_is_not_finite_is_not_refused():
    function = around(calls(torch.tanh))
    w = torch.full_like(function.weights, float("nan"))
    assert function.gradient(w).isnan().all()
    assert function.hvp(w, function.weights).isnan().all()


def test_a_fisher_matrix_needs_single_samples_even_of_one_micro_batch():
    for function, loss in ((REFUSED["batch statistics"][0], F.cross_entropy), (torch.tanh, LOSSES["sum"][0])):
        whole = around(calls(function), loss, batch_size=N)
        whole.hvp(None, whole.weights)
        with pytest.raises(FedscapeError):
            whole.gauss_newton(kind="empirical")(whole.weights)


def test_smaller_micro_batches_are_looked_at_again():
    function = around(calls(REFUSED["batch statistics"][0]), batch_size=N)
    function.gradient()
    function.batch_size = N - 1
    with pytest.raises(FedscapeError, match="other samples"):
        function.gradient()


def test_a_look_is_taken_once_and_leaves_no_trace():
    seen = []

    class Watched(Counter):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    function = around(seeded(Watched))
    state = copy.deepcopy(function._flat.module.state_dict())
    random = torch.get_rng_state()
    hessian = function.hessian(graph_memory=0)
    hessian(function.weights)
    assert sum(seen) - N <= 5 * 32
    assert all(
        torch.equal(a, b) for a, b in zip(state.values(), function._flat.module.state_dict().values(), strict=True)
    )
    assert torch.equal(random, torch.get_rng_state())
    seen.clear()
    hessian(function.weights)
    function.gradient()
    function.hvp(None, function.weights)
    assert sum(seen) == 3 * N


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), RuntimeError("GET was unable to find an engine")])
def test_where_memory_holds_fewer_samples_nothing_is_said(error):
    def function(x: Tensor) -> Tensor:
        if len(x) > 2:
            raise error
        return x

    net = around(calls(function), batch_size=2)
    assert net.gradient().isfinite().all()
    assert net.batch_size == 2
