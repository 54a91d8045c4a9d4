"""FedGAMMA, FedLESAM, FedGloSS, FedRobust and centralised training against their pseudo-code, and their identities."""

import numpy as np
import pytest
import torch
from torch import nn

from landscape import FedscapeError, Partition, Samples
from landscape.autograd.flat import FlatModule
from landscape.compute.randomness import torch_generator
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import EPOCHS, by_samples, equally, mean
from tests.trainers.algorithms.test_against_pseudo_code import ROUNDS, relative_error
from tests.trainers.algorithms.test_contract import test_stacked_clients_advance_as_they_would_alone as advances_stacked
from tests.trainers.algorithms.test_identities import after
from tests.trainers.federations import SETTINGS, SIZES, federation, net, partition, samples
from trainers import FedAvg, FedSAM, Round, Scaffold, Settings, State
from trainers.algorithms.centralised import Centralised
from trainers.algorithms.feddyn import FedDyn
from trainers.algorithms.fedgamma import FedGAMMA
from trainers.algorithms.fedgloss import FedGloSS
from trainers.algorithms.fedlesam import FedLESAM
from trainers.algorithms.fedrobust import FedRobust
from trainers.federation.batches import batch_indices
from trainers.federation.execution import SequentialExecutor
from trainers.federation.federation import Federation
from trainers.federation.local import LocalWork

TOLERANCE = 1e-11
EVERY = [
    FedGAMMA(0.4),
    FedLESAM(0.4),
    FedLESAM(0.4, "scaffold"),
    FedLESAM(0.4, "feddyn"),
    FedGloSS(0.3, 0.2, 4.0),
    FedGloSS(0.3, 0.2, 4.0, warmup=3),
    FedRobust(),
    FedRobust(structure="channel"),
    Centralised(),
]


# --- the papers' pseudo-code, in plain loops over clients and lists of tensors ---


def zeros(w):
    return [torch.zeros_like(t) for t in w]


def add(a, b, scale=1.0):
    return [x + scale * y for x, y in zip(a, b, strict=True)]


def length(a):
    return torch.sqrt(sum((t**2).sum() for t in a))


def batches(i, size, number):
    """The rows of client ``i``'s mini-batches in a round, in order."""
    return batch_indices(SIZES[i], size, EPOCHS, torch_generator(SETTINGS["seed"], "batches", number, i))


class NaiveFedGAMMA:
    """Dai et al. 2023, Algorithm 1, with mini-batches: K_i is what client i takes."""

    def __init__(self, rho, server_lr=1.0, size=None):
        w = naive.Clients().start()
        self.rho, self.server_lr, self.size, self.number = rho, server_lr, size, 0
        self.c, self.ci = zeros(w), [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        self.number += 1
        x, y = clients.x, clients.y
        models, changes = [], []
        for i in sampled:
            wi, k = [t.clone() for t in w], 0
            for rows in batches(i, self.size, self.number):
                clients.x, clients.y = {i: x[i][rows]}, {i: y[i][rows]}
                g = clients.gradient(i, wi)
                up = clients.gradient(i, add(wi, g, self.rho / length(g)))
                wi, k = add(wi, add(add(up, self.ci[i], -1.0), self.c), -lr), k + 1
            clients.x, clients.y = x, y
            plus = add(add(self.ci[i], self.c, -1.0), add(w, wi, -1.0), 1 / (k * lr))
            models.append(wi)
            changes.append(add(plus, self.ci[i], -1.0))
            self.ci[i] = plus
        for change in changes:
            self.c = add(self.c, change, 1 / len(SIZES))
        return add(w, add(mean(models, equally(sampled)), w, -1.0), self.server_lr)


class NaiveFedLESAM:
    """Fan et al. 2024, Algorithm 1, and its forms on SCAFFOLD and FedDyn."""

    def __init__(self, rho, base="fedavg", alpha=0.1, first="initial"):
        w = naive.Clients().start()
        self.rho, self.base, self.alpha = rho, base, alpha
        self.old = [w if first == "initial" else None for _ in SIZES]
        self.c, self.ci = zeros(w), [zeros(w) for _ in SIZES]
        self.duals = [zeros(w) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models, controls = [], [list(c) for c in self.ci]
        for i in sampled:
            e = zeros(w)
            if self.old[i] is not None:
                difference = add(self.old[i], w, -1.0)
                if length(difference) > 0:
                    e = [self.rho * t / length(difference) for t in difference]
            wi = [t.clone() for t in w]
            for _ in range(EPOCHS):
                v = clients.gradient(i, add(wi, e))
                if self.base == "scaffold":
                    v = add(add(v, self.ci[i], -1.0), self.c)
                if self.base == "feddyn":
                    v = add(add(v, self.duals[i], -1.0), add(wi, w, -1.0), self.alpha)
                wi = add(wi, v, -lr)
            controls[i] = add(add(self.ci[i], self.c, -1.0), add(w, wi, -1.0), 1 / (EPOCHS * lr))
            self.duals[i] = add(self.duals[i], add(wi, w, -1.0), -self.alpha)
            self.old[i] = w
            models.append(wi)
        self.ci = controls
        self.c = mean(self.ci, [1.0] * len(SIZES))
        new = mean(models, equally(sampled))
        if self.base == "feddyn":
            new = add(new, mean(self.duals, [1.0] * len(SIZES)), -1 / self.alpha)
        return new


class NaiveFedGloSS:
    """Caldarola et al. 2025, Algorithm 1, by line; radii as the authors' server sets them."""

    def __init__(self, rho, rho_l, beta, warmup=0, rho0=0.001, rounds=ROUNDS):
        w = naive.Clients().start()
        self.beta, self.pseudo, self.t = beta, None, 0
        self.sigma, self.duals = zeros(w), [zeros(w) for _ in SIZES]
        self.radii, self.local_radii = [rho] * rounds, [rho_l] * rounds
        for t in range(warmup):
            self.radii[t] = rho0 + t * (rho - rho0) / warmup
            self.local_radii[t] = rho0 + t * (rho_l - rho0) / warmup

    def round(self, clients, w, sampled, lr):
        start = w
        if self.pseudo is not None:
            start = add(w, self.pseudo, self.radii[self.t] / length(self.pseudo))  # 4, 5
        models = []
        for i in sampled:
            wi = [t.clone() for t in start]  # 8
            for _ in range(EPOCHS):
                g = clients.gradient(i, wi)  # 12
                g = clients.gradient(i, add(wi, g, self.local_radii[self.t] / length(g)))  # 13, 14
                wi = add(wi, add(add(g, self.duals[i], -1.0), add(wi, start, -1.0), 1 / self.beta), -lr)  # 15
            self.duals[i] = add(self.duals[i], add(wi, start, -1.0), -1 / self.beta)  # 19
            models.append(wi)
        for wi in models:
            self.sigma = add(self.sigma, add(wi, start, -1.0), -1 / (self.beta * len(SIZES)))  # 22
        self.pseudo = add(start, mean(models, by_samples(sampled)), -1.0)  # 23
        self.t += 1
        return add(add(w, self.pseudo, -1.0), self.sigma, -self.beta)  # 24


class NaiveFedRobust:
    """Reisizadeh et al. 2020, Algorithm 1, on whole matrices; ``groups`` are the numbers that move together."""

    def __init__(self, lam, ascent_lr, groups=None, ascents=True):
        self.lam, self.ascent_lr, self.groups = lam, ascent_lr, groups
        self.matrices = [torch.eye(6, dtype=torch.float64) for _ in SIZES]
        self.shifts = [torch.zeros(6, dtype=torch.float64) for _ in SIZES]

    def round(self, clients, w, sampled, lr):
        models = []
        for i in sampled:
            wi = [t.clone() for t in w]
            for _ in range(EPOCHS):
                slopes, by_matrix, by_shift = self.slopes(clients, i, wi)
                wi = add(wi, slopes, -lr)
                self.matrices[i] = self.matrices[i] + self.ascent_lr * by_matrix
                self.shifts[i] = self.shifts[i] + self.ascent_lr * by_shift
            models.append(wi)
        return mean(models, equally(sampled))

    def slopes(self, clients, i, w):
        parameters = list(clients.model.parameters())
        for p, value in zip(parameters, w, strict=True):
            p.data.copy_(value)
        matrix, shift = self.matrices[i].clone().requires_grad_(), self.shifts[i].clone().requires_grad_()
        moved = torch.stack([matrix @ x.reshape(-1) + shift for x in clients.x[i]])
        loss = nn.functional.cross_entropy(clients.model(moved), clients.y[i])
        objective = loss - self.lam * (((matrix - torch.eye(6)) ** 2).sum() + (shift**2).sum())
        *slopes, by_matrix, by_shift = torch.autograd.grad(objective, [*parameters, matrix, shift])
        if self.groups is not None:
            kept = torch.zeros_like(by_matrix)
            for group in self.groups:
                kept[group, group] = by_matrix.diagonal()[group].mean()
                by_shift[group] = by_shift[group].mean()
            by_matrix = kept
        return slopes, by_matrix, by_shift


# --- each algorithm against it ---


@pytest.mark.parametrize("server_lr", [1.0, 0.8])
def test_fedgamma_is_scaffold_on_the_sam_gradient(server_lr):
    reference = NaiveFedGAMMA(0.4, server_lr)
    assert relative_error(FedGAMMA(0.4, server_lr=server_lr), reference.round) < TOLERANCE


def test_fedgamma_divides_by_each_clients_own_number_of_steps():
    steps = {len(list(batches(i, 4, 1))) for i in range(len(SIZES))}
    assert len(steps) > 3, "clients must differ in K here"
    assert relative_error(FedGAMMA(0.2), NaiveFedGAMMA(0.2, size=4).round, batch_size=4) < TOLERANCE


@pytest.mark.parametrize(("base", "alpha"), [("fedavg", 0.1), ("scaffold", 0.1), ("feddyn", 0.1), ("feddyn", 0.4)])
def test_fedlesam_looks_back_to_the_model_the_client_received_last(base, alpha):
    assert relative_error(FedLESAM(0.4, base, alpha), NaiveFedLESAM(0.4, base, alpha).round) < TOLERANCE


def test_fedlesam_takes_the_initial_model_for_received_by_all():
    no_perturbation = NaiveFedLESAM(0.4, first="nothing")
    assert relative_error(FedLESAM(0.4), no_perturbation.round) > 1e-4  # so who joins late is seen here
    torch.testing.assert_close(after(FedLESAM(0.4), 1), after(FedAvg(), 1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("radii", [(0.3, 0.2, 4.0), (0.3, 0.2, 15.0), (0.2, 0.0, 4.0), (0.0, 0.2, 4.0)])
def test_fedgloss_starts_clients_uphill_and_descends_from_where_it_stood(radii, weighting, monkeypatch):
    if weighting == "uniform":
        monkeypatch.setattr("tests.trainers.algorithms.test_pseudo_code_beyond.by_samples", equally)
    assert relative_error(FedGloSS(*radii), NaiveFedGloSS(*radii).round, weighting=weighting) < TOLERANCE


@pytest.mark.parametrize("warmup", [1, 3, 9])
def test_fedgloss_radii_grow_over_the_first_rounds(warmup):
    reference = NaiveFedGloSS(0.3, 0.2, 4.0, warmup, 0.01, rounds=ROUNDS + warmup)
    assert relative_error(FedGloSS(0.3, 0.2, 4.0, warmup, 0.01), reference.round) < TOLERANCE


def test_fedgloss_keeps_the_unperturbed_model_and_sends_the_perturbed_one():
    ours = federation(FedGloSS(0.3))
    ours.step()
    sent = ours.algorithm.broadcast(ours.server)
    assert sent.keys() == {"w"}
    assert (sent["w"] - ours.server.w).norm().item() == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize(("lam", "ascent_lr"), [(0.3, 0.5), (0.05, 1.0)])
def test_fedrobust_descends_and_ascends_from_the_same_point(lam, ascent_lr):
    assert relative_error(FedRobust(lam, ascent_lr), NaiveFedRobust(lam, ascent_lr).round) < TOLERANCE


def test_fedrobust_by_channel_is_diagonal_for_inputs_without_places():
    reference = NaiveFedRobust(0.3, 0.5, groups=[[j] for j in range(6)])
    assert relative_error(FedRobust(0.3, 0.5, "channel"), reference.round) < TOLERANCE


@pytest.mark.parametrize("structure", ["full", "channel"])
def test_fedrobust_on_images_by_channel_is_the_full_step_projected(structure):
    data, groups = samples(), [[0, 1, 2], [3, 4, 5]]
    images = Samples(data.inputs.reshape(-1, 2, 3, 1), data.targets)
    ours = federation(FedRobust(0.3, 0.5, structure))
    model = FlatModule(nn.Sequential(nn.Flatten(), *net()), torch.device("cpu"), torch.float64)
    ours.executor = SequentialExecutor(
        model, images, partition(), ours.algorithm, LocalWork(EPOCHS, None, 0.0, "none", SETTINGS["seed"])
    )
    reference, clients = NaiveFedRobust(0.3, 0.5, groups if structure == "channel" else None), naive.Clients()
    w = clients.start()
    for number in range(ROUNDS):
        record = ours.step()
        w = reference.round(clients, w, record.clients, SETTINGS["lr"] * SETTINGS["lr_decay"] ** number)
    flat = torch.cat([t.reshape(-1) for t in w])
    assert (ours.server.w - flat).norm() / flat.norm() < TOLERANCE
    for i in record.clients:
        kept, moved = ours.store.fetch(i), reference.matrices[i] - torch.eye(6)
        if structure == "channel":  # one number a channel -> the whole matrix and vector
            kept.tilt, kept.shift = (t.expand(2, 3, 1).reshape(-1) for t in (kept.tilt, kept.shift))
            kept.tilt = kept.tilt.diag()
        torch.testing.assert_close(kept.tilt, moved, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(kept.shift, reference.shifts[i], rtol=1e-10, atol=1e-12)
        assert moved.norm() > 1e-3


def test_fedrobust_keeps_matrices_of_clients_that_took_part_and_sends_none():
    ours = federation(FedRobust())
    record = ours.step()
    assert record.bytes_down == record.bytes_up == 3 * ours.server.w.nbytes
    assert set(ours.store.export()) == set(record.clients)
    assert {t.shape for t in ours.store.export()[record.clients[0]].values()} == {(6, 6), (6,)}


def test_fedrobust_follows_the_slopes_of_the_unperturbed_model():
    """With SAM the batch is seen twice: Λ and δ move by the first look, and w by the second."""

    class Robust(FedRobust):
        ascent = FedSAM(0.5).ascent

    plain, sharp = federation(FedRobust(), local_epochs=1), federation(Robust(), local_epochs=1)
    client = plain.step().clients[0]
    sharp.step()
    assert (plain.server.w - sharp.server.w).norm() > 1e-4
    assert torch.equal(plain.store.fetch(client).tilt, sharp.store.fetch(client).tilt)


def pooled(algorithm, size, lr=0.1):
    """A federation of one client with all data, as the run makes it of ``pooled`` algorithms."""
    settings = Settings(
        clients=1, per_round=1, lr=lr, local_epochs=2, batch_size=size or "full", weight_decay=0.01, seed=4
    )
    model = FlatModule(net(), torch.device("cpu"), torch.float64)
    everything = Partition((np.arange(sum(SIZES)),))
    local = LocalWork(2, size, 0.01, "none", 4)
    return Federation(
        algorithm, SequentialExecutor(model, samples(), everything, algorithm, local), settings, model.buffer.clone()
    )


@pytest.mark.parametrize("size", [None, 10])
def test_centralised_is_ordinary_sgd_on_all_data(size):
    assert Centralised.pooled
    ours, model, data = pooled(Centralised(), size), net(), samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    for number in range(1, 4):
        ours.step()
        for rows in batch_indices(len(data), size, 2, torch_generator(4, "batches", number, 0)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.inputs[rows]), data.targets[rows]).backward()
            optimizer.step()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    torch.testing.assert_close(ours.server.w, flat, rtol=1e-12, atol=1e-14)


# --- identities ---


def same(one, other, rounds=4, **changes):
    torch.testing.assert_close(after(one, rounds, **changes), after(other, rounds, **changes), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("special", "base"),
    [
        (FedGAMMA(0.0, server_lr=0.8), Scaffold(0.8)),
        (FedLESAM(0.0), FedAvg()),
        (FedLESAM(0.0, "scaffold"), Scaffold()),
        (FedLESAM(0.0, "feddyn", 0.3), FedDyn(0.3)),
        (FedGloSS(0.0, 0.0, 4.0), FedDyn(0.25)),
        (FedRobust(ascent_lr=0.0), FedAvg()),
        (FedRobust(ascent_lr=0.0, structure="channel"), FedAvg()),
        (Centralised(), FedAvg()),
    ],
    ids=lambda a: type(a).__name__,
)
@pytest.mark.parametrize("size", ["full", 4])
def test_is_its_base_when_its_own_part_is_off(special, base, size):
    same(special, base, batch_size=size)


@pytest.mark.parametrize(
    ("active", "base"),
    [
        (FedGAMMA(0.4), Scaffold()),
        (FedLESAM(0.4), FedAvg()),
        (FedLESAM(0.4, "scaffold"), Scaffold()),
        (FedLESAM(0.4, "feddyn"), FedDyn(0.1)),
        (FedGloSS(0.3, 0.0, 4.0), FedDyn(0.25)),
        (FedGloSS(0.0, 0.3, 4.0), FedDyn(0.25)),
        (FedGloSS(0.3, 0.3, 4.0), FedGloSS(0.3, 0.3, 4.0, warmup=2)),
        (FedRobust(), FedAvg()),
        (FedRobust(structure="channel"), FedAvg()),
        (FedRobust(), FedRobust(structure="channel")),
    ],
    ids=lambda a: type(a).__name__,
)
def test_is_not_its_base_when_its_own_part_is_on(active, base):
    assert (after(active) - after(base)).norm() > 1e-5


def test_fedgamma_is_fedsam_in_its_first_round_only():
    same(FedGAMMA(0.4), FedSAM(0.4), 1)
    assert (after(FedGAMMA(0.4), 6) - after(FedSAM(0.4), 6)).norm() > 1e-4


def test_fedgloss_without_its_servers_ascent_is_feddyn_on_the_sam_gradient():
    class FedDynSAM(FedDyn):
        ascent = FedSAM(0.3).ascent

    same(FedGloSS(0.0, 0.3, 4.0), FedDynSAM(0.25))
    same(FedGloSS(0.5, 0.3, 4.0), FedDynSAM(0.25), 1)  # its first round has no pseudo-gradient


# --- the contract ---


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_stacked_clients_advance_as_they_would_alone(algorithm):
    advances_stacked(algorithm)


@pytest.mark.parametrize("structure", ["full", "channel"])
def test_fedrobust_ascends_stacked_clients_as_it_would_alone(structure):
    algorithm, draw = FedRobust(0.3, 0.5, structure), torch.Generator().manual_seed(0)
    shape = {"full": ((6, 6), (6,)), "channel": ((2, 1, 1), (2, 1, 1))}[structure]

    def drawn():
        return [torch.randn(4, *s, generator=draw, dtype=torch.float64) for s in shape]

    (tilt, shift), (by_tilt, by_shift) = drawn(), drawn()
    places = torch.full_like(shift, 3.0)
    together = State(tilt=tilt, shift=shift, places=places)
    algorithm.ascend(State(tilt=by_tilt, shift=by_shift), together, Round(1, 0.1, 1.0))
    for i in range(4):
        alone = State(tilt=tilt[i], shift=shift[i], places=places[i])
        algorithm.ascend(State(tilt=by_tilt[i], shift=by_shift[i]), alone, Round(1, 0.1, 1.0))
        assert torch.equal(together.tilt[i], alone.tilt)
        assert torch.equal(together.shift[i], alone.shift)


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_traffic_is_what_the_docstring_says(algorithm):
    ours = federation(algorithm)
    record = ours.step()
    models = 0 if algorithm.pooled else 2 if "c" in algorithm.server_state(ours.server.w) else 1
    assert (record.bytes_down, record.bytes_up) == (3 * models * ours.server.w.nbytes,) * 2
    assert "Traffic" in type(algorithm).__doc__


@pytest.mark.parametrize("algorithm", EVERY, ids=repr)
def test_resuming_changes_nothing(algorithm):
    whole, first, second = federation(algorithm), federation(algorithm), federation(algorithm)
    for _ in range(4):
        whole.step()
    first.step()
    first.step()
    second.restore(first.export())
    second.step()
    second.step()
    assert torch.equal(second.server.w, whole.server.w)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: FedGAMMA(-0.1),
        lambda: FedGAMMA(0.1, server_lr=0.0),
        lambda: FedLESAM(-0.1),
        lambda: FedLESAM(0.1, "fedprox"),
        lambda: FedLESAM(0.1, "feddyn", 0.0),
        lambda: FedGloSS(rho=-0.1),
        lambda: FedGloSS(rho_l=-0.1),
        lambda: FedGloSS(beta=0.0),
        lambda: FedGloSS(warmup=-1),
        lambda: FedGloSS(rho0=-0.1),
        lambda: FedRobust(-0.1),
        lambda: FedRobust(0.1, -0.1),
        lambda: FedRobust(2.0, 0.6),
        lambda: FedRobust(structure="rows"),
    ],
)
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="needs"):
        bad()


def test_fedrobust_refuses_matrices_too_large_and_inputs_that_are_no_numbers():
    class Wide:
        input_shape = (3, 224, 224)

    client = State(tilt=torch.zeros(0), shift=torch.zeros(0))
    with pytest.raises(FedscapeError, match=r"150528 numbers .* --structure channel"):
        FedRobust().prepare(client, State(w=torch.zeros(2)), Wide(), Round(1, 0.1, 1.0))
    FedRobust(structure="channel").prepare(client, State(w=torch.zeros(2)), Wide(), Round(1, 0.1, 1.0))
    assert client.tilt.shape == (3, 1, 1)
    with pytest.raises(FedscapeError, match="token ids"):
        FedRobust().perturb(torch.zeros(2, 3, dtype=torch.long), client)
