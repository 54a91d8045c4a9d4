"""Server optimisers against torch.optim, where it has them, and against the paper coordinate by coordinate."""

import math
from dataclasses import replace

import pytest
import torch

from landscape import FedscapeError
from tests.trainers.federations import federation
from trainers.algorithms.combinations import FedAdagrad, FedAdam, FedAvgM, FedYogi
from trainers.algorithms.fedavg import FedAvg
from trainers.parts.server_optimizers import Adagrad, Adam, Momentum, Yogi

STEPS, RATE = 12, 0.7


def changes():
    draw = torch.Generator().manual_seed(5)
    scale = torch.logspace(-5, 1, 40, dtype=torch.float64)  # coordinates far below and far above any τ used here
    return [scale * torch.randn(40, generator=draw, dtype=torch.float64) for _ in range(STEPS)]


def start():
    return torch.linspace(-1, 1, 40, dtype=torch.float64)


def trajectory(optimizer):
    optimizer = replace(optimizer, lr=RATE)
    w, points = start(), []
    state = optimizer.state(w)
    for delta in changes():
        change, state = optimizer.step(delta, state)
        w = w + change
        points.append(w)
    return torch.stack(points)


def torch_trajectory(make, before_step=lambda optimizer, t: None, prepare=lambda optimizer, p: None):
    """The same changes as negative gradients; ``t`` is 1 for the first."""
    p = torch.nn.Parameter(start())
    optimizer, points = make([p]), []
    prepare(optimizer, p)
    for t, delta in enumerate(changes(), 1):
        p.grad = -delta
        before_step(optimizer, t)
        optimizer.step()
        points.append(p.detach().clone())
    return torch.stack(points)


@pytest.mark.parametrize("beta", [0.0, 0.6, 0.9])
def test_momentum_is_that_of_sgd(beta):
    expected = torch_trajectory(lambda p: torch.optim.SGD(p, lr=RATE, momentum=beta))
    torch.testing.assert_close(trajectory(Momentum(beta)), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("tau", [1e-3, 0.5])
def test_adagrad_without_first_moment_is_that_of_torch(tau):
    expected = torch_trajectory(
        lambda p: torch.optim.Adagrad(p, lr=RATE, initial_accumulator_value=tau**2, eps=tau)  # v_0 = τ²
    )
    torch.testing.assert_close(trajectory(Adagrad(0.0, tau)), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("beta1", "beta2", "tau"), [(0.9, 0.99, 1e-3), (0.5, 0.9, 0.3), (0.0, 0.0, 1e-2)])
def test_adam_is_that_of_torch_with_its_bias_corrections_undone(beta1, beta2, tau):
    """torch steps by r (m/a)/(√(v/b) + ε), a = 1 − β1ᵗ, b = 1 − β2ᵗ: with r = η a/√b and ε = τ/√b, by η m/(√v + τ)."""

    def begin(optimizer, p):
        p.grad = torch.zeros_like(p)
        optimizer.step()  # makes the state, moves nothing
        assert torch.equal(p.detach(), start())
        optimizer.state[p]["exp_avg_sq"].fill_(tau**2)

    def undo(optimizer, t):
        a, b = 1 - beta1 ** (t + 1), 1 - beta2 ** (t + 1)  # one step was made before the first
        optimizer.param_groups[0].update(lr=RATE * a / math.sqrt(b), eps=tau / math.sqrt(b))

    expected = torch_trajectory(
        lambda p: torch.optim.Adam(p, lr=RATE, betas=(beta1, beta2)), before_step=undo, prepare=begin
    )
    torch.testing.assert_close(trajectory(Adam(beta1, beta2, tau)), expected, rtol=1e-12, atol=1e-12)


def by_coordinate(rule, beta1, tau):
    """Reddi et al., Algorithm 2, in Python's floats."""
    rows = []
    w, m, v = start().tolist(), [0.0] * 40, [tau**2] * 40
    for delta in changes():
        for j, d in enumerate(delta.tolist()):
            m[j] = beta1 * m[j] + (1 - beta1) * d
            v[j] = rule(v[j], d * d)
            w[j] += RATE * m[j] / (math.sqrt(v[j]) + tau)
        rows.append(list(w))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("beta1", "beta2", "tau"), [(0.9, 0.99, 1e-3), (0.5, 0.6, 0.3)])
@pytest.mark.parametrize("name", ["adam", "adagrad", "yogi"])
def test_second_moments_are_the_papers(name, beta1, beta2, tau):
    rules = {
        "adam": lambda v, s: beta2 * v + (1 - beta2) * s,
        "adagrad": lambda v, s: v + s,
        "yogi": lambda v, s: v - (1 - beta2) * s if v > s else v + (1 - beta2) * s,
    }
    optimizer = {"adam": Adam(beta1, beta2, tau), "adagrad": Adagrad(beta1, tau), "yogi": Yogi(beta1, beta2, tau)}[name]
    torch.testing.assert_close(trajectory(optimizer), by_coordinate(rules[name], beta1, tau), rtol=1e-13, atol=1e-13)


def test_yogi_keeps_the_second_moment_positive():
    optimizer, state = Yogi(0.0, 0.0, 0.1), {}
    w = torch.zeros(200, dtype=torch.float64)
    state = optimizer.state(w)
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        change, state = optimizer.step(0.1 * torch.randn(200, generator=draw, dtype=torch.float64), state)
        assert (state["v"] >= 0).all()
        assert change.isfinite().all()


@pytest.mark.parametrize("optimizer", [Momentum(0.5), Adam(0.9, 0.99, 0.1), Adagrad(0.5, 0.1), Yogi(0.9, 0.99, 0.1)])
def test_a_step_changes_nothing_in_place(optimizer):
    state = optimizer.state(start())
    delta = changes()[0]
    before = {name: tensor.clone() for name, tensor in state.items()}, delta.clone()
    _, after = optimizer.step(delta, state)
    assert all(torch.equal(state[name], before[0][name]) for name in state)
    assert torch.equal(delta, before[1])
    assert after.keys() == state.keys()
    assert all(not torch.equal(after[name], state[name]) for name in state)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Momentum(1.0),
        lambda: Momentum(-0.1),
        lambda: Adam(1.0, 0.9, 0.1),
        lambda: Adam(0.9, 1.0, 0.1),
        lambda: Adam(0.9, 0.9, 0.0),
        lambda: Adagrad(-0.1, 0.1),
        lambda: Adagrad(0.0, 0.0),
        lambda: Yogi(1.0, 0.9, 0.1),
        lambda: Yogi(0.9, -0.1, 0.1),
        lambda: Yogi(0.9, 0.9, -1.0),
        lambda: Momentum(0.9, 0.0),
        lambda: Adam(lr=-1.0),
    ],
)
def test_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match=r"^\w+ needs .*, not beta"):
        bad()


@pytest.mark.parametrize(
    "algorithm", [FedAvgM(1.0, 0.8), FedAdam(), FedAdagrad(beta1=0.4), FedYogi()], ids=lambda a: type(a).__name__
)
def test_the_optimizers_state_is_resumed(algorithm):
    whole = federation(algorithm)
    for _ in range(4):
        whole.step()
    first = federation(algorithm)
    first.step()
    first.step()
    saved = first.export()
    resumed, forgetful = federation(algorithm), federation(algorithm)
    resumed.restore(saved)
    forgetful.restore({**saved, "optimizer": algorithm.server_optimizer.state(forgetful.server.w)})
    for _ in range(2):
        resumed.step()
        forgetful.step()
    assert torch.equal(resumed.server.w, whole.server.w)
    assert not torch.equal(forgetful.server.w, whole.server.w)


def test_the_optimizers_state_stays_on_the_server_and_out_of_the_traffic():
    ours = federation(FedAdam())
    record = ours.step()
    assert ours.server.tensors().keys() == {"w"}
    assert ours.optimizer_state.keys() == {"m", "v"}
    assert record.bytes_down == 3 * ours.server.w.nbytes


def test_a_run_without_an_optimizer_has_no_state_of_one():
    assert federation(FedAvg()).export()["optimizer"] == {}


@pytest.mark.parametrize(
    ("algorithm", "optimizer"),
    [(FedAvgM(), Momentum()), (FedAdam(), Adam()), (FedAdagrad(), Adagrad()), (FedYogi(), Yogi())],
    ids=lambda a: type(a).__name__,
)
def test_the_parts_have_the_defaults_of_their_algorithms(algorithm, optimizer):
    assert algorithm.server_optimizer == optimizer
