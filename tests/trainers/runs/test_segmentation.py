"""Segmentation in a federation: what is trained, evaluated, recorded and then measured."""

import json
import re
from operator import and_, or_

import pytest
import torch
from torch import Tensor, nn

from analysis.hessian.__main__ import main as measure
from landscape import Checkpoint, FedscapeError, Landscape, Samples
from landscape.autograd.flat import FlatModule
from landscape.batchnorm import BatchStatistics
from landscape.tasks import IGNORED, mean_iou, pixel_cross_entropy
from landscape.terminal.command import run as command
from tests.trainers.runs.shapes import CLASSES, drawn, network, shapes
from trainers import Parts, Scaffold, Settings, recording, train
from trainers.__main__ import main
from trainers.algorithms import FedAvg, FedSAM
from trainers.federation.local import Batch, LocalWork, WholeData, draw
from trainers.runs import read_runs
from trainers.tables import report

SHAPES, NETWORK = "tests.trainers.runs.shapes:shapes", "tests.trainers.runs.shapes:network"
SETTINGS = {
    "data": SHAPES,
    "model": NETWORK,
    "partition": "iid",
    "clients": 4,
    "per_round": 2,
    "rounds": 6,
    "local_epochs": 2,
    "batch_size": 5,
    "lr": 0.3,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(FedAvg(), Settings(**SETTINGS, client_accuracy=6), out=tmp_path_factory.mktemp("run") / "fedavg")


def landscape(run, **options) -> Landscape:
    return Landscape.from_checkpoint(run.checkpoint, model=NETWORK, data=SHAPES, device="cpu", **options)


def test_a_federation_learns_to_segment(run):
    first = Landscape.from_checkpoint(run.path / "rounds" / "00000.pt", "test", model=NETWORK, data=SHAPES)
    last = run.metrics[-1]
    assert last["test_loss"] < 0.4 * first.value()
    assert last["test_miou"] > 0.6 > first.mean_iou() + 0.2
    assert last["test_accuracy"] > 0.9


def test_a_recorded_loop_has_the_scores_of_its_pixels(tmp_path):
    """Of all pixels with a label the share of right ones; of a class, pixels in both maps by pixels in either."""
    data, module = shapes(None), network((1, 12, 12), CLASSES)
    with recording(tmp_path, model=NETWORK, data=SHAPES, every=1) as record:
        told = record(module, 1)
    x, y = data.test.batch(slice(0, len(data.test)), torch.float32)
    with torch.no_grad():
        outputs = module.eval()(x)
        loss = nn.functional.cross_entropy(outputs, y.long(), ignore_index=IGNORED).item()  # as many in each image
    guesses = outputs.argmax(1)
    pairs = [pair for pair in zip(guesses.flatten().tolist(), y.flatten().tolist(), strict=True) if pair[1] != IGNORED]
    right = sum(guess == label for guess, label in pairs)
    shares = []
    for one in range(CLASSES):
        both, either = (sum(how(one == guess, one == label) for guess, label in pairs) for how in (and_, or_))
        shares.append(both / either)
    expected = loss, right / len(pairs), sum(shares) / CLASSES
    assert (told["test_loss"], told["test_accuracy"], told["test_miou"]) == pytest.approx(expected, rel=1e-6)


def test_scores_are_those_of_the_checkpoint_on_the_test_images(run):
    found = Landscape.from_checkpoint(run.checkpoint, "test", model=NETWORK, data=SHAPES, device="cpu").evaluate()
    last = run.metrics[-1]
    assert (last["test_loss"], last["test_accuracy"], last["test_miou"]) == pytest.approx(
        (found.loss, found.accuracy, found.mean_iou), rel=1e-6
    )
    inputs, maps = shapes(None).test.batch(slice(None), torch.float32)
    model = Checkpoint.load(run.checkpoint).build_model(NETWORK)
    pairs = torch.stack([maps.long(), model(inputs).argmax(1)])[:, maps != IGNORED]
    table = torch.zeros(CLASSES, CLASSES).index_put_(tuple(pairs), torch.ones(()), accumulate=True)
    assert last["test_miou"] == pytest.approx(mean_iou(table), rel=1e-6)


def test_a_clients_accuracy_is_the_mean_over_its_images(run):
    dataset, checkpoint = shapes(None), Checkpoint.load(run.checkpoint)
    inputs, maps = dataset.train.batch(slice(None), torch.float32)
    labelled = maps != IGNORED
    right = (checkpoint.build_model(NETWORK)(inputs).argmax(1) == maps) & labelled
    shares = right.flatten(1).sum(1) / labelled.flatten(1).sum(1)
    means = torch.stack([shares[indices].mean() for indices in checkpoint.partition(dataset).clients])
    assert run.metrics[-1]["client_train_accuracy"] == pytest.approx(means.mean().item(), rel=1e-5)
    assert "client_test_accuracy" not in run.metrics[-1]


def test_the_checkpoint_records_the_task_and_other_data_are_refused(run):
    assert Checkpoint.load(run.checkpoint).data["task"] == "segmentation"
    with pytest.raises(FedscapeError, match="was trained for segmentation, and the data set digits is one for classif"):
        Landscape.from_checkpoint(run.checkpoint, model=NETWORK, data="digits")


@pytest.mark.slow
def test_the_hessian_command_measures_the_checkpoint(run, tmp_path, capsys):
    out = tmp_path / "hessian.json"
    arguments = ["--model", NETWORK, "--data", SHAPES, "--top", "3", "--dtype", "float64", "--device", "cpu"]
    line = [str(run.checkpoint), *arguments, "--tolerance", "1e-8", "--json", str(out)]
    assert command(lambda: measure(line)) == 0
    around = landscape(run, dtype="float64")
    dense = around.hvp(None, torch.eye(around.dimension, dtype=torch.float64))
    expected = torch.linalg.eigvalsh((dense + dense.T) / 2).flip(0)[:3]
    found = json.loads(out.read_text())
    torch.testing.assert_close(torch.tensor(found["eigenvalues"]).double(), expected, rtol=1e-6, atol=1e-9)


def test_the_report_has_a_column_for_miou(run):
    table = report(read_runs([run.path]))
    assert table.rows[0][table.columns.index("mIoU %")] == pytest.approx(100 * run.metrics[-1]["test_miou"])


def batch(task_local: LocalWork, data: Samples, seed: int = 0) -> Batch:
    model = FlatModule(network((1, 12, 12), CLASSES), torch.device("cpu"), torch.float64)
    drawn = draw(data, torch.arange(len(data)), task_local, torch.Generator().manual_seed(seed), torch.float64)
    return Batch(model, drawn, task_local, BatchStatistics(model.module))


def local(**changes) -> LocalWork:
    return LocalWork(**{"epochs": 1, "batch_size": None, "weight_decay": 0.0, "augment": "none", "seed": 0, **changes})


def test_a_local_gradient_is_that_of_the_loss_by_image():
    data = Samples(*drawn(5, 3))
    mine = batch(local(task="segmentation"), data)
    around = Landscape(mine.model.module, data, pixel_cross_entropy, device="cpu", dtype="float64")
    expected = around.gradient()
    torch.testing.assert_close(mine.gradient(mine.model.buffer.clone()), expected, rtol=1e-10, atol=1e-13)
    whole = WholeData(mine.model, data, torch.arange(5), (0, "full gradient", 1, 0), "segmentation")
    torch.testing.assert_close(whole.gradient(mine.model.buffer.clone()), expected, rtol=1e-10, atol=1e-13)


class Looking(nn.Module):
    """Tells what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x.detach()
        return self.weight * torch.cat([x, -x], 1)


def test_labels_move_with_the_pixels_that_are_flipped_and_cropped():
    random = torch.Generator().manual_seed(1)
    maps = torch.randint(0, 2, (20, 9, 7), generator=random, dtype=torch.uint8)
    data = Samples(maps[:, None] + 1, maps)  # a pixel shows its label, and padding is 0
    model = FlatModule(Looking(), torch.device("cpu"), torch.float64)
    work = local(task="segmentation", augment="flip-crop")
    drawn = draw(data, torch.arange(20), work, random, torch.float64)
    mine = Batch(model, drawn, work, BatchStatistics(model.module))
    mine.gradient(model.buffer.clone())
    seen = model.module.seen[:, 0]
    wanted = torch.where(seen == 0, IGNORED, seen - 1).to(torch.uint8)
    assert (seen == 0).any()
    assert not torch.equal(wanted, maps)
    assert torch.equal(drawn.targets, wanted)
    expected = pixel_cross_entropy(torch.stack([seen, -seen], 1), wanted)
    assert mine.loss.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "changes", "parts"),
    [
        (Scaffold(), {"augment": "flip-crop"}, Parts(mixup=True, cutout=3)),
        (FedSAM(), {"model": "tests.trainers.runs.shapes:normed", "batchnorm": "silo"}, Parts()),
        (FedAvg(), {"model": "tests.trainers.runs.shapes:normed"}, Parts()),
    ],
)
def test_algorithms_parts_and_silobn_train_on_it(algorithm, changes, parts, tmp_path):
    run = train(algorithm, Settings(**{**SETTINGS, "rounds": 3, **changes}), parts, out=tmp_path / "run")
    assert run.status == "finished"
    assert run.metrics[-1]["test_loss"] < run.metrics[0]["test_loss"]


@pytest.mark.parametrize(
    ("model", "data", "said"),
    [
        ("digits_cnn", SHAPES, r"segmentation into 3 classes takes \[1, classes, 12, 12\]: give another --model"),
        (NETWORK, "digits", r"classification into 10 classes takes \[1, classes\]: give another --model or --data"),
    ],
)
def test_a_model_for_another_task_is_refused_in_a_sentence(model, data, said, tmp_path, capsys):
    line = ["fedavg", "--model", model, "--data", data, "--partition", "iid", "--out", str(tmp_path / "run")]
    assert command(lambda: main(line)) == 2
    captured = capsys.readouterr()
    assert re.search(said, captured.err.replace("\n", " "))
    assert "Traceback" not in captured.err


def test_the_command_tells_miou(tmp_path, capsys):
    arguments = ["--clients", "3", "--per-round", "1", "--rounds", "1", "--device", "cpu", "--partition", "iid"]
    out = ["--out", str(tmp_path / "run")]
    assert main(["fedavg", "--model", NETWORK, "--data", SHAPES, *arguments, *out]) == 0
    assert "test mIoU" in capsys.readouterr().out
