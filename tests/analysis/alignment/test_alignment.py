"""The command on runs: what it writes, what it goes on from, what it says where something cannot be had."""

import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis import measure_alignment
from analysis.alignment.__main__ import main
from analysis.alignment.cost import expected_work
from analysis.alignment.measure import _Round
from analysis.alignment.opening import open_round
from analysis.alignment.options import Asked
from analysis.alignment.perturbations import used_work
from analysis.alignment.state import Kept
from analysis.source import Place
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.terminal.command import run
from landscape.terminal.progress import Progress
from trainers import FedAvg, FedGloSS, FedSAM, Settings, train

SETTINGS = Settings(
    rounds=2,
    clients=5,
    per_round=3,
    local_steps=2,
    save_every=1,
    save_clients=True,
    device="cpu",
    partition="dirichlet:0.5",
)
QUICK = {"parts": ("gradients", "perturbations"), "device": "cpu"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    algorithms = {"plain": FedAvg(), "sharp": FedSAM(rho=0.1), "gloss": FedGloSS(rho=0.2, rho_l=0.1)}
    return [train(algorithm, SETTINGS, out=folder / name).path for name, algorithm in algorithms.items()]


def by_hand(run_, number):
    """Losses and gradients in float64 by the weights and the samples in the run's files, client by client."""
    weights = json.loads((run_ / "weights.json").read_text())["objective"]
    file = run_ / "rounds" / f"{number:05d}.pt"
    options = {"device": "cpu", "dtype": "float64"}
    clients = [Landscape.from_checkpoint(file, clients=[i], **options) for i in range(SETTINGS.clients)]
    return np.array(weights), clients


def test_numbers_are_those_of_the_clients_one_by_one(runs):
    found = measure_alignment(runs[0], dtype="float64", **QUICK).runs[0].rounds[0]
    p, clients = by_hand(runs[0], 2)
    w = clients[0].weights
    g = torch.stack([client.gradient(w) for client in clients])
    total = torch.from_numpy(p) @ g
    assert found.clients == tuple(sorted(Checkpoint.load(runs[0] / "rounds" / "00002.pt").clients))
    own = g[list(found.clients)]
    cosines = torch.nn.functional.cosine_similarity(own, total[None])
    assert found.gradients.with_global == pytest.approx(cosines.numpy())
    assert found.gradients.loss == pytest.approx(sum(p[i] * client.value(w) for i, client in enumerate(clients)))
    steps = 0.05 * own / own.norm(dim=1, keepdim=True)
    i, j = found.clients[0], found.clients[2]
    assert found.perturbations.gains[0, 2] == pytest.approx(clients[j].value(w + steps[0]) - clients[j].value(w))
    q = p[list(found.clients)] / p[list(found.clients)].sum()
    assert found.shares == pytest.approx(q)

    def rise(step):
        return sum(p[k] * (client.value(w + step) - client.value(w)) for k, client in enumerate(clients))

    mean = torch.from_numpy(q) @ steps
    assert found.perturbations.found == pytest.approx(rise(mean) / rise(0.05 * total / total.norm()))
    assert i in found.clients


@pytest.mark.slow
def test_everything_at_once_and_resumed_to_the_same_numbers(runs, tmp_path, capsys):
    words = [*map(str, runs[:2]), "--rounds", "--top", "2", "--device", "cpu", "--quiet", "--barrier-points", "3"]
    assert run(lambda: main([*words, "--out", str(tmp_path / "a")])) == 0
    said = capsys.readouterr().out
    assert "share of f's top-K curvature in a client's eigenspace" in said
    assert "the initial model: no client has worked yet" in said
    numbers = json.loads((tmp_path / "a" / "alignment.json").read_text())
    assert [len(one["rounds"]) for one in numbers["runs"]] == [3, 3]
    means = numbers["runs"][1]["rounds"][2]["means"]
    assert {"gradient_cosine", "worst_case_found", "overlap", "heterogeneity", "lambda_max_own_local"} <= set(means)
    assert all({"value", "stderr", "measurement_error"} <= set(one) for one in means.values())
    with (tmp_path / "a" / "alignment.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {"fedavg", "fedsam"}
    for name in ("alignment.png", "matrices_1.png", "matrices_2.png"):
        assert (tmp_path / "a" / name).stat().st_size > 10_000
    lines = (tmp_path / "a" / "alignment.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "alignment.jsonl").write_text("".join(lines[:5]) + lines[5][:40])  # killed while it wrote
    assert run(lambda: main([*words, "--out", str(tmp_path / "b")])) == 0
    again = json.loads((tmp_path / "b" / "alignment.json").read_text())
    assert again["runs"] == numbers["runs"]


def test_what_was_measured_is_not_measured_again(runs, tmp_path, monkeypatch):
    state = tmp_path / "s.jsonl"
    first = measure_alignment(runs[0], state=state, **QUICK)
    monkeypatch.setattr("analysis.alignment.measure.cross_gains", None)
    again = measure_alignment(runs[0], state=state, **QUICK)
    assert again.to_dict() == first.to_dict()
    with pytest.raises(TypeError):  # another radius is another measurement
        measure_alignment(runs[0], state=state, rho=0.2, **QUICK)


def test_all_clients_have_no_sampling_error_and_some_have(runs):
    every, some, one = (measure_alignment(runs[0], who, **QUICK) for who in ("all", (3, 0), (3,)))
    assert every.value(0, "gradient_cosine_with_global").mean.stderr == 0
    assert every.value(0, "worst_case_found").mean.stderr == 0
    assert some.runs[0].rounds[0].clients == (3, 0)
    assert some.value(0, "gradient_cosine_with_global").mean.stderr > 0
    assert some.value(0, "loss").mean.value == pytest.approx(every.value(0, "loss").mean.value)  # f is over all
    assert np.isnan(one.value(0, "own_gain").mean.stderr)
    assert "sampling error unknown" in str(one)
    trained = measure_alignment(runs[0], "sampled", **QUICK)
    assert "at it they are no random draw of all" in str(trained)
    assert "at it they are no random draw of all" not in str(every)
    whole = every.runs[0].rounds[0].gradients
    assert some.runs[0].rounds[0].gradients.norms == pytest.approx(whole.norms[[3, 0]])


def test_one_round_is_written_and_drawn(runs, tmp_path, capsys):
    words = [
        *map(str, runs[:2]),
        "--parts",
        "gradients",
        "perturbations",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "o"),
    ]
    assert run(lambda: main(words)) == 0
    printed = capsys.readouterr()
    assert "some 0 products, 4 gradients and 14 evaluations, each over everybody's data" in printed.err
    assert "fedavg, round 2" in printed.out
    with (tmp_path / "o" / "alignment.csv").open() as file:
        rows = {(row["run"], row["quantity"]): float(row["mean"]) for row in csv.DictReader(file)}
    found = measure_alignment(runs[:2], **QUICK)
    for i, name in enumerate(("fedavg", "fedsam")):
        assert rows[name, "worst_case_found"] == found.value(i, "worst_case_found").mean.value
    assert sorted(file.name for file in (tmp_path / "o").glob("*.png")) == [
        "alignment.png",
        "matrices_1.png",
        "matrices_2.png",
    ]


@pytest.fixture
def copied(runs, tmp_path):
    """A run that tests may change."""
    return shutil.copytree(runs[0], tmp_path / "copied")


def test_without_local_models_it_says_which_flag_and_measures_the_rest(copied):
    for file in (copied / "rounds").glob("*.pt"):
        contents = torch.load(file, weights_only=True)
        contents.pop("clients", None)
        torch.save(contents, file)
    file = copied / "rounds" / "00002.pt"
    found = measure_alignment(file, device="cpu", parts=("gradients", "local"))
    one = found.runs[0].rounds[0]
    assert one.local is None
    assert one.gradients is not None
    assert len(one.clients) == SETTINGS.clients
    assert "train with --save-clients" in str(found)
    assert "which clients were sampled is not known" in str(found)


def of_an_earlier_version(run_):
    """A run whose checkpoints do not say what clients received and used."""
    for file in [run_ / "ckpt.pt", *(run_ / "rounds").glob("*.pt")]:
        contents = torch.load(file, weights_only=True)
        contents.pop("work", None)
        torch.save(contents, file)
    return run_


def test_without_the_round_before_the_received_model_of_an_earlier_version_is_missing(copied):
    of_an_earlier_version(copied)
    (copied / "rounds" / "00001.pt").unlink()
    found = measure_alignment(copied / "rounds" / "00002.pt", device="cpu", parts=("local",))
    assert "there is no rounds/00001.pt: train with --save-clients with this version, or --save-every 1" in str(found)
    assert "loss_own_local" in {q.name for q in found.runs[0].rounds[0].quantities()}
    assert "loss_own_received" not in {q.name for q in found.runs[0].rounds[0].quantities()}


def test_a_diverged_client_is_named_and_in_no_mean(copied):
    file = copied / "rounds" / "00002.pt"
    contents = torch.load(file, weights_only=True)
    client = sorted(contents["clients"])[1]
    sound = measure_alignment(file, device="cpu", parts=("local",)).runs[0].rounds[0]
    contents["clients"][client].fill_(float("nan"))
    torch.save(contents, file)
    found = measure_alignment(file, device="cpu", parts=("local",))
    one = found.runs[0].rounds[0]
    assert one.diverged == (client,)
    assert f"diverged at round 2, and in no mean: client {client}" in str(found)
    mean = found.value(0, "loss_own_local").mean
    kept = [k for k, c in enumerate(one.local_clients) if c != client]
    q = one.shares[kept] / one.shares[kept].sum()
    assert mean.value == pytest.approx(q @ sound.local.own[kept, 1, 0])
    assert (mean.count, mean.left_out) == (2, 1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--clients", "9"], "there is no client 9: the run has clients 0 to 4"),
        (["--clients", "nobody"], "give sampled, all, or clients' numbers"),
        (["--rho", "0"], "rho is 0.0: give above 0 and finite"),
        (["--trace-probes", "1"], "trace probes is 1: give 2 or more"),
        (["--samples", "0"], "0 samples of each client are asked for"),
    ],
)
def test_bad_input_is_a_sentence(runs, words, sentence, tmp_path, capsys):
    line = [str(runs[0]), *words, "--out", str(tmp_path / "o"), "--quiet", "--device", "cpu", "--parts", "gradients"]
    assert run(lambda: main(line)) == 2
    assert sentence in capsys.readouterr().err


def _saying(run_, **changes):
    """A checkpoint of the run whose recorded settings say something else; ``None`` leaves a setting out."""
    checkpoint = Checkpoint.load(run_ / "ckpt.pt")
    training = {**checkpoint.algorithm["training"], **changes}
    told = {name: value for name, value in training.items() if value is not None}
    replace(checkpoint, algorithm={**checkpoint.algorithm, "training": told}).save(run_ / "ckpt.pt")


def test_weights_by_samples_are_told_and_taken_only_where_the_run_or_the_user_says_so(copied):
    sizes = np.load(copied / "partition.npz")
    counts = np.array([len(sizes[f"client_{i:05d}"]) for i in range(SETTINGS.clients)])
    (copied / "weights.json").write_text(json.dumps({"objective": [1 / 5] * 5}))
    options = {**QUICK, "parts": ("gradients",), "clients": "all"}
    given = measure_alignment(copied, **options).runs[0].rounds[0]
    asked = measure_alignment(copied, **options, weights="samples")
    (copied / "weights.json").unlink()
    known = measure_alignment(copied, **options)
    assert given.shares == pytest.approx(np.full(5, 0.2))
    assert given.to_dict()["weights"] == "those of the run's objective (weights.json)"
    assert "weights p_i are" not in " ".join(given.notes())
    by_samples = "in proportion to the clients' numbers of samples"
    for found, why in ((asked, "as asked for (weights samples)"), (known, "by which the run says that it aggregates")):
        one = found.runs[0].rounds[0]
        assert one.shares == pytest.approx(counts / counts.sum())
        assert one.gradients.loss == pytest.approx(one.shares @ given.gradients.losses)
        assert f"the weights p_i are {by_samples}, {why}" in str(found)
        assert one.to_dict()["weights"].startswith(f"{by_samples}, {why}")
    few = measure_alignment(copied, **options, weights="samples", samples=7).runs[0].rounds[0]
    assert few.shares == pytest.approx(counts / counts.sum())  # by all samples that they have
    for other in ({"weighting": "uniform"}, {"weighting": "samples", "aggregation": None}):
        _saying(copied, **other)
        with pytest.raises(FedscapeError, match=r"there is no weights\.json in its run directory.*--weights samples"):
            measure_alignment(copied, **options)


def test_a_run_with_other_weights_and_a_local_model_are_refused(copied):
    with pytest.raises(FedscapeError, match="is a client's local model: give the run"):
        measure_alignment(f"{copied}@1", **QUICK)
    (copied / "weights.json").write_text('{"objective": [0.5, 0.5]}')
    with pytest.raises(FedscapeError, match="has 2 weights, and the run has 5 clients"):
        measure_alignment(copied, **QUICK)


@pytest.mark.parametrize(
    ("which", "parts"),
    [(0, ("gradients", "perturbations")), (0, ("perturbations",)), (1, ("used",)), (2, ("used",))],
)
def test_expected_evaluations_and_gradients_are_those_made(runs, monkeypatch, which, parts):
    """Counted in passes over everybody's samples."""
    opened = open_round(runs[which] / "rounds" / "00002.pt", "all", Place(device="cpu"))
    passes = {"evaluate": 0.0, "gradient": 0.0}
    for name in passes:
        inner = getattr(Landscape, name)

        def counted(self, *args, inner=inner, name=name, **kwargs):
            passes[name] += self.samples / opened.federation.whole.samples
            return inner(self, *args, **kwargs)

        monkeypatch.setattr(Landscape, name, counted)
    asked = Asked(parts=parts)
    _Round(opened, asked, Kept(None), Progress("", enabled=False), 0).measure()
    work = expected_work(opened.federation, len(opened.local), True, asked)
    if "used" in parts:
        work += used_work(len(opened.used.steps), opened.used.server is not None, opened.used.elsewhere)
    assert passes["gradient"] == pytest.approx(work.gradients)
    assert passes["evaluate"] == pytest.approx(work.evaluations)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "dtype"), [({}, "float32"), ({"top": 2, "trace_probes": 5}, "float64")])
def test_products_told_and_spent_are_within_a_factor_of_two(runs, options, dtype):
    """Of an untrained net, part by part, in passes over everybody's samples."""
    place = Place(device="cpu", dtype=dtype)
    opened = open_round(runs[0] / "rounds" / "00002.pt", "all", place)
    share = {c: len(part) / opened.federation.whole.samples for c, part in opened.federation.indices.items()}
    for parts in (("curvature",), ("curvature", "local")):
        asked = Asked(parts=parts, barrier_points=3, barrier_pairs=0, **options)
        found = _Round(opened, asked, Kept(None), Progress("", enabled=False), 0).measure()
        own, whole = found.curvature.products + (found.local.products if found.local else 0)
        spent = whole + own * np.mean(list(share.values()))
        work = expected_work(opened.federation, len(opened.local) if found.local else 0, True, asked)
        assert spent / 2 < work.products + work.precise < 2 * spent


def test_heat_maps_have_alike_clients_side_by_side(runs):
    one = measure_alignment(runs[0], "all", device="cpu", parts=("gradients",)).runs[0].rounds[0]
    order, by = one.order()
    assert by == "clustered by label mix"
    assert sorted(order) == list(range(5))
    assert one.to_dict()["order"] == [one.clients[k] for k in order]
