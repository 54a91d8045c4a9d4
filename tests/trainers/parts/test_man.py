"""MAN in local training: its penalty's gradient against activations collected by hand, in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from landscape import FedscapeError, ParameterSpace, Samples, build_model
from landscape.activations import MAN
from landscape.compute.randomness import torch_generator
from tests.trainers.federations import federation, samples
from trainers import SAM, FedAvg, FedProx, Settings, train
from trainers.federation.batches import batch_indices
from trainers.parts.parts import Parts

ZETA = 0.7


def two_hidden():
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).double()


def activations_of_two_hidden(p, x):
    first = (x @ p["0.weight"].T + p["0.bias"]).tanh()
    second = (first @ p["2.weight"].T + p["2.bias"]).clamp_min(0)
    return {"0": first, "2": second}, second @ p["4.weight"].T + p["4.bias"]


def activations_of_lenet(p, x):
    found = {}
    for name in ("conv1", "conv2"):
        found[name] = functional.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"]).clamp_min(0)
        x = functional.max_pool2d(found[name], 2)  # the penalty is on what goes into the pool
    x = x.flatten(1)
    for name in ("fc1", "fc2"):
        x = found[name] = (x @ p[f"{name}.weight"].T + p[f"{name}.bias"]).clamp_min(0)
    return found, x @ p["fc3.weight"].T + p["fc3.bias"]


def penalised_gradient(w, space, forward, x, y, weights):
    """∇ (ℓ + Σ_l weight_l · (sum of squares of a_l)/(number of its entries)), and ℓ."""
    w = w.clone().requires_grad_()
    activations, logits = forward(space.unflatten(w), x)
    loss = -logits.log_softmax(1)[torch.arange(len(y)), y].mean()
    total = loss
    for name, weight in weights.items():
        total = total + weight * (activations[name] ** 2).sum() / activations[name].numel()
    (gradient,) = torch.autograd.grad(total, w)
    return gradient, loss.item()


def one_round(algorithm, man, client, *, module, data=None, ascent=None, **changes):
    """One client's local work, from the initial model: (the start, its result)."""
    ours = federation(algorithm, Parts(man=man, ascent=ascent), module=module, data=data, **changes)
    captured = []
    work = ours.executor.work
    ours.executor.work = lambda clients, *rest: (captured.append(r) or r for r in work([client], *rest))
    start = ours.server.w.clone()
    ours.step()
    return start, captured[0]


CASES = {
    "both layers": (MAN(ZETA), {"0": ZETA, "2": ZETA}),
    "half": (MAN(ZETA, half=True), {"0": ZETA / 2, "2": ZETA / 2}),
    "first layer": (MAN(ZETA, ("0",)), {"0": ZETA}),
    "second layer, half": (MAN(ZETA, ("2",), half=True), {"2": ZETA / 2}),
}


@pytest.mark.parametrize(("man", "weights"), CASES.values(), ids=CASES)
def test_a_local_step_descends_the_loss_and_the_penalty(man, weights):
    start, result = one_round(FedAvg(), man, 3, module=two_hidden(), local_epochs=1)
    data, mine = samples(), torch.arange(20, 40)
    gradient, loss = penalised_gradient(
        start,
        ParameterSpace.of(two_hidden()),
        activations_of_two_hidden,
        data.inputs[mine],
        data.targets[mine],
        weights,
    )
    torch.testing.assert_close(result.model, start - 0.3 * gradient, rtol=1e-9, atol=1e-12)
    assert result.loss.item() == pytest.approx(loss, rel=1e-12)  # on record is the loss without the penalty


def test_in_a_convolutional_net_it_acts_on_what_the_non_linearities_give_before_the_pool():
    module = build_model("lenet_fed", seed=0, input_shape=[3, 16, 16], classes=3)
    draw = torch_generator(7, "images")
    data = Samples(torch.randn(64, 3, 16, 16, generator=draw, dtype=torch.float64), samples().targets)
    start, result = one_round(FedAvg(), MAN(ZETA), 0, module=module, data=data, local_epochs=1)
    space, mine = ParameterSpace.of(module), torch.arange(5)
    everywhere = dict.fromkeys(("conv1", "conv2", "fc1", "fc2"), ZETA)
    gradient, _ = penalised_gradient(
        start, space, activations_of_lenet, data.inputs[mine], data.targets[mine], everywhere
    )
    torch.testing.assert_close(result.model, start - 0.3 * gradient, rtol=1e-9, atol=1e-12)
    without, _ = penalised_gradient(start, space, activations_of_lenet, data.inputs[mine], data.targets[mine], {})
    assert (gradient - without).norm() > 0.1 * without.norm()


def test_over_mini_batches_it_is_the_mean_over_each_and_correction_decay_and_ascent_go_with_it():
    """Batches of 5, 5 and 2 samples; SAM goes uphill on the penalised objective; FedProx's term is not in it."""
    rho, mu, decay = 0.4, 0.5, 0.05
    changes = {"local_epochs": 2, "batch_size": 5, "weight_decay": decay}
    start, result = one_round(FedProx(mu), MAN(ZETA), 1, module=two_hidden(), ascent=SAM(rho), **changes)
    space, data, mine = ParameterSpace.of(two_hidden()), samples(), torch.arange(5, 17)
    w, sizes = start, []
    for rows in batch_indices(12, 5, 2, torch_generator(4, "batches", 1, 1)):
        x, y = data.inputs[mine[rows]], data.targets[mine[rows]]
        both = {"0": ZETA, "2": ZETA}
        g, _ = penalised_gradient(w, space, activations_of_two_hidden, x, y, both)
        g, _ = penalised_gradient(w + rho * g / g.norm(), space, activations_of_two_hidden, x, y, both)
        w = w - 0.3 * (g + mu * (w - start) + decay * w)
        sizes.append(len(rows))
    assert sizes == [5, 5, 2] * 2
    torch.testing.assert_close(result.model, w, rtol=1e-9, atol=1e-12)


def test_without_weight_it_changes_nothing():
    ours, plain = federation(FedAvg(), Parts(man=MAN(0.0))), federation(FedAvg())
    for _ in range(2):
        assert ours.step().train_loss == plain.step().train_loss
    assert torch.equal(ours.server.w, plain.server.w)


def test_it_makes_activations_smaller():
    def size(man):
        ours = federation(FedAvg(), Parts(man=man), module=two_hidden(), per_round=7)
        for _ in range(5):
            ours.step()
        parameters = ParameterSpace.of(two_hidden()).unflatten(ours.server.w)
        found, _ = activations_of_two_hidden(parameters, samples().inputs)
        return sum(float((a**2).mean()) for a in found.values())

    assert size(MAN(1.0)) < 0.5 * size(None)


@pytest.mark.parametrize(
    ("model", "man", "sentence"),
    [
        ("tests.trainers.user_code:tiny", MAN(0.1), "no activation that MAN could penalise"),
        ("digits_mlp", MAN(0.1, ("conv*",)), r"no layer with an activation matches 'conv\*': there are 1, 3"),
    ],
)
def test_is_refused_before_the_first_round_where_there_is_nothing_to_penalise(model, man, sentence, tmp_path):
    settings = Settings(model=model, clients=4, per_round=2, rounds=1, device="cpu")
    with pytest.raises(FedscapeError, match=sentence):
        train(FedAvg(), settings, Parts(man=man), out=tmp_path / "run")
    assert not (tmp_path / "run" / "ckpt.pt").exists()


@pytest.mark.parametrize("zeta", [-0.1, float("nan"), float("inf")])
def test_weights_that_make_no_sense_are_refused(zeta):
    with pytest.raises(FedscapeError, match="MAN's ζ is"):
        MAN(zeta)
