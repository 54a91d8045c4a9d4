"""SOL's ascent: its direction against autograd, pseudo-code and a closed form, zero at the server's model."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from landscape import FedscapeError
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from tests.trainers.algorithms import naive
from tests.trainers.algorithms.naive import add, batches, length
from tests.trainers.algorithms.test_against_pseudo_code import relative_error
from tests.trainers.federations import dropout_net, federation, net, samples
from trainers import ASAM, SOL, FedAvg, FedDyn, FedSOL, LocalMomentum, Parts
from trainers.federation.local import Batch, LocalWork, divergence_slope, draw

EXACT = 1e-11


def kl_gradient(clients, i, w, anchor, temperature):
    """PyTorch's own divergence, differentiated by autograd."""
    logits = []
    for point in (anchor, w):
        for p, value in zip(clients.model.parameters(), point, strict=True):
            p.data.copy_(value)
        logits.append(clients.model(clients.x[i]) / temperature)
    target = F.softmax(logits[0].detach(), dim=1)
    loss = F.kl_div(F.log_softmax(logits[1], dim=1), target, reduction="batchmean")
    return list(torch.autograd.grad(loss, list(clients.model.parameters())))


class NaiveFedSOL:
    """The clients of the authors' code, fixed and adaptive; no ascent at w^t, where theirs follows rounding."""

    def __init__(self, rho, temperature, strength, momentum=0.0, size=4):
        self.rho, self.temperature, self.strength, self.momentum = rho, temperature, strength, momentum
        self.size, self.number = size, 0

    def round(self, clients, w, sampled, lr):
        self.number += 1
        models, whole = [], (clients.x, clients.y)
        for i in sampled:
            x, velocity = [t.clone() for t in w], [torch.zeros_like(t) for t in w]
            for step, rows in enumerate(batches(i, self.size, self.number)):
                clients.x, clients.y = {i: whole[0][i][rows]}, {i: whole[1][i][rows]}
                here = x
                if step:
                    q = kl_gradient(clients, i, x, w, self.temperature)
                    scale = self.rho / length(q)
                    if self.strength == "adaptive":
                        q = [F.normalize((a - b).abs(), 2, dim=0) * g for a, b, g in zip(x, w, q, strict=True)]
                    here = add(x, q, scale)
                g = clients.gradient(i, here)
                velocity = add(g, velocity, self.momentum)
                x = add(x, velocity, -lr)
            clients.x, clients.y = whole
            models.append(x)
        return clients.mean(models, sampled)


@pytest.mark.parametrize(("rho", "temperature"), [(0.3, 3.0), pytest.param(1.0, 1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strength", ["fixed", "adaptive"])
def test_fedsol_is_the_authors_clients(rho, temperature, strength):
    reference = NaiveFedSOL(rho, temperature, strength)
    assert relative_error(FedSOL(rho, temperature, strength), reference.round, batch_size=4) < EXACT
    assert relative_error(FedAvg(), NaiveFedSOL(rho, temperature, strength).round, batch_size=4) > 1e-4


def test_fedsol_with_their_local_momentum():
    reference, parts = NaiveFedSOL(0.3, 3.0, "fixed", 0.9), Parts(local_optimizer=LocalMomentum(0.9))
    assert relative_error(FedSOL(0.3), reference.round, parts=parts, batch_size=4, lr=0.3) < EXACT


def batch(module, rows=slice(0, 5)):
    model, local = FlatModule(module, torch.device("cpu"), torch.float64), LocalWork(1, None, 0.0, "none", 0)
    drawn = draw(samples(), torch.arange(63)[rows], local, torch.Generator(), torch.float64)
    return model, Batch(model, drawn, local, BatchStatistics(model.module))


def test_the_divergence_is_that_of_autograd_and_counts_as_a_gradient():
    model, ours = batch(net())
    draws = torch.Generator().manual_seed(2)
    w, anchor = (model.buffer + torch.randn(len(model.buffer), generator=draws, dtype=torch.float64) for _ in range(2))
    clients = naive.Clients()
    clients.x = {0: samples().inputs[:5]}
    parts = [list(model.space.unflatten(point).values()) for point in (w, anchor)]
    expected = torch.cat([t.reshape(-1) for t in kl_gradient(clients, 0, *parts, 2.0)])
    torch.testing.assert_close(ours.divergence(w, anchor, 2.0), expected, rtol=1e-11, atol=1e-14)
    assert ours.gradients == 1
    assert ours.loss is None  # the step's loss is that of its gradient


def normalised_net():
    return nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)).double()


@pytest.mark.parametrize("module", [net, dropout_net, normalised_net])
def test_it_is_exactly_zero_at_the_reference_and_leaves_statistics_alone(module):
    """Not rounding noise, which a unit vector would blow up; dropout draws the same for both points."""
    model, ours = batch(module())
    before = BatchStatistics(model.module).read().clone()
    w = model.buffer.clone()
    assert torch.equal(ours.divergence(w, w.clone(), 3.0), torch.zeros_like(w))
    assert torch.equal(BatchStatistics(model.module).read(), before)
    assert ours.divergence(w, w + 0.1, 3.0).norm() > 1e-6


def test_in_float32_autograd_leaves_what_the_difference_of_probabilities_does_not():
    z = 3 * torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    leaf = z.clone().requires_grad_()
    loss = F.kl_div(F.log_softmax(leaf / 3, dim=1), F.softmax(z / 3, dim=1), reduction="batchmean")
    (theirs,) = torch.autograd.grad(loss, leaf)
    assert 0 < theirs.abs().max() < 1e-7
    assert divergence_slope(z, z.clone(), 3.0, axis=1).abs().max() == 0


def test_two_classes_have_the_slope_of_a_logistic_unit():
    """softmax((z, 0)/T) is 1/(1 + e^{−z/T})."""
    z, reference = torch.tensor([[0.7, 0.0]]), torch.tensor([[-0.4, 0.0]])
    expected = (torch.sigmoid(torch.tensor(0.35)) - torch.sigmoid(torch.tensor(-0.2))) / 2
    torch.testing.assert_close(divergence_slope(z, reference, 2.0, axis=1)[0], expected * torch.tensor([1.0, -1.0]))


def test_pixels_count_each():
    """Classes on the second axis, [n, classes, H, W]."""
    z, reference = torch.randn(2, 2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    whole = divergence_slope(z, reference, 1.5, axis=1)
    one = divergence_slope(z[1, :, 2, 3][None], reference[1, :, 2, 3][None], 1.5, axis=1)
    torch.testing.assert_close(whole[1, :, 2, 3][None], one)


def after(algorithm, parts=None, rounds=3):
    ours = federation(algorithm, parts, batch_size=4)
    for _ in range(rounds):
        ours.step()
    return ours.server.w


def test_the_ascent_goes_with_other_bases_and_is_none_at_radius_0():
    for base in (FedAvg(), FedDyn(0.3)):
        torch.testing.assert_close(after(base, Parts(ascent=SOL(0.0))), after(base), rtol=1e-12, atol=1e-14)
        assert (after(base, Parts(ascent=SOL(0.5))) - after(base)).norm() > 1e-3
    torch.testing.assert_close(after(FedSOL(0.5)), after(FedAvg(), Parts(ascent=SOL(0.5))), rtol=1e-13, atol=1e-15)


def test_one_step_a_round_has_no_ascent():
    one, plain = (federation(a, local_epochs=1) for a in (FedSOL(0.5), FedAvg()))
    record = one.step()
    plain.step()
    assert torch.equal(one.server.w, plain.server.w)
    assert record.gradients == 2 * record.steps


@pytest.mark.parametrize("bad", [lambda: SOL(-0.1), lambda: SOL(1.0, 0.0), lambda: SOL(strength="both")])
def test_hyper_parameters_that_make_no_sense_are_refused(bad):
    with pytest.raises(FedscapeError, match="SOL needs"):
        bad()
    with pytest.raises(FedscapeError, match="FedSOL: SOL needs"):
        FedSOL(-1.0)
    with pytest.raises(FedscapeError, match="two make no sense"):
        Parts(ascent=ASAM()).check(FedSOL())
