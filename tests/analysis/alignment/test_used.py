"""Perturbations that algorithms used: closed forms on quadratic clients, and runs measured by hand."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from analysis import measure_alignment
from analysis.alignment.__main__ import main
from analysis.alignment.options import Asked
from analysis.alignment.perturbations import ascent_step, measure_used
from landscape import Checkpoint, FedscapeError, Landscape
from landscape.terminal.command import run
from tests.analysis.alignment.quadratics import federation, random_bowls
from tests.analysis.alignment.test_alignment import SETTINGS, by_hand, of_an_earlier_version
from trainers import FedAvg, FedGloSS, FedLESAM, FedSAM, train

P, RHO = (0.5, 0.3, 0.2), 0.4
BOWLS = random_bowls(3, 4, seed=6)
W = np.array([0.3, -1.0, 0.5, 2.0])
STEPS = 0.3 * np.random.default_rng(1).standard_normal((3, 4))


def rise(w, step, of=(0, 1, 2), p=P):
    """f(w + step) − f(w), f = Σ p_i f_i of these clients."""

    def value(at):
        return sum(p[i] * 0.5 * (at - BOWLS[1][i]) @ BOWLS[0][i] @ (at - BOWLS[1][i]) for i in of)

    return value(w + step) - value(w)


def slope(w, i):
    return BOWLS[0][i] @ (w - BOWLS[1][i])


def used(steps, w=W, server=None, measured=None, **asked):
    tensors = [torch.as_tensor(one) for one in (w, steps)]
    pair = None if server is None else tuple(torch.as_tensor(one) for one in server)
    return measure_used(federation(*BOWLS, P, measured), *tensors, pair, Asked(rho=RHO, **asked))


def unit(v):
    return v / np.linalg.norm(v)


def test_every_number_of_quadratic_clients_with_unequal_weights():
    found = used(STEPS)
    total = sum(p * slope(W, i) for i, p in enumerate(P))
    assert found.lengths == pytest.approx(np.linalg.norm(STEPS, axis=1))
    for i, step in enumerate(STEPS):
        for k, one in enumerate((step, RHO * unit(step))):
            assert found.own_gains[i, k] == pytest.approx(rise(W, one, (i,), (1, 1, 1)))
            assert found.global_gains[i, k] == pytest.approx(rise(W, one))
        assert found.with_own[i] == pytest.approx(unit(step) @ unit(slope(W, i)))
        assert found.with_global[i] == pytest.approx(unit(step) @ unit(total))
    assert found.with_ascent == pytest.approx(found.with_global)  # sam's ascent step is along ∇f
    mean = np.array(P) @ STEPS
    assert found.agreement == pytest.approx(np.linalg.norm(mean) / (np.array(P) @ np.linalg.norm(STEPS, axis=1)))
    assert found.mean_gain == pytest.approx(rise(W, mean))
    assert found.worst == pytest.approx(rise(W, RHO * unit(total)))
    assert found.found == pytest.approx(rise(W, RHO * unit(mean)) / rise(W, RHO * unit(total)))
    assert (found.mean_gain_stderr, found.found_stderr) == (0, 0)  # all are measured
    assert np.isnan(found.server).all()


@pytest.mark.parametrize("at", [W, W + 0.7])
def test_the_servers_perturbation_is_measured_at_the_servers_own_model(at):
    step = np.array([0.1, 0.2, 0.0, -0.3])
    length, gain, share, worst, cosine = used(STEPS, server=(at, step)).server
    total = sum(p * slope(at, i) for i, p in enumerate(P))
    assert length == pytest.approx(np.linalg.norm(step))
    assert gain == pytest.approx(rise(at, step))
    assert worst == pytest.approx(rise(at, RHO * unit(total)))
    assert share == pytest.approx(rise(at, RHO * unit(step)) / worst)
    assert cosine == pytest.approx(unit(step) @ unit(total))


def test_asam_compares_at_the_radius_of_its_own_norm():
    """T = |w| + η on weights; the bowls' one tensor is a weight."""
    found = used(STEPS, ascent="asam", eta=0.1)
    t = np.abs(W) + 0.1
    total = sum(p * slope(W, i) for i, p in enumerate(P))
    ideal = RHO * t * unit(t * total)
    for i, step in enumerate(STEPS):
        assert found.global_gains[i, 1] == pytest.approx(rise(W, RHO * step / np.linalg.norm(step / t)))
        assert found.with_ascent[i] == pytest.approx(unit(step) @ unit(ideal))
    mean = np.array(P) @ STEPS
    assert found.found == pytest.approx(rise(W, RHO * mean / np.linalg.norm(mean / t)) / rise(W, ideal))
    assert found.with_ascent != pytest.approx(found.with_global)


def test_the_federations_own_ascent_step_finds_everything_at_any_length():
    total = sum(p * slope(W, i) for i, p in enumerate(P))
    for length in (RHO, 1e-3):
        found = used(np.tile(length * unit(total), (3, 1)), server=(W, length * unit(total)))
        assert found.found == pytest.approx(1.0)
        assert found.agreement == pytest.approx(1.0)
        assert found.with_global == pytest.approx(np.ones(3))
        assert found.global_gains[:, 1] == pytest.approx(np.full(3, found.worst))
        assert found.server[2] == pytest.approx(1.0)


def test_steps_of_0_rise_nothing_and_have_no_direction():
    found = used(np.zeros((3, 4)), server=(W, np.zeros(4)))
    assert found.own_gains[:, 0] == pytest.approx(np.zeros(3))
    for none in (found.own_gains[:, 1], found.with_own, found.with_global, found.found, found.agreement):
        assert np.isnan(none).all()
    assert found.mean_gain == 0
    assert found.server[:2].tolist() == [0, 0]
    assert np.isnan(found.server[2])
    one_still = used(np.array([STEPS[0], np.zeros(4), STEPS[2]]))
    assert np.isfinite(one_still.found)
    assert np.isnan(one_still.with_own).tolist() == [False, True, False]


def test_opposite_steps_have_no_mean():
    """Of the two clients that are measured: their weights among themselves are 0.6 and 0.4."""
    step = np.array([0.1, 0.0, 0.0, 0.2])
    found = used(np.array([0.4 * step, -0.6 * step]), measured=(1, 2))
    assert found.agreement == pytest.approx(0.0, abs=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("ascent", ["sam", "asam"])
def test_intervals_cover_the_values_of_all_clients(ascent):
    draw = np.random.default_rng(3)
    matrices = [np.diag(draw.uniform(1, 3, 4)) for _ in range(48)]
    centres, p = [draw.standard_normal(4) + np.array([2, 0, 0, 0]) for _ in range(48)], draw.uniform(0.5, 1.5, 48)
    w = torch.tensor([0.5, -1.0, 0.3, 0.2], dtype=torch.float64)
    steps = torch.tensor(draw.standard_normal((48, 4)) + np.array([-1.5, -1, 0, 0]))

    def found(measured):
        one = federation(matrices, centres, p, measured)
        return measure_used(one, w, steps[list(measured)], None, Asked(ascent=ascent, rho=0.3))

    names, seeds = ("found", "mean_gain"), 200
    truth, inside = found(tuple(range(48))), np.zeros(2)
    for seed in range(seeds):
        one = found(tuple(np.random.default_rng(seed).choice(48, 24, replace=False)))
        near = stats.t.ppf(0.975, 23)
        for k, name in enumerate(names):
            error = getattr(one, f"{name}_stderr")
            inside[k] += abs(getattr(one, name) - getattr(truth, name)) <= near * error
    assert (inside / seeds >= 0.88).all(), inside  # 200 draws tell a share of 95 % to 1.5 %; few clients' is narrower
    assert (inside / seeds <= 0.99).all(), inside


QUICK = {"parts": ("used",), "device": "cpu", "rho": 0.3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("used")
    algorithms = {"gloss": FedGloSS(rho=0.2, rho_l=0.1), "lesam": FedLESAM(rho=0.1), "plain": FedAvg()}
    return {name: train(algorithm, SETTINGS, out=folder / name).path for name, algorithm in algorithms.items()}


@pytest.fixture
def copied(runs, tmp_path):
    return shutil.copytree(runs["gloss"], tmp_path / "copied")


def test_numbers_of_a_run_are_those_by_hand(runs):
    """FedGloSS in its second round: clients received the perturbed model."""
    found = measure_alignment(runs["gloss"], dtype="float64", **QUICK)
    one, work = found.runs[0].rounds[0], Checkpoint.load(runs["gloss"] / "ckpt.pt").work
    p, clients = by_hand(runs["gloss"], 2)
    w, before = work.received.double(), work.before.double()
    assert one.used_clients == one.clients == tuple(sorted(work.perturbations))

    def up(step, at=w):
        return sum(p[k] * (client.value(at + step) - client.value(at)) for k, client in enumerate(clients))

    total = sum(p[k] * client.gradient(w) for k, client in enumerate(clients))
    for k, i in enumerate(one.clients):
        step = work.perturbations[i].double()
        assert one.used.lengths[k] == pytest.approx(0.1, rel=1e-4)
        assert one.used.own_gains[k, 0] == pytest.approx(clients[i].value(w + step) - clients[i].value(w))
        assert one.used.global_gains[k, 1] == pytest.approx(up(0.3 * step / step.norm()))
        assert one.used.with_global[k] == pytest.approx(float(step @ total / step.norm() / total.norm()))
    q = p[list(one.clients)] / p[list(one.clients)].sum()
    mean = sum(share * work.perturbations[i].double() for share, i in zip(q, one.clients, strict=True))
    share = found.value(0, "used_worst_case_found")
    assert share.mean.value == pytest.approx(
        up(0.3 * mean / mean.norm()) / up(ascent_step(total, torch.ones_like(w), 0.3))
    )
    assert share.mean.stderr > 0  # three of five clients
    assert np.isnan(found.value(0, "used_agreement").mean.stderr)
    uphill = work.server_perturbation.double()
    torch.testing.assert_close(w, before + uphill)
    assert found.value(0, "server_length").mean.value == pytest.approx(0.2, rel=1e-4)
    assert found.value(0, "server_gain").mean.value == pytest.approx(up(uphill, before))
    assert "share of that rise which this mean finds, brought to the radius ρ" in str(found)


def test_the_local_models_begin_where_the_clients_did(runs):
    """At the received model, which of FedGloSS is not the server's of the round before."""
    found = measure_alignment(runs["gloss"], device="cpu", dtype="float64", parts=("local",))
    work = Checkpoint.load(runs["gloss"] / "ckpt.pt").work
    p, clients = by_hand(runs["gloss"], 2)
    wanted = sum(share * client.value(work.received.double()) for share, client in zip(p, clients, strict=True))
    assert found.value(0, "loss_global_received").mean.value == pytest.approx(wanted)
    unperturbed = Landscape.from_checkpoint(runs["gloss"] / "rounds" / "00001.pt", dtype="float64", device="cpu")
    torch.testing.assert_close(unperturbed.weights, work.before.double())
    assert not torch.equal(unperturbed.weights, work.received.double())


def test_one_step_of_full_batches_uses_what_the_clients_ascent_step_is(tmp_path):
    """The perturbations that were used in round 2, at the model of round 1, against those computed there."""
    settings = replace(SETTINGS, local_steps=1, batch_size="full", dtype="float64")
    out = train(FedSAM(rho=0.1), settings, out=tmp_path).path
    at = {"device": "cpu", "dtype": "float64", "rho": 0.1}
    found = measure_alignment(out, parts=("used",), **at).runs[0].rounds[0]
    wanted = measure_alignment(out / "rounds" / "00001.pt", found.used_clients, parts=("perturbations",), **at)
    there = wanted.runs[0].rounds[0].perturbations
    assert found.used.own_gains == pytest.approx(np.tile(np.diag(there.gains)[:, None], 2))
    assert found.used.global_gains == pytest.approx(np.tile(there.global_gains[:, None], 2))
    assert found.used.with_own == pytest.approx(np.ones(3))
    assert found.used.mean_gain == pytest.approx(there.mean_gain)
    assert found.used.mean_gain_stderr / found.used.worst == pytest.approx(there.found_stderr)
    assert found.used.worst == pytest.approx(there.worst)
    assert found.used.found == pytest.approx(there.lengthened_found)
    assert found.used.agreement == pytest.approx(there.mean_length)


def test_runs_of_an_earlier_version_are_measured_as_before_and_told(runs, tmp_path):
    sharp = train(FedSAM(), SETTINGS, out=tmp_path / "sharp").path
    parts = {"device": "cpu", "parts": ("perturbations", "used", "local"), "barrier_points": 3}
    now = measure_alignment(sharp, **parts).runs[0].rounds[0]
    found = measure_alignment(of_an_earlier_version(sharp), **parts)
    before = found.runs[0].rounds[0]
    assert before.used is None
    assert now.used is not None
    assert before.perturbations.to_dict() == now.perturbations.to_dict()
    assert before.local.to_dict() == now.local.to_dict()  # w^t is in rounds/00001.pt as well
    assert "used: no perturbation was saved: train with --save-clients with this version" in str(found)


def test_an_algorithm_without_an_ascent_step_and_rounds_without_a_direction_are_told(runs):
    plain = measure_alignment(runs["plain"], **QUICK)
    assert "used: fedavg has no ascent step" in str(plain)
    assert plain.runs[0].rounds[0].quantities() == []
    lesam = measure_alignment(runs["lesam"], rounds=True, **QUICK)
    assert "every perturbation that was used in round 1 is 0" in str(lesam)
    assert "not measured at round 0: used: the initial model: no client has worked yet" in str(lesam)
    assert np.isfinite(lesam.value(0, "used_cosine_with_global", 2).mean.value)
    sampled = set(lesam.runs[0].rounds[2].used_clients)
    other = next(i for i in range(SETTINGS.clients) if i not in sampled)
    absent = measure_alignment(runs["lesam"], (other,), **QUICK)
    assert "used: none of the clients asked for was sampled in round 2" in str(absent)


def test_a_perturbation_that_is_not_finite_is_named_and_in_no_mean(copied):
    file = copied / "ckpt.pt"
    contents = torch.load(file, weights_only=True)
    first, *others = sorted(contents["work"]["perturbations"])
    contents["work"]["perturbations"][first].fill_(float("nan"))
    torch.save(contents, file)
    found = measure_alignment(file, **QUICK)
    assert found.runs[0].rounds[0].used_clients == tuple(others)
    assert found.value(0, "used_length").mean.count == len(others)
    assert f"the perturbation of client {first} is not finite, and in no mean" in str(found)
    for other in others:
        contents["work"]["perturbations"][other].fill_(float("inf"))
    torch.save(contents, file)
    assert "the perturbations of all of these clients are not finite" in str(measure_alignment(file, **QUICK))


def test_what_was_measured_of_other_perturbations_is_not_taken_for_it(copied, tmp_path):
    state = tmp_path / "s.jsonl"
    first = measure_alignment(copied, state=state, **QUICK)
    lines = state.read_text().splitlines()
    assert str(measure_alignment(copied, state=state, **QUICK)) == str(first)
    assert state.read_text().splitlines() == lines
    contents = torch.load(copied / "ckpt.pt", weights_only=True)
    for step in contents["work"]["perturbations"].values():
        step.mul_(2)
    torch.save(contents, copied / "ckpt.pt")
    again = measure_alignment(copied, state=state, **QUICK)
    assert again.value(0, "used_length").mean.value == pytest.approx(2 * first.value(0, "used_length").mean.value)
    measure_alignment(copied, state=state, device="cpu", parts=("used",), rho=0.2)
    assert len(state.read_text().splitlines()) == len(lines) + 2


def test_it_is_written_and_drawn_alone(runs, tmp_path):
    words = ["--parts", "used", "--device", "cpu", "--quiet", "--out"]
    assert run(lambda: main([str(runs["gloss"]), str(runs["plain"]), *words, str(tmp_path / "a")])) == 0
    numbers = json.loads((tmp_path / "a" / "alignment.json").read_text())
    one = numbers["runs"][0]["rounds"][0]
    assert len(one["used"]["lengths"]) == len(one["used_perturbations_of"]) == 3
    assert one["means"]["used_worst_case_found"]["stderr"] > 0
    assert "used_length" in (tmp_path / "a" / "alignment.csv").read_text()
    assert (tmp_path / "a" / "alignment.png").stat().st_size > 10_000
    assert not (tmp_path / "a" / "matrices_1.png").exists()
    assert run(lambda: main([str(runs["plain"]), *words, str(tmp_path / "b")])) == 0  # nothing to draw
    assert not (tmp_path / "b" / "alignment.png").exists()


def test_nothing_is_drawn_of_perturbations_of_0(runs, tmp_path):
    """Of FedLESAM's first round: a picture would have empty panels and an empty legend."""
    first = str(runs["lesam"] / "rounds" / "00001.pt")
    assert run(lambda: main([first, "--parts", "used", "--device", "cpu", "--quiet", "--out", str(tmp_path)])) == 0
    assert "used_length" in (tmp_path / "alignment.csv").read_text()
    assert not (tmp_path / "alignment.png").exists()
    with pytest.raises(FedscapeError, match="perturbations used that are not all 0"):
        measure_alignment(first, **QUICK).plot()


def test_a_servers_perturbation_that_is_not_finite_is_told(copied):
    file = copied / "ckpt.pt"
    contents = torch.load(file, weights_only=True)
    contents["work"]["server_perturbation"][0] = float("inf")
    torch.save(contents, file)
    found = measure_alignment(file, **QUICK)
    assert "not measured at round 2: used of the server: the server's own perturbation is not finite" in str(found)
    assert np.isnan(found.runs[0].rounds[0].used.server).all()
    assert found.value(0, "used_length").mean.count == 3


def test_the_key_says_over_whom_means_of_perturbations_are(runs):
    told = "over those of them that worked in the round"
    assert told in measure_alignment(runs["gloss"], "all", **QUICK).key
    assert told not in measure_alignment(runs["gloss"], **QUICK).key
