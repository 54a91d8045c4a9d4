"""What is kept of perturbations with local models: the ε of each algorithm's pseudo-code, whatever computes it.

The pseudo-code is written out here: plain loops over clients and lists of tensors, each with the ε of its last step.
"""

import pytest
import torch

from landscape import Checkpoint
from tests.trainers.algorithms.naive import EPOCHS, Clients, add, batches, length, zeros
from tests.trainers.federation.test_batched import at_once
from tests.trainers.federations import SETTINGS, SIZES, federation
from trainers import (
    GSAM,
    LESAM,
    SAM,
    Algorithm,
    FedASAM,
    FedAvg,
    FedGF,
    FedGloSS,
    FedInit,
    FedLESAM,
    FedNSAM,
    FedSAM,
    FedSMOO,
    FedSpeed,
    FedWMSAM,
    Mime,
    Parts,
    Relaxed,
    Scaffold,
    Settings,
    train,
)

ROUNDS, RHO = 3, 0.2


def scaled(t, factor):
    return [factor * x for x in t]


def toward(t, radius):
    """Of this length along t; 0 where t is 0."""
    return scaled(t, radius / length(t)) if length(t) > 0 else zeros(t)


class Naive:
    """FedAvg whose clients descend along the gradient at w + ε; a subclass says which ε."""

    def __init__(self):
        self.clients = Clients()
        self.w = self.clients.start()
        self.received, self.uphill = self.w, None

    def up(self, i, w, g, k):
        raise NotImplementedError

    def begin(self):
        """What the clients receive."""
        return self.w

    def end(self, sampled, models):
        self.w = self.clients.mean(models, sampled)

    def drag(self, i, w):
        """What is added to the gradient."""
        return zeros(w)

    def kept(self, i, w):
        """What a client does after its last step."""

    def round(self, sampled, lr):
        self.received = self.begin()
        models, used = [], {}
        for i in sampled:
            w = [t.clone() for t in self.received]
            for k in range(EPOCHS):
                e = self.up(i, w, self.clients.gradient(i, w), k)
                w = add(w, add(self.clients.gradient(i, add(w, e)), self.drag(i, w)), -lr)
            self.kept(i, w)
            models.append(w)
            used[i] = e
        self.end(sampled, models)
        return used


class NaiveFedSAM(Naive):
    """Qu et al. 2022, Algorithm 1."""

    def up(self, i, w, g, k):
        return toward(g, RHO)


class NaiveFedASAM(Naive):
    """Kwon et al. 2021, Algorithm 1: T is 1 on biases."""

    def up(self, i, w, g, k):
        t = [
            torch.ones_like(a) if name.endswith("bias") else a.abs() + 0.1
            for name, a in zip(self.clients.names, w, strict=True)
        ]
        scaled_g = [a * b for a, b in zip(t, g, strict=True)]
        return [RHO * a * b / length(scaled_g) for a, b in zip(t, scaled_g, strict=True)]


class NaiveFedLESAM(Naive):
    """Fan et al. 2024, Algorithm 1."""

    def __init__(self):
        super().__init__()
        self.old = [self.w for _ in SIZES]

    def up(self, i, w, g, k):
        return toward(add(self.old[i], self.received, -1.0), RHO)

    def kept(self, i, w):
        self.old[i] = self.received


class NaiveFedSMOO(Naive):
    """Sun et al. 2023, Algorithm 1, by line."""

    beta = 5.0

    def __init__(self):
        super().__init__()
        self.s, self.mu, self.dual = zeros(self.w), [zeros(self.w) for _ in SIZES], [zeros(self.w) for _ in SIZES]
        self.told = {}

    def begin(self):
        self.uphill = self.s
        return self.w

    def up(self, i, w, g, k):
        climb = toward(add(add(g, self.mu[i], -1.0), self.s, -1.0), RHO)  # 8, 9
        self.mu[i] = add(add(self.mu[i], climb), self.s, -1.0)  # 10
        self.told[i] = add(self.mu[i], climb, -1.0)  # 13
        return climb

    def drag(self, i, w):
        return add(scaled(self.dual[i], -1.0), add(w, self.received, -1.0), 1 / self.beta)

    def kept(self, i, w):
        self.dual[i] = add(self.dual[i], add(w, self.received, -1.0), -1 / self.beta)

    def end(self, sampled, models):
        self.s = toward(self.clients.mean([self.told[i] for i in sampled], sampled), RHO)  # 17
        self.w = add(self.clients.mean(models, sampled), self.clients.over_all(self.dual), -self.beta)


class NaiveFedGloSS(Naive):
    """Caldarola et al. 2025, Algorithm 1: the server's radius is 0.3."""

    beta = 5.0

    def __init__(self):
        super().__init__()
        self.pseudo, self.sigma = zeros(self.w), [zeros(self.w) for _ in SIZES]

    def begin(self):
        self.uphill = toward(self.pseudo, 0.3)
        return add(self.w, self.uphill)

    def up(self, i, w, g, k):
        return toward(g, RHO)

    def drag(self, i, w):
        return add(scaled(self.sigma[i], -1.0), add(w, self.received, -1.0), 1 / self.beta)

    def kept(self, i, w):
        self.sigma[i] = add(self.sigma[i], add(w, self.received, -1.0), -1 / self.beta)

    def end(self, sampled, models):
        self.pseudo = add(self.received, self.clients.mean(models, sampled), -1.0)  # 23
        self.w = add(add(self.w, self.pseudo, -1.0), self.clients.over_all(self.sigma), -self.beta)


class NaiveFedSpeed(Naive):
    """Sun et al. 2023, Algorithm 1, lines 6 to 13: the ascent step is ρ times the gradient itself; α = 1."""

    lam = 10.0

    def __init__(self):
        super().__init__()
        self.dual, self.told = [zeros(self.w) for _ in SIZES], {}

    def up(self, i, w, g, k):
        return scaled(g, RHO)

    def drag(self, i, w):
        return add(scaled(self.dual[i], -1.0), add(w, self.received, -1.0), 1 / self.lam)

    def kept(self, i, w):
        self.dual[i] = add(self.dual[i], add(w, self.received, -1.0), -1 / self.lam)
        self.told[i] = add(w, self.dual[i], -self.lam)

    def end(self, sampled, models):
        self.w = self.clients.mean([self.told[i] for i in sampled], sampled)


class NaiveFedWMSAM(Naive):
    """Li et al. 2025, Algorithm 1, its first round: the clients' perturbations go back to where they began."""

    def up(self, i, w, g, k):
        return toward(add(self.received, w, -1.0), RHO)

    def round(self, sampled, lr):
        """Steps along α g, as the momentum is 0."""
        return super().round(sampled, 0.1 * lr)


class NaiveFedGF(Naive):
    """Lee and Yoon 2024, as their code: every round counts as one of drift, so that c is 1 from the second on."""

    def __init__(self):
        super().__init__()
        self.c, self.perturbed = 0.0, self.w

    def begin(self):
        self.uphill = add(self.perturbed, self.w, -1.0)
        return self.w

    def up(self, i, w, g, k):
        own = add(w, toward(g, RHO))
        return add(add(scaled(own, 1 - self.c), self.perturbed, self.c), w, -1.0)

    def end(self, sampled, models):
        super().end(sampled, models)
        self.c, self.perturbed = 1.0, add(self.w, toward(add(self.received, self.w, -1.0), 0.3))


def flat(t):
    return torch.cat([x.reshape(-1) for x in t])


def same(found, wanted):
    torch.testing.assert_close(found, flat(wanted), rtol=1e-9, atol=1e-11)


REPLAYED = {
    "fedsam": (FedSAM(rho=RHO), NaiveFedSAM),
    "fedasam": (FedASAM(rho=RHO, eta=0.1), NaiveFedASAM),
    "fedsmoo": (FedSMOO(r=RHO, beta=5.0), NaiveFedSMOO),
    "fedlesam": (FedLESAM(rho=RHO), NaiveFedLESAM),
    "fedgloss": (FedGloSS(rho=0.3, rho_l=RHO, beta=5.0), NaiveFedGloSS),
    "fedgf": (FedGF(rho=RHO, rho_g=0.3, t_d=0.0), NaiveFedGF),
    "fedspeed": (FedSpeed(rho=RHO, server_correction="sampled"), NaiveFedSpeed),
    "fedwmsam": (FedWMSAM(rho=RHO), NaiveFedWMSAM),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_the_perturbation_that_is_kept_is_that_of_the_pseudo_code(name):
    algorithm, kind = REPLAYED[name]
    ours, naive = federation(algorithm, save_clients=True), kind()
    lengths = []
    for number in range(1 if name == "fedwmsam" else ROUNDS):
        sampled, before = ours.step().clients, naive.w
        used = naive.round(sampled, SETTINGS["lr"] * SETTINGS["lr_decay"] ** number)
        work = ours.client_work
        same(work.received, naive.received)
        same(work.before, before)
        assert sorted(work.perturbations) == sampled
        assert work.starts == {}
        for client in sampled:
            same(work.perturbations[client], used[client])
            lengths.append(float(length(used[client])))
        if naive.uphill is None:
            assert work.server_perturbation is None
        else:
            same(work.server_perturbation, naive.uphill)
    assert max(lengths) > RHO / 2, "perturbations of 0 would prove nothing"
    assert (name == "fedgloss") == (work.server_model is not None)


def test_with_mini_batches_it_is_the_last_ones_step():
    ours, naive = federation(FedSAM(rho=RHO), save_clients=True, batch_size=4), Clients()
    w0 = naive.start()
    for i in ours.step().clients:
        w, x, y = w0, naive.x[i], naive.y[i]
        for rows in batches(i, 4, 1):
            naive.x[i], naive.y[i] = x[rows], y[rows]
            e = toward(naive.gradient(i, w), RHO)
            w = add(w, naive.gradient(i, add(w, e)), -SETTINGS["lr"])
        same(ours.client_work.perturbations[i], e)


@pytest.mark.parametrize("algorithm", [FedAvg(), Scaffold(), Mime()])
def test_algorithms_without_an_ascent_step_have_none(algorithm):
    ours = federation(algorithm, save_clients=True)
    ours.step()
    assert ours.client_work.perturbations == {}
    assert ours.client_work.server_perturbation is None
    assert sorted(ours.local_models) != []


def test_of_two_points_that_an_algorithm_asks_about_the_first_counts():
    """Mime asks an ascent part about w and about the server's model: the way from one to the other is no ascent."""
    ours = federation(Mime(), Parts(ascent=SAM(RHO)), save_clients=True)
    ours.step()
    assert [float(e.norm()) for e in ours.client_work.perturbations.values()] == pytest.approx([RHO] * 3)


def test_it_is_nothing_without_the_setting():
    ours = federation(FedSAM())
    ours.step()
    assert ours.client_work is None


@pytest.mark.parametrize("way", [lambda made: made, at_once])
def test_clients_that_begin_elsewhere_have_their_starts_kept(way):
    ours = way(federation(FedInit(beta=0.5), Parts(ascent=LESAM(RHO)), save_clients=True, per_round=7))
    ends = dict.fromkeys(range(7), ours.server.w)
    for _ in range(2):
        before = ours.server.w
        ours.step()
        assert torch.equal(ours.client_work.received, before)
        for i in range(7):
            torch.testing.assert_close(ours.client_work.starts[i], before + 0.5 * (before - ends[i]))
        ends = ours.local_models
    assert not torch.equal(ours.client_work.starts[0], before)


def test_what_looks_ahead_is_received_and_the_servers_model_kept_beside_it():
    ours = federation(FedNSAM(gamma=0.5, rho=RHO), save_clients=True)
    ours.step()
    first, moved = ours.client_work, ours.optimizer_state["m"]
    assert first.server_model is None
    before = ours.server.w
    ours.step()
    torch.testing.assert_close(ours.client_work.received, before + 0.5 * moved)
    assert torch.equal(ours.client_work.before, before)
    assert ours.client_work.server_perturbation is None


class TwiceAsFar(Algorithm):
    """One of a user's own that perturbs by itself."""

    paper = "none"
    perturbs = True

    def direction(self, w, gradient, client, server, round):
        return gradient(w + 0.5 * gradient(w))


def test_an_algorithm_of_ones_own_says_that_it_perturbs():
    ours, naive = federation(TwiceAsFar(), save_clients=True, local_epochs=1), Clients()
    for i in ours.step().clients:
        same(ours.client_work.perturbations[i], scaled(naive.gradient(i, naive.start()), 0.5))


SHORT = {"clients": 6, "per_round": 3, "rounds": 2, "local_steps": 2, "save_every": 1, "device": "cpu", "eval_every": 0}


def test_keeping_them_changes_no_bit_of_the_run(tmp_path):
    algorithm = FedGloSS()
    runs = [train(algorithm, Settings(**SHORT, save_clients=keep), out=tmp_path / str(keep)) for keep in (True, False)]
    states = [torch.load(run.path / "state.pt", weights_only=True) for run in runs]
    for name, tensor in states[0]["server"].items():
        assert torch.equal(tensor, states[1]["server"][name]), name
    for i, kept in states[0]["clients"].items():
        assert all(torch.equal(kept[name], states[1]["clients"][i][name]) for name in kept)
    kept, plain = (Checkpoint.load(run.checkpoint) for run in runs)
    assert kept.digest() == plain.digest()
    assert plain.work is None
    assert sorted(kept.work.perturbations) == sorted(kept.clients)


@pytest.mark.parametrize("name", ["batched", pytest.param("sequential", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_goes_on_to_the_same_file(name, tmp_path):
    algorithm, parts = FedAvg(), Parts(ascent=GSAM(0.1), start=Relaxed(0.3))
    settings = Settings(**{**SHORT, "executor": name}, save_clients=True)
    whole = train(algorithm, settings, parts, out=tmp_path / "whole")
    train(algorithm, Settings(**{**SHORT, "executor": name, "rounds": 1}, save_clients=True), parts, out=tmp_path / "b")
    again = train(algorithm, settings, parts, out=tmp_path / "b", resume=True)
    files = [torch.load(run.checkpoint, weights_only=True)["work"] for run in (whole, again)]
    assert sorted(files[0]) == ["perturbations", "received", "starts"]
    assert torch.equal(files[0]["received"], files[1]["received"])
    for group in ("starts", "perturbations"):
        assert files[0][group].keys() == files[1][group].keys()
        assert all(torch.equal(files[0][group][i], files[1][group][i]) for i in files[0][group])


def test_divergence_right_after_a_resumption_leaves_the_local_models_of_the_last_good_round(tmp_path):
    """``state.pt`` has none, so that only ``ckpt.pt`` as it lies there does."""
    short = {**SHORT, "lr": 1e6, "executor": "sequential", "save_clients": True}
    before = train(FedSAM(), Settings(**{**short, "rounds": 1}), out=tmp_path)
    assert before.status == "finished"
    kept = before.checkpoint.read_bytes()
    again = train(FedSAM(), Settings(**{**short, "rounds": 3}), out=tmp_path, resume=True)
    assert (again.status, len(again.metrics)) == ("diverged", 1)
    assert again.checkpoint.read_bytes() == kept
    assert Checkpoint.load(again.checkpoint).work is not None
