"""``--profile`` of the measuring commands: the same numbers, and files that say where the time went."""

import json

import pytest

import analysis.hessian.__main__ as hessian
import analysis.surface.__main__ as surface
from landscape import FedscapeError
from trainers import FedAvg, Settings, train


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    settings = Settings(rounds=1, clients=4, per_round=2, local_steps=1, device="cpu")
    return str(train(FedAvg(), settings, out=tmp_path_factory.mktemp("trained") / "run").checkpoint)


def profile(folder):
    found = json.loads((folder / "profile.json").read_text())
    assert (folder / "trace.json.gz").stat().st_size > 1000
    assert found["flops"] > 0
    assert sum(found["kinds"].values()) == pytest.approx(found["seconds"])
    return found["profiled"], found["first"], found["count"]


def test_a_spectrum_is_the_same_with_a_profile_of_its_products(checkpoint, tmp_path, capsys):
    words = [checkpoint, "--top", "1", "--no-trace", "--samples", "64", "--quiet", "--device", "cpu"]
    hessian.main([*words, "--json", str(tmp_path / "a.json")])
    hessian.main([*words, "--json", str(tmp_path / "b.json"), "--profile", str(tmp_path / "p")])
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert a["eigenvalues"] == b["eigenvalues"]
    assert profile(tmp_path / "p") == ("product", 2, 3)
    assert "Where the time goes: products 2 to 4" in capsys.readouterr().out


def test_a_surface_is_the_same_with_a_profile_of_its_points(checkpoint, tmp_path, capsys):
    words = [checkpoint, "--points", "3", "--exact", "--samples", "64", "--quiet", "--device", "cpu", "--workers", "1"]
    surface.main([*words, "--out", str(tmp_path / "a.h5"), "--json", str(tmp_path / "a.json")])
    more = ["--json", str(tmp_path / "b.json"), "--profile", str(tmp_path / "p")]
    surface.main([*words, "--out", str(tmp_path / "b.h5"), *more])
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert a["loss"] == b["loss"]
    assert profile(tmp_path / "p") == ("point", 2, 3)
    assert "Where the time goes: points 2 to 4" in capsys.readouterr().out


def test_a_profile_of_what_is_not_done_here_is_refused(checkpoint, tmp_path):
    where = ["--profile", str(tmp_path / "p")]
    with pytest.raises(FedscapeError, match="--workers 1"):
        surface.main([checkpoint, "--out", str(tmp_path / "a.h5"), *where])
    with pytest.raises(FedscapeError, match="--replot"):
        hessian.main([checkpoint, "--replot", *where])
