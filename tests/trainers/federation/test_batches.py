"""Mini-batch order."""

import pytest
import torch

from landscape.compute.randomness import torch_generator
from trainers.federation.batches import batch_counts, batch_indices, batch_order, planned_steps


def order(samples, size, epochs, seed=0):
    return list(batch_indices(samples, size, epochs, torch_generator(seed, "test")))


def order_lists(*arguments):
    return [b.tolist() for b in order(*arguments)]


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


def test_the_last_short_batch_may_be_dropped_but_not_an_epochs_only_one():
    def sizes(samples, size, **how):
        return [len(b) for b in batch_indices(samples, size, 2, torch_generator(0, "test"), **how)]

    assert sizes(10, 4, last="drop") == [4, 4] * 2
    assert sizes(8, 4, last="drop") == sizes(8, 4) == [4, 4] * 2
    assert sizes(3, 4, last="drop") == sizes(3, 4) == [3, 3]
    assert sizes(1, 1, last="drop") == [1, 1]
    assert sizes(10, None, last="drop") == [10, 10]


def test_dropping_the_last_batch_leaves_the_others_as_they_are():
    kept, dropped = order(10, 4, 3), list(batch_indices(10, 4, 3, torch_generator(0, "test"), last="drop"))
    assert [b.tolist() for b in dropped] == [b.tolist() for b in kept if len(b) == 4]


def test_steps_are_the_first_batches_of_as_many_epochs_as_they_take():
    def steps(number, samples=5, size=2, **how):
        return [b.tolist() for b in batch_indices(samples, size, 1, torch_generator(0, "test"), steps=number, **how)]

    whole = order_lists(5, 2, 3)
    assert [len(b) for b in whole] == [2, 2, 1] * 3
    assert steps(7) == whole[:7]
    assert steps(2) == whole[:2]
    assert steps(4, last="drop") == [b for b in whole if len(b) == 2][:4]
    assert steps(3, size=None) == [[0, 1, 2, 3, 4]] * 3
    assert [len(b) for b in steps(5, samples=1)] == [1] * 5


@pytest.mark.parametrize("last", ["keep", "drop"])
@pytest.mark.parametrize("steps", [None, 1, 4, 7])
@pytest.mark.parametrize("size", [None, 1, 2, 5, 8])
def test_what_is_drawn_at_once_is_what_is_drawn_batch_by_batch(size, steps, last):
    for samples in (1, 2, 5, 9):
        how = {"steps": steps, "last": last}
        one_by_one = list(batch_indices(samples, size, 3, torch_generator(0, "test"), **how))
        counts = batch_counts(samples, size, 3, **how)
        assert counts == [len(batch) for batch in one_by_one]
        assert len(counts) == planned_steps(samples, size, 3, **how)
        at_once = torch.cat(batch_order(samples, size, counts, torch_generator(0, "test"), last))
        assert torch.equal(at_once, torch.cat(one_by_one))
