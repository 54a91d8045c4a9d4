"""Ranks leave their group together: none ends another's start or last sum."""

from datetime import timedelta

import pytest
import torch

from landscape.compute import distributed
from tests.landscape.compute.test_distributed import WatchedStore
from tests.processes import PATIENCE, group_of, run_ranks


def meet_and_part(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    for k in range(100):
        with group_of(rank, world, f"{folder}/{k}"):
            pass


@pytest.mark.slow
def test_ranks_that_part_at_once_do_not_end_those_who_are_still_meeting(tmp_path):
    """They did, with "Connection closed by peer" or a wait for ever, in one of a few dozen groups."""
    run_ranks(meet_and_part, 3, str(tmp_path), seconds=PATIENCE.seconds)


def test_under_torchrun_ranks_part_together_or_after_their_patience(monkeypatch):
    store = WatchedStore()
    monkeypatch.setattr(distributed, "_torchrun_store", lambda: store)
    monkeypatch.setattr(distributed, "rank_and_world", lambda: (0, 2))
    monkeypatch.setattr(distributed, "_groups", iter((0, 1)))
    monkeypatch.setattr(distributed, "PATIENCE", timedelta(milliseconds=10))
    distributed._part()
    assert (store.vain, store.get("done/0/0")) == (1, b"")  # the other has not come to the end of this group
    store.set("done/1/1", "")
    distributed._part()
    assert store.vain == 1
    monkeypatch.undo()
    distributed._part()  # alone there is nobody to wait for
