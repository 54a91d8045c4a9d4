"""The seconds of a round by activity; on CUDA without a wait for each client."""

from types import SimpleNamespace

import torch

from trainers.federation import federation


def test_seconds_are_added_by_activity(monkeypatch):
    times = iter([10.0, 11.0, 13.0, 17.0])
    monkeypatch.setattr(federation.time, "perf_counter", lambda: next(times))
    clock = federation._Clock(torch.device("cpu"))
    for name in ("local", "aggregation", "local"):
        clock.lap(name)
    assert (clock.seconds("local"), clock.seconds("aggregation"), clock.seconds("none")) == (1.0 + 4.0, 2.0, 0.0)


def test_on_cuda_the_device_notes_the_times_and_the_host_waits_once(monkeypatch):
    """On a stand-in for CUDA's events, which count in milliseconds."""
    waits, times = [], iter([500.0, 1500.0, 3500.0, 7500.0])

    def event(enable_timing):
        assert enable_timing
        made = SimpleNamespace(synchronize=lambda: waits.append(made))
        made.record = lambda stream: setattr(made, "at", next(times) if stream == "cuda:1's" else None)
        made.elapsed_time = lambda later: later.at - made.at
        return made

    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"{device}'s")
    clock = federation._Clock(torch.device("cuda", 1))
    for name in ("local", "aggregation", "local"):
        clock.lap(name)
    assert not waits
    assert (clock.seconds("local"), clock.seconds("aggregation")) == (1.0 + 4.0, 2.0)
    assert {wait.at for wait in waits} == {7500.0}
