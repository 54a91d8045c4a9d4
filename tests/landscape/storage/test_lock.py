"""One owner at a time, told by process and host; on file systems without locks by what the lock file says."""

import errno
import fcntl
import os
import socket
import time

import pytest

from landscape.storage.lock import LockedError, Owner, sole_writer
from tests.processes import start_process


def hold(path):
    with sole_writer(path, "is working in the folder", "give another --out"):
        print(os.getpid(), flush=True)
        time.sleep(600)


def test_the_owner_is_told_by_process_and_host_and_its_end_frees_the_lock(tmp_path):
    other = start_process(hold, tmp_path / "run")
    number = other.lines.readline().strip()
    try:
        with pytest.raises(LockedError) as refused, sole_writer(tmp_path / "run", "is working in the folder", "wait"):
            pass
        told = f"process {number} on host {socket.gethostname()} is working in the folder"
        assert str(refused.value) == f"{told}: wait until it has ended, or wait"
    finally:
        other.kill()
    with sole_writer(tmp_path / "run"):
        words = (tmp_path / ".run.lock").read_text().split()
        assert words[:2] == [str(os.getpid()), socket.gethostname()]
    assert os.listdir(tmp_path) == []


def test_a_symbolic_link_has_the_lock_of_its_file(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")
    with sole_writer(tmp_path / "link"):
        assert (tmp_path / "there" / ".file.lock").exists()
        with pytest.raises(LockedError), sole_writer(tmp_path / "there" / "file"):
            pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_locks_of_the_file_system_the_recorded_process_decides(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock, here = tmp_path / ".run.lock", Owner.here()
    told = pytest.raises(LockedError, match=f"process {os.getpid()} on host")
    with sole_writer(tmp_path / "run"), told, sole_writer(tmp_path / "run"):
        pass
    for owner in (
        Owner(here.process, here.host, "1"),  # a process of our number that started at another time
        Owner(2**31 - 1, here.host, ""),  # none has this number
    ):
        lock.write_text(f"{owner.process} {owner.host} {owner.started}\n")
        with sole_writer(tmp_path / "run"):
            assert Owner.of(lock.read_text()) == here
        assert not lock.exists()
    lock.write_text("1 another-machine 5\n")
    with (
        pytest.raises(LockedError, match=r"on host another-machine .* if it has ended, remove"),
        sole_writer(tmp_path / "run"),
    ):
        pass
    lock.write_text("")  # of an earlier version
    with sole_writer(tmp_path / "run"):
        pass
