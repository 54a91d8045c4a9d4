"""Client-level differential privacy: what leaves a client, what the noise depends on, what is refused and recorded."""

import json
import math
import sys

import pytest
import torch

from landscape import FedscapeError
from landscape.compute.randomness import torch_generator
from landscape.terminal.command import run
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import EPOCHS, add
from tests.trainers.federation.test_batched import RAGGED, at_once
from tests.trainers.federation.test_batchnorm import with_batchnorm
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import (
    ALGORITHMS,
    ClientPrivacy,
    FedAvg,
    FedDyn,
    FedSAM,
    LocalGHBM,
    Mean,
    Parts,
    Scaffold,
    Settings,
    train,
)
from trainers.__main__ import main
from trainers.algorithm import Algorithm
from trainers.federation.privacy import require_private
from trainers.federation.sampling import nobody_came, sampled_clients
from trainers.runs import read_runs
from trainers.tables import report

PRIVATE = {"sampling": "bernoulli", "weighting": "uniform", "aggregation": "unbiased"}
N, Q = len(SIZES), SETTINGS["per_round"] / len(SIZES)
TAKERS = [
    name
    for name, kind in ALGORITHMS.items()
    if "dp" not in kind().excludes and not getattr(kind().server_optimizer, "counts_clients", False)
]
USUAL = ("fedavg", "scaffold", "feddyn", "fedsmoo", "adabest", "mimelite", "ghbm", "localghbm")
EACH = [pytest.param(name, marks=() if name in USUAL else pytest.mark.slow) for name in TAKERS]
"""Fast: those whose own clients or server differ."""


def private(algorithm, privacy, **changes):
    return federation(algorithm, Parts(dp=privacy), **{**PRIVATE, **changes})


# What leaves a client


def test_all_tensors_are_clipped_together_and_short_ones_stay():
    """Not each tensor by itself, as in DP-FedSAM's code: one client could then change the sum by √2 C here."""
    upload = {"delta": torch.tensor([3.0, 0.0]), "c": torch.tensor([0.0, 4.0])}
    sent = ClientPrivacy(0.0, 1.0).protected(upload, 0, 1, 2, came=3)
    assert sent["delta"].tolist() == pytest.approx([0.6, 0.0])
    assert sent["c"].tolist() == pytest.approx([0.0, 0.8])
    same = ClientPrivacy(0.0, 5.0).protected(upload, 0, 1, 2, came=3)
    assert all(same[name] is upload[name] for name in upload)


def test_the_sums_noise_has_deviation_sigma_c_however_many_clients_come():
    privacy, zeros = ClientPrivacy(2.0, 0.3), {"delta": torch.zeros(20_000, dtype=torch.float64)}
    for came in (1, 5):
        total = sum(privacy.protected(zeros, 0, 4, client, came)["delta"] for client in range(came))
        assert total.std().item() == pytest.approx(2.0 * 0.3, rel=0.02)  # 4 standard errors
        assert abs(total.mean().item()) < 4 * 0.6 / math.sqrt(20_000)


def test_noise_follows_from_seed_round_and_client_alone():
    privacy, zeros = ClientPrivacy(1.0), {"delta": torch.zeros(5), "c": torch.zeros(5)}
    first = privacy.protected(zeros, 7, 1, 2, 3)
    again = privacy.protected(zeros, 7, 1, 2, 3)
    assert all(torch.equal(first[name], again[name]) for name in zeros)
    assert not torch.equal(first["delta"], first["c"])
    for other in ((8, 1, 2), (7, 2, 2), (7, 1, 3)):
        assert not torch.equal(first["delta"], privacy.protected(zeros, *other, 3)["delta"])


# A round


class NaiveDPFedSAM:
    """DP-FedSAM's Algorithm 1, its update clipped as a whole, its mean over the expected number of clients."""

    def __init__(self, rho, sigma, clip):
        self.rho, self.sigma, self.clip, self.number = rho, sigma, clip, 0

    def round(self, clients, w, sampled, lr):
        self.number += 1
        total = [torch.zeros_like(t) for t in w]
        for i in sampled:
            x = [t.clone() for t in w]
            for _ in range(EPOCHS):
                g = clients.gradient(i, x)
                size = torch.sqrt(sum((t**2).sum() for t in g))
                x = add(x, clients.gradient(i, add(x, [self.rho * t / size for t in g])), -lr)
            change = torch.cat([t.reshape(-1) for t in add(x, w, -1.0)])
            if nobody_came(Settings(clients=N, per_round=3, sampling="bernoulli", seed=4), self.number):
                change = torch.zeros_like(change)
            change = change / max(1.0, change.norm().item() / self.clip)
            draws = torch_generator(SETTINGS["seed"], "privacy noise", self.number, i)
            change += (
                self.sigma
                * self.clip
                / math.sqrt(len(sampled))
                * torch.randn(len(change), generator=draws, dtype=torch.float64)
            )
            parts = change.split([t.numel() for t in w])
            total = [t + part.reshape(t.shape) for t, part in zip(total, parts, strict=True)]
        return add(w, total, 1 / (Q * N))


def test_dp_fedsam_is_fedsam_with_the_part():
    reference, clients = NaiveDPFedSAM(0.2, 0.5, 0.1), naive.Clients()
    ours, w = private(FedSAM(0.2), ClientPrivacy(0.5, 0.1)), naive.Clients().start()
    for number in range(6):
        sampled = ours.step().clients
        w = reference.round(clients, w, sampled, SETTINGS["lr"] * SETTINGS["lr_decay"] ** number)
        flat = torch.cat([t.reshape(-1) for t in w])
        torch.testing.assert_close(ours.server.w, flat, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", EACH)
def test_without_noise_and_bound_it_is_the_algorithm(name):
    plain, parts = federation(ALGORITHMS.get(name)()), Parts(dp=ClientPrivacy(0.0, math.inf))
    ours = federation(ALGORITHMS.get(name)(), parts)
    for _ in range(2):
        plain.step(), ours.step()
    assert torch.equal(ours.server.w, plain.server.w)


def test_vanishing_noise_without_bound_is_the_unbiased_algorithm_up_to_the_rounds_without_clients():
    """The mean divides by qN here and by the probability to be sampled *given that somebody is* there."""
    ours, plain = private(FedAvg(), ClientPrivacy(1e-20, 1e6)), federation(FedAvg(), **PRIVATE)
    ours.step(), plain.step()
    start, given = plain._initial, 1 - (1 - Q) ** N
    torch.testing.assert_close((ours.server.w - start) * given, plain.server.w - start, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", EACH)
def test_the_server_reads_nothing_of_who_came(name, monkeypatch):
    """Neither the mean number of steps, which is not noised, nor |S| but for its expectation."""

    class Blind(Mean):
        def __init__(self, steps, clients, **known):
            super().__init__(**known)

    monkeypatch.setattr("trainers.federation.aggregate.Mean", Blind)
    told = []
    algorithm = ALGORITHMS.get(name)()
    monkeypatch.setattr(type(algorithm), "upload", watching(type(algorithm).upload, told))
    ours = private(algorithm, ClientPrivacy(0.5, 0.5))
    counts = {len(ours.step().clients) for _ in range(4)}
    assert ours.finite()
    assert len(counts) > 1
    assert set(told) == {Q}


def watching(upload, told):
    def watched(self, w, client, server, round, steps):
        told.append(round.participation)
        return upload(self, w, client, server, round, steps)

    return watched


def test_the_algorithms_that_read_it_are_refused():
    refused = {"fedcm", "mofedsam", "mime", "centralised", "fedwmsam", "fedexp"}
    assert {name for name in ALGORITHMS if name not in TAKERS} >= refused
    for name in sorted(refused):
        with pytest.raises(FedscapeError, match="cannot be combined with --dp: "):
            Parts(dp=ClientPrivacy(1.0)).check(ALGORITHMS.get(name)())


def test_every_mean_divides_by_the_expected_number_of_clients():
    ours, seen = private(Scaffold(), ClientPrivacy(1e-14, 1e6), lr=0.01), []
    plain_step = Scaffold.server_step

    class Watching(Scaffold):
        def server_step(self, server, mean, round):
            seen.append(mean)
            plain_step(self, server, mean, round)

    ours.algorithm = Watching()
    ours.step()
    (mean,) = seen
    for name in ("delta", "c"):
        torch.testing.assert_close(getattr(mean, name), getattr(mean.all_clients, name) / Q)


def test_a_round_without_clients_has_noise_alone():
    alone = {**PRIVATE, "clients": N, "per_round": 1}
    empty = next(n for n in range(1, 50) if nobody_came(Settings(**alone, seed=4), n))
    ours = private(FedAvg(), ClientPrivacy(0.5, 0.2), per_round=1)
    for _ in range(empty - 1):
        ours.step()
    before = ours.server.w
    sampled = ours.step().clients
    noise = sum(
        torch.randn(len(before), generator=torch_generator(4, "privacy noise", empty, i), dtype=torch.float64)
        for i in sampled
    )
    torch.testing.assert_close(ours.server.w - before, 0.5 * 0.2 / math.sqrt(len(sampled)) * noise / 1.0)


def test_draws_without_clients_are_as_frequent_as_they_must_be():
    few = Settings(clients=4, per_round=1, sampling="bernoulli")
    share, rounds = (3 / 4) ** 4, 2000
    empty = sum(nobody_came(few, n) for n in range(rounds))
    assert abs(empty - share * rounds) < 4 * math.sqrt(rounds * share * (1 - share))
    assert all(sampled_clients(few, n) for n in range(50))
    assert not nobody_came(Settings(clients=4, per_round=4, sampling="bernoulli"), 1)


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold(), LocalGHBM()], ids=lambda a: type(a).__name__)
def test_clients_at_once_have_the_same_noise(algorithm):
    first = private(algorithm, ClientPrivacy(0.3, 0.2), **{**RAGGED, "save_clients": False})
    second = at_once(first, 2)
    for _ in range(3):
        first.step(), second.step()
    torch.testing.assert_close(second.server.w, first.server.w, rtol=1e-11, atol=1e-12)


def test_resuming_draws_the_noise_that_would_have_been_drawn():
    whole, first, second = (private(FedDyn(0.3), ClientPrivacy(0.3, 0.2)) for _ in range(3))
    for _ in range(4):
        whole.step()
    first.step(), first.step()
    second.restore(first.export())
    second.step(), second.step()
    assert torch.equal(second.server.w, whole.server.w)


# What is refused

GOOD = Settings(**PRIVATE)


class Twice(FedAvg):
    two_phases = True


class Pooled(FedAvg):
    pooled = True


@pytest.mark.parametrize(
    ("changes", "algorithm", "told"),
    [
        ({"sampling": "exact"}, FedAvg(), "--sampling bernoulli: ε is counted for clients that come by chance"),
        ({"weighting": "samples"}, FedAvg(), "--weighting uniform: by samples, a client counts for its size"),
        ({"aggregation": "ratio"}, FedAvg(), "--aggregation unbiased: a ratio divides by how many clients came"),
        ({"evaluated_model": "sampled-mean"}, FedAvg(), "--evaluated-model server: local models"),
        ({"evaluated_model": "all-clients-mean"}, FedAvg(), "--evaluated-model server: local models"),
        ({"save_clients": True}, FedAvg(), "a run without --save-clients"),
        ({}, Twice(), "one upload a round: the clients of Twice send twice"),
        ({}, Pooled(), "several clients: Pooled has a single one"),
    ],
)
def test_what_would_tell_more_is_refused_before_anything_is_written(changes, algorithm: Algorithm, told, tmp_path):
    settings = Settings(**{**PRIVATE, **changes})
    with pytest.raises(FedscapeError, match=f"^--dp needs {told}"):
        train(algorithm, settings, Parts(dp=ClientPrivacy(1.0)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    require_private(ClientPrivacy(0.0), algorithm, settings)  # clipping alone promises nothing
    require_private(None, algorithm, settings)


def test_running_statistics_are_refused():
    with pytest.raises(FedscapeError, match="a model without BatchNorm"):
        with_batchnorm(FedAvg(), Parts(dp=ClientPrivacy(1.0)), **PRIVATE)


def test_a_missing_accountant_is_told_with_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(FedscapeError, match=r"pip install 'fedscape\[privacy\]'"):
        require_private(ClientPrivacy(1.0), FedAvg(), GOOD)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: ClientPrivacy(-1.0),
        lambda: ClientPrivacy(math.inf),
        lambda: ClientPrivacy(math.nan),
        lambda: ClientPrivacy(1.0, 0.0),
        lambda: ClientPrivacy(1.0, math.inf),
        lambda: ClientPrivacy(1.0, math.nan),
        lambda: ClientPrivacy(1.0, 1.0, 0.0),
        lambda: ClientPrivacy(1.0, 1.0, 1.0),
    ],
)
def test_numbers_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="ClientPrivacy needs"):
        bad()


# A run

LINE = "fedsam --rho 0.05 --dp 1 --dp-clip 0.5 --dp-delta 1e-4 --sampling bernoulli --weighting uniform "
LINE += "--aggregation unbiased --local-steps 1 --quiet --save-every 0 --out"


def test_a_run_prints_and_records_what_it_guarantees(tmp_path, capsys):
    def command(*more):
        assert run(lambda: main([*LINE.split(), str(tmp_path / "run"), *more])) == 0
        return capsys.readouterr().out

    told = command("--rounds", "2")
    expected = [ClientPrivacy(1.0, delta=1e-4).epsilon(rounds, 0.25) for rounds in (1, 2, 3)]
    assert f"after 2 rounds: ε = {expected[1]:.4g} at δ = 0.0001 (noise 1, clipping norm 0.5" in told
    told = command("--rounds", "3", "--resume")
    assert f"after 3 rounds: ε = {expected[2]:.4g}" in told
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["dp_epsilon"] for record in records] == expected
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["privacy"] == {
        "epsilon": expected[2], "noise": 1.0, "clip": 0.5, "delta": 1e-4, "rounds": 3, "participation": 0.25,
        "unit": "client",
    }  # fmt: skip
    table = report(read_runs([tmp_path / "run"]))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["ε"], row["δ"], row["algorithm"]) == (expected[2], 1e-4, "fedsam + clientprivacy")
    parts = json.loads((tmp_path / "run" / "config.json").read_text())["parts"]
    assert parts == {"dp": {"name": "clientprivacy", "noise": 1.0, "clip": 0.5, "delta": 1e-4}}


def test_clipping_alone_says_that_nothing_is_guaranteed(tmp_path, capsys):
    line = "fedavg --dp 0 --dp-clip inf --rounds 1 --local-steps 1 --quiet --out"
    assert run(lambda: main([*line.split(), str(tmp_path / "run")])) == 0
    assert "without noise: no differential privacy" in capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["privacy"]["epsilon"] is None
    assert result["privacy"]["clip"] is None
