"""``python -m analysis.corruptions`` and the one-call API behind it."""

import csv
import json
import pickle

import numpy as np
import pytest
import torch

import analysis.corruptions.measure
from analysis.corruptions import measure_corruptions
from analysis.corruptions.__main__ import main
from analysis.corruptions.robustness import Robustness
from analysis.source import Place
from landscape import DATASETS, Checkpoint, FedscapeError, make_dataset
from landscape.data.corruptions import CORRUPTIONS, generated
from landscape.terminal.command import run
from tests.analysis.corruptions.bright import build
from tests.landscape.checkpoints.checkpoints import checkpoint

LEVELS = [40, 80, 120, 160]
LABELS = [0, 1, 1, 0]
"""Of the four clean test images; above 100 is class 1 to the model, so the second and the last are wrong."""
# fmt: off
FOG = [[40, 80, 120, 160], [40, 120, 120, 160], [40, 120, 120, 80], [120, 120, 120, 80], [120, 80, 80, 160]]
SNOW = [[40, 120, 120, 80]] * 3 + [[120, 80, 80, 160]] * 2
# fmt: on
"""Levels of the corrupted images at severity 1, 2, ..."""
FOG_RIGHT, SNOW_RIGHT = [2, 3, 4, 3, 0], [4, 4, 4, 0, 0]
BRIGHT = "tests.analysis.corruptions.bright:build"


def write_cifar(root):
    """CIFAR-10 and CIFAR-10-C in their real layout, of plain grey images."""
    clean, corrupted = root / "cifar-10-batches-py", root / "CIFAR-10-C"
    clean.mkdir()
    corrupted.mkdir()
    rows = np.repeat(np.uint8(LEVELS)[:, None], 3072, axis=1)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (clean / name).write_bytes(pickle.dumps({"data": rows, "labels": LABELS}, protocol=2))
    np.save(corrupted / "labels.npy", np.uint8(LABELS * 5))
    for name, levels in (("fog", FOG), ("snow", SNOW)):
        np.save(corrupted / f"{name}.npy", np.broadcast_to(np.uint8(levels).reshape(20, 1, 1, 1), (20, 32, 32, 3)))
    return root


def bright(threshold=100.0, **changes):
    model = build([3, 32, 32], 10)
    contents = {
        "model": {"name": BRIGHT, "kwargs": {"input_shape": [3, 32, 32], "classes": 10}},
        "data": {"name": "cifar10", "kwargs": {}, "seed": 0},
        "parameters": {name: torch.full_like(p, threshold) for name, p in model.named_parameters()},
        "buffers": {},
        "clients": {},
    }
    return checkpoint(**{**contents, **changes})


@pytest.fixture
def cifar(tmp_path):
    return write_cifar(tmp_path)


@pytest.fixture
def files(cifar):
    """Two checkpoints on the written CIFAR-10: with the threshold at 100, and one that calls nothing bright."""
    paths = []
    for name, threshold in (("first", 100.0), ("second", 300.0)):
        (cifar / name).mkdir()
        paths.append(cifar / name / "ckpt.pt")
        bright(threshold).save(paths[-1])
    return [str(path) for path in paths]


def measured(cifar, **options):
    options = {"corruptions": ("fog", "snow"), "data_dir": cifar, "model": BRIGHT, "device": "cpu", **options}
    return measure_corruptions([bright()], **options)


class TestPublishedFiles:
    def test_accuracy_is_what_counting_gives(self, cifar):
        found = measured(cifar)
        assert found.clean_accuracy.tolist() == [0.5]
        assert found.accuracy.tolist() == [[[n / 4 for n in FOG_RIGHT], [n / 4 for n in SNOW_RIGHT]]]
        assert (found.images, found.generated, found.samples) == ("CIFAR-10-C", False, 4)

    def test_loss_is_the_mean_cross_entropy(self, cifar):
        levels = torch.tensor(FOG[2], dtype=torch.float64)
        outputs = torch.stack([torch.zeros(4, dtype=torch.float64), 2 * (levels - 100)], dim=1)
        expected = torch.nn.functional.cross_entropy(outputs, torch.tensor(LABELS)).item()
        found = measured(cifar, dtype="float64", severities=(3,), corruptions=("fog",))
        assert found.loss.item() == pytest.approx(expected, rel=1e-6, abs=1e-12)

    def test_severities_are_in_order_and_each_once(self, cifar):
        found = measured(cifar, severities=(5, 2, 2))
        assert found.severities == (2, 5)
        assert found.accuracy[0, 0].tolist() == [FOG_RIGHT[1] / 4, FOG_RIGHT[4] / 4]

    def test_a_subset_is_of_the_same_images_clean_and_corrupted(self, cifar):
        whole = np.load(cifar / "CIFAR-10-C" / "fog.npy")
        clean = np.tile(np.uint8(LEVELS), 5).reshape(20, 1, 1, 1)
        np.save(cifar / "CIFAR-10-C" / "fog.npy", np.broadcast_to(clean, whole.shape))
        for count in (1, 2, 3):
            found = measured(cifar, corruptions=("fog",), samples=count)
            assert found.samples == count
            assert (found.accuracy == found.clean_accuracy).all()

    def test_options_come_by_name_or_as_a_place(self, cifar):
        place = Place(samples=2, device="cpu", data_dir=cifar, model=BRIGHT)
        found = measure_corruptions([bright()], ("fog",), place=place)
        assert found.to_dict() == measured(cifar, corruptions=("fog",), samples=2).to_dict()
        assert measure_corruptions([bright()], ("fog",), place=place, samples=3).samples == 3
        with pytest.raises(TypeError, match="no option 'sample': did you mean 'samples'"):
            measured(cifar, sample=2)

    def test_all_nineteen_are_wanted_unless_named(self, cifar):
        with pytest.raises(FedscapeError, match=r"gaussian_noise\.npy: No such file.*with --corruptions"):
            measured(cifar, corruptions=())

    def test_missing_files_are_told_with_layout_and_cure(self, tmp_path, cifar):
        (cifar / "CIFAR-10-C").rename(tmp_path / "elsewhere")
        with pytest.raises(FedscapeError) as caught:
            measured(cifar)
        for text in ("CIFAR-10-C/", "labels.npy", "uint8 [50000, 32, 32, 3]", "fetch cifar10_c", "--generate"):
            assert text in str(caught.value)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (
                lambda folder: np.save(folder / "labels.npy", np.uint8([1, 1, 1, 0] * 5)),
                "not those of the 4 test images",
            ),
            (lambda folder: np.save(folder / "labels.npy", np.uint8(LABELS)), "20, 32, 32, 3"),
            (lambda folder: np.save(folder / "fog.npy", np.zeros((20, 3, 32, 32), np.uint8)), "20, 3, 32, 32"),
            (lambda folder: (folder / "fog.npy").write_bytes((folder / "fog.npy").read_bytes()[:5000]), "fog.npy"),
            (lambda folder: (folder / "fog.npy").write_bytes(b""), "fog.npy"),
        ],
    )
    def test_damaged_files_are_refused(self, cifar, change, sentence):
        change(cifar / "CIFAR-10-C")
        with pytest.raises(FedscapeError, match=sentence):
            measured(cifar)


def made_up(accuracy, labels=("a", "b")):
    accuracy = np.array(accuracy)
    k, c, s = accuracy.shape
    return Robustness(
        labels[:k], "digits", "generated", True, CORRUPTIONS[:c], tuple(range(1, s + 1)), np.full(k, 0.9),
        np.full(k, 0.1), accuracy, 1 - accuracy, 10, 0, "cpu", "float32",
    )  # fmt: skip


class TestMeans:
    found = made_up([[[0.8, 0.6], [0.5, 0.3]], [[0.9, 0.8], [0.4, 0.2]]])

    def test_mce_is_relative_to_the_first_checkpoint(self):
        np.testing.assert_allclose(self.found.errors, [[1, 1], [0.3 / 0.6, 1.4 / 1.2]])
        np.testing.assert_allclose(self.found.mean_error, [1, (0.5 + 7 / 6) / 2])

    def test_tables_have_every_mean(self):
        summary = [row[2:] for row in self.found.summary().rows]
        np.testing.assert_allclose(summary, [[0.9, 0.55, 0.45, 0.45, 1], [0.9, 0.575, 0.5, 0.425, 5 / 6]])
        rows = self.found.details().rows
        assert [row[:3] for row in rows[:3]] == [
            ("a", "gaussian_noise", "generated"), ("a", "shot_noise", "generated"), ("a", "mean", "generated"),
        ]  # fmt: skip
        np.testing.assert_allclose(rows[4][3:], [0.4, 0.2, 0.3, 0.7, 1.4 / 1.2])
        np.testing.assert_allclose(rows[5][3:], [0.65, 0.5, 0.575, 0.425, 5 / 6])

    def test_no_error_to_compare_with_is_no_number(self):
        found = made_up([[[1.0, 1.0]], [[0.5, 0.5]]])
        assert np.isnan(found.mean_error).all()
        assert found.summary().rows[1][-1] is None


class TestPicture:
    def test_every_number_is_drawn_and_labelled(self):
        found = made_up([[[0.8, 0.6], [0.5, 0.3]], [[0.9, 0.8], [0.4, 0.2]]])
        figure = found.plot()
        names, severities = figure.axes
        heights = [line.get_ydata() for line in names.get_lines()[:2]]
        np.testing.assert_allclose(heights, [[0.9, 0.6, 0.3, 0.45], [0.9, 0.8, 0.2, 0.5]])
        np.testing.assert_allclose(severities.get_lines()[1].get_ydata(), [0.9, 0.65, 0.5])
        ticks = [label.get_text() for label in names.get_xticklabels()]
        assert ticks == ["clean", "gaussian noise", "shot noise", "mean"]
        assert "generated" in figure.get_suptitle()
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]

    def test_nothing_overlaps_and_greyscale_tells_the_checkpoints_apart(self):
        found = made_up(
            np.random.default_rng(0).random((7, 19, 5)), tuple(f"algorithm {i}, round 100" for i in range(7))
        )
        figure = found.plot()
        figure.draw_without_rendering()
        legend, axes = figure.legends[0].get_window_extent(), figure.axes[0].get_tightbbox()
        assert not legend.overlaps(axes)
        assert not figure._suptitle.get_window_extent().overlaps(figure.axes[0].title.get_window_extent())
        assert len({line.get_marker() for line in figure.axes[0].get_lines()[:7]}) == 7
        assert legend.x0 >= 0
        assert legend.x1 <= figure.bbox.x1

    def test_one_severity_is_one_panel_that_holds_its_title(self):
        figure = made_up([[[0.8], [0.5]]]).plot()
        assert len(figure.axes) == 1
        figure.draw_without_rendering()
        title = figure._suptitle.get_window_extent()
        assert title.x0 >= 0
        assert title.x1 <= figure.bbox.x1


class TestCommand:
    def arguments(self, cifar, files, *more):
        places = [
            "--data-dir",
            str(cifar),
            "--out",
            str(cifar / "out"),
            "--model",
            BRIGHT,
            "--device",
            "cpu",
            "--quiet",
        ]
        return [*files, *places, *more]

    def test_several_checkpoints_are_side_by_side(self, cifar, files, capsys):
        assert run(lambda: main(self.arguments(cifar, files, "--corruptions", "fog", "snow"))) == 0
        numbers = json.loads((cifar / "out" / "corruptions.json").read_text())
        assert numbers["labels"] == ["fedavg (first)", "fedavg (second)"]
        assert numbers["accuracy"][0] == [[n / 4 for n in FOG_RIGHT], [n / 4 for n in SNOW_RIGHT]]
        assert numbers["accuracy"][1] == [[0.5] * 5] * 2  # class 0 is right for two of the four
        fog, snow = 20 - sum(FOG_RIGHT), 20 - sum(SNOW_RIGHT)
        assert numbers["mce"] == pytest.approx([1, (10 / fog + 10 / snow) / 2])
        assert (numbers["images"], numbers["generated"], numbers["checkpoints"]) == ("CIFAR-10-C", False, files)
        rows = list(csv.DictReader((cifar / "out" / "corruptions.csv").open()))
        assert [float(rows[0][f"severity {s}"]) for s in range(1, 6)] == [n / 4 for n in FOG_RIGHT]
        assert {row["images"] for row in rows} == {"CIFAR-10-C"}
        assert (cifar / "out" / "corruptions.png").read_bytes()[:4] == b"\x89PNG"
        printed = capsys.readouterr().out
        for text in ("4 test images of cifar10, corruptions: CIFAR-10-C's files", "mCE", "plot: ", "fedavg (second)"):
            assert text in printed
        assert "generated" not in printed

    def test_generated_images_are_labelled_everywhere(self, tmp_path, capsys):
        checkpoint().save(tmp_path / "ckpt.pt")
        line = [str(tmp_path / "ckpt.pt"), "--generate", "--severities", "1", "5", "--corruptions", "fog", "pixelate"]
        assert run(lambda: main([*line, "--samples", "30", "--out", str(tmp_path / "out"), "--quiet"])) == 0
        assert "generated by Fedscape" in capsys.readouterr().out
        for name in ("json", "csv", "md", "tex"):
            assert "generated" in (tmp_path / "out" / f"corruptions.{name}").read_text()
        numbers = json.loads((tmp_path / "out" / "corruptions.json").read_text())
        assert numbers["generated"] is True
        assert (numbers["severities"], numbers["samples"]) == ([1, 5], 30)

    def test_it_continues_where_it_was_interrupted(self, cifar, files, monkeypatch, capsys):
        arguments = self.arguments(cifar, files, "--corruptions", "fog", "snow")
        assert run(lambda: main(arguments)) == 0
        whole = (cifar / "out" / "corruptions.json").read_text()
        state = cifar / "out" / "corruptions.jsonl"
        lines = state.read_text().splitlines(keepends=True)
        assert len(lines) == 20
        state.write_text("".join(lines[:13]) + lines[13][:20] + "\n")  # killed in the middle of a line
        (cifar / "out" / "corruptions.json").unlink()
        spent, evaluated = [], analysis.corruptions.measure._evaluated
        monkeypatch.setattr(
            analysis.corruptions.measure, "_evaluated", lambda here: spent.append(here) or evaluated(here)
        )
        assert run(lambda: main(arguments)) == 0
        assert len(spent) == 2 + 7  # the clean images of both, and what was missing
        assert (cifar / "out" / "corruptions.json").read_text() == whole
        capsys.readouterr()

    def test_what_was_measured_of_other_files_is_not_taken(self, cifar, files, capsys):
        arguments = self.arguments(cifar, files[:1], "--corruptions", "fog")
        assert run(lambda: main(arguments)) == 0
        np.save(cifar / "CIFAR-10-C" / "fog.npy", np.broadcast_to(np.uint8(120), (20, 32, 32, 3)))
        assert run(lambda: main(arguments)) == 0
        numbers = json.loads((cifar / "out" / "corruptions.json").read_text())
        assert numbers["accuracy"] == [[[0.5] * 5]]

    def test_an_interrupt_says_how_to_go_on(self, cifar, files, monkeypatch, capsys):
        def interrupted(landscape):
            raise KeyboardInterrupt

        monkeypatch.setattr(analysis.corruptions.measure, "_evaluated", interrupted)
        assert run(lambda: main(self.arguments(cifar, files, "--corruptions", "fog"))) == 130
        assert "the same command continues" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("more", "sentence"),
        [
            (["--corruptions", "mist"], "the corruption 'mist' is unknown: take gaussian_noise, "),
            (
                ["--corruptions", "frost", "--generate"],
                "the corruption 'frost' is not generated of these images: take ",
            ),
            (["--severities", "0"], "the severities are 0: give some of 1 to 5"),
            (["--samples", "5"], "5 samples are asked for: give a number from 1 to 4"),
            (["--device", "abacus"], "unknown device 'abacus'"),
            ([], "gaussian_noise.npy: No such file"),
        ],
    )
    def test_mistakes_are_told_in_a_sentence(self, cifar, files, capsys, more, sentence):
        assert run(lambda: main(self.arguments(cifar, files, *more))) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1

    def test_no_files_of_this_data_were_published(self, tmp_path, capsys):
        checkpoint().save(tmp_path / "ckpt.pt")
        assert run(lambda: main([str(tmp_path / "ckpt.pt"), "--out", str(tmp_path), "--quiet"])) == 2
        assert "no corrupted images of digits were published" in capsys.readouterr().err

    def test_checkpoints_of_different_data_are_refused(self, tmp_path, files, capsys):
        checkpoint().save(tmp_path / "digits.pt")
        line = [files[0], str(tmp_path / "digits.pt"), "--generate", "--out", str(tmp_path / "out"), "--quiet"]
        assert run(lambda: main(line)) == 2
        assert "of different data (cifar10, digits)" in capsys.readouterr().err

    def test_images_without_a_class_are_refused(self, monkeypatch):
        def scenes(folder):
            x, y = np.ones((2, 3, 8, 8), np.uint8), np.zeros((2, 8, 8), np.uint8)
            return make_dataset("scenes", (x, y), (x, y), classes=10, task="segmentation")

        monkeypatch.setitem(DATASETS._table, "scenes", scenes)
        with pytest.raises(FedscapeError, match="of one class each, and scenes is of segmentation"):
            measure_corruptions([checkpoint(data={"name": "scenes", "kwargs": {}})], generate=True)

    def test_out_is_needed(self, files, capsys):
        assert run(lambda: main(files)) == 2
        assert "--out" in capsys.readouterr().err


@pytest.mark.slow
def test_real_images_are_corrupted(real_data, tmp_path):
    """CIFAR-10's test images under all fourteen corruptions, by a model of its shape."""
    from landscape import build_model

    model = build_model("lenet_fed", seed=0, input_shape=[3, 32, 32], classes=10)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    contents = {"model": {"name": "lenet_fed", "kwargs": {"input_shape": [3, 32, 32], "classes": 10}}}
    lenet = bright(**contents, parameters=parameters, buffers=dict(model.named_buffers()))
    assert isinstance(lenet, Checkpoint)
    found = measure_corruptions([lenet], severities=(1, 5), generate=True, samples=100, data_dir=real_data("cifar10"))
    assert found.corruptions == generated(3)
    assert np.isfinite(found.loss).all()
