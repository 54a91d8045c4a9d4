"""Losses of single samples: each is what the loss gives for that sample alone."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import landscape.data.samples
from landscape.sample_losses import sample_losses

FAST = [
    (F.cross_entropy, "flat", "classes"),
    (F.cross_entropy, "pixels", "classes"),
    (F.cross_entropy, "pixels", "shares"),
    (nn.CrossEntropyLoss(), "flat", "classes"),
    (nn.CrossEntropyLoss(label_smoothing=0.1), "flat", "shares"),
    (nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=-1), "pixels", "ignored"),
    (nn.CrossEntropyLoss(ignore_index=-1), "flat", "ignored"),
    (partial(F.cross_entropy, label_smoothing=0.2, ignore_index=-1), "pixels", "ignored"),
    (F.nll_loss, "flat", "classes"),
    (nn.NLLLoss(), "pixels", "classes"),
    (F.mse_loss, "flat", "numbers"),
    (F.mse_loss, "one", "numbers"),
    (nn.MSELoss(), "pixels", "numbers"),
    (F.l1_loss, "flat", "numbers"),
    (nn.L1Loss(), "flat", "numbers"),
    (partial(F.smooth_l1_loss, beta=0.3), "flat", "numbers"),
    (nn.SmoothL1Loss(beta=0.2), "flat", "numbers"),
    (nn.HuberLoss(delta=0.4), "flat", "numbers"),
    (F.binary_cross_entropy_with_logits, "flat", "numbers"),
    (nn.BCEWithLogitsLoss(), "one", "numbers"),
    (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])), "flat", "numbers"),
    (nn.PoissonNLLLoss(full=True), "flat", "numbers"),
]


SLOW = [
    (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]).double()), "pixels", "classes"),
    (partial(F.cross_entropy, weight=torch.tensor([1.0, 2.0, 3.0, 4.0]).double()), "flat", "classes"),
    (nn.MSELoss(reduction="sum"), "flat", "numbers"),
    (lambda x, y: F.cross_entropy(2 * x, y), "flat", "classes"),
    (type("Doubled", (nn.MSELoss,), {"forward": lambda s, x, y: 2 * F.mse_loss(x, y)})(), "flat", "numbers"),
]


class TestSampleLosses:
    """Each sample's loss is what the loss says of that sample alone; PyTorch's own losses say it of all at once."""

    def given(self, outputs: str, targets: str) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        shape = {"flat": (6, 4), "pixels": (6, 4, 3, 2), "one": (6,)}[outputs]
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        labels = (6, *shape[2:])
        kinds = {
            "classes": lambda: torch.randint(4, labels, generator=generator),
            "ignored": lambda: torch.randint(-1, 4, labels, generator=generator),
            "shares": lambda: torch.rand(shape, generator=generator, dtype=torch.float64).softmax(1),
            "numbers": lambda: torch.rand(shape, generator=generator, dtype=torch.float64),
        }
        return x, kinds[targets]()

    @pytest.mark.parametrize(("loss", "outputs", "targets"), [*FAST, *SLOW])
    def test_they_are_those_of_the_samples_one_by_one(self, loss, outputs, targets, monkeypatch):
        x, y = self.given(outputs, targets)
        wanted = torch.stack([loss(x[i : i + 1], y[i : i + 1]) for i in range(len(x))])
        if (loss, outputs, targets) in FAST:
            monkeypatch.setattr(landscape.data.samples.torch, "stack", None)  # what the loop ends in
        torch.testing.assert_close(sample_losses(loss, x, y), wanted, rtol=1e-12, atol=1e-12, equal_nan=True)
        if isinstance(loss, nn.Module):
            assert loss.reduction != "none", "the loss itself is as it was"

    @pytest.mark.filterwarnings("ignore:Using a target size")
    def test_outputs_that_would_be_broadcast_over_the_samples_are_not(self):
        x, y = self.given("flat", "numbers")
        x = x[:, :1]
        torch.testing.assert_close(sample_losses(F.mse_loss, x, y), (x - y).square().mean(dim=1))
