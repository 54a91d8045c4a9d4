"""Means over clients that come in rows are those over the same clients one by one."""

import pytest
import torch

from trainers.federation import Aggregate

WEIGHTS = [0.3, 0.1, 0.0, 0.25, 0.2, 0.15]
STEPS = [3, 1, 4, 1, 5, 9]


def sent(dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    models = 100 + torch.randn(6, 7, generator=draw, dtype=dtype)
    uploads = {"delta": models - 100, "matrix": torch.randn(6, 2, 3, generator=draw, dtype=dtype)}
    return models, {**uploads, "number": torch.randn(6, generator=draw, dtype=dtype)}


def one_by_one(models, uploads, inclusion=None):
    aggregate = Aggregate(inclusion)
    for k, model in enumerate(models):
        aggregate.add({name: each[k] for name, each in uploads.items()}, WEIGHTS[k], model, STEPS[k])
    return aggregate


@pytest.mark.parametrize("cuts", [[6], [2, 4], [3, 3], [2, 1, 3], [1, 1, 1, 1, 1, 1]])
@pytest.mark.parametrize("inclusion", [None, 0.5])
def test_rows_are_added_as_clients_are(cuts, inclusion):
    models, uploads = sent()
    expected, found = one_by_one(models, uploads, inclusion), Aggregate(inclusion)
    first = 0
    for cut in cuts:
        rows = slice(first, first + cut)
        found.add_rows({name: each[rows] for name, each in uploads.items()}, WEIGHTS[rows], models[rows], STEPS[rows])
        first += cut
    old, new = expected.mean(), found.mean()
    for name in uploads:
        torch.testing.assert_close(getattr(new, name), getattr(old, name), rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(
            getattr(new.all_clients, name), getattr(old.all_clients, name), rtol=1e-13, atol=1e-14
        )
    assert new.steps == pytest.approx(old.steps, rel=1e-14)
    torch.testing.assert_close(found.model(), expected.model(), rtol=1e-14, atol=0)
    w = models.mean(0) + 1
    assert found.drift(w) == pytest.approx(expected.drift(w), rel=1e-13)
    assert found.drift(w) == pytest.approx(((models - w) ** 2).sum().item() / 6, rel=1e-12)


def test_rows_of_one_client_are_that_client_to_the_last_bit():
    models, uploads = sent(torch.float32)
    expected, found = one_by_one(models, uploads), Aggregate()
    for k in range(len(models)):
        rows = {name: each[k : k + 1] for name, each in uploads.items()}
        found.add_rows(rows, WEIGHTS[k : k + 1], models[k : k + 1], STEPS[k : k + 1])
    for name in uploads:
        assert torch.equal(getattr(found.mean(), name), getattr(expected.mean(), name))
    assert torch.equal(found.model(), expected.model())
    assert found.drift(models[0]) == expected.drift(models[0])


def test_rows_without_weight_before_and_after_others_leave_the_mean():
    models, _ = sent()
    aggregate, nothing = Aggregate(), torch.full((2, 7), 9.0, dtype=torch.float64)
    for rows, weights in ((nothing, [0.0, 0.0]), (models[:2], [0.5, 0.5]), (nothing, [0.0, 0.0])):
        aggregate.add_rows({"delta": rows}, weights, rows, [1, 1])
    torch.testing.assert_close(aggregate.model(), models[:2].mean(0), rtol=1e-14, atol=0)
    torch.testing.assert_close(aggregate.mean().delta, models[:2].mean(0), rtol=1e-14, atol=0)
