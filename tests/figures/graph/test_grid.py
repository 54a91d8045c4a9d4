"""Grids: values and ranges, combinations, what goes to which algorithm, keys, refusals."""

import pytest

from figures.graph.grid import read_grid
from figures.graph.ranges import several
from landscape import FedscapeError
from trainers import SAM, FedAvg, FedSAM, Parts, Scaffold, Settings
from trainers.runs import PlannedRun


@pytest.fixture
def grid(tmp_path):
    """The grid of a text."""

    def read(text):
        (tmp_path / "grid.toml").write_text(text, encoding="utf-8")
        return read_grid(tmp_path / "grid.toml")

    return read


@pytest.mark.parametrize(
    ("told", "values"),
    [
        (0.1, [0.1]),
        ([1, 2], [1, 2]),
        ({"from": 2, "to": 5}, [2, 3, 4, 5]),
        ({"from": 0, "to": 10, "steps": 3}, [0, 5, 10]),
        ({"from": 0, "to": 1, "steps": 4}, [0.0, 0.333333333333, 0.666666666667, 1.0]),
        ({"from": 1, "to": 0.5, "steps": 3}, [1.0, 0.75, 0.5]),
        ({"from": 0.001, "to": 10, "steps": 5, "log": True}, [0.001, 0.01, 0.1, 1.0, 10.0]),
        ({"from": 0.1, "to": 10, "steps": 3, "log": True, "as": "dirichlet:{}"},
         ["dirichlet:0.1", "dirichlet:1", "dirichlet:10"]),
        ({"values": [1, 0.5], "as": "a{}"}, ["a1", "a0.5"]),
    ],
)  # fmt: skip
def test_values_of_an_option_are_those_that_one_would_write(told, values):
    found = several(told, "lr")
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ([], "lr has no value"),
        ({"from": 0}, "lr: a range needs numbers from and to"),
        ({"from": 0, "to": True}, "lr: a range needs numbers from and to"),
        ({"from": 0, "to": float("inf"), "steps": 3}, "lr: a range needs numbers from and to"),
        ({"from": 0.1, "to": 1}, "lr: give the range its number of steps"),
        ({"from": 3, "to": 1}, "lr: give the range its number of steps"),
        ({"from": 0, "to": 10**9}, "lr: give the range its number of steps"),
        ({"from": 0, "to": 1, "steps": 1}, "lr: steps is 1: give the number of points, 2 to 10000"),
        ({"from": 0, "to": 1, "steps": 3, "log": True}, "lr: a logarithmic range from 0 to 1: give numbers above 0"),
        ({"from": 0, "to": 1, "step": 3}, "lr: a range has no step: give from, to, steps"),
        ({"values": [1], "from": 0}, "lr: give values"),
        ({"values": [1], "as": "x"}, "lr: as is x: give a text with {} in it"),
    ],
)
def test_a_range_that_is_none_is_refused_with_what_is_wrong(told, sentence):
    with pytest.raises(FedscapeError) as error:
        several(told, "lr")
    assert str(error.value).startswith(sentence)


def test_runs_are_all_combinations_with_the_keys_of_the_same_runs_made_by_hand(grid):
    found = grid(
        """
        algorithm = ["fedavg", "fedsam"]
        per-round = 2
        clients = 4
        rho = [0.05, 0.1]
        seed = {from = 0, to = 1}
        """
    )
    settings = Settings(clients=4, per_round=2)
    plain, sharp = PlannedRun(FedAvg(), settings), [PlannedRun(FedSAM(rho), settings) for rho in (0.05, 0.1)]
    wanted = [run.seeded(seed) for run in (plain, *sharp) for seed in (0, 1)]
    assert [each.run.key for each in found.runs] == [run.key for run in wanted]
    assert found.varied == ("algorithm", "rho", "seed")
    assert [found.label(each) for each in found.runs][1:3] == ["fedavg, seed 1", "fedsam, rho 0.05, seed 0"]


def test_the_name_of_a_file_and_the_order_of_its_options_change_no_key(grid, tmp_path):
    one = grid('algorithm = "fedsam"\nrho = 0.1\nlr = 0.2')
    (tmp_path / "other.toml").write_text('lr = 0.2\nrho = 0.1\nalgorithm = ["fedsam"]')
    assert [each.run.key for each in read_grid(tmp_path / "other.toml").runs] == [each.run.key for each in one.runs]


def test_overrides_take_the_place_of_what_all_are_given(grid):
    found = grid(
        """
        algorithm = ["fedavg", "scaffold"]
        lr = [0.1, 0.2]
        rounds = 5
        [overrides.scaffold]
        lr = 0.05
        server_lr = [0.5, 1]
        """
    )
    wanted = [PlannedRun(FedAvg(), Settings(lr=lr, rounds=5)) for lr in (0.1, 0.2)]
    wanted += [PlannedRun(Scaffold(server_lr=rate), Settings(lr=0.05, rounds=5)) for rate in (0.5, 1.0)]
    assert [each.run.key for each in found.runs] == [run.key for run in wanted]


def test_options_of_a_part_go_to_the_runs_that_have_it_and_false_leaves_it_out(grid):
    found = grid('algorithm = "fedavg"\nascent = [false, "sam"]\nrho = [0.1, 0.2]\nmixup = [false, true]')
    parts = [Parts(ascent=a, mixup=m) for a, m in ((None, False), (None, True))]
    parts += [Parts(ascent=SAM(rho), mixup=m) for rho in (0.1, 0.2) for m in (False, True)]
    assert [each.run.key for each in found.runs] == [PlannedRun(FedAvg(), parts=each).key for each in parts]


def test_a_list_that_is_one_value_stands_in_a_list(grid):
    (found,) = grid('algorithm = "fedavg"\nman = 0.1\nman-layers = [["fc1", "fc2"]]').runs
    assert found.run.parts.man.layers == ("fc1", "fc2")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lr = 0.1", 'names no algorithm: write algorithm = ["fedavg", "fedsam"]'),
        ('algorithm = "fedavgg"', "unknown algorithm 'fedavgg': did you mean 'fedavg'?"),
        ('algorithm = "fedavg"\nlearning_rate = 1', "no algorithm of it has an option learning_rate: did you mean lr?"),
        ('algorithm = ["fedavg", "scaffold"]\nmu = 1', "no algorithm of it has an option mu"),
        ('algorithm = "fedavg"\nrho = 1', "no run has the option rho, which belongs to a part: choose the part, too"),
        ('algorithm = "fedavg"\n[overrides.fedavg]\nrho = 1', "overrides of fedavg: no run has the option rho"),
        ('algorithm = "fedavg"\n[overrides.fedsam]\nrho = 1', "has overrides of fedsam, which is none of its"),
        ('algorithm = "fedsam"\n[overrides.fedsam]\nrh = 1', "overrides of fedsam: no algorithm of it has an"),
        ('algorithm = "fedavg"\noverrides = 3', "overrides is no table of algorithms"),
        ('algorithm = "fedavg"\ndevice = "cpu"', "device is no option of a grid's runs: give --device to the sweep"),
        ('algorithm = "fedavg"\nresume = true', "resume is no option of a grid's runs: leave it out"),
        ('algorithm = "fedavg"\nseed = [0.5]', "the seed is 0.5: give whole numbers"),
        ('algorithm = "fedavg"\nper-round = [3, 30]', "--per-round=30: --per-round is 30: give a"),
        ('algorithm = "fedavg"\nrounds = "many"', "--rounds"),
        ('algorithm = "fedsam"\nascent = "sam"', "FedSAM has its own ascent (SAM): two make no sense"),
        ('algorithm = "fedavg"\nlr = 1\nl-r = 1\nlr-step = 2\nlr_step = 3', "lr_step is there twice"),
        ("algorithm = ", "is no TOML"),
    ],
)  # fmt: skip
def test_a_grid_that_cannot_be_is_refused_in_a_sentence_that_names_the_file(grid, text, sentence):
    with pytest.raises(FedscapeError) as error:
        grid(text)
    assert sentence in str(error.value)
    assert "grid.toml" in str(error.value) or "unknown algorithm" in str(error.value)
    assert "\n" not in str(error.value)
