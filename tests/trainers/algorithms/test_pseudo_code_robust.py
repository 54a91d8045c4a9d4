"""FedRobust against its pseudo-code written out naively, on whole matrices."""

import pytest
import torch
from torch import nn

from landscape import FedscapeError, Samples
from landscape.autograd.flat import FlatModule
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import EPOCHS, add
from tests.trainers.algorithms.test_against_pseudo_code import ROUNDS, relative_error
from tests.trainers.federations import SETTINGS, SIZES, federation, net, partition, samples
from trainers import SAM, Affine, FedAvg, Parts, Scaffold, State
from trainers.algorithms.combinations import FedRobust
from trainers.federation.execution import SequentialExecutor
from trainers.federation.local import LocalWork

TOLERANCE = 1e-11


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
        return clients.mean(models, sampled)

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

    plain = federation(FedRobust(), local_epochs=1)
    sharp = federation(FedRobust(), Parts(ascent=SAM(0.5)), local_epochs=1)
    client = plain.step().clients[0]
    sharp.step()
    assert (plain.server.w - sharp.server.w).norm() > 1e-4
    assert torch.equal(plain.store.fetch(client).tilt, sharp.store.fetch(client).tilt)


@pytest.mark.parametrize("structure", ["full", "channel"])
def test_an_adversary_ascends_stacked_clients_as_it_would_alone(structure):
    adversary, draw = Affine(0.3, 0.5, structure), torch.Generator().manual_seed(0)
    shape = {"full": ((6, 6), (6,)), "channel": ((2, 1, 1), (2, 1, 1))}[structure]

    def drawn():
        return [torch.randn(4, *s, generator=draw, dtype=torch.float64) for s in shape]

    (tilt, shift), (by_tilt, by_shift) = drawn(), drawn()
    places = torch.full_like(shift, 3.0)
    together = State(tilt=tilt, shift=shift, places=places)
    adversary.ascend(State(tilt=by_tilt, shift=by_shift), together)
    for i in range(4):
        alone = State(tilt=tilt[i], shift=shift[i], places=places[i])
        adversary.ascend(State(tilt=by_tilt[i], shift=by_shift[i]), alone)
        assert torch.equal(together.tilt[i], alone.tilt)
        assert torch.equal(together.shift[i], alone.shift)


def test_an_adversary_refuses_matrices_too_large_and_inputs_that_are_no_numbers():
    wide, client = (3, 224, 224), State(tilt=torch.zeros(0), shift=torch.zeros(0))
    with pytest.raises(FedscapeError, match=r"150528 numbers .* the structure channel"):
        Affine().begin(client, wide)
    Affine(structure="channel").begin(client, wide)
    assert client.tilt.shape == (3, 1, 1)
    with pytest.raises(FedscapeError, match="token ids"):
        Affine().move(torch.zeros(2, 3, dtype=torch.long), client)


@pytest.mark.parametrize("structure", ["full", "channel"])
def test_fedrobust_is_fedavg_with_the_adversary(structure):
    for server_lr in (1.0, 0.7):
        named = federation(FedRobust(0.3, 0.5, structure, server_lr), weighting="uniform")
        parts = federation(FedAvg(server_lr), Parts(adversary=Affine(0.3, 0.5, structure)), weighting="uniform")
        for _ in range(3):
            client = named.step().clients[0]
            parts.step()
        assert torch.equal(named.server.w, parts.server.w)
        assert torch.equal(named.store.fetch(client).tilt, parts.store.fetch(client).tilt)


def test_the_adversary_goes_with_any_base():
    plain, moved = (federation(Scaffold(), Parts(adversary=part)) for part in (None, Affine(0.3, 0.5)))
    for _ in range(3):
        plain.step()
        client = moved.step().clients[0]
    assert (plain.server.w - moved.server.w).norm() > 1e-3
    assert moved.store.fetch(client).tensors().keys() == {"c", "tilt", "shift"}
