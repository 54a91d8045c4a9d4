"""Flip and crop, cutout and mixup against one image at a time with the same draws, and what a client's model sees."""

import pytest
import torch
from scipy import stats
from torch import nn

from landscape import FedscapeError, Samples
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SIZES, federation, samples
from trainers import SAM, FedAvg, State
from trainers.algorithm import Round
from trainers.federation.batches import batch_indices
from trainers.federation.client_store import ClientStore
from trainers.federation.local import LocalWork, draw
from trainers.parts.augmentation import cutout, flip_crop, mixup
from trainers.parts.parts import Parts


def one_image_reference(image, flipped, top, left, padding):
    """Flip, pad and cut one image with plain loops."""
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                row, column = y + top - padding, x + left - padding
                if 0 <= row < height and 0 <= column < width:
                    out[c, y, x] = image[c, row, column]
    return out.flip(2) if flipped else out


def test_flip_crop_is_the_per_image_operation_for_the_same_draws():
    images = torch.randint(0, 256, (12, 3, 8, 6), dtype=torch.uint8)
    batch = flip_crop(images, torch_generator(3, "augment"), padding=2)
    draw = torch_generator(3, "augment")
    flips = torch.rand(12, generator=draw) < 0.5
    corners = torch.randint(0, 5, (2, 12), generator=draw)
    assert 0 < flips.sum() < 12
    assert len(corners.unique()) > 2
    for i in range(12):
        expected = one_image_reference(images[i], flips[i], corners[0, i].item(), corners[1, i].item(), 2)
        assert torch.equal(batch[i], expected), i


def test_flip_crop_keeps_stored_types():
    assert flip_crop(torch.ones(2, 1, 8, 8, dtype=torch.uint8), torch_generator(0)).dtype == torch.uint8


def square_reference(image, top, left, side):
    """A square of zeros on one image with plain loops."""
    out = image.clone()
    for y in range(image.shape[1]):
        for x in range(image.shape[2]):
            if top <= y < top + side and left <= x < left + side:
                out[:, y, x] = 0
    return out


@pytest.mark.parametrize("side", [1, 3, 4, 9])
def test_cutout_is_the_per_image_operation_for_the_same_draws(side):
    images = torch.rand(12, 3, 8, 6, generator=torch_generator(0), dtype=torch.float64) + 1
    batch = cutout(images, side, torch_generator(3, "augment"))
    draw = torch_generator(3, "augment")
    rows, columns = (torch.randint(0, size, (12,), generator=draw) for size in (8, 6))
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) > 6
    for i in range(12):
        expected = square_reference(images[i], int(rows[i]) - side // 2, int(columns[i]) - side // 2, side)
        assert torch.equal(batch[i], expected), i
    assert (images > 0).all()  # those handed in stay as they are


def test_cutouts_square_has_its_size_where_it_fits_and_the_border_cuts_it_elsewhere():
    batch = cutout(torch.ones(4000, 1, 32, 32), 16, torch_generator(1))
    holes = (batch[:, 0] == 0).sum(dim=(1, 2))
    assert holes.max() == 256  # 16 x 16, Caldarola et al.
    assert holes.min() == 8 * 8  # centred on a corner: (32 − 16/2 = 24 of 32 rows stay)
    # Rows inside: 16 where the centre is on 8, ..., 24; fewer by one a step outside: the mean of that, squared.
    inside = [min(32, centre + 8) - max(0, centre - 8) for centre in range(32)]
    expected = (sum(inside) / 32) ** 2
    assert holes.double().mean().item() == pytest.approx(expected, rel=0.02)


def test_cutouts_centre_is_uniform_over_the_image():
    batch = cutout(torch.ones(6000, 1, 4, 5), 1, torch_generator(2))
    hits = (batch[:, 0] == 0).sum(dim=0).flatten()
    assert hits.sum() == 6000
    assert stats.chisquare(hits.numpy()).pvalue > 1e-3


def test_mixup_takes_one_share_and_one_partner_for_each_sample():
    """On unit vectors the mixed inputs show their weights: λ at the sample, 1 − λ at its partner."""
    for seed in range(20):
        mixed, partners, share = mixup(torch.eye(9, dtype=torch.float64), torch_generator(seed))
        assert sorted(partners.tolist()) == list(range(9))
        expected = torch.zeros(9, 9, dtype=torch.float64)
        for i, j in enumerate(partners.tolist()):
            expected[i, i] += share
            expected[i, j] += 1 - share
        assert torch.equal(mixed, expected)


def test_mixups_share_is_of_the_beta_distribution_and_its_partners_uniform():
    draw = torch_generator(0, "mixup")
    found = [mixup(torch.zeros(4, 1), draw) for _ in range(3000)]
    assert stats.kstest([share for _, _, share in found], stats.beta(1, 1).cdf).pvalue > 1e-3
    pairs = torch.zeros(4, 4)
    for _, partners, _ in found:
        pairs[torch.arange(4), partners] += 1
    assert stats.chisquare(pairs.flatten().numpy()).pvalue > 1e-3
    shares = torch.tensor([share for _, _, share in found])
    assert abs(torch.corrcoef(torch.stack([shares[:-1], shares[1:]]))[0, 1].item()) < 0.06


# What a client does with them


def images():
    draw = torch_generator(7, "images")
    inputs = torch.randint(0, 256, (sum(SIZES), 3, 8, 8), generator=draw, dtype=torch.uint8)
    mean, std = torch.tensor([100.0, 130.0, 90.0]).view(3, 1, 1), torch.tensor([60.0, 50.0, 70.0]).view(3, 1, 1)
    return Samples(inputs, samples().targets, mean, std)


def small_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3)).double()


def work(ours, clients, number=1):
    received = State.of({"w": ours.server.w})
    store = ClientStore(dict, torch.device("cpu"))
    return list(ours.executor.work(clients, received, store, Round(number, 0.3, 0.5)))


def reference_inputs(rows, draw, *, flip, side, mix):
    """Flip and crop as stored, normalise, cut out, mix: one image at a time; also the batch's soft targets."""
    data, n = images(), len(rows)
    x = list(data.inputs[rows])
    if flip:
        flips = torch.rand(n, generator=draw) < 0.5
        corners = torch.randint(0, 9, (2, n), generator=draw)
        x = [one_image_reference(x[i], flips[i], int(corners[0, i]), int(corners[1, i]), 4) for i in range(n)]
    x = [(image.double() - data.mean.double()) / data.std.double() for image in x]
    if side:
        at = [torch.randint(0, 8, (n,), generator=draw) for _ in range(2)]
        x = [square_reference(x[i], int(at[0][i]) - side // 2, int(at[1][i]) - side // 2, side) for i in range(n)]
    y = [nn.functional.one_hot(t, 3).double() for t in data.targets[rows]]
    if mix:
        share = torch.rand((), generator=draw).item()
        partners = torch.randperm(n, generator=draw).tolist()
        x = [share * x[i] + (1 - share) * x[partners[i]] for i in range(n)]
        y = [share * y[i] + (1 - share) * y[partners[i]] for i in range(n)]
    return torch.stack(x), torch.stack(y)


WAYS = {
    "mixup": {"flip": False, "side": 0, "mix": True},
    "cutout": {"flip": False, "side": 4, "mix": False},
    "all": {"flip": True, "side": 4, "mix": True},
}


def with_parts(flip, side, mix, ascent=None, **changes):
    parts = Parts(mixup=mix, cutout=side, ascent=ascent)
    changes = {"batch_size": 8, "local_epochs": 2, "augment": "flip-crop" if flip else "none", **changes}
    return federation(FedAvg(), parts, module=small_net(), data=images(), **changes)


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_clients_epochs_are_sgd_on_the_inputs_and_targets_made_by_hand(way, rho):
    """λ ℓ(y) + (1 − λ) ℓ(y_π) is the cross-entropy of the mixed targets; SAM has one draw for both its points."""
    (result,) = work(with_parts(**way, ascent=SAM(rho) if rho else None), [3])
    model, draw, losses = small_net(), torch_generator(4, "augmentation", 1, 3), []
    parameters = list(model.parameters())

    def gradient(x, y):
        loss = -(y * model(x).log_softmax(1)).sum(1).mean()
        return loss.item(), torch.autograd.grad(loss, parameters)

    for rows in batch_indices(20, 8, 2, torch_generator(4, "batches", 1, 3)):
        x, y = reference_inputs(20 + rows, draw, **way)
        before = [p.detach().clone() for p in parameters]
        loss, slopes = gradient(x, y)
        losses += [loss] * len(rows)
        with torch.no_grad():
            if rho:
                norm = torch.cat([s.reshape(-1) for s in slopes]).norm()
                for p, s in zip(parameters, slopes, strict=True):
                    p += rho * s / norm
                with torch.enable_grad():
                    _, slopes = gradient(x, y)
            for p, b, s in zip(parameters, before, slopes, strict=True):
                p.copy_(b - 0.3 * s)
    expected = torch.cat([p.detach().reshape(-1) for p in parameters])
    torch.testing.assert_close(result.model, expected, rtol=1e-9, atol=1e-12)
    assert result.loss.item() == pytest.approx(sum(losses) / len(losses), rel=1e-12)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_draws_depend_on_the_seed_the_round_and_the_client_and_not_on_who_works_beside(way):
    alone = [work(with_parts(**way), [client])[0].model for client in (1, 3, 6)]
    together = [result.model for result in work(with_parts(**way), [1, 3, 6])]
    turned = [result.model for result in work(with_parts(**way), [6, 3, 1])][::-1]
    for a, b, c in zip(alone, together, turned, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert not torch.equal(work(with_parts(**way), [3], number=2)[0].model, alone[1])
    assert not torch.equal(work(with_parts(**way, seed=5), [3])[0].model, alone[1])


def test_each_makes_a_difference():
    ends = [work(with_parts(flip=f, side=s, mix=m), [3])[0].model for f, s, m in
            [(False, 0, False), (True, 0, False), (False, 4, False), (False, 0, True)]]  # fmt: skip
    assert all((a - b).norm() > 1e-3 for i, a in enumerate(ends) for b in ends[:i])


def test_a_negative_square_is_refused():
    with pytest.raises(FedscapeError, match="the cutout square's side is -1"):
        Parts(cutout=-1)


@pytest.mark.parametrize("parts", [{"parts": Parts(cutout=4)}, {"augment": "flip-crop"}], ids=["cutout", "flip-crop"])
def test_what_needs_images_is_refused_on_vectors(parts):
    with pytest.raises(FedscapeError, match="need images"):
        federation(FedAvg(), **parts)


def test_mixup_is_refused_on_token_ids_and_taken_on_vectors():
    tokens = Samples(torch.randint(0, 9, (sum(SIZES), 6)), samples().targets)
    with pytest.raises(FedscapeError, match="token ids"):
        federation(FedAvg(), Parts(mixup=True), data=tokens)
    assert federation(FedAvg(), Parts(mixup=True)).step().train_loss > 0


def test_flip_crop_half_crops_half_of_the_normalised_images_and_pads_them_with_zeros():
    """FedDyn's utils_dataset.py:579-586: one half flipped, one half cropped, after normalisation."""
    images = torch.full((4000, 1, 4, 4), 7, dtype=torch.uint8)
    mean, std = torch.full((1, 1, 1), 3.0), torch.full((1, 1, 1), 2.0)
    data = Samples(images, torch.zeros(4000, dtype=torch.long), mean, std)
    work = LocalWork(1, 4, 0.0, "flip-crop-half", 0)
    drawn = draw(data, torch.arange(4000), work, torch.Generator().manual_seed(0), torch.float32).inputs
    full = float(data.prepare(images[:1], torch.float32).max())
    assert set(drawn.unique().tolist()) == {0.0, full}  # the border is the mean, not a black pixel
    whole = float((drawn == full).flatten(1).all(dim=1).float().mean())
    assert abs(whole - (1 / 2 + 1 / 2 / 81)) < 0.03  # not cropped, or cropped by (4, 4) of 9 · 9 corners
