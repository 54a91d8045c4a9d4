"""Which inputs are normalised by what: the rule of today, rules that are asked for, the rule of earlier versions."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from analysis.hessian.__main__ import main as hessian
from landscape import Checkpoint, FedscapeError, Landscape, load_dataset, make_dataset
from landscape.checkpoints.foreign import open_checkpoint
from landscape.data.normalisation import Normalisation, as_before, as_recorded, normalised, recorded
from tests.landscape.checkpoints.state_dicts import network
from tests.landscape.data.data_files import write_archive
from trainers import FedAvg, Settings, train

DRAW = np.random.default_rng(0)
LABELS = np.arange(12) % 3
PIXELS = DRAW.integers(0, 256, (12, 3, 4, 4), dtype=np.uint8)
FLOATS = DRAW.normal([2.0, -1.0], [3.0, 0.5], (12, 2)).astype(np.float32)
CIFAR = "0.4914,0.4822,0.4465/0.2023,0.1994,0.2010"
"""PyHessian's."""


def made(inputs, **options):
    return make_dataset("made", (inputs, LABELS), (inputs[:4], LABELS[:4]), **options)


def batch(dataset, split="train"):
    return dataset.split(split).batch(slice(None), torch.float64)[0].numpy()


def by_hand(mean, std, pixels=PIXELS):
    mean, std = (np.array(v).reshape(-1, 1, 1) for v in (mean, std))
    return (pixels / 255 - mean) / std


class TestRules:
    def test_floats_are_taken_as_they_are_and_pixels_get_mean_0_and_deviation_1(self):
        assert np.array_equal(batch(made(FLOATS)), FLOATS.astype(np.float64))
        x = batch(made(PIXELS))
        assert np.allclose([x.mean((0, 2, 3)), x.std((0, 2, 3))], [[0] * 3, [1] * 3])

    def test_floats_with_statistics_of_their_data_set_are_normalised_by_these(self):
        dataset = made(FLOATS, mean=[1, 2], std=[2, 4])
        assert np.allclose(batch(dataset), (FLOATS - [1, 2]) / [2, 4])
        assert np.array_equal(batch(as_before(dataset)), batch(dataset))

    @pytest.mark.parametrize("split", ["train", "test"])
    @pytest.mark.parametrize(
        ("rule", "mean", "std"),
        [
            ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
            (CIFAR, [0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]),
            ("0.5/0.25", [0.5] * 3, [0.25] * 3),
            ("none", [0] * 3, [1] * 3),
            ("data", (PIXELS / 255).mean((0, 2, 3)), (PIXELS / 255).std((0, 2, 3))),
        ],
    )
    def test_pixels_are_normalised_by_the_rule_asked_for(self, rule, mean, std, split):
        count = 12 if split == "train" else 4
        dataset = normalised(made(PIXELS, mean=[1, 2, 3], std=[4, 5, 6]), rule)
        assert np.allclose(batch(dataset, split), by_hand(mean, std)[:count], rtol=1e-12)

    def test_floats_are_normalised_in_their_own_units(self):
        assert np.allclose(batch(normalised(made(FLOATS), "2,-1/3,0.5")), (FLOATS - [2, -1]) / [3, 0.5])
        assert np.array_equal(batch(normalised(made(FLOATS, mean=[1, 2], std=[2, 4]), "none")), FLOATS)
        x = batch(normalised(made(FLOATS), "data"))
        assert np.allclose([x.mean(0), x.std(0)], [[0, 0], [1, 1]], atol=1e-6)

    @pytest.mark.parametrize(
        ("rule", "reason"),
        [
            ("cifar", "unknown normalisation 'cifar': did you mean 'cifar1"),
            ("mnist", None),
            ("1,2/3,4", r"has 2 means and 2 deviations for the 3 channels of made"),
            ("0.5/0", "deviations above 0"),
            ("0.5/nan", "deviations above 0"),
            ("a,b/c", "with a number for each channel"),
            ("/", "with a number for each channel"),
        ],
    )
    def test_rules_that_make_no_sense_are_refused(self, rule, reason):
        if reason is None:  # one number serves all channels
            assert Normalisation.of(normalised(made(PIXELS), rule)).mean == pytest.approx((0.1307,) * 3)
            return
        with pytest.raises(FedscapeError, match=reason):
            normalised(made(PIXELS), rule)

    def test_integers_that_are_no_images_are_refused_and_stay(self):
        tokens = made(np.arange(48).reshape(12, 4))
        assert batch(tokens).dtype == np.int64
        with pytest.raises(FedscapeError, match=r"are torch\.int64 and no images"):
            normalised(tokens, "none")

    def test_it_is_named_as_it_can_be_given(self):
        assert str(Normalisation.of(normalised(made(PIXELS), CIFAR))) == (
            "normalised by 0.4914,0.4822,0.4465/0.2023,0.1994,0.201 (pixels/255)"
        )
        assert str(Normalisation.of(made(FLOATS))) == "taken as they are"
        assert "(6 channels)" in str(Normalisation.of(normalised(made(np.ones((12, 6))), "1/2")))


class TestRecords:
    @pytest.mark.parametrize("inputs", [PIXELS, FLOATS], ids=["pixels", "floats"])
    @pytest.mark.parametrize("rule", [None, "0.3/0.7", "none", "data"])
    def test_a_record_gives_the_same_numbers_to_the_bit(self, inputs, rule):
        wanted = normalised(made(inputs), rule)
        record = json.loads(json.dumps(recorded(wanted)))
        assert np.array_equal(batch(as_recorded(made(inputs), record, "here")), batch(wanted))

    @pytest.mark.parametrize(
        ("record", "reason"),
        [
            ({"inputs": "uint8", "mean": [1.0], "std": None}, "damaged"),
            ({"inputs": "uint8", "mean": [1.0] * 3, "std": [0.0, 1.0, 1.0]}, "damaged"),
            ({"inputs": "uint8", "mean": [1.0] * 3, "std": [float("nan")] * 3}, "damaged"),
            ({"inputs": "uint8", "mean": "abc", "std": "abc"}, "damaged"),
            ({"mean": None, "std": None}, "damaged"),
            ("none", "damaged"),
            ({"inputs": "uint8", "mean": [1.0], "std": [1.0]}, "1 channels of uint8 inputs, and made has 3 of uint8"),
            (
                {"inputs": "floating-point", "mean": None, "std": None},
                "on floating-point inputs, and made has 3 of uint8",
            ),
        ],
    )
    def test_a_damaged_or_foreign_record_is_refused(self, record, reason):
        with pytest.raises(FedscapeError, match=reason):
            as_recorded(made(PIXELS), record, "here")


def trained(folder, data, **changes):
    """A run of one round of a dense net."""
    settings = Settings(
        data=data, model="tests.trainers.user_code:tiny", partition="iid", clients=2, per_round=2, rounds=1,
        local_epochs=1, device="cpu", **changes,
    )  # fmt: skip
    return train(FedAvg(), settings, out=folder, resume=(folder / "config.json").exists())


def loss_of(checkpoint, inputs, labels):
    module = checkpoint.build_model("tests.trainers.user_code:tiny").double()
    return nn.functional.cross_entropy(module(torch.from_numpy(inputs).double()), torch.from_numpy(labels)).item()


class TestRuns:
    MODEL = "tests.trainers.user_code:tiny"

    def value(self, checkpoint, **options):
        around = Landscape.from_checkpoint(checkpoint, model=self.MODEL, device="cpu", dtype="float64", **options)
        return around.value()

    @pytest.fixture
    def floats(self, tmp_path):
        return write_archive(tmp_path, x_train=FLOATS, y_train=LABELS, x_test=FLOATS[:4], y_test=LABELS[:4])

    @pytest.mark.parametrize("rule", ["auto", "0.5/0.2", "data"])
    def test_a_run_records_its_rule_and_is_measured_by_it(self, tmp_path, floats, rule):
        run = trained(tmp_path / "run", floats, normalise=rule)
        checkpoint = Checkpoint.load(run.checkpoint)
        inputs = batch(normalised(load_dataset(floats), None if rule == "auto" else rule))
        expected = loss_of(checkpoint, inputs, LABELS)
        assert self.value(run.checkpoint) == pytest.approx(expected, rel=1e-12)
        assert self.value(run.checkpoint, normalise="7/9") != pytest.approx(expected, rel=1e-3)

    def test_a_checkpoint_without_a_record_is_measured_as_earlier_versions_did(self, tmp_path, floats):
        run = trained(tmp_path / "run", floats)
        new = Checkpoint.load(run.checkpoint)
        del new.data["normalisation"]
        new.save(tmp_path / "old.pt")
        standardised = (FLOATS - FLOATS.mean(0, dtype=float)) / FLOATS.std(0, dtype=float)
        assert self.value(tmp_path / "old.pt") == pytest.approx(loss_of(new, standardised, LABELS), rel=1e-6)

    def test_a_run_of_an_earlier_version_goes_on_with_the_rule_it_had(self, tmp_path, floats):
        folder = tmp_path / "run"
        trained(folder, floats, normalise="data")
        config = json.loads((folder / "config.json").read_text())
        del config["settings"]["normalise"]
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(FedscapeError, match=r"normalise was data and is 0\.5/0\.5"):
            trained(folder, floats, normalise="0.5/0.5")
        trained(folder, floats)
        config = json.loads((folder / "config.json").read_text())
        assert config["settings"]["normalise"] == "data"
        trained(folder, floats)  # and again
        assert Checkpoint.load(folder / "ckpt.pt").data["normalisation"]["mean"] is not None

    def test_another_rule_is_another_run(self, tmp_path, floats):
        trained(tmp_path / "run", floats)
        with pytest.raises(FedscapeError, match=r"normalise was auto and is 0\.5/0\.5"):
            trained(tmp_path / "run", floats, normalise="0.5/0.5")

    def test_an_earlier_run_on_pixels_is_not_one_with_another_rule(self, tmp_path):
        archive = write_archive(tmp_path, x_train=PIXELS, y_train=LABELS, x_test=PIXELS[:4], y_test=LABELS[:4])
        trained(tmp_path / "run", archive)
        config = json.loads((tmp_path / "run" / "config.json").read_text())
        del config["settings"]["normalise"]
        (tmp_path / "run" / "config.json").write_text(json.dumps(config))
        with pytest.raises(FedscapeError, match="normalise was auto and is none"):
            trained(tmp_path / "run", archive, normalise="none")
        trained(tmp_path / "run", archive)


class TestForeign:
    @pytest.fixture
    def path(self, tmp_path):
        torch.save(network().state_dict(), tmp_path / "net.pth")
        return tmp_path / "net.pth"

    @pytest.mark.parametrize("rule", [None, "0.02/0.03"])
    def test_the_loss_is_that_of_inputs_so_normalised(self, path, rule):
        dataset = load_dataset("digits")
        raw = dataset.train.inputs.numpy()
        x = by_hand([0.02], [0.03], raw) if rule else (raw - raw.mean()) / raw.std()
        expected = nn.functional.cross_entropy(network().double()(torch.from_numpy(x)), dataset.train.targets).item()
        options = {"model": "digits_mlp", "data": "digits", "device": "cpu", "dtype": "float64"}
        assert Landscape.from_checkpoint(path, normalise=rule, **options).value() == pytest.approx(expected, rel=1e-10)

    def test_saved_as_a_checkpoint_it_keeps_the_rule(self, path, tmp_path):
        opened = open_checkpoint(path, "digits_mlp", "digits", normalise="0.02/0.03")
        opened.save(tmp_path / "own.pt")
        assert Normalisation.of(Checkpoint.load(tmp_path / "own.pt").load_dataset()).std == pytest.approx((0.03,))

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ([], "by default; if it was trained otherwise, say so (--normalise)"),
            (["--normalise", "0.02/0.03"], "as asked for"),
        ],
    )
    def test_the_screen_names_it_even_where_progress_is_off(self, path, capsys, monkeypatch, given, words):
        monkeypatch.setattr("landscape.terminal.notices._told", set())
        line = [str(path), "--model", "digits_mlp", "--data", "digits", "--samples", "20", "--top", "1", "--no-trace"]
        assert hessian([*line, "--quiet", "--device", "cpu", *given]) == 0
        told = capsys.readouterr().err
        assert told.count("net.pth: the inputs of digits are normalised by 0.0") == 1
        assert words in told
        assert ("/0.03 (pixels/255)" in told) == bool(given)
