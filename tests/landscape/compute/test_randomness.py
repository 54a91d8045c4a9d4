"""Random numbers by purpose: reproducible, distinct, and without a trace in the global generators."""

import itertools

import numpy as np
import pytest
import torch

from landscape.compute.randomness import global_seed, numpy_generator, stream_seed, torch_generator


def test_a_seed_and_purpose_give_the_same_numbers_on_every_machine():
    assert stream_seed(0, "batches", 3, 7) == 6516447985555662848
    assert torch.equal(
        torch.rand(4, generator=torch_generator(1, "a")), torch.rand(4, generator=torch_generator(1, "a"))
    )
    assert np.array_equal(numpy_generator(1, "a").random(4), numpy_generator(1, "a").random(4))


def test_every_seed_and_purpose_has_numbers_of_its_own():
    purposes = [("a",), ("b",), ("a", 1), ("a", 2), ("a1",), ("a", "1"), ("a", 1, 2), ("a", 12), (1, "a")]
    seeds = {stream_seed(seed, *purpose) for seed, purpose in itertools.product((0, 1, -1), purposes)}
    assert len(seeds) == 3 * len(purposes)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_numpys_integers_count_as_integers(kind):
    assert stream_seed(kind(4), "client", kind(3)) == stream_seed(4, "client", 3)


def test_global_seed_is_undone_even_after_an_error():
    before = torch.get_rng_state()
    with global_seed(0, "dropout"):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    drawn = []

    def fail() -> None:
        with global_seed(0, "dropout"):
            drawn.append(torch.rand(3))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(drawn[0], first)
    assert torch.equal(torch.get_rng_state(), before)


def test_cuda_is_not_begun_for_a_seed(monkeypatch):
    """A process that was forked from one that uses CUDA cannot, and work on the CPU takes no memory of a GPU."""

    def begun(*_):
        raise AssertionError("CUDA is begun")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "_lazy_init", begun)
    for name in ("get_rng_state", "get_rng_state_all", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, begun)
    with global_seed(0, "dropout"):
        first = torch.rand(3)
    with global_seed(0, "dropout"):
        assert torch.equal(torch.rand(3), first)


def test_generators_of_cuda_that_are_in_use_are_seeded_and_restored(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: ["before"])
    monkeypatch.setattr(torch.cuda, "manual_seed_all", told.append)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", told.append)
    with global_seed(0, "dropout"):
        assert told == [stream_seed(0, "dropout")]
    assert told[1:] == [["before"]]
