"""The cross-entropy of several models at once: losses and slopes are those of PyTorch's loss and autograd."""

import pytest
import torch
from torch.nn import functional as F

from landscape.autograd.cross_entropy import Aims, cross_entropies

S, N, CLASSES = 4, 6, 5


def drawn(scale=1.0):
    draw = torch.Generator().manual_seed(0)
    logits = scale * torch.randn(S, CLASSES, N, generator=draw, dtype=torch.float64)
    targets, partners = (torch.randint(0, CLASSES, (S, N), generator=draw) for _ in range(2))
    return logits.requires_grad_(), targets, partners, torch.rand(S, generator=draw, dtype=torch.float64)


def reference(logits, targets, counts):
    rows = zip(logits, targets, counts, strict=True)
    return torch.stack([F.cross_entropy(own.mT[:count], at[:count]) for own, at, count in rows])


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("counts", [[N] * S, [N, 3, 1, N], [2] * S])
def test_losses_and_slopes_are_autograds(counts, mixed, scale):
    logits, targets, partners, shares = drawn(scale)
    expected = reference(logits, targets, counts)
    if mixed:
        expected = shares * expected + (1 - shares) * reference(logits, partners, counts)
        aims = Aims.of(targets, counts, CLASSES, torch.float64, partners, shares)
    else:
        aims = Aims.of(targets, counts, CLASSES, torch.float64)
    losses, slopes = cross_entropies(logits.detach(), aims)
    torch.testing.assert_close(losses, expected.detach(), rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(slopes, torch.autograd.grad(expected.sum(), logits)[0], rtol=1e-12, atol=1e-15)
    for row, count in enumerate(counts):
        assert not slopes[row, :, count:].any()


def test_some_rows_are_as_those_rows_alone():
    logits, targets, _, _ = drawn()
    counts = [4, 6, 4, 2]
    some = Aims.of(targets, counts, CLASSES, torch.float64).take([0, 2], 4)
    alone = Aims.of(targets[[0, 2], :4], [4, 4], CLASSES, torch.float64)
    for found, expected in zip(
        cross_entropies(logits.detach()[[0, 2], :, :4], some),
        cross_entropies(logits.detach()[[0, 2], :, :4], alone),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=0)
