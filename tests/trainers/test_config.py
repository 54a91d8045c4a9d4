"""Config files: every run's config.json is the same run again, flags go first, what is unknown is refused."""

import json
from dataclasses import replace

import pytest

from landscape import FedscapeError
from landscape.storage.files import write_json
from tests.conftest import REPOSITORY
from tests.trainers.usual import usual
from trainers import (
    ALGORITHMS,
    ASAM,
    GSAM,
    LESAM,
    MAN,
    SAM,
    SWA,
    Adagrad,
    Adam,
    Affine,
    FedAvg,
    FedLESAM,
    FedProx,
    LocalAdamW,
    LocalMomentum,
    Momentum,
    Parts,
    Settings,
    Yogi,
    train,
)  # fmt: skip
from trainers.__main__ import main, read
from trainers.protocols import PROTOCOLS
from trainers.runs import PlannedRun
from trainers.runs.given import given

OTHER = Settings(
    rounds=3, clients=7, per_round=3, lr=1 / 3, weight_decay=1e-7, batch_size="full", local_steps=2, seed=-4,
    partition="pathological:3+sizes:0.3", clients_at_once=2, save_clients=True, client_accuracy=2,
)  # fmt: skip
PARTS = [
    Parts(ascent=SAM(0.3)), Parts(ascent=ASAM(0.7, 0.3)), Parts(ascent=GSAM(0.7, 0.3)), Parts(ascent=LESAM(0.7)),
    Parts(man=MAN(0.3)), Parts(man=MAN(0.3, ("fc1", "fc2"), half=True)), Parts(swa=SWA(0.5, 3, 0.01)),
    Parts(mixup=True, cutout=3), Parts(server_optimizer=Momentum(0.5, 0.2)), Parts(server_optimizer=Adam(0.2)),
    Parts(server_optimizer=Yogi(0.2)), Parts(server_optimizer=Adagrad(0.2)), Parts(adversary=Affine(0.2)),
    Parts(local_optimizer=LocalMomentum(0.3, True, "kept")), Parts(local_optimizer=LocalAdamW(0.3)),
    Parts(man=MAN(0.3, variance=("fc1",))), Parts(swa=SWA(0.5, 3, 0.01, "official")),
    Parts(server_optimizer=Adam(0.2, v0="corrected")),
]  # fmt: skip


def changed(kind):
    """An algorithm whose numbers are not the defaults', where they may be changed."""
    halved = {name: value / 2 for name, value in vars(kind()).items() if isinstance(value, float)}
    try:
        return kind(**halved)
    except FedscapeError:
        return kind()


def again(run, folder, *words):
    """The run that the config.json of a run gives."""
    content = {**run.content, "settings": run.settings.recorded(), "versions": {}}
    write_json(folder / "config.json", {name: value for name, value in content.items() if name != "schema"})
    command = read(["--config", str(folder / "config.json"), *words])
    return PlannedRun(command.algorithm, command.settings, command.parts)


@pytest.mark.parametrize("name", usual(dict(ALGORITHMS.items())))
def test_config_json_of_every_algorithm_is_the_same_run_again(name, tmp_path):
    run = PlannedRun(changed(ALGORITHMS.get(name)), OTHER)
    found = again(run, tmp_path)
    assert (found.key, found.settings) == (run.key, run.settings)
    assert found.algorithm.hyper_parameters() == run.algorithm.hyper_parameters()


@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_config_json_of_every_part_is_the_same_run_again(parts, tmp_path):
    run = PlannedRun(FedAvg(), Settings(), parts)
    assert again(run, tmp_path).key == run.key


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        pytest.param(each.name, one, marks=() if one == list(each.algorithms)[-1] else pytest.mark.slow)
        for each in PROTOCOLS.values()
        for one in each.algorithms
    ],
)
def test_config_json_of_a_run_under_a_protocol_is_the_same_run_again_with_its_name(protocol, name, tmp_path):
    command = read([name, "--protocol", protocol, "--lr", "0.3", "--swa", "--man", "0.2"])
    run = PlannedRun(command.algorithm, command.settings, command.parts)
    content = {**run.content, "settings": run.settings.recorded(), "versions": {}, "protocol": protocol}
    write_json(tmp_path / "config.json", {name: value for name, value in content.items() if name != "schema"})
    found = read(["--config", str(tmp_path / "config.json")])
    assert PlannedRun(found.algorithm, found.settings, found.parts).key == run.key
    assert (found.settings, found.parts) == (run.settings, run.parts)
    assert found.protocol.protocol.name == protocol
    assert found.settings.lr == 0.3


def test_a_toml_file_may_name_a_protocol_and_its_options_go_first(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('algorithm = "fedprox"\nprotocol = "fl-simulator"\nclip = 3.0\n')
    found = read(["--config", str(file), "--rounds", "2"])
    assert (found.settings.clip, found.settings.rounds, found.settings.clip_at) == (3.0, 2, "linear")
    assert found.protocol.protocol.name == "fl-simulator"
    other = read(["--config", str(file), "--protocol", "feddyn"])
    assert (other.protocol.protocol.name, other.settings.clip) == ("feddyn", 3.0)


def test_the_numbers_of_an_algorithms_base_come_back(tmp_path):
    run = PlannedRun(FedLESAM(base="feddyn", alpha=0.3))
    assert again(run, tmp_path).key == run.key


SHORT = Settings(rounds=3, clients=4, per_round=2, local_steps=1, device="cpu", save_every=0)


def metrics(folder):
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in r.items() if not name.startswith("seconds")} for r in records]


def test_a_run_is_trained_again_from_its_directory_with_the_same_results(tmp_path, capsys):
    train(FedProx(mu=0.3), SHORT, Parts(ascent=SAM(0.1), swa=SWA(0.5, 1)), out=tmp_path / "a")
    assert main(["--config", str(tmp_path / "a"), "--quiet", "--out", str(tmp_path / "b")]) == 0
    assert metrics(tmp_path / "b") == metrics(tmp_path / "a")
    one, other = (json.loads((tmp_path / name / "config.json").read_text()) for name in "ab")
    assert one == other
    assert "fedprox, 3 rounds" in capsys.readouterr().out


@pytest.fixture
def toml(tmp_path):
    """The command that a text gives, with more words."""

    def given(text, *words):
        (tmp_path / "run.toml").write_text(text, encoding="utf-8")
        return read([*words[:1], "--config", str(tmp_path / "run.toml"), *words[1:]])

    return given


FILE = """
algorithm = "fedavg"
rounds = 7
per-round = 3
local_epochs = 4
ascent = "asam"
rho = 0.5
eta = 0.3
swa = true
swa-cycle = 2
out = "elsewhere"
"""


def test_a_toml_file_has_options_by_their_names(toml):
    command = toml(FILE)
    assert command.algorithm == FedAvg()
    assert command.settings == Settings(rounds=7, per_round=3, local_epochs=4)
    assert command.parts == Parts(ascent=ASAM(0.5, 0.3), swa=SWA(cycle=2))
    assert str(command.output.out) == "elsewhere"


@pytest.mark.parametrize(
    ("words", "settings", "parts"),
    [
        (["--rounds", "9"], {"rounds": 9}, {}),
        (["--rounds=9", "--per_round", "2"], {"rounds": 9, "per_round": 2}, {}),
        (["--rho", "0.1"], {}, {"ascent": ASAM(0.1, 0.3)}),
        (["--ascent", "sam"], {}, {"ascent": SAM(0.5)}),  # η is none of SAM's
        (["--no-swa"], {}, {"swa": None}),
        (["--swa-cycle", "5"], {}, {"swa": SWA(cycle=5)}),
        (["--mixup"], {}, {"mixup": True}),
    ],
)
def test_options_of_the_command_line_go_before_those_of_the_file(toml, words, settings, parts):
    command = toml(FILE, "fedavg", *words)
    assert command.settings == replace(Settings(rounds=7, per_round=3, local_epochs=4), **settings)
    assert command.parts == replace(Parts(ascent=ASAM(0.5, 0.3), swa=SWA(cycle=2)), **parts)


def test_the_algorithm_of_the_command_line_goes_before_the_files(toml):
    assert toml('algorithm = "fedavg"\nmu = 0.3', "fedprox").algorithm == FedProx(0.3)
    assert toml("mu = 0.3", "fedprox").algorithm == FedProx(0.3)


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        ("algorithm = 'fedavg'\nlocal_epoch = 1", [], "there is no option local_epoch: did you mean local-epochs?"),
        ("algorithm = 'fedavg'\nmu = 1", [], "run.toml: there is no option mu"),
        ("algorithm = 'fedavgg'", [], "unknown algorithm 'fedavgg': did you mean 'fedavg'?"),
        ("rounds = 1", [], "names no algorithm"),
        ("algorithm = 'fedavg'\n[training]\nrounds = 1", [], "training is a table"),
        ("algorithm = 'fedavg'\nconfig = 'a.toml'", [], "a config file cannot name another one"),
        ("algorithm = 'fedavg'\nper-round = 1\nper_round = 2", [], "per_round is there twice"),
        ("algorithm = 'fedavg'\nrounds = 'many'", [], "--rounds"),
        ("algorithm = 'fedavg'\nper_round = 30", [], "--per-round is 30: give a number from 1 to the 20 clients"),
        ("algorithm = 'fedavg'\nman = 0.1\nman_layers = ['--help']", [], "man_layers has the value --help"),
        ("algorithm = ", [], "is no TOML"),
    ],
)
def test_a_file_that_cannot_be_is_refused_in_a_sentence(toml, text, words, sentence):
    with pytest.raises(FedscapeError) as error:
        toml(text, *words)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "run.yaml").write_text("rounds: 3")
    for file, sentence in (("run.yaml", "give a .toml file"), ("no.toml", "there is no file"), ("", "needs a file")):
        with pytest.raises(FedscapeError, match=sentence):
            read(["--config", str(tmp_path / file) if file else ""])


def test_a_run_directory_that_is_called_like_a_toml_file_is_a_run_all_the_same(tmp_path):
    (tmp_path / "run.toml").mkdir()
    run = PlannedRun(FedAvg(), Settings(model="evil.module:run"))
    write_json(tmp_path / "run.toml" / "config.json", {**run.content, "settings": run.settings.recorded()})
    with pytest.raises(FedscapeError, match=r"names the model 'evil\.module:run', which would import and run code"):
        read(["--config", str(tmp_path / "run.toml")])


@pytest.mark.parametrize("name", ["model", "data"])
def test_code_that_a_runs_own_file_names_is_imported_only_where_the_user_names_it_too(name, tmp_path):
    run = PlannedRun(FedAvg(), Settings(**{name: "evil.module:run"}))
    with pytest.raises(FedscapeError, match=f"names the {name} 'evil.module:run', which would import and run code"):
        again(run, tmp_path)
    assert again(run, tmp_path, f"--{name}", "evil.module:run").key == run.key


def test_an_algorithm_of_ones_own_is_named_again(tmp_path):
    config = {"algorithm": {"name": "evil:Mine"}, "parts": {}, "settings": Settings().recorded()}
    write_json(tmp_path / "config.json", config)
    with pytest.raises(FedscapeError, match=r"names the algorithm 'evil:Mine', .* give the algorithm yourself"):
        read(["--config", str(tmp_path)])


@pytest.mark.parametrize("name", ["scaffold", "mixed"])
def test_a_run_of_an_earlier_version_asks_for_what_it_does_not_say(name):
    folder = REPOSITORY / "tests" / "stored" / "2026-11" / name
    with pytest.raises(FedscapeError, match="give --normalise data"):
        read(["--config", str(folder)])
    recorded = json.loads((folder / "config.json").read_text())
    command = read(["--config", str(folder), "--normalise", "data"])
    assert command.settings.rounds == recorded["settings"]["rounds"]
    assert command.settings.normalise == "data"
    assert command.algorithm.hyper_parameters().items() >= {
        (key, value) for key, value in recorded["algorithm"].items() if key != "name"
    }


def test_options_of_another_algorithm_are_told_by_whose_they_are(tmp_path):
    (tmp_path / "run.toml").write_text('algorithm = "scaffold"\nsizes = "relative"\n')
    with pytest.raises(
        FedscapeError, match=r"run.toml, which is of scaffold and not of fedavg: there is no option sizes"
    ):
        read(["fedavg", "--config", str(tmp_path / "run.toml")])


@pytest.mark.parametrize("part", ["man", "ascent", "swa"])
def test_a_part_that_is_no_part_is_told_as_damage(part):
    with pytest.raises(FedscapeError, match=f"config.json is damaged: the part {part} is"):
        given({"algorithm": {"name": "fedavg"}, "parts": {part: "x"}, "settings": {}})
