"""Surfaces of few digits say how far they are from float32."""

import numpy as np
import pytest
import torch
from torch import nn

import analysis.surface.measure
from analysis.surface import Surface, measure_surface
from analysis.surface.__main__ import main
from analysis.surface.marked_points import Mark
from analysis.surface.rounding import rounding
from analysis.surface.store import SurfaceStore
from landscape import FedscapeError, Landscape
from landscape.terminal.command import run
from tests.analysis.surface.test_store import provenance, save_checkpoint


class Exact:
    """Measures x + 2 y, accuracy 50."""

    names = ("train_loss", "train_loss_stderr", "train_acc")

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def session(self):
        return torch.no_grad()

    def measure(self, x: float, y: float) -> dict[str, float]:
        self.seen.append((x, y))
        return {"train_loss": 5 + x + 2 * y, "train_loss_stderr": 0.0, "train_acc": 50.0}


def store(points: int = 9) -> SurfaceStore:
    line = np.linspace(-1, 1, points)
    found = SurfaceStore(line, line, provenance(), Exact.names)
    for j, i in np.ndindex(points, points):
        found.put(j, i, Exact().measure(line[i], line[j]))
    return found


def test_the_largest_deviation_at_the_points_that_were_looked_at():
    values, exact = store(), Exact()
    values.values["train_loss"][0, 0] *= 1.05  # the lowest
    values.values["train_loss"][4, 4] *= 0.5  # the model's own
    values.values["train_acc"][8, 8] -= 3  # the highest
    found = rounding(exact, values, [Mark("checkpoint", 0.0, 0.0)])
    assert found == {"points": len(exact.seen), "train_loss": 0.5, "train_acc": 3.0}
    assert len(set(exact.seen)) == len(exact.seen) >= 8
    assert {(-1.0, -1.0), (0.0, 0.0), (1.0, 1.0)} <= set(exact.seen)


def test_points_that_are_interpolated_are_not_looked_at():
    values, exact = store(), Exact()
    values.done[:] = False
    values.done[2, 3] = True
    rounding(exact, values, [])
    assert exact.seen == [(values.x[3], values.y[2])]


@pytest.mark.parametrize(("value", "deviation"), [(np.nan, np.inf), (np.inf, np.inf)])
def test_a_value_that_is_not_finite_where_the_exact_one_is(value, deviation):
    values = store(3)
    values.values["train_loss"][:] = value
    assert rounding(Exact(), values, [])["train_loss"] == deviation


def test_bfloat16_is_told_with_its_deviation(tmp_path, capsys):
    checkpoint, out = save_checkpoint(tmp_path / "ckpt.pt"), tmp_path / "s.h5"
    line = [str(checkpoint), "--points", "5", "--samples", "100", "--bf16", "--out", str(out), "--quiet"]
    assert run(lambda: main(line)) == 0
    assert "rounding: bf16: the loss is off by up to " in capsys.readouterr().out
    exact = measure_surface(checkpoint, points=5, samples=100)
    rounded = measure_surface(checkpoint, points=5, samples=100, store=out, bf16=True)
    worst = np.abs(rounded.loss / exact.loss - 1).max()
    assert 0 < rounded.notes["rounding"]["train_loss"] <= worst + 1e-6
    assert worst < 0.02
    with pytest.raises(FedscapeError, match=r"dtype \(bf16 there, float32 here\)"):
        measure_surface(checkpoint, points=5, samples=100, store=out)


def test_rounding_that_was_interrupted_is_made_up_for(tmp_path, monkeypatch):
    checkpoint, out = save_checkpoint(tmp_path / "ckpt.pt"), tmp_path / "s.h5"
    options = {"points": 3, "samples": 100, "store": out, "bf16": True}

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(analysis.surface.measure, "rounding", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure_surface(checkpoint, **options)
    assert "rounding" not in Surface.load(out).notes
    first = measure_surface(checkpoint, **options)
    assert "rounding: " in "".join(f"{name}: " for name in first.facts())
    assert Surface.load(out).notes["rounding"] == first.notes["rounding"]


def test_only_float32_is_rounded_to_bfloat16(tmp_path):
    net = nn.Linear(3, 2).double()
    function = Landscape(net, (torch.randn(5, 3), torch.arange(5) % 2), device="cpu")
    with pytest.raises(FedscapeError, match="leave out bf16"):
        measure_surface(function, points=3, bf16=True)
