"""Local optimisers: against PyTorch's, against naive loops, in every place where clients' steps are taken."""

import pytest
import torch
from torch import nn

from landscape import Checkpoint, FedscapeError
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import SIZES, federation, net, partition, samples
from tests.trainers.usual import usual
from trainers import (
    ALGORITHMS,
    FedAvg,
    FedCM,
    FedDC,
    FedDyn,
    FedGloSS,
    FedLESAM,
    FedProx,
    LocalAdamW,
    LocalMomentum,
    Mean,
    Parts,
    Round,
    Scaffold,
    Settings,
    State,
    train,
)
from trainers.federation.batches import batch_indices
from trainers.federation.local import clipped, local_step
from trainers.parts.local_optimizers import begin_round, kept_memory

RATE, DECAY, SEED = 0.05, 0.2, 4
PAIRS = [
    (LocalMomentum(0.9), lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=DECAY)),
    (LocalMomentum(0.6, True), lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.6, nesterov=True, weight_decay=DECAY)),
    (LocalAdamW(), lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=DECAY)),
    (
        LocalAdamW(0.5, 0.7, 1e-3),
        lambda p: torch.optim.AdamW(p, lr=RATE, betas=(0.5, 0.7), eps=1e-3, weight_decay=DECAY),
    ),
]
REFUSED = {"scaffold", "fedgamma", "feddc", "fedcm", "mofedsam", "mimelite", "adabest", "fedwmsam"}
REFUSED |= {"mime", "ghbm", "localghbm", "fedhbm"}
BOTH = [LocalMomentum(0.9, state="kept"), LocalAdamW(state="kept")]


def relative_error(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["momentum", "nesterov", "adamw", "other betas"])
def test_steps_are_those_of_torchs_optimisers_on_the_same_directions(ours, theirs):
    draw = torch.Generator().manual_seed(0)
    w = torch.randn(40, generator=draw, dtype=torch.float64)
    theirs_w, memory = nn.Parameter(w.clone()), ours.initial(w)
    optimizer = theirs([theirs_w])
    for _ in range(50):
        direction = torch.randn(40, generator=draw, dtype=torch.float64)
        w, memory = ours.step(w, direction, memory, RATE, DECAY)
        theirs_w.grad = direction.clone()
        optimizer.step()
    assert relative_error(w, theirs_w.detach()) < 1e-13


def test_adamws_start_is_corrected_in_float64_whatever_the_models_type():
    """1 − 0.999 in float32 is off by 1e-5; the first step of AdamW is η sign(u) but for ε."""
    adamw, w = LocalAdamW(), torch.zeros(3)
    w, memory = adamw.step(w, torch.tensor([1.0, -2.0, 0.5]), adamw.initial(w), 1.0, 0.0)
    torch.testing.assert_close(w, torch.tensor([-1.0, 1.0, -1.0]), rtol=3e-7, atol=0)
    assert memory["count"].dtype == torch.float64


@pytest.mark.parametrize("optimizer", BOTH, ids=lambda o: type(o).__name__)
def test_stacked_clients_step_as_they_would_alone(optimizer):
    draw = torch.Generator().manual_seed(0)
    w, slope = (torch.randn(4, 9, generator=draw, dtype=torch.float64) for _ in range(2))
    memories = {name: torch.rand_like(t, dtype=t.dtype) for name, t in kept_memory(optimizer, w).items()}
    together, received, round = State.of(dict(memories)), State(w=w[0]), Round(1, RATE, 1.0)
    ends = local_step(w, lambda p: slope * p, FedAvg(), together, received, round, DECAY, 0.0, optimizer)
    for i in range(4):
        alone = State.of({name: tensor[i] for name, tensor in memories.items()})
        gradient = lambda p, i=i: slope[i] * p  # noqa: E731
        end = local_step(w[i], gradient, FedAvg(), alone, received, round, DECAY, 0.0, optimizer)
        torch.testing.assert_close(ends[i], end, rtol=1e-14, atol=1e-15)
        for name, tensor in alone.tensors().items():
            torch.testing.assert_close(together.tensors()[name][i], tensor, rtol=1e-14, atol=1e-15)


def by_torch(client, number, start, optimizer_of, kept, mu, clip):
    """A client's round with a model, autograd and an optimiser of PyTorch's; the optimiser is kept if asked for."""
    if client not in kept:
        model = net()
        kept[client] = model, optimizer_of(model.parameters())
    model, optimizer = kept[client]
    data, first = samples(), int(partition().clients[client][0])
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    parameters = list(model.parameters())
    for rows in batch_indices(SIZES[client], 5, 3, torch_generator(SEED, "batches", number, client)):
        loss = nn.functional.cross_entropy(model(data.inputs[first + rows]), data.targets[first + rows])
        loss = loss + mu / 2 * (nn.utils.parameters_to_vector(parameters) - start).square().sum()
        direction = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, parameters)])
        for p, part in zip(parameters, clipped(direction, clip).split([p.numel() for p in parameters]), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@pytest.mark.parametrize("state", ["fresh", "kept"])
@pytest.mark.parametrize("kind", [0, 2], ids=["momentum", "adamw"])
def test_a_run_is_the_naive_loop_with_torchs_optimisers(kind, state):
    """FedProx, minibatches, clipping, decay; the memory of clients begins anew, or goes on from their last round."""
    optimizer = type(PAIRS[kind][0])(state=state)
    changes = {"batch_size": 5, "weight_decay": DECAY, "lr": RATE, "lr_decay": 1.0, "clip": 0.4, "per_round": 4}
    ours, kept = federation(FedProx(0.8), Parts(local_optimizer=optimizer), **changes), {}
    w = ours.server.w.clone()
    for number in range(1, 5):
        sampled = ours.step().clients
        if state == "fresh":
            kept.clear()
        ends = [by_torch(i, number, w, PAIRS[kind][1], kept, 0.8, 0.4) for i in sampled]
        w = sum(SIZES[i] * end for i, end in zip(sampled, ends, strict=True)) / sum(SIZES[i] for i in sampled)
        assert relative_error(ours.server.w, w) < 1e-12, number
    assert len(ours.store.fetch(sampled[0]).tensors()) == (0 if state == "fresh" else (1, 0, 3)[kind])


@pytest.mark.parametrize("name", usual(name for name in ALGORITHMS if name not in REFUSED))
def test_no_momentum_is_plain_steps_and_momentum_is_not(name):
    algorithm = ALGORITHMS.get(name)()
    ends = []
    kept = "fresh" if name == "fednova" else "kept"  # which it refuses
    for optimizer in (None, LocalMomentum(0.0), LocalMomentum(0.0, state=kept), LocalMomentum(0.5)):
        ours = federation(algorithm, Parts(local_optimizer=optimizer), lr=RATE, weight_decay=DECAY)
        for _ in range(2):
            ours.step()
        ends.append(ours.server.w)
    assert torch.equal(ends[1], ends[0])
    assert torch.equal(ends[2], ends[0])
    assert relative_error(ends[3], ends[0]) > 1e-4


def test_a_kept_memory_is_the_clients_and_never_sent():
    ours, plain = federation(FedDyn(), Parts(local_optimizer=LocalAdamW(state="kept"))), federation(FedDyn())
    record, other = ours.step(), plain.step()
    assert (record.bytes_up, record.bytes_down) == (other.bytes_up, other.bytes_down)
    d, sampled = ours.server.w.nbytes, record.clients
    assert ours.store.peak_memory == len(SIZES) * (3 * d + 8)  # the dual, m, v and t
    assert ours.store.fetch(sampled[0]).local_optimizer_count.tolist() == [3.0]  # steps of three full-batch epochs
    (absent, *_) = set(range(len(SIZES))) - set(sampled)
    assert not ours.store.fetch(absent).local_optimizer_m.any()


@pytest.mark.parametrize("optimizer", BOTH, ids=lambda o: type(o).__name__)
def test_more_rounds_later_equal_all_rounds_at_once_with_memories_in_memory_and_on_disk(optimizer, tmp_path):
    settings = {"clients": 4, "per_round": 2, "local_steps": 2, "device": "cpu", "lr": 0.01}
    parts = Parts(local_optimizer=optimizer)
    whole = train(FedDyn(), Settings(**settings, rounds=4, client_store="host"), parts, out=tmp_path / "whole")
    train(FedDyn(), Settings(**settings, rounds=2, client_store="disk"), parts, out=tmp_path / "parts")
    resumed = Settings(**settings, rounds=4, client_store="disk")
    later = train(FedDyn(), resumed, parts, out=tmp_path / "parts", resume=True)
    assert Checkpoint.load(later.checkpoint).digest() == Checkpoint.load(whole.checkpoint).digest()
    recorded = Checkpoint.load(later.checkpoint).algorithm["parts"]["local_optimizer"]
    assert recorded["name"] == type(optimizer).__name__.lower()
    assert recorded["state"] == "kept"
    with pytest.raises(FedscapeError, match="holds another run"):
        train(FedDyn(), resumed, out=tmp_path / "parts", resume=True)


STEPS, CLIENTS, DIMENSION = 10, 4, 3


def distance_from_the_optimum(algorithm, optimizer, rounds):
    """‖∇F‖ after rounds with all clients, of a mean of strongly convex quadratics with minima of their own."""
    draw = torch.Generator().manual_seed(0)
    roots, b = (torch.randn(*s, generator=draw, dtype=torch.float64) for s in ((CLIENTS, 3, 3), (CLIENTS, 3)))
    a = roots @ roots.mT / 3 + 0.5 * torch.eye(DIMENSION, dtype=torch.float64)
    w = torch.zeros(DIMENSION, dtype=torch.float64)
    server = State.of({"w": w, **algorithm.server_state(w)})
    first = {**algorithm.client_state(w), **kept_memory(optimizer, w)}
    together = State.of({name: tensor.expand(CLIENTS, *tensor.shape) for name, tensor in first.items()})
    for number in range(1, rounds + 1):
        round = Round(number, 0.02, 1.0)
        received = State.of(algorithm.broadcast(server))
        local = received.w.expand(CLIENTS, DIMENSION)
        begin_round(optimizer, together, local)
        for _ in range(STEPS):
            gradient = lambda p: (a @ p[..., None])[..., 0] - b  # noqa: E731
            local = local_step(local, gradient, algorithm, together, received, round, 0.0, 0.0, optimizer)
        sent = algorithm.upload(local, together, received, round, STEPS)
        means = {name: tensor.mean(0) for name, tensor in sent.items()}
        algorithm.server_step(server, Mean(**means, all_clients=State.of(means), steps=float(STEPS)), round)
    return (a.mean(0) @ server.w - b.mean(0)).norm().item()


@pytest.mark.parametrize("optimizer", [LocalMomentum(0.8), LocalMomentum(0.8, state="kept")], ids=lambda o: o.state)
@pytest.mark.parametrize(
    "algorithm", [FedDyn(alpha=0.3), FedGloSS(rho=0.0, rho_l=0.0, beta=3.0)], ids=lambda a: type(a).__name__
)
def test_duals_reach_the_optimum_by_any_steps_that_minimise(algorithm, optimizer):
    """λ_i asks where a client's steps end, not how: the optimum is that of plain steps."""
    assert distance_from_the_optimum(algorithm, optimizer, 300) < 1e-6


@pytest.mark.parametrize(
    ("algorithm", "without"),
    [(Scaffold(), 1e-6), (FedDC(), 1e-6), (FedCM(), 1.0)],
    ids=["c", "c, h", "Δ"],
)
def test_why_gradients_read_off_plain_steps_are_refused(algorithm, without):
    """d_i/(Kη) is the mean direction of plain steps alone: with momentum c_i, or Δ, grows without bound."""
    assert distance_from_the_optimum(algorithm, None, 300) < without
    assert not distance_from_the_optimum(algorithm, LocalMomentum(0.9), 300) < 1e6


def test_algorithms_that_read_gradients_off_plain_steps_are_refused_with_the_reason():
    parts = Parts(local_optimizer=LocalMomentum())
    for name, kind in ALGORITHMS.items():
        if name not in REFUSED:
            parts.check(kind())
            continue
        with pytest.raises(FedscapeError, match="cannot be combined with --local-optimizer: "):
            parts.check(kind())
    with pytest.raises(
        FedscapeError, match=r"FedLESAM cannot be .* c_i takes −d_i/\(Kη\) for the mean of the client's"
    ):
        parts.check(FedLESAM(base="scaffold"))
    for base in ("fedavg", "feddyn"):
        parts.check(FedLESAM(base=base))
