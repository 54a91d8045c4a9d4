"""BatchNorm in federated training: statistics averaged, or kept by each client (SiloBN), against plain modules."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from landscape import Checkpoint, FedscapeError, Landscape, Partition, build_model, load_dataset
from landscape.batchnorm import BatchStatistics
from landscape.compute.randomness import torch_generator
from tests.trainers.federation.test_batched import at_once
from tests.trainers.federations import federation, samples, stopped_half_way
from trainers import SAM, FedAvg, FedSAM, Scaffold, Settings, train
from trainers.algorithms.mimelite import MimeLite
from trainers.federation.batches import batch_indices
from trainers.parts.parts import Parts

SPLIT = Partition(tuple(np.split(np.arange(64), [9, 21, 24, 44, 50])))
TRACKED = [f"{layer}.running_{which}" for layer in (1, 4) for which in ("mean", "var")]
USUAL = {"clients": 6, "batch_size": 4, "last_batch": "drop", "local_epochs": 2}


def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 5), nn.BatchNorm1d(5, momentum=0.3), nn.Linear(5, 3)
    ).double()


def with_batchnorm(algorithm=None, parts=None, **changes):
    return federation(algorithm or FedAvg(), parts, module=net(), split=SPLIT, **{**USUAL, **changes})


def statistics(module):
    return torch.cat([module.get_buffer(name) for name in TRACKED])


def parameters(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def put(module, w=None, b=None):
    with torch.no_grad():
        if w is not None:
            nn.utils.vector_to_parameters(w, module.parameters())
        if b is not None:
            for name, value in zip(TRACKED, b.split([8, 8, 5, 5]), strict=True):
                module.get_buffer(name).copy_(value)
    return module


def trained(module, client, number, rho):
    """The module after the client's epochs; SAM's second pass runs on a copy, whose statistics are thrown away."""
    data, mine, lr = samples(), torch.from_numpy(SPLIT.clients[client]), 0.3 * 0.9 ** (number - 1)
    module.train()
    for rows in batch_indices(len(mine), 4, 2, torch_generator(4, "batches", number, client), last="drop"):
        x, y = data.inputs[mine[rows]], data.targets[mine[rows]]
        slopes = torch.autograd.grad(nn.functional.cross_entropy(module(x), y), list(module.parameters()))
        flat = torch.cat([s.reshape(-1) for s in slopes])
        if rho:
            uphill = put(copy.deepcopy(module), parameters(module) + rho * flat / flat.norm())
            slopes = torch.autograd.grad(nn.functional.cross_entropy(uphill(x), y), list(uphill.parameters()))
            flat = torch.cat([s.reshape(-1) for s in slopes])
        put(module, parameters(module) - lr * flat)
    return module


def weighted(vectors, weights):
    return sum(n * v for v, n in zip(vectors, weights, strict=True)) / sum(weights)


def test_the_tests_net_tracks_what_it_should():
    ours = with_batchnorm()
    assert torch.equal(ours.statistics, statistics(net()))
    assert ours.statistics.tolist() == [0.0] * 8 + [1.0] * 8 + [0.0] * 5 + [1.0] * 5


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_averaged_they_are_the_mean_of_the_clients_with_the_models_weights(rho, weighting):
    ours = with_batchnorm(parts=Parts(ascent=SAM(rho)) if rho else None, weighting=weighting)
    w, b = ours.server.w, ours.statistics
    for number in range(1, 5):
        sampled = ours.step().clients
        ends = [trained(put(net(), w, b), client, number, rho) for client in sampled]
        weights = [len(SPLIT.clients[client]) if weighting == "samples" else 1 for client in sampled]
        w, b = (weighted([f(end) for end in ends], weights) for f in (parameters, statistics))
        torch.testing.assert_close(ours.server.w, w, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.statistics, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_in_silos_each_clients_go_on_from_its_own_and_only_parameters_are_averaged(rho):
    ours = with_batchnorm(parts=Parts(ascent=SAM(rho)) if rho else None, batchnorm="silo", weighting="samples")
    w, start = ours.server.w, ours.statistics
    own = dict.fromkeys(range(6), start)
    took_part = []
    for number in range(1, 7):
        sampled = ours.step().clients
        took_part += sampled
        ends = {client: trained(put(net(), w, own[client]), client, number, rho) for client in sampled}
        own |= {client: statistics(end) for client, end in ends.items()}
        w = weighted([parameters(end) for end in ends.values()], [len(SPLIT.clients[client]) for client in ends])
        torch.testing.assert_close(ours.server.w, w, rtol=1e-10, atol=1e-12)
        assert torch.equal(ours.statistics, start)
    assert max(map(took_part.count, range(6))) > 2  # somebody came back to its statistics
    for client in range(6):
        torch.testing.assert_close(ours.store.fetch(client).batchnorm, own[client], rtol=1e-10, atol=1e-12)


def test_parameters_do_not_hang_on_the_mode():
    """In training mode the batch's own statistics normalise."""
    averaged, silo = with_batchnorm(), with_batchnorm(batchnorm="silo")
    for _ in range(3):
        averaged.step(), silo.step()
    assert torch.equal(averaged.server.w, silo.server.w)


@pytest.mark.parametrize("mode", ["average", "silo"])
def test_cumulative_ones_start_anew_with_each_client(mode):
    """momentum=None: a plain mean over the batches since they were loaded, whoever worked before."""

    def cumulative():
        module = net()
        module[1].momentum = module[4].momentum = None
        return module

    ours = federation(FedAvg(), module=cumulative(), split=SPLIT, **{**USUAL, "per_round": 6}, batchnorm=mode)
    w, b = ours.server.w, ours.statistics
    ours.step()
    own = [statistics(trained(put(cumulative(), w, b), client, 1, 0.0)) for client in range(6)]
    if mode == "average":
        expected = weighted(own, [len(mine) for mine in SPLIT.clients])
        torch.testing.assert_close(ours.statistics, expected, rtol=1e-10, atol=1e-12)
    else:
        kept = [ours.store.fetch(client).batchnorm for client in range(6)]
        torch.testing.assert_close(torch.stack(kept), torch.stack(own), rtol=1e-10, atol=1e-12)


def test_only_averaged_ones_are_sent():
    size = net()
    d, b = 8 * len(parameters(size)), 8 * len(statistics(size))
    for algorithm, models in ((FedAvg(), 1), (Scaffold(), 2)):
        record = with_batchnorm(algorithm).step()
        assert (record.bytes_down, record.bytes_up) == (3 * (models * d + b),) * 2
        record = with_batchnorm(algorithm, batchnorm="silo").step()
        assert (record.bytes_down, record.bytes_up) == (3 * models * d,) * 2


def test_a_pass_over_all_of_a_clients_data_leaves_them_alone():
    """MimeLite takes the full gradient at w^t before its steps; with β = 0 it is FedAvg, statistics included."""
    ours, plain = with_batchnorm(MimeLite(0.0)), with_batchnorm(FedAvg())
    for _ in range(3):
        ours.step(), plain.step()
    torch.testing.assert_close(ours.statistics, plain.statistics, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mode", ["average", "silo"])
@pytest.mark.parametrize("algorithm", [FedSAM(0.2), Scaffold()], ids=["fedsam", "scaffold"])
def test_resuming_changes_nothing(algorithm, mode):
    whole, second = stopped_half_way(lambda: with_batchnorm(algorithm, batchnorm=mode), rounds=6)
    assert torch.equal(second.server.w, whole.server.w)
    assert torch.equal(second.statistics, whole.statistics)
    for client in range(6):
        for name, tensor in whole.store.fetch(client).tensors().items():
            assert torch.equal(getattr(second.store.fetch(client), name), tensor)


@pytest.mark.parametrize("mode", ["average", "silo"])
def test_a_checkpoint_holds_those_its_model_was_tested_with(mode, tmp_path):
    """Averaged ones, or in silos those of all training data, by torch's update_bn; an SWA model's are in test_swa."""
    settings = Settings(
        model="tests.trainers.user_code:normalised",
        clients=5,
        per_round=2,
        rounds=2,
        local_epochs=1,
        last_batch="drop",
        batchnorm=mode,
        device="cpu",
        dtype="float64",
    )
    run = train(FedAvg(), settings, out=tmp_path)
    checkpoint = Checkpoint.load(run.checkpoint)
    module = build_model(settings.model, seed=0, input_shape=[1, 8, 8], classes=10).double()
    module.load_state_dict(checkpoint.parameters, strict=False)
    if mode == "silo":
        data = load_dataset("digits").train
        update_bn([(x,) for x in data.prepare(data.inputs, torch.float64).split(256)], module)
    else:
        kept = torch.load(run.path / "state.pt", weights_only=True)["statistics"]
        module[2].running_mean, module[2].running_var = kept.split(8)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(checkpoint.buffers[f"2.{name}"], getattr(module[2], name), rtol=1e-10, atol=1e-12)
    test = load_dataset("digits").test
    with torch.no_grad():
        outputs = module.eval()(test.prepare(test.inputs, torch.float64))
    loss = nn.functional.cross_entropy(outputs, test.targets).item()
    assert run.metrics[-1]["test_loss"] == pytest.approx(loss, rel=1e-10)
    assert Landscape.from_checkpoint(
        run.checkpoint, "test", model=settings.model, device="cpu"
    ).value() == pytest.approx(loss, rel=1e-10)


def test_a_batch_of_one_sample_is_refused_in_a_sentence():
    one_by_one = with_batchnorm(last_batch="keep", per_round=6)
    for each in (one_by_one, at_once(one_by_one)):
        with pytest.raises(FedscapeError, match="a batch of a single sample: give --last-batch drop"):
            each.step()


# The vector of statistics itself


def two_batches():
    draw = torch_generator(0, "batches")
    return [torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (5, 3)]


def test_estimates_are_those_of_update_bn_and_momenta_stay():
    module, reference = net(), net()
    found = BatchStatistics(module).estimate(two_batches())
    update_bn([(x,) for x in two_batches()], reference)
    torch.testing.assert_close(found, statistics(reference), rtol=1e-13, atol=1e-14)
    assert torch.equal(found, statistics(module))
    assert (module[1].momentum, module[4].momentum) == (0.1, 0.3)
    assert not module.training


def test_reading_and_loading_are_inverse_and_read_is_a_copy():
    module, there = net(), BatchStatistics(net())
    mine = BatchStatistics(module)
    assert len(mine) == 26
    values = torch.arange(26, dtype=torch.float64)
    mine.load(values)
    assert torch.equal(statistics(module), values)
    read = mine.read()
    there.load(read)
    assert torch.equal(there.read(), values)
    read += 1
    assert torch.equal(mine.read(), values)


def test_untouched_restores_them_and_the_counters_even_after_an_error():
    module = net().train()
    mine = BatchStatistics(module)
    module(two_batches()[0])
    before = {name: b.clone() for name, b in module.named_buffers()}

    def fails_inside():
        with mine.untouched():
            module(two_batches()[1])
            assert not torch.equal(mine.read(), torch.cat([before[name] for name in TRACKED]))
            raise KeyError

    with pytest.raises(KeyError):
        fails_inside()
    assert all(torch.equal(b, before[name]) for name, b in module.named_buffers())
    assert before["1.num_batches_tracked"] == 1


def test_modules_without_any_have_none():
    for module in (nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)), nn.GroupNorm(1, 2)):
        mine = BatchStatistics(module)
        assert len(mine) == len(mine.read()) == 0
        with mine.untouched():
            pass
