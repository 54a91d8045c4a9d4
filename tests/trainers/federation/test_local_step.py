"""One local step's order: gradient, ascent, correction, clipping, weight decay; and how many steps at which rate."""

from typing import ClassVar

import pytest
import torch
from torch import nn

from landscape import FedscapeError, Landscape, ParameterSpace
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SIZES, federation, net, partition, samples
from trainers import ASAM, SAM, FedAvg, FedProx, FedSAM, Round, Scaffold, Settings, State
from trainers.federation.batches import batch_indices
from trainers.federation.local import clipped, local_step
from trainers.parts.parts import Parts

MU, DECAY, RATE = 0.8, 0.2, 0.3
STARTS = [int(indices[0]) for indices in partition().clients]


def results_of(ours):
    """A round's results by client."""
    found, work = {}, ours.executor.work

    def watched(*arguments):
        for result in work(*arguments):
            found[result.client] = result
            yield result

    ours.executor.work = watched
    ours.step()
    return found


def start():
    return torch.cat([p.detach().reshape(-1) for p in net().parameters()])


def gradients_of(rows):
    """w -> the gradient on these samples, by autograd on a functional call, [d] -> [d]."""
    space, model, data = ParameterSpace.of(net()), net(), samples()

    def gradient(w):
        w = w.clone().requires_grad_()
        outputs = torch.func.functional_call(model, space.unflatten(w), (data.inputs[rows],))
        return torch.autograd.grad(nn.functional.cross_entropy(outputs, data.targets[rows]), w)[0]

    return gradient


def shortened(v, largest):
    norm = sum(float(a) ** 2 for a in v) ** 0.5
    return v * largest / norm if norm > largest else v


def by_hand(client, clip, clip_at, mu, rho, **how):
    w0 = w = start()
    for rows in batch_indices(SIZES[client], 5, 3, torch_generator(4, "batches", 1, client), **how):
        gradient = gradients_of(STARTS[client] + rows)
        g = gradient(w)
        if rho:
            g = gradient(w + rho * g / g.norm())
        if clip_at == "gradient":
            g = shortened(g, clip)
        direction = g + mu * (w - w0)
        if clip_at == "direction":
            direction = shortened(direction, clip)
        w = w - RATE * (direction + DECAY * w)
    return w


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("clip_at", ["direction", "gradient"])
@pytest.mark.parametrize("clip", [0.1, 0.4, 50.0])
def test_order_of_a_step(clip, clip_at, rho):
    ours = federation(
        FedProx(MU),
        Parts(ascent=SAM(rho) if rho else None),
        batch_size=5,
        weight_decay=DECAY,
        clip=clip,
        clip_at=clip_at,
        per_round=7,
    )
    for client, result in results_of(ours).items():
        expected = by_hand(client, clip, clip_at, MU, rho)
        torch.testing.assert_close(result.model, expected, rtol=1e-10, atol=1e-12, msg=f"client {client}")


def test_the_two_places_to_clip_differ_and_clipping_bites():
    ends = [by_hand(3, clip, at, MU, 0.0) for clip, at in ((0.1, "direction"), (0.1, "gradient"), (50.0, "direction"))]
    assert all((a - b).norm() > 1e-2 for i, a in enumerate(ends) for b in ends[:i])


def test_a_clipped_step_has_the_length_of_the_rate_times_the_clip():
    ours = federation(FedAvg(), clip=0.05, local_epochs=1)
    for result in results_of(ours).values():
        assert (result.model - start()).norm().item() == pytest.approx(RATE * 0.05, rel=1e-12)


def test_clipping_is_by_the_norm_over_all_coordinates_as_torchs():
    draw = torch.Generator().manual_seed(0)
    for scale in (0.01, 1.0, 100.0):
        v = scale * torch.randn(50, generator=draw, dtype=torch.float64)
        parts = [nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (20, 30)]
        for p, g in zip(parts, v.split([20, 30]), strict=True):
            p.grad = g.clone()
        nn.utils.clip_grad_norm_(parts, 3.0)  # divides by norm + 1e-6
        torch.testing.assert_close(clipped(v, 3.0), torch.cat([p.grad for p in parts]), rtol=1e-6, atol=0)
    assert clipped(v, 0.0) is v
    assert torch.equal(clipped(torch.zeros(4), 1.0), torch.zeros(4))


def test_stacked_clients_are_clipped_one_by_one():
    v = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(clipped(v, 1.0), expected)


@pytest.mark.parametrize("clip_at", ["direction", "gradient"])
def test_a_clip_that_is_never_reached_changes_nothing(clip_at):
    ours, plain = federation(Scaffold(), clip=1e6, clip_at=clip_at), federation(Scaffold())
    for _ in range(3):
        ours.step(), plain.step()
    assert torch.equal(ours.server.w, plain.server.w)


@pytest.mark.parametrize("size", ["full", 5])
def test_weight_decay_is_that_of_sgd(size):
    ours = federation(FedAvg(), batch_size=size, weight_decay=DECAY, per_round=7)
    data = samples()
    for client, result in results_of(ours).items():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, weight_decay=DECAY)
        draw = torch_generator(4, "batches", 1, client)
        for rows in batch_indices(SIZES[client], None if size == "full" else size, 3, draw):
            optimizer.zero_grad()
            mine = STARTS[client] + rows
            nn.functional.cross_entropy(model(data.inputs[mine]), data.targets[mine]).backward()
            optimizer.step()
        expected = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        torch.testing.assert_close(result.model, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("ascent", [SAM(0.5), ASAM(0.5, 0.2)], ids=lambda a: type(a).__name__)
def test_no_ascent_sees_the_weight_decay(ascent):
    """One step from w with decay c is the step without, less η c w: the perturbed point is the same."""
    with_decay, without = (
        results_of(federation(FedAvg(), Parts(ascent=ascent), local_epochs=1, weight_decay=c)) for c in (DECAY, 0.0)
    )
    for client, result in with_decay.items():
        expected = without[client].model - RATE * DECAY * start()
        torch.testing.assert_close(result.model, expected, rtol=1e-12, atol=1e-14)


def test_the_rate_decays_after_each_round_and_is_the_same_for_all_steps_of_one():
    ours = federation(FedAvg(), lr=0.2, lr_decay=0.5, per_round=7, local_epochs=1)
    landscape = Landscape(net(), samples(), device="cpu")
    for rate in (0.2, 0.1, 0.05):
        before = ours.server.w
        record = ours.step()
        assert record.lr == pytest.approx(rate, rel=1e-15)
        torch.testing.assert_close(ours.server.w, before - rate * landscape.gradient(before), rtol=1e-11, atol=1e-13)


def test_a_number_of_steps_is_taken_by_every_client_whatever_it_holds():
    ours = federation(FedAvg(), batch_size=4, local_steps=7, per_round=7)
    for client, result in results_of(ours).items():
        order = list(batch_indices(SIZES[client], 4, 99, torch_generator(4, "batches", 1, client)))[:7]
        assert (result.steps, result.seen) == (7, sum(map(len, order)))
        w = start()
        for rows in order:
            w = w - RATE * gradients_of(STARTS[client] + rows)(w)
        torch.testing.assert_close(result.model, w, rtol=1e-11, atol=1e-13)


def test_steps_are_epochs_where_an_epoch_is_one_step():
    by_epochs, by_steps = (federation(FedAvg(), **c) for c in ({"local_epochs": 4}, {"local_steps": 4}))
    for _ in range(2):
        by_epochs.step(), by_steps.step()
    assert torch.equal(by_epochs.server.w, by_steps.server.w)


def test_the_number_of_steps_is_the_one_that_control_variates_divide_by():
    """c_i⁺ = (w^t − w_i)/(K η) in SCAFFOLD's first round, K = 7 steps or what the epochs come to."""
    for changes, steps in (({"local_steps": 7}, lambda n: 7), ({}, lambda n: 3 * -(-n // 4))):
        ours = federation(Scaffold(), batch_size=4, per_round=7, **changes)
        for client, result in results_of(ours).items():
            expected = (start() - result.model) / (steps(SIZES[client]) * RATE)
            torch.testing.assert_close(ours.store.fetch(client).c, expected, rtol=1e-10, atol=1e-12)


def test_a_dropped_last_batch_is_no_step():
    ours = federation(FedAvg(), batch_size=5, last_batch="drop", per_round=7, weight_decay=DECAY)
    for client, result in results_of(ours).items():
        per_epoch = max(1, SIZES[client] // 5)
        assert result.steps == 3 * per_epoch
        assert result.seen == 3 * min(SIZES[client], 5 * per_epoch)
        expected = by_hand(client, 1e9, "direction", 0.0, 0.0, last="drop")
        torch.testing.assert_close(result.model, expected, rtol=1e-11, atol=1e-13)


def test_the_training_loss_is_the_mean_over_all_samples_seen():
    """Over one full batch from each client, the loss of the initial model on all data; over more, of all steps."""
    ours = federation(FedSAM(0.5), per_round=7, local_epochs=1)
    assert ours.step().train_loss == pytest.approx(Landscape(net(), samples(), device="cpu").value(start()), rel=1e-13)
    changes = {"batch_size": 5, "per_round": 7, "local_epochs": 1}
    found = results_of(federation(FedSAM(0.5), **changes))
    assert [found[client].seen for client in range(7)] == list(SIZES)
    total = sum(r.loss.item() * SIZES[client] for client, r in found.items()) / sum(SIZES)
    assert federation(FedSAM(0.5), **changes).step().train_loss == pytest.approx(total, rel=1e-14)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"clip": -1.0}, "--clip is -1.0"),
        ({"local_steps": 0}, "--local-steps is 0"),
        ({"lr_decay": 0.0}, "--lr-decay is 0.0"),
        ({"weight_decay": -1e-4}, "--weight-decay is -0.0001"),
        ({"batch_size": 0}, "--batch-size is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(bad, sentence):
    with pytest.raises(FedscapeError, match=sentence):
        Settings(**bad)


class Noting(nn.Linear):
    """Notes the samples it is trained on and the number of threads."""

    seen: ClassVar[list[tuple[int, int]]] = []

    def forward(self, x):
        if self.training:
            self.seen.append((len(x), torch.get_num_threads()))
        return super().forward(x)


@pytest.mark.parametrize("batch_size", [8, "full"])
def test_a_clients_steps_have_the_threads_that_suit_its_batches(batch_size, monkeypatch):
    """One thread below 6 · 3 · 2 · 8 operations, that is for clients with fewer than eight samples."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("landscape.compute.cost.THREADED_FLOPS", 6 * 3 * 2 * 8)
    before, Noting.seen[:] = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        ours = federation(FedAvg(), module=Noting(6, 3).double(), batch_size=batch_size, per_round=len(SIZES))
        for _ in ours.executor.work(range(len(SIZES)), State(w=ours.server.w), ours.store, Round(1, 0.1, 1.0)):
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    whole = {(min(n, 8) if batch_size == 8 else n, 1 if n < 8 else 3) for n in SIZES}
    assert whole <= set(Noting.seen)
    assert {threads for n, threads in Noting.seen if n >= 8} == {3}


@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_a_fused_step_is_the_plain_one_and_leaves_what_it_reads(decay):
    draw = torch.Generator().manual_seed(0)
    w, g = (torch.randn(3, 50, generator=draw, dtype=torch.float64) for _ in range(2))
    before, round = (w.clone(), g.clone()), Round(1, RATE, 1.0)
    plain, fused = (
        local_step(w, lambda w: g, FedAvg(), State(), State(w=w[0]), round, decay, fused=fast) for fast in (False, True)
    )
    torch.testing.assert_close(fused, plain, rtol=1e-14, atol=1e-15)
    assert torch.equal(w, before[0])
    assert torch.equal(g, before[1])
