"""``python -m trainers list``."""

import pytest

from landscape.terminal.command import run
from tests.trainers.algorithms.test_contract import TRAFFIC
from trainers import ALGORITHMS, FedLESAM, LocalMomentum, Parts
from trainers.commands.listing import entry, main

PARTS = {
    "ascent", "man", "swa", "mixup", "cutout", "server-optimizer", "adversary", "local-optimizer", "local-schedule",
    "start",
}  # fmt: skip


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_traffic_is_that_of_the_documentation(name):
    found = entry(name, ALGORITHMS.get(name)())
    assert (found.down, found.up) == TRAFFIC[name]


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_parts_listed_are_those_that_a_run_takes(name):
    algorithm = ALGORITHMS.get(name)()
    found = entry(name, algorithm)
    assert set(found.parts) <= PARTS
    for part in PARTS:
        chosen = Parts(**{part.replace("-", "_"): LocalMomentum() if part == "local-optimizer" else 1})
        if part in found.parts:
            chosen.check(algorithm)
        else:
            with pytest.raises(ValueError, match=f"--{part}"):
                chosen.check(algorithm)


@pytest.mark.parametrize(
    ("name", "client", "server"),
    [
        ("fedavg", (), ()),
        ("scaffold", ("c",), ("c",)),
        ("fedadam", (), ("m", "v")),
        ("fedsmoo", ("dual", "mu"), ("dual", "s")),
        ("fedrobust", ("tilt", "shift"), ()),
        ("fedcm", (), ("momentum",)),
        ("fedinit", ("end",), ()),
        ("fedacg", (), ("m",)),
        ("fednova", (), ()),
        ("fedexp", (), ("eps",)),
        ("fedvarp", ("y",), ("y",)),
        ("fedgf", (), ("perturbed", "c", "window")),
        ("fedwmsam", ("c",), ("c", "momentum", "alpha")),
    ],
)
def test_states_are_listed_by_name(name, client, server):
    found = entry(name, ALGORITHMS.get(name)())
    assert (found.client, found.server) == (client, server)


def test_traffic_is_counted_not_declared():
    found = entry("fedlesam", FedLESAM(base="scaffold"))
    assert (found.down, found.up) == (2, 2)


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_bias_listed_is_that_of_the_defaults(name):
    assert entry(name, ALGORITHMS.get(name)()).bias == ALGORITHMS.get(name)().bias


def test_table_says_who_comes_to_rest_where_the_objective_does(capsys):
    main([])
    at_rest = {line.split()[0] for line in capsys.readouterr().out.splitlines() if "∇F = 0  " in line}
    assert at_rest == {"scaffold", "feddyn", "feddc", "centralised"}


def test_table_has_a_row_for_each_algorithm_with_its_paper(capsys):
    assert run(lambda: main([])) == 0
    out = capsys.readouterr().out
    for name, kind in ALGORITHMS.items():
        (line,) = (line for line in out.splitlines() if line.startswith(f"{name} "))
        assert kind.paper.split(",")[0] in line
