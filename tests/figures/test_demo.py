"""The demo, at a few rounds; ``start.py demo`` runs it whole."""

from dataclasses import replace

import pytest

import figures.demo
from figures.__main__ import main
from tests.pages import read


def test_demo_trains_measures_draws_and_says_what_to_try(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures.demo, "SETTINGS", replace(figures.demo.SETTINGS, rounds=2))
    plain = figures.demo.compare
    monkeypatch.setattr(
        figures.demo, "compare", lambda *a, **k: plain(*a, **k, points=3, probes=2, steps=4, trace_tolerance=0.5)
    )
    main(["demo", "--out", str(tmp_path), "--quiet"])
    printed = capsys.readouterr().out
    for file in ("compare/compare.png", "compare/compare.csv", "fedavg/ckpt.pt", "fedasam/ckpt.pt"):
        assert (tmp_path / file).exists()
    assert str(tmp_path / "compare" / "compare.png") in printed
    tried = [line.split()[2:] for line in printed.splitlines() if line.startswith("  python -m ")]
    assert [words[0] for words in tried] == ["figures", "analysis.hessian", "analysis.surface", "trainers", "trainers"]
    assert all(read(words[0], words[1:]) for words in tried if "--help" not in words)


@pytest.mark.slow
def test_demo_finds_fedasam_flatter(tmp_path):
    figures.demo.demo(tmp_path, progress=False)
    import csv

    rows = {row["model"]: row for row in csv.DictReader((tmp_path / "compare" / "compare.csv").open(encoding="utf-8"))}
    for quantity in ("λ1", "trace"):
        assert float(rows["fedasam"][quantity]) < 0.5 * float(rows["fedavg"][quantity])
