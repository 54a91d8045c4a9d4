"""A run is the same to the last bit on 1, 2, 3 and 4 ranks, from its first round and when it is resumed."""

import importlib
import itertools
import random

import pytest
import torch

from landscape import Partition
from tests.conftest import REPOSITORY
from tests.trainers.ranks.cases import FAST, SLOW
from tests.trainers.ranks.worlds import contents, differing, json_lines, train_all
from trainers import FedAvg, FedDyn, Parts, Scaffold
from trainers.ranks import dealt_by_owner, dealt_by_size

RESUMED = {
    "states on disk": (FedDyn(), Parts(), {"client_store": "disk"}),
    "states in state.pt": (Scaffold(), Parts(), {}),
    "no states": (FedAvg(), Parts(), {}),
}


VECTORS = {"clients that keep nothing, of uneven sizes": 1, "states in memory": 2, "more ranks than clients": 1}
"""That a client receives, and that it sends: w and w_i, for SCAFFOLD c and its change beside them."""
HEADS = 1000
"""Bytes of a message, at most, beside its vectors."""


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_train_what_one_process_trains_and_exchange_the_models_that_travel(tmp_path, world):
    alone, shared = (train_all(FAST, tmp_path / f"of {some}", some) for some in (1, world))
    for name in FAST:
        assert differing(contents(alone / name), contents(shared / name)) == [], name
    for name, vectors in VECTORS.items():
        require_bytes(shared / name, world, vectors)


def require_bytes(run, world, vectors):
    """Each other rank receives once what clients receive; what they send comes from those computed there."""
    sizes = [len(mine) for mine in Partition.load(run / "partition.npz").clients]
    d = sum(p.numel() for p in torch.load(run / "ckpt.pt")["parameters"].values())
    for record in json_lines(run / "metrics.jsonl"):
        clients = record["clients"]
        deal = dealt_by_owner(clients, world) if vectors == 2 else dealt_by_size(clients, sizes, world)
        elsewhere = sum(map(len, deal[1:]))
        exchanged = 4 * d * vectors * (world - 1 + elsewhere)
        assert record["ranks"] == world
        assert exchanged < record["bytes_between_ranks"] < exchanged + HEADS * (2 * (world - 1) + elsewhere)


def test_the_deal_by_size_is_within_its_bound_and_whole():
    """Graham's bound, beside the least possible found by trying all deals."""
    draw = random.Random(0)
    for _ in range(30):
        world, sizes = draw.choice((2, 3)), [draw.randint(1, 30) for _ in range(draw.randint(1, 7))]
        deal = dealt_by_size(range(len(sizes)), sizes, world)
        assert sorted(client for mine in deal for client in mine) == list(range(len(sizes)))
        longest = max(sum(sizes[client] for client in mine) for mine in deal)
        least = min(
            max(sum(size for size, to in zip(sizes, way, strict=True) if to == rank) for rank in range(world))
            for way in itertools.product(range(world), repeat=len(sizes))
        )
        assert least <= longest <= (4 / 3 - 1 / (3 * world)) * least


def test_a_deal_keeps_groups_together():
    deal = dealt_by_size([2, 3, 5, 7, 8], [1] * 9, 2, together=2)
    assert deal == [[2, 3, 8], [5, 7]]


def test_the_model_of_a_round_is_found_again_in_rounds_that_follow_it(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    model = importlib.import_module("ranks")
    points = []
    for n, k, world, d in itertools.product((4, 8), (1, 3), (1, 2, 4), (10_000, 1_000_000)):
        messages = 2 * (world - 1) + n - n // world if world > 1 else 0
        size = 4 * d * (world - 1 + n - n // world)
        least = 0.01 * k * -(-n // world) + 2e-9 * n * d + size / 1e9 + 1e-3 * messages
        kind = {"model": "net", "algorithm": "fedavg", "parameters": d}
        points.append({**kind, "clients": n, "steps": k, "ranks": world, "bytes": size, "least": least})
    found = model.fitted(points)
    assert found["step_seconds"]["net fedavg"] == pytest.approx(0.01)
    assert found["aggregation_seconds_per_parameter"] == pytest.approx(2e-9)
    assert found["bytes_per_second"] == pytest.approx(1e9)
    assert found["seconds_per_message"] == pytest.approx(1e-3)
    assert found["largest_relative_error"] < 1e-9


@pytest.mark.slow
def test_all_algorithms_parts_and_stores_are_the_same_on_ranks(tmp_path):
    folders = {world: train_all(SLOW, tmp_path / f"of {world}", world) for world in (1, 2, 3, 4)}
    for name in SLOW:
        alone = contents(folders[1] / name)
        for world in (2, 3, 4):
            assert differing(alone, contents(folders[world] / name)) == [], f"{name} on {world} ranks"


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_ranks(tmp_path):
    """On 4, 2, 1 and 3 ranks, a round on each, beside four rounds of one process."""

    def of(rounds):
        return {name: (a, parts, {**settings, "rounds": rounds}) for name, (a, parts, settings) in RESUMED.items()}

    alone = train_all(of(4), tmp_path / "alone", 1)
    for rounds, world in enumerate((4, 2, 1, 3), start=1):
        (tmp_path / "moved" / "meeting").unlink(missing_ok=True)
        train_all(of(rounds), tmp_path / "moved", world, resume=rounds > 1)
    for name in RESUMED:
        assert differing(contents(alone / name), contents(tmp_path / "moved" / name)) == []
