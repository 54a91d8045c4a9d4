"""Segmentation: the loss by pixel and image, its Hessian, pixel accuracy and mIoU, each against plain loops."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from landscape import FedscapeError, Landscape, Samples, build_model
from landscape.models.outputs import require_outputs
from landscape.tasks import IGNORED, confusion, loss_of, mean_iou, pixel_accuracy, pixel_cross_entropy

CLASSES, N, SIDE = 3, 7, 6


def net() -> nn.Module:
    """[n, 2, H, W] -> [n, 3, H, W]; 151 parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layers = nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, CLASSES, 3, padding=1)
        return nn.Sequential(*layers).double()


def samples() -> Samples:
    """Images with 0 to all of their pixels labelled; maps of bytes as they are stored."""
    draw = torch.Generator().manual_seed(3)
    images = torch.randn(N, 2, SIDE, SIDE, generator=draw, dtype=torch.float64)
    maps = torch.randint(0, CLASSES, (N, SIDE, SIDE), generator=draw, dtype=torch.uint8)
    for i in range(N):
        maps[i].view(-1)[: (N - 1 - i) * SIDE] = IGNORED
    maps[3, 1:, 1:] = IGNORED
    maps[4] = IGNORED
    return Samples(images, maps)


def landscape(**options) -> Landscape:
    return Landscape(net(), samples(), device="cpu", task="segmentation", **options)


def naive_loss(outputs: Tensor, maps: Tensor) -> Tensor:
    """Pixel by pixel, image by image."""
    images = []
    for logits, targets in zip(outputs, maps.tolist(), strict=True):
        pixels = [
            logits[:, i, j].logsumexp(0) - logits[targets[i][j], i, j]
            for i in range(logits.shape[1])
            for j in range(logits.shape[2])
            if targets[i][j] != IGNORED
        ]
        images.append(sum(pixels) / len(pixels) if pixels else 0 * logits.sum())
    return torch.stack(images).mean()


def objective(w: Tensor) -> Tensor:
    """The loss of all images at once as a function of the flat vector, written without ``landscape``."""
    model, data = net(), samples()
    named = dict(model.named_parameters())
    parts = w.split([p.numel() for p in named.values()])
    point = {name: part.view_as(p) for (name, p), part in zip(named.items(), parts, strict=True)}
    return naive_loss(functional_call(model, point, (data.inputs,)), data.targets)


@cache
def in_loops() -> tuple[float, Tensor, Tensor]:
    """Value, gradient and Hessian of the loss written in loops, where the network stands."""
    w = landscape().weights.clone().requires_grad_()
    value = objective(w)
    gradient = torch.autograd.grad(value, w)[0]
    return value.item(), gradient, torch.autograd.functional.hessian(objective, w.detach())


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2)), 5, N, None])
def test_value_gradient_and_hessian_are_those_of_the_loss_written_in_loops(size):
    around, (value, gradient, dense) = landscape(batch_size=size), in_loops()
    assert around.value() == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(around.gradient(), gradient, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(around.hvp(None, torch.eye(len(dense)).double()), dense, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["ggn", "empirical"])
def test_gauss_newton_and_fisher_do_not_depend_on_micro_batches(kind):
    v = torch.linspace(-1, 1, landscape().dimension).double()
    small, whole = (landscape(batch_size=size).gauss_newton(kind=kind)(v) for size in (2, N))
    assert whole.norm() > 1e-3
    torch.testing.assert_close(small, whole, rtol=1e-10, atol=1e-13)


def test_monte_carlo_fisher_is_refused():
    with pytest.raises(FedscapeError, match="needs a classifier"):
        landscape().gauss_newton(kind="mc")(landscape().weights)


def table_in_loops(predictions: list, maps: list) -> list[list[int]]:
    table = [[0] * CLASSES for _ in range(CLASSES)]
    for prediction, targets in zip(predictions, maps, strict=True):
        for row, wanted in zip(prediction, targets, strict=True):
            for found, label in zip(row, wanted, strict=True):
                if label != IGNORED:
                    table[label][found] += 1
    return table


@pytest.mark.parametrize("size", [1, 3, N])
def test_accuracy_and_miou_are_of_the_pixels_of_all_images(size):
    data = samples()
    predictions = net()(data.inputs).argmax(1)
    table = table_in_loops(predictions.tolist(), data.targets.tolist())
    overlaps = []
    for c in range(CLASSES):
        union = sum(table[c]) + sum(row[c] for row in table) - table[c][c]
        overlaps.append(table[c][c] / union)
    found = landscape(batch_size=size).evaluate()
    right = sum(table[c][c] for c in range(CLASSES))
    assert found.accuracy == pytest.approx(right / sum(map(sum, table)), rel=1e-12)
    assert found.mean_iou == pytest.approx(sum(overlaps) / CLASSES, rel=1e-12)
    assert landscape().mean_iou() == pytest.approx(found.mean_iou, rel=1e-15)


@pytest.mark.parametrize("world", [2, 3, 9])
def test_ranks_sums_are_those_of_one_even_where_some_have_no_images(world, monkeypatch):
    sums = []
    monkeypatch.setattr("landscape.data.micro_batches.sum_over_ranks", lambda total: sums.append(total) or total)
    landscape().evaluate()
    for rank in range(world):
        monkeypatch.setattr("landscape.data.micro_batches.rank_and_world", lambda rank=rank: (rank, world))
        landscape().evaluate()
    whole, *parts = sums
    torch.testing.assert_close(torch.stack(parts).sum(0), whole, rtol=1e-12, atol=0)


def test_miou_by_hand_is_over_the_classes_that_occur():
    outputs = nn.functional.one_hot(torch.tensor([[[0, 0, 1, 2]]]), 4).permute(0, 3, 1, 2).float()
    targets = torch.tensor([[[0, 1, 1, IGNORED]]])
    table = confusion(outputs, targets)
    assert table.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert pixel_accuracy(table) == pytest.approx(2 / 3)
    assert mean_iou(table) == pytest.approx((1 / 2 + 1 / 2) / 2)


def test_images_count_alike_and_one_without_labels_counts_as_nothing():
    outputs = torch.randn(2, CLASSES, 4, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.full((2, 4, 4), IGNORED)
    targets[0, 0, 0] = 1
    one = nn.functional.cross_entropy(outputs[:1, :, 0, 0], torch.tensor([1]))
    assert pixel_cross_entropy(outputs, targets).item() == pytest.approx(one.item() / 2)
    assert pixel_cross_entropy(outputs[1:], targets[1:]).item() == 0
    targets[1] = 2
    both = (one + nn.functional.cross_entropy(outputs[1:], targets[1:])) / 2
    assert pixel_cross_entropy(outputs, targets).item() == pytest.approx(both.item())


def test_torchs_mean_over_a_batchs_labelled_pixels_is_another_number_and_refused():
    def over_pixels(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets.long(), ignore_index=IGNORED)

    with pytest.raises(FedscapeError, match="ignored targets"):
        Landscape(net(), samples(), over_pixels, device="cpu", task="segmentation", batch_size=2).value()


def test_another_point_type_and_data_keep_the_task():
    around = landscape()
    assert around.to("float32").evaluate().mean_iou == pytest.approx(around.mean_iou(), abs=1e-6)
    assert around.over(samples().subset([5, 6])).evaluate().mean_iou is not None
    assert around.along(["3.weight"]).value() == pytest.approx(around.value(), rel=1e-12)


def test_large_images_are_taken_fewer_at_once():
    images, maps = torch.zeros(4, 2, 512, 1024), torch.zeros(4, 512, 1024, dtype=torch.uint8)
    large = Landscape(net(), Samples(images, maps), device="cpu", task="segmentation")
    saved = large.micro_batches.cost.saved
    assert 1 <= large.batch_size <= (1 << 27) / saved < 2 * large.batch_size
    assert large.batch_size < 8 < landscape().batch_size


def test_wrong_tasks_and_shapes_are_refused():
    with pytest.raises(FedscapeError, match="unknown task 'segments': did you mean 'segmentation'"):
        loss_of("segments")
    with pytest.raises(FedscapeError, match=r"logits \[n, classes, H, W\] for targets \[n, H, W\], and this one gives"):
        pixel_cross_entropy(torch.zeros(2, CLASSES), torch.zeros(2, 4, 4))
    with pytest.raises(FedscapeError, match="mIoU is of segmentation, and the task here is classification"):
        Landscape(nn.Linear(2, 2), (torch.ones(3, 2), torch.tensor([0, 1, 1])), device="cpu").mean_iou()


@pytest.mark.parametrize(
    ("model", "task", "shape", "classes", "fits"),
    [
        ("digits_cnn", "classification", (), 4, True),
        ("digits_cnn", "segmentation", (32, 32), 4, False),
        ("bisenet_v2_gn", "segmentation", (32, 32), 4, True),
        ("bisenet_v2_gn", "segmentation", (16, 16), 4, False),
        ("bisenet_v2_gn", "classification", (), 4, False),
        ("digits_cnn", "classification", (), 5, False),
    ],
)
def test_a_models_outputs_are_tried_against_the_task(model, task, shape, classes, fits):
    module = build_model(model, seed=0, input_shape=(3, 32, 32), classes=4)
    data = Samples(torch.zeros(2, 3, 32, 32), torch.zeros(2, *shape, dtype=torch.uint8))
    if fits:
        require_outputs(module, task, classes, data)
        assert module.training
    else:
        with pytest.raises(FedscapeError, match=rf"{task} into {classes} classes takes \[1, classes"):
            require_outputs(module, task, classes, data)


class Refuses(torch.nn.Linear):
    def forward(self, x):
        raise KeyError("a user's own slip")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            torch.nn.Linear(64, 4),
            r"RuntimeError: (addmm: )?mat1 and mat2 shapes cannot be multiplied \(96x32 and 64x4\): give",
        ),
        (Refuses(1, 1), r"KeyError: \"a user's own slip\" \(test_tasks.py, line \d+\): give another --model or --data"),
    ],
)
def test_a_model_that_fails_on_a_sample_is_refused_with_its_reason_and_is_left_in_its_mode(model, said):
    data = Samples(torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(FedscapeError, match=rf"fails on one sample, inputs of shape \[1, 3, 32, 32\]: {said}"):
        require_outputs(model, "classification", 4, data)
    assert model.training


@pytest.mark.parametrize("name", ["bisenet_v2", "bisenet_v2_gn"])
def test_bisenets_hessian_vector_products_are_differences_of_gradients(name):
    draw = torch.Generator().manual_seed(0)
    model = build_model(name, seed=0, input_shape=(3, 32, 48), classes=CLASSES).double()
    with torch.no_grad():
        for p in model.parameters():  # away from the residuals' scales of 0
            p += 0.03 * torch.randn(p.shape, generator=draw).double()
    images = torch.randn(2, 3, 32, 48, generator=draw).double()
    around = Landscape(
        model, (images, torch.randint(0, CLASSES, (2, 32, 48), generator=draw)), device="cpu", task="segmentation"
    )
    v = torch.randn(around.dimension, generator=draw).double()
    v /= v.norm()
    h = 1e-5
    difference = (around.gradient(around.weights + h * v) - around.gradient(around.weights - h * v)) / (2 * h)
    assert (around.hvp(None, v) - difference).norm() < 1e-5 * difference.norm()
