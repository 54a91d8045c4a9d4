"""Inputs and targets: normalised when taken, kept as stored, in order, each counted once."""

import pytest
import torch

from landscape import FedscapeError, Samples

IMAGES = torch.arange(5 * 2 * 3 * 3, dtype=torch.uint8).view(5, 2, 3, 3)
MEAN, STD = torch.tensor([10.0, 40.0]).view(2, 1, 1).double(), torch.tensor([2.0, 4.0]).view(2, 1, 1).double()


@pytest.fixture
def samples() -> Samples:
    return Samples(IMAGES, torch.arange(5), MEAN, STD)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_images_are_normalised_in_the_precision_asked_for(samples, dtype):
    x, y = samples.batch(slice(1, 3), dtype)
    assert x.dtype == dtype
    assert torch.equal(x, (IMAGES[1:3].to(dtype) - MEAN.to(dtype)) / STD.to(dtype))
    assert y.tolist() == [1, 2]


def test_token_ids_and_class_targets_stay_integers_and_other_targets_follow_the_precision():
    tokens = torch.tensor([[3, 1], [0, 2]])
    x, y = Samples(tokens, tokens, MEAN, STD).batch(slice(None), torch.float64)
    assert torch.equal(x, tokens)
    assert x.dtype == y.dtype == torch.int64
    assert Samples(tokens, torch.rand(2, 1)).batch(slice(None), torch.float64)[1].dtype == torch.float64


def test_a_subset_has_the_chosen_samples_in_the_order_given_and_the_same_normalisation(samples):
    chosen = samples.subset([4, 0, 4])
    assert torch.equal(chosen.inputs, IMAGES[[4, 0, 4]])
    assert chosen.targets.tolist() == [4, 0, 4]
    assert torch.equal(chosen.batch(slice(1, 2), torch.float64)[0], samples.batch(slice(0, 1), torch.float64)[0])


@pytest.mark.parametrize(("size", "shares"), [(1, [0.2] * 5), (2, [0.4, 0.4, 0.2]), (5, [1.0]), (9, [1.0])])
def test_batches_are_all_samples_in_order_with_their_share_of_n(samples, size, shares):
    x, y, share = zip(*samples.batches(size, torch.float32), strict=True)
    assert torch.equal(torch.cat(x), samples.batch(slice(None), torch.float32)[0])
    assert torch.cat(y).tolist() == [0, 1, 2, 3, 4]
    assert list(share) == shares


def test_moving_keeps_everything(samples):
    moved = samples.to("cpu")
    assert all(torch.equal(a, b) for a, b in zip(vars(moved).values(), vars(samples).values(), strict=True))
    assert Samples(IMAGES, torch.arange(5)).to("cpu").mean is None


def test_samples_that_do_not_pair_up_or_are_none_are_refused():
    with pytest.raises(FedscapeError, match="5 inputs but 4 targets: they must pair up"):
        Samples(IMAGES, torch.arange(4))
    with pytest.raises(FedscapeError, match="there are no samples: at least one is needed"):
        Samples(IMAGES[:0], torch.arange(0))
