"""What the surface command says to do next leads to the pictures of what it has measured."""

import re

import analysis.surface.__main__ as surface
from landscape.terminal.command import run
from trainers import FedAvg, Settings, train


def test_the_picture_it_names_is_drawn_from_the_measured_values(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a", 0), ("b", 1)):
        train(FedAvg(), Settings(rounds=1, clients=2, per_round=1, local_steps=1, device="cpu", seed=seed), out=name)
    line = ["a", "b", "--points", "3", "--samples", "20", "--device", "cpu", "--workers", "1", "--quiet"]
    assert run(lambda: surface.main(line)) == 0
    (picture,) = re.findall(r"the same command with (--plot \S+)", capsys.readouterr().out)
    stores = sorted(tmp_path.glob("*.h5"))
    before = [file.read_bytes() for file in stores]
    assert run(lambda: surface.main([*line, *picture.split()])) == 0
    assert sorted(tmp_path.glob("*.h5")) == stores
    assert [file.read_bytes() for file in stores] == before
    assert (tmp_path / picture.split()[1]).is_file()
