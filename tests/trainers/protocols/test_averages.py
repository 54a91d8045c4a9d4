"""Caldarola et al.'s code replayed: SWA's rates and captures in main.py, and PyTorch's optimisers on the server."""

import pytest
import torch

from tests.trainers.federations import federation
from trainers import SWA, Adagrad, Adam, FedAvg, Parts


def main_py(rounds, start, c, lr1, lr2):
    """models/main.py:137-180 and main_utils.py:97-100: each round's rate and mean, of server models 1, 2, 3, ..."""
    rates, captured, mean, swa_n, swa_start, lr = [], [], None, 0, int(start * rounds), lr1
    for i in range(rounds):
        if i >= swa_start and c > 1:
            t = 1 / c * (i % c + 1)
            lr = (1 - t) * lr1 + t * lr2
        rates.append(lr)
        model = float((i + 1) ** 2)
        if i > swa_start and (i - swa_start) % c == 0:
            alpha = 1.0 / (swa_n + 1)
            mean = model if mean is None else mean * (1.0 - alpha) + model * alpha
            swa_n += 1
            captured.append(i + 1)
    return rates, captured, mean


@pytest.mark.parametrize(("rounds", "start", "c"), [(16, 0.75, 2), (80, 0.75, 10), (6, 0.5, 1), (23, 0.29, 3)])
def test_swa_takes_the_rates_and_models_of_their_loop(rounds, start, c):
    rates, captured, mean = main_py(rounds, start, c, 0.01, 1e-4)
    swa = SWA(start, c, 1e-4, "official")
    assert [swa.rate(number, rounds, 0.01) for number in range(1, rounds + 1)] == pytest.approx(rates, rel=1e-13)
    assert [number for number in range(1, rounds + 1) if swa.captures(number, rounds)] == captured
    assert mean == pytest.approx(sum(number**2 for number in captured) / len(captured))
    paper = [n for n in range(1, rounds + 1) if SWA(start, c, 1e-4).captures(n, rounds)]
    assert (captured == paper) == (c == 1)


def test_the_scripted_runs_capture_249_models_from_round_7511_on():
    swa = SWA(variant="official")
    captured = [number for number in range(1, 10_001) if swa.captures(number, 10_000)]
    assert (len(captured), captured[0], captured[-1]) == (249, 7511, 9991)
    assert swa.rate(7501, 10_000, 0.01) == pytest.approx(0.00901)
    assert max(swa.rate(n, 10_000, 0.01) for n in range(7502, 7512)) == swa.rate(7511, 10_000, 0.01)


def test_a_federation_averages_what_their_loop_averages():
    ours = federation(FedAvg(), Parts(swa=SWA(0.5, 2, 0.01, "official")), rounds=8, lr_decay=1.0)
    models = []
    for _ in range(8):
        ours.step()
        models.append(ours.server.w)
    torch.testing.assert_close(ours.averaged.value, models[6], rtol=0, atol=0)  # round 7: i = 6, i − 4 = 2


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(0.9, 0.99, 0.1, 0.3, "corrected"), lambda p: torch.optim.Adam(p, lr=0.3, betas=(0.9, 0.99), eps=0.1)),
        (Adagrad(0.0, 0.01, 0.3, "zero"), lambda p: torch.optim.Adagrad(p, lr=0.3, eps=0.01)),
    ],
)
def test_the_servers_optimiser_is_pytorchs(ours, theirs):
    """fedopt_server.py:105 and 107, on the pseudo-gradient −‹d›."""
    w = torch.zeros(4, dtype=torch.float64)
    parameter = torch.nn.Parameter(w.clone())
    optimizer, state = theirs([parameter]), ours.state(w)
    for number in range(5):
        delta = torch.linspace(-1, 2, 4, dtype=torch.float64) * (number + 1)
        change, state = ours.step(delta, state)
        w = w + change
        parameter.grad = -delta
        optimizer.step()
        torch.testing.assert_close(w, parameter.detach(), rtol=1e-13, atol=0)


def test_without_correction_the_second_moment_may_begin_at_zero():
    change, state = Adam(0.5, 0.5, 1.0, 1.0, "zero").step(
        torch.tensor([2.0]), {"m": torch.zeros(1), "v": torch.zeros(1)}
    )
    assert Adam(tau=0.5, v0="zero").state(torch.ones(1))["v"] == 0
    assert float(change) == pytest.approx(1 / (2**0.5 + 1))
    assert float(state["v"]) == 2
