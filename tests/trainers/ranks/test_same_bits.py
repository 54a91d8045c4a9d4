"""A run is the same to the last bit on 1, 2, 3 and 4 ranks, from its first round and when it is resumed."""

import pytest
import torch

from tests.trainers.ranks.cases import FAST, SLOW
from tests.trainers.ranks.worlds import contents, differing, json_lines, train_all
from trainers import FedAvg, FedDyn, Parts, Scaffold

RESUMED = {
    "states on disk": (FedDyn(), Parts(), {"client_store": "disk"}),
    "states in state.pt": (Scaffold(), Parts(), {}),
    "no states": (FedAvg(), Parts(), {}),
}


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return {world: train_all(FAST, folder / f"of {world}", world) for world in (1, 2, 4)}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", FAST)
def test_ranks_train_what_one_process_trains(fast, name, world):
    alone, shared = (contents(fast[some] / name) for some in (1, world))
    assert differing(alone, shared) == []


@pytest.mark.parametrize("name", FAST)
def test_the_exchanged_bytes_are_in_the_metrics_and_cover_the_models(fast, name):
    """Every rank receives the model, and every client's model comes back unless the first rank computed it."""
    for world in (2, 4):
        metrics = json_lines(fast[world] / name / "metrics.jsonl")
        size = sum(p.nbytes for p in torch.load(fast[world] / name / "ckpt.pt")["parameters"].values())
        for record in metrics:
            assert record["ranks"] == world
            assert record["bytes_between_ranks"] > (world - 1) * size


@pytest.mark.slow
def test_all_algorithms_parts_and_stores_are_the_same_on_ranks(tmp_path):
    folders = {world: train_all(SLOW, tmp_path / f"of {world}", world) for world in (1, 2, 3, 4)}
    for name in SLOW:
        alone = contents(folders[1] / name)
        for world in (2, 3, 4):
            assert differing(alone, contents(folders[world] / name)) == [], f"{name} on {world} ranks"


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
