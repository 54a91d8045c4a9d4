"""Rates that fall within a round, in what algorithms make of a client's change, against plain loops in float64."""

import pytest

from tests.trainers.algorithms.naive import add, zeros
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.algorithms.test_wave_starts import EXACT, RAGGED, SIZE, NaiveFedSWA
from tests.trainers.federations import SETTINGS, SIZES
from trainers import Linear, Parts, Scaffold


@pytest.mark.parametrize(
    ("changes", "common"),
    [
        ({}, None),
        ({"dual_lr": "first"}, None),
        ({"dual_steps": "first"}, 3 * SIZES[0] / SIZE),
        ({"dual_steps": "mean", "dual_lr": "first"}, 3 * 3),  # E ⌈(64/7)/4⌉
    ],
)
def test_a_falling_rate_scales_control_variates_by_the_sum_of_the_rates(changes, common):
    """SCAFFOLD's c_i⁺ = c_i − c − d_i/Σ_k η_k, as FedMoSWA has it; with other K and η in the place of the client's and
    the round's, Kη times the mean of its own η_k/η."""
    reference, rho = NaiveFedSWA(0.2, 1.0), 0.2
    state = {}

    def advanced(clients, w, sampled, lr):
        reference.number += 1
        state.setdefault("c", zeros(w))
        state.setdefault("own", [zeros(w) for _ in SIZES])
        c, models = state["c"], []
        for i in sampled:
            x, order, total = w, list(reference.minibatches(clients, i)), 0.0
            for k, gradient in enumerate(order):
                rate = lr * (1 - k / len(order) + rho * k / len(order))
                x = add(x, add(add(gradient(x), state["own"][i], -1.0), c), -rate)
                total += rate
            total *= 1 if common is None else common / len(order)
            total *= SETTINGS["lr"] / lr if "dual_lr" in changes else 1
            change = add([-t for t in c], add(x, w, -1.0), -1 / total)
            state["own"][i] = add(state["own"][i], change)
            state["c"] = add(state["c"], change, clients.p[i])
            models.append(x)
        return clients.mean(models, sampled)

    parts = Parts(local_schedule=Linear(rho))
    assert relative_error(Scaffold(), advanced, parts=parts, **RAGGED, **changes) < EXACT
