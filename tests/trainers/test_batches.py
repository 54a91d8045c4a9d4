"""Mini-batch order and augmentation."""

import torch

from landscape.randomness import torch_generator
from trainers.batches import batch_indices, flip_crop


def order(samples, size, epochs, seed=0):
    return list(batch_indices(samples, size, epochs, torch_generator(seed, "test")))


def test_each_epoch_visits_every_sample_once():
    batches = order(10, 4, 3)
    assert [len(b) for b in batches] == [4, 4, 2] * 3
    for epoch in range(3):
        assert sorted(torch.cat(batches[3 * epoch : 3 * epoch + 3]).tolist()) == list(range(10))


def test_epochs_are_shuffled_anew_and_the_seed_repeats_them():
    first, again, other = order(50, 50, 2), order(50, 50, 2), order(50, 50, 2, seed=1)
    assert first[0].tolist() == again[0].tolist() != first[1].tolist()
    assert first[0].tolist() != other[0].tolist()


def test_full_batch_is_one_step_an_epoch():
    assert [b.tolist() for b in order(3, None, 2)] == [[0, 1, 2], [0, 1, 2]]


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
