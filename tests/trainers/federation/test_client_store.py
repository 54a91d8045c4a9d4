"""Client states: the same wherever they are kept, whole after a kill, and out of memory when on disk."""

import errno
import os
import signal
import time
from pathlib import Path

import pytest
import torch

import trainers.federation.client_store
from landscape import FedscapeError
from landscape.storage.files import load_torch, save_torch
from tests.processes import python, run_process, start_process
from trainers import State
from trainers.federation.client_store import ClientStore

CPU = torch.device("cpu")


def initial():
    return {"dual": torch.zeros(5), "wide": torch.zeros(2, dtype=torch.float64), "last": torch.tensor(0)}


def state(round: int, client: int) -> State:
    value = 100.0 * round + client
    return State(dual=torch.full((5,), value), wide=torch.full((2,), value / 3, dtype=torch.float64),
                 last=torch.tensor(round))  # fmt: skip


def store(where: str, folder: Path | None = None, clients: int = 8) -> ClientStore:
    return ClientStore(initial, CPU, where=where, folder=folder, clients=clients)


def equal(a: State, b: State) -> bool:
    first, second = a.tensors(), b.tensors()
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype for name in first
    )


def work(kept: ClientStore, rounds: range) -> None:
    """Each round changes two clients' states by what they are, so that a wrong state shows in all later ones."""
    for round in rounds:
        for client in (round % 5, (round + 2) % 5):
            now = kept.fetch(client)
            now.dual = 0.5 * now.dual + round + client
            now.wide = now.wide + now.dual[:2].double() / 3
            now.last = torch.tensor(round)
            kept.put(client, now)


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("where", ["device", "host", "disk"])
def test_what_was_put_is_fetched_with_its_types_and_shapes(where, tmp_path):
    kept = store(where, tmp_path / "clients")
    kept.put(3, state(1, 3))
    kept.put(3, state(2, 3))
    assert equal(kept.fetch(3), state(2, 3))
    assert kept.fetch(3).last.shape == ()
    assert equal(kept.fetch(4), State.of(initial()))


@pytest.mark.parametrize("where", ["host", "disk"])
def test_temporaries_and_the_rest_of_a_storage_are_not_kept(where, tmp_path):
    kept = store(where, tmp_path)
    large = torch.arange(100_000.0)
    kept.put(0, State(dual=large[10:15], wide=torch.zeros(2, dtype=torch.float64), last=torch.tensor(1), scratch=large))
    found = kept.fetch(0).tensors()
    assert found.keys() == initial().keys()
    assert found["dual"].tolist() == [10, 11, 12, 13, 14]
    assert found["dual"].untyped_storage().nbytes() < 10_000
    assert all(file.stat().st_size < 10_000 for file in tmp_path.iterdir())


def test_a_state_that_was_fetched_outlives_its_file(tmp_path):
    kept = store("disk", tmp_path)
    kept.put(0, state(1, 0))
    fetched = kept.fetch(0)
    kept.put(0, state(2, 0))
    assert len(files(tmp_path)) == 1
    assert equal(fetched, state(1, 0))
    fetched.dual += 1  # even changed in place, it changes no file
    assert equal(kept.fetch(0), state(2, 0))


def test_an_algorithm_without_states_writes_nothing(tmp_path):
    kept = ClientStore(dict, CPU, where="disk", folder=tmp_path / "clients", clients=10)
    kept.put(0, State(scratch=torch.ones(3)))
    assert (kept.export(), kept.describe()) == ({}, "client states: none")
    assert not (tmp_path / "clients").exists()


def test_the_export_of_states_on_disk_is_version_numbers(tmp_path):
    kept = store("disk", tmp_path)
    work(kept, range(6))
    exported = kept.export()
    assert exported.keys() == {0, 1, 2, 3, 4}
    assert all(type(version) is int for version in exported.values())


def test_a_saved_version_outlives_all_that_is_put_until_the_next_is_saved(tmp_path):
    kept = store("disk", tmp_path)
    kept.put(1, state(1, 1))
    kept.export(), kept.settle()
    for round in (2, 3, 4):
        kept.put(1, state(round, 1))
    assert files(tmp_path) == ["000001-1.pt", "000001-4.pt"]
    kept.export()
    kept.put(1, state(5, 1))
    assert files(tmp_path) == ["000001-1.pt", "000001-4.pt", "000001-5.pt"], "either may be the one saved"
    kept.settle()
    assert files(tmp_path) == ["000001-4.pt", "000001-5.pt"]
    kept.export(), kept.settle()
    assert files(tmp_path) == ["000001-5.pt"]


@pytest.mark.parametrize("before", ["host", "disk"])
@pytest.mark.parametrize("after", ["host", "disk"])
@pytest.mark.parametrize("saved", [True, False], ids=["settled", "killed before settle"])
@pytest.mark.parametrize("inline", [1 << 20, 0], ids=["small states", "large states"])
def test_a_killed_store_goes_on_as_one_that_was_not(before, after, saved, inline, tmp_path, monkeypatch):
    """Also into another kind of store: a run may be resumed with less memory, or more."""
    monkeypatch.setattr(trainers.federation.client_store, "_INLINE", inline)
    whole = store("host")
    work(whole, range(12))
    killed = store(before, tmp_path / "clients")
    work(killed, range(3))
    killed.export(), killed.settle()
    work(killed, range(3, 7))
    save_torch(tmp_path / "state.pt", killed.export())
    if saved:
        killed.settle()
    work(killed, range(7, 11))  # after the save: lost with the kill
    resumed = store(after, tmp_path / "clients")
    resumed.restore(load_torch(tmp_path / "state.pt"))
    if after == "disk" or (before, inline) == ("host", 0):
        assert len(files(tmp_path / "clients")) == 5, "orphans are gone"
    work(resumed, range(7, 12))
    assert all(equal(resumed.fetch(client), whole.fetch(client)) for client in range(8))
    resumed.export(), resumed.settle()
    assert len(files(tmp_path / "clients")) == (5 if after == "disk" or not inline else 0)


def test_an_export_of_large_states_in_memory_writes_those_that_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(trainers.federation.client_store, "_INLINE", 0)
    kept = store("host", tmp_path)
    for client in range(4):
        kept.put(client, state(1, client))
    assert files(tmp_path) == [], "nothing before it is asked for"
    assert kept.export() == {0: 1, 1: 1, 2: 1, 3: 1}
    kept.settle()
    kept.put(2, state(2, 2)), kept.put(2, state(3, 2))
    assert kept.export() == {0: 1, 1: 1, 2: 2, 3: 1}
    assert files(tmp_path) == ["000000-1.pt", "000001-1.pt", "000002-1.pt", "000002-2.pt", "000003-1.pt"]
    kept.settle()
    assert files(tmp_path) == ["000000-1.pt", "000001-1.pt", "000002-2.pt", "000003-1.pt"]
    assert equal(kept.fetch(2), state(3, 2))


def test_an_export_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    monkeypatch.setattr(trainers.federation.client_store, "_INLINE", 0)
    kept = store("host", tmp_path)
    kept.put(1, state(1, 1)), kept.put(2, state(1, 2))
    before = kept.export()
    kept.settle()
    kept.put(1, state(2, 1)), kept.put(2, state(2, 2))
    replace, calls = os.replace, []

    def fail(*names):
        calls.append(names)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*names)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FedscapeError, match="No space left on device"):
        kept.export()
    monkeypatch.undo()
    monkeypatch.setattr(trainers.federation.client_store, "_INLINE", 0)
    resumed = store("host", tmp_path)
    resumed.restore(before)
    assert equal(resumed.fetch(1), state(1, 1))
    assert equal(resumed.fetch(2), state(1, 2))
    assert resumed.export() == before


SCRIPT = """
import sys
from pathlib import Path
from landscape.storage.files import load_torch, save_torch
import trainers.federation.client_store
from tests.trainers.federation.test_client_store import store, work
folder, rounds, where = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
trainers.federation.client_store._INLINE = 0
kept, done = store(where, folder / "clients"), 0
if (folder / "state.pt").exists():
    saved = load_torch(folder / "state.pt")
    kept.restore(saved["clients"])
    done = saved["round"]
for round in range(done, rounds):
    work(kept, range(round, round + 1))
    save_torch(folder / "state.pt", {"round": round + 1, "clients": kept.export()})
    kept.settle()
    print(round, flush=True)
"""


@pytest.mark.parametrize("where", ["disk", pytest.param("host", marks=pytest.mark.slow)])
def test_killed_at_any_moment_by_the_system(where, tmp_path):
    kills = 0
    for rounds_first in (1, 7, 20):
        working = start_process(python, SCRIPT, tmp_path, 100_000, where)
        for _ in range(rounds_first):
            working.lines.readline()
        time.sleep(0.003 * rounds_first)
        kills += working.kill() == -signal.SIGKILL
    assert kills == 3
    rounds = load_torch(tmp_path / "state.pt")["round"] + 5
    assert run_process(python, SCRIPT, tmp_path, rounds, where)[0] == 0
    whole, resumed = store("host"), store(where, tmp_path / "clients")
    work(whole, range(rounds))
    resumed.restore(load_torch(tmp_path / "state.pt")["clients"])
    assert all(equal(resumed.fetch(client), whole.fetch(client)) for client in range(8))


def test_a_write_that_fails_leaves_the_state_as_it_was(tmp_path, monkeypatch):
    kept = store("disk", tmp_path)
    kept.put(2, state(1, 2))

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FedscapeError, match=r"cannot write .*000002-2\.pt: No space left on device"):
        kept.put(2, state(2, 2))
    monkeypatch.undo()
    assert equal(kept.fetch(2), state(1, 2))
    assert files(tmp_path) == ["000002-1.pt"]


def test_a_missing_file_is_told_on_resume(tmp_path):
    kept = store("disk", tmp_path)
    kept.put(2, state(1, 2))
    exported = kept.export()
    (tmp_path / "000002-1.pt").unlink()
    with pytest.raises(FedscapeError, match=r"the state of client 2 is missing: there is no file .*000002-1\.pt"):
        store("disk", tmp_path).restore(exported)
    with pytest.raises(FedscapeError, match="the state of client 2 is in a file, and this store was given no folder"):
        store("host").restore(exported)


def test_a_damaged_file_is_told_when_it_is_read(tmp_path):
    kept = store("disk", tmp_path)
    kept.put(2, state(1, 2))
    file = tmp_path / "000002-1.pt"
    whole = file.read_bytes()
    place = whole.index(torch.full((5,), 102.0).numpy().tobytes())
    flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    for damaged in (whole[: len(whole) // 2], b"", b"text", flipped):
        file.write_bytes(damaged)
        with pytest.raises(FedscapeError, match=r"the state of client 2 cannot be read: .*000002-1\.pt is not a check"):
            kept.fetch(2)
    torch.save({"other": torch.zeros(2)}, file)
    with pytest.raises(FedscapeError, match="is damaged: it holds an object of 1 entries, not one with dual"):
        kept.fetch(2)


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").touch()
    kept = store("disk", tmp_path)
    kept.put(2, state(1, 2))
    store("disk", tmp_path).restore({})
    assert files(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize(
    ("clients", "free", "folder", "where"),
    [(9, 1601, True, "host"), (10, 1600, True, "disk"), (10, 1601, True, "host"), (10, 1600, False, "host")],
)
def test_auto_takes_a_quarter_of_the_free_memory(clients, free, folder, where, tmp_path, monkeypatch):
    monkeypatch.setattr(trainers.federation.client_store, "free_memory", lambda device: free)
    kept = ClientStore(
        lambda: {"c": torch.zeros(10)}, CPU, folder=tmp_path if folder else None, clients=clients
    )  # 40 bytes each
    assert kept.where == where
    assert kept.peak_memory == (80 if where == "disk" else 40 * clients)


def test_auto_on_a_device_fills_it_first(monkeypatch):
    free = {"cuda": 1601, "cpu": 1601}
    monkeypatch.setattr(trainers.federation.client_store, "free_memory", lambda device: free[device.type])
    kept = ClientStore(lambda: {"c": torch.zeros(10)}, torch.device("cuda"), folder="x", clients=10)
    assert kept.where == "device"
    free["cuda"] = 1600
    assert ClientStore(lambda: {"c": torch.zeros(10)}, torch.device("cuda"), folder="x", clients=10).where == "host"


def test_it_says_what_it_takes(tmp_path):
    def two_vectors():
        return {"dual": torch.zeros(797_962), "s": torch.zeros(797_962)}

    kept = ClientStore(two_vectors, CPU, where="disk", folder=tmp_path, clients=1000)
    assert kept.describe() == (
        f"client states: 1,000 × 6.38 MB = 6.38 GB on disk in {tmp_path}, at most 12.8 MB of memory"
    )
    assert ClientStore(two_vectors, CPU, where="host", clients=1000).peak_memory == 6_383_696_000


def test_disk_without_a_folder_is_refused():
    with pytest.raises(FedscapeError, match="need a folder"):
        store("disk")


MEMORY = """
import gc, resource, sys, torch
from trainers import State
from trainers.federation.client_store import ClientStore
torch.zeros(1000).norm()
d = 797_962
store = ClientStore(lambda: {"dual": torch.zeros(d), "s": torch.zeros(d)}, torch.device("cpu"), where="disk",
                    folder=sys.argv[1], clients=1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
gc.freeze()  # collections are quick then
for round in (1, 2):
    for client in range(40):
        state = store.fetch(client)
        state.dual, state.s = state.dual + client, state.s - round
        store.put(client, state)
        gc.collect()  # PyTorch 2.6 leaves what it wrote in reference cycles
    store.export(), store.settle()
assert store.fetch(39).dual[7] == 78 and store.fetch(3).s[-1] == -3
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def test_states_on_disk_stay_out_of_memory(tmp_path):
    """40 clients' states are 255 MB; benchmarks/client_store.py does 1,000."""
    status, risen = run_process(python, MEMORY, tmp_path)
    assert status == 0, risen
    assert float(risen) < 100
