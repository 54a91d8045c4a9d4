"""Models of a user's own with several clients at once: computed as one after the other, or refused; never otherwise."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from landscape import FedscapeError, Partition, Samples
from tests.trainers.federation.test_batched import at_once, both, chosen, images, require_equal
from tests.trainers.federations import SIZES, federation, samples
from trainers import SOL, FedAvg, Parts
from trainers.parts import Affine


class Of(nn.Module):
    """A function between two dense layers."""

    def __init__(self, function) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.function, self.first, self.second = function, nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.second(self.function(self.first(x)))


class ByPart(nn.Module):
    """A mean over the samples with a weight that begins at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.part * x.mean(dim=0)


ACTING = {
    "a mean": lambda x: x - x.mean(dim=0),
    "a mean without a slope": lambda x: x - x.detach().mean(),
    "attention over samples": lambda x: torch.softmax(x @ x.mT, dim=1) @ x,
    "a weight that begins at 0": ByPart(),
    "a mean behind dropout": lambda x: x - F.dropout(x, 0.5).mean(dim=0),
    "dropout of large batches alone": lambda x: F.dropout(x, 0.5) if len(x) > 3 else x,
}


@pytest.mark.parametrize("function", ACTING.values(), ids=ACTING)
def test_batches_whose_samples_act_on_each_other_are_not_filled_up(function):
    require_equal(*both(FedAvg(), module=Of(function).double(), rounds=1, lr=0.1))


def test_batchnorm_that_tracks_no_statistics_sees_the_batch_alone():
    split = Partition(tuple(np.split(np.arange(sum(SIZES)), np.cumsum([5, 12, 3, 20]))))
    net = Of(nn.BatchNorm1d(4, track_running_stats=False)).double()
    first, second, _ = both(FedAvg(), module=net, split=split, clients=5, batch_size="full", rounds=1, lr=0.1)
    torch.testing.assert_close(second.server.w, first.server.w, rtol=1e-10, atol=1e-12)


class Texts(nn.Module):
    """The mean of words' vectors, 0 where a text is filled up."""

    def __init__(self, padding) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words, self.out = nn.Embedding(7, 4, padding_idx=padding), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.words(x).mean(dim=1))


def texts() -> Samples:
    n = sum(SIZES)
    words = torch.randint(0, 7, (n, 5), generator=torch.Generator().manual_seed(0))
    words[:2] = 3  # no padding where the trial of copies could see it
    return Samples(words, samples().targets)


@pytest.mark.parametrize("padding", [0, -1])
def test_the_vector_of_padding_learns_nothing_in_any_client(padding):
    """PyTorch's vmap leaves its slopes out for the first of the rows alone."""
    net = Texts(padding).double()
    first, second, records = both(FedAvg(), module=net, data=texts(), rounds=1)
    require_equal(first, second, records)
    words = second.server.w[: 7 * 4].reshape(7, 4)
    assert torch.equal(words[padding], net.words.weight[padding])


def by_length(x):
    return x / x.flatten(1).norm(dim=1).reshape(-1, *[1] * (x.dim() - 1))


class Lengths(nn.Module):
    """Not a number for an image of zeros, or where dropout leaves nothing of one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(by_length(F.dropout(by_length(x.flatten(1)), 0.1)))


def test_what_fills_a_batch_up_is_as_finite_as_the_batch():
    first, second, records = both(FedAvg(), Parts(cutout=2), module=Lengths().double(), data=images(), rounds=1)
    assert first.server.w.isfinite().all()
    require_equal(first, second, records)


class Halved(torch.autograd.Function):
    """The identity, with half the slope."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return 0.5 * slope


def hooked(x):
    if x.requires_grad:
        x.register_hook(lambda slope: 0.5 * slope)
    return x


def test_an_own_slope_is_computed():
    require_equal(*both(FedAvg(), module=Of(Halved.apply).double(), rounds=1))


class Tempered(nn.Module):
    """With a parameter that is a single number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.temperature, self.out = nn.Parameter(torch.tensor(1.5)), nn.Linear(6, 3)

    def forward(self, x):
        return self.temperature * self.out(x)


def test_a_parameter_of_a_single_number_is_one_of_sols_tensors():
    require_equal(*both(FedAvg(), Parts(ascent=SOL(0.3, strength="adaptive")), module=Tempered().double(), rounds=1))


REFUSED = {
    "slopes that a hook changes": (lambda: Of(hooked), "vmap computes something else"),
    "checkpoints": (lambda: Of(lambda x: checkpoint(torch.tanh, x, use_reentrant=False)), "vmap cannot run it"),
    "inputs in place": (lambda: nn.Sequential(nn.LeakyReLU(inplace=True), nn.Linear(6, 3)), "its inputs in place"),
}


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_computed_at_once_is_refused_before_the_first_round_and_auto_does_not_take_it(make, told):
    data = samples()
    before = data.inputs.clone()
    one_by_one = federation(FedAvg(), module=make().double(), data=data)
    with pytest.raises(FedscapeError, match=f"{told}.*--executor sequential"):
        at_once(one_by_one)
    assert chosen(make().double(), data=data).name == "sequential"
    assert torch.equal(data.inputs, before)  # of floating-point inputs without a normalisation, a batch is a view


def rarely(x):
    return F.dropout(x, 0.5) if len(x) == 3 else x - x.mean(dim=0)


def test_random_numbers_for_batches_of_some_sizes_only_are_told_in_a_sentence():
    ours = at_once(federation(FedAvg(), module=Of(rarely).double(), batch_size="full", per_round=7))
    with pytest.raises(FedscapeError, match=r"at once: .*of some sizes only.*--executor sequential"):
        ours.step()


def colours() -> Samples:
    grey = images()
    return Samples(grey.inputs.double().expand(-1, 3, -1, -1).contiguous(), grey.targets, grey.mean, grey.std)


GROUPNORMS = {
    "first": lambda: [nn.GroupNorm(1, 3), nn.Conv2d(3, 2, 1)],
    "of one pixel": lambda: [nn.AdaptiveAvgPool2d(1), nn.GroupNorm(1, 3), nn.Conv2d(3, 2, 1)],
    "behind dropout": lambda: [nn.Dropout2d(0.2), nn.GroupNorm(3, 3), nn.Conv2d(3, 2, 1)],
}


@pytest.mark.parametrize("parts", [Parts(), Parts(adversary=Affine(0.1, 0.5))], ids=["plain", "adversary"])
@pytest.mark.parametrize("name", GROUPNORMS)
def test_groupnorm_of_the_inputs_ends_no_process(name, parts):
    """PyTorch's backward pass does, of images in the channels-last format whose slopes nobody asks for."""
    torch.manual_seed(3)
    pixels = 1 if name == "of one pixel" else 16
    net = nn.Sequential(*GROUPNORMS[name](), nn.Flatten(), nn.Linear(2 * pixels, 3)).double()
    require_equal(*both(FedAvg(), parts, module=net, data=colours(), rounds=1))


def test_dropout_behind_groupnorm_of_moved_images_drops_what_it_drops_alone():
    """GroupNorm keeps their memory format, in the order of which dropout draws, where their slopes are asked for."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.GroupNorm(3, 3, affine=False), nn.Dropout(0.3), nn.Flatten(), nn.Linear(48, 3)).double()
    parts = Parts(adversary=Affine(0.1, 0.5, "channel"))
    require_equal(*both(FedAvg(), parts, module=net, data=colours(), rounds=1))


def test_sol_takes_no_step_uphill_from_the_model_received():
    """Rounding at equal points, made a unit vector, was a step of length ρ."""
    torch.manual_seed(0)
    wide = Samples(torch.randn(12, 18, dtype=torch.float64), torch.arange(12) % 3)
    split, net = Partition((np.arange(12),)), nn.Linear(18, 3).double()
    changes = {"data": wide, "split": split, "clients": 1, "per_round": 1, "local_epochs": 1, "batch_size": 16}
    require_equal(*both(FedAvg(), Parts(ascent=SOL(1.0)), module=net, rounds=3, lr=0.1, **changes))
