"""What is measured at a point is what plain PyTorch gives there, with honest errors."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from analysis.surface.planes import line_between, random_plane, three_plane
from analysis.surface.points import Points
from landscape import FedscapeError, Landscape
from landscape.activations import MAN

X, Y = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)).double(), torch.arange(30) % 3
X2, Y2 = 2 * X[:20] - 0.3, Y[5:25]


def network(seed: int = 0, norm: bool = True) -> nn.Module:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5) if norm else nn.Identity(), nn.ReLU(), nn.Linear(5, 3))
    net.double()
    if norm:
        net[1].running_mean.copy_(torch.randn(5))
        net[1].running_var.copy_(torch.rand(5) + 0.5)
    return net.eval()


def both(net: nn.Module, **options) -> dict[str, Landscape]:
    train = Landscape(net, (X, Y), device="cpu", batch_size=7, **options)
    return {"train": train, "test": Landscape(net, (X2, Y2), device="cpu", batch_size=7, **options)}


def moved(net: nn.Module, w: torch.Tensor) -> nn.Module:
    other = copy.deepcopy(net)
    nn.utils.vector_to_parameters(w, other.parameters())
    return other


def test_train_and_test_are_those_of_a_plain_loop_with_standard_errors_over_samples():
    net = network()
    landscapes = both(net)
    plane = random_plane(landscapes["train"])
    found = Points(landscapes, plane).measure(0.3, -0.2)
    there = moved(net, plane.point(0.3, -0.2))
    for split, x, y in (("train", X, Y), ("test", X2, Y2)):
        losses = np.array([cross_entropy(there(x[i : i + 1]), y[i : i + 1]).item() for i in range(len(x))])
        right = (there(x).argmax(dim=1) == y).double().numpy()
        for name, values, unit in (("loss", losses, 1), ("acc", right, 100)):
            assert found[f"{split}_{name}"] == pytest.approx(unit * values.mean(), rel=1e-12)
            stderr = unit * values.std(ddof=1) / np.sqrt(len(values))
            assert found[f"{split}_{name}_stderr"] == pytest.approx(stderr, rel=1e-9)


def test_any_loss_has_a_standard_error():
    def own(outputs, targets):
        assert targets.min() >= 0  # looks at values, which vmap does not stand
        return nn.functional.multi_margin_loss(outputs, targets)

    net = network()
    result = Landscape(net, (X, Y), own, device="cpu", batch_size=7).evaluate(stderr=True)
    losses = nn.functional.multi_margin_loss(net(X), Y, reduction="none").detach().numpy()
    assert result.loss_stderr == pytest.approx(losses.std(ddof=1) / np.sqrt(30), rel=1e-9)
    targets = torch.eye(3).double()[Y]
    result = Landscape(net, (X, targets), nn.functional.mse_loss, device="cpu", batch_size=7).evaluate(stderr=True)
    losses = (net(X) - targets).square().mean(dim=1).detach().numpy()
    assert result.loss_stderr == pytest.approx(losses.std(ddof=1) / np.sqrt(30), rel=1e-9)


def test_a_loss_that_is_not_finite_has_no_error_that_is():
    net = network(norm=False)
    with torch.no_grad():
        net[0].weight.fill_(1e200)
        net[3].weight.mul_(1e200)
    found = Points({"train": Landscape(net, (X, Y), device="cpu")}, random_plane(both(network())["train"]))
    result = Landscape(net, (X, Y), device="cpu").evaluate(stderr=True)
    assert not np.isfinite(result.loss)
    assert not np.isfinite(result.loss_stderr)
    assert found.batchnorm == "none"


def test_regularised_objective_adds_weight_decay_and_man():
    net = network(norm=False)
    landscapes = both(net, penalty=MAN(0.1))
    plane = random_plane(landscapes["train"])
    found = Points(landscapes, plane, weight_decay=0.02).measure(0.5, 0.5)
    w = plane.point(0.5, 0.5)
    there = moved(net, w)
    batches = zip(X.split(7), Y.split(7), strict=True)
    wanted = (
        sum(len(x) / 30 * (cross_entropy(there(x), y) + 0.1 * there[:3](x).square().mean()) for x, y in batches)
        + 0.01 * w.square().sum()
    )
    assert found["train_loss"] == pytest.approx(float(wanted), rel=1e-12)


def test_frozen_statistics_stay_those_of_the_checkpoint():
    net = network()
    landscapes = both(net)
    plane = random_plane(landscapes["train"])
    assert Points(landscapes, plane).measure(0, 0)["train_loss"] == landscapes["train"].value()


def test_recalculated_statistics_are_those_of_the_training_data_at_the_point():
    net = network()
    landscapes = {split: Landscape(net, data, device="cpu") for split, data in (("train", (X, Y)), ("test", (X2, Y2)))}
    plane = random_plane(landscapes["train"])
    points = Points(landscapes, plane, batchnorm="recalculated")
    before = landscapes["test"].value()
    with points.session():
        found = points.measure(0.4, 0.1)
    there = moved(net, plane.point(0.4, 0.1))
    hidden = there[0](X)
    for split, x, y in (("train", X, Y), ("test", X2, Y2)):
        normed = (there[0](x) - hidden.mean(0)) / (hidden.var(0) + there[1].eps).sqrt()
        logits = there[3](torch.relu(normed * there[1].weight + there[1].bias))
        assert found[f"{split}_loss"] == pytest.approx(float(cross_entropy(logits, y)), rel=1e-10)
    assert landscapes["test"].value() == before, "afterwards the landscapes are what they were"


@pytest.mark.parametrize("count", [2, 3])
def test_interpolated_statistics_make_each_model_itself(count):
    nets = [network(seed) for seed in range(count)]
    own = [both(net) for net in nets]
    models = [pair["train"].weights for pair in own]
    plane = (three_plane if count == 3 else line_between)(models, list("abc")[:count])
    statistics = [pair["train"].batch_statistics.read() for pair in own]
    points = Points(own[0], plane, batchnorm="interpolated", statistics=statistics)
    for mark, pair in zip(plane.marks, own, strict=True):
        found = points.measure(mark.x, mark.y)
        assert found["train_loss"] == pytest.approx(pair["train"].value(), rel=1e-9)
        assert found["test_loss"] == pytest.approx(pair["test"].value(), rel=1e-9)
    far = 5 * plane.marks[1].x
    assert np.isfinite(points.measure(far, 0.0)["train_loss"]), "no variance is negative"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weight_decay": -1.0}, "the weight decay is -1.0: give 0 or more"),
        ({"batchnorm": "molten"}, "unknown treatment of BatchNorm 'molten'"),
        ({"batchnorm": "interpolated"}, "take frozen or recalculated"),
    ],
)
def test_what_makes_no_sense_is_refused(options, sentence):
    landscapes = both(network())
    with pytest.raises(FedscapeError, match=sentence):
        Points(landscapes, random_plane(landscapes["train"]), **options)
