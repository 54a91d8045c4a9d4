"""``python -m analysis.hessian``."""

import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import analysis.hessian.__main__
import landscape.autograd.products
from analysis import HessianReport
from analysis.hessian.__main__ import main
from analysis.hessian.layers import layer_eigenvalues
from landscape import Landscape
from landscape.terminal.command import run
from tests.processes import as_rank, free_port, start_process


def test_json_has_the_promised_keys_and_reads_back(checkpoint, tmp_path, capsys):
    file = tmp_path / "h.json"
    arguments = [str(checkpoint), "--samples", "100", "--density", "--json", str(file), "--quiet", "--steps", "10"]
    assert run(lambda: main(arguments)) == 0
    numbers = json.loads(file.read_text())
    promised = "eigenvalues residuals ratio_1_5 trace density hvps seconds samples parameters loss split"
    assert set(promised.split()) <= numbers.keys()
    assert {"value", "stderr", "probes"} <= numbers["trace"].keys()
    assert {"grid", "values"} <= numbers["density"].keys()
    assert len(numbers["eigenvalues"]) == len(numbers["residuals"]) == 5
    assert (numbers["samples"], numbers["parameters"], numbers["split"]) == (100, 6570, "train")
    printed = capsys.readouterr().out
    for text in ("λ1/λ5", "trace", "residual", "standard error", "Hessian-vector products"):
        assert text in printed
    again = HessianReport.from_dict(numbers)
    assert again.to_dict() == {name: value for name, value in numbers.items() if name != "checkpoint"}


def test_options_choose_what_is_measured(checkpoint, tmp_path):
    file = tmp_path / "h.json"
    options = ["--top", "2", "--no-trace", "--split", "test", "--dtype", "float64"]
    assert run(lambda: main([str(checkpoint), *options, "--json", str(file), "--quiet"])) == 0
    numbers = json.loads(file.read_text())
    assert len(numbers["eigenvalues"]) == 2
    assert numbers["trace"] is numbers["density"] is numbers["ratio_1_5"] is None
    assert (numbers["split"], numbers["samples"], numbers["dtype"]) == ("test", 355, "float64")
    assert numbers["loss"] == pytest.approx(Landscape.from_checkpoint(checkpoint, "test").value(), rel=1e-5)


def test_several_checkpoints_make_one_table(checkpoint, tmp_path, capsys):
    initial = checkpoint.parent / "rounds" / "00000.pt"
    files = ["--json", str(tmp_path / "h.json"), "--csv", str(tmp_path / "h.csv"), "--out", str(tmp_path)]
    options = ["--samples", "60", "--top", "2", "--which", "both", "--density", "--steps", "5", "--quiet"]
    assert run(lambda: main([str(initial), str(checkpoint), *options, *files])) == 0
    numbers = json.loads((tmp_path / "h.json").read_text())["checkpoints"]
    assert [n["checkpoint"] for n in numbers] == [str(initial), str(checkpoint)]
    rows = list(csv.DictReader((tmp_path / "h.csv").open(encoding="utf-8")))
    for row, n in zip(rows, numbers, strict=True):
        assert [float(row["λ1"]), float(row["λ6570"])] == [n["eigenvalues"][0], n["eigenvalues"][2]]
        assert float(row["trace"]) == n["trace"]["value"]
    with np.load(tmp_path / "hessian.npz") as arrays:
        assert arrays["1_eigenvalues"].tolist() == numbers[1]["eigenvalues"]
        assert arrays["1_error_bounds"].tolist() == numbers[1]["error_bounds"]
        assert arrays["0_density_grid"].tolist() == numbers[0]["density"]["grid"]
    assert "λ6569" in capsys.readouterr().out


def test_runs_of_one_algorithm_are_told_apart_in_table_csv_and_on_an_80_column_screen(
    checkpoint, tmp_path, capsys, monkeypatch
):
    twins = [tmp_path / name for name in ("mild", "wild")]
    for twin in twins:
        twin.mkdir()
        shutil.copy(checkpoint, twin / "ckpt.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    options = ["--samples", "20", "--top", "1", "--no-trace", "--quiet", "--csv", "h.csv"]
    assert run(lambda: main(["mild", "wild", *options])) == 0
    table = capsys.readouterr().out.split("checkpoint  ", 1)[1]
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "\nmild" in table
    assert "\nwild" in table
    rows = list(csv.DictReader((tmp_path / "h.csv").open(encoding="utf-8")))
    assert [row["model"].rpartition(" (")[2] for row in rows] == ["mild)", "wild)"]


@pytest.mark.parametrize("options", [["--ggn"], ["--matrix", "fisher"], ["--matrix", "mc-fisher"]])
def test_other_matrices_are_positive_semi_definite(checkpoint, options, tmp_path):
    line = [str(checkpoint), *options, "--which", "smallest", "--top", "1", "--samples", "40", "--no-trace", "--quiet"]
    assert run(lambda: main([*line, "--dtype", "float64", "--json", str(tmp_path / "h.json")])) == 0
    numbers = json.loads((tmp_path / "h.json").read_text())
    assert abs(numbers["eigenvalues"][0]) < 1e-9
    assert numbers["matrix"] == {"--ggn": "ggn"}.get(options[0], options[-1])


def dense(checkpoint, block, man):
    """The Hessian of digits_mlp's loss over 40 samples by some of its parameters, the network written by hand."""
    whole = Landscape.from_checkpoint(checkpoint, samples=40, device="cpu", dtype="float64")
    x, y = whole.data.batch(slice(None), torch.float64)
    point = whole.space.unflatten(whole.weights)

    def objective(*free):
        p = point | dict(zip(block, free, strict=True))
        first = (x.flatten(1) @ p["1.weight"].T + p["1.bias"]).clamp(min=0)
        second = (first @ p["3.weight"].T + p["3.bias"]).clamp(min=0)
        penalty = man * sum((a**2).sum() / a.numel() for a in (first, second))
        return nn.functional.cross_entropy(second @ p["5.weight"].T + p["5.bias"], y) + penalty

    rows = torch.autograd.functional.hessian(objective, tuple(point[name] for name in block))
    sizes = [point[name].numel() for name in block]
    parts = [[h.reshape(m, n) for h, n in zip(row, sizes, strict=True)] for row, m in zip(rows, sizes, strict=True)]
    return torch.cat([torch.cat(row, dim=1) for row in parts]).numpy()


def test_block_man_and_weight_decay_say_of_which_matrix_everything_is(checkpoint, tmp_path, capsys):
    line = [str(checkpoint), "--samples", "40", "--dtype", "float64", "--tolerance", "1e-8", "--top", "6", "--quiet"]
    line += ["--block", "3.bias", "5", "--man", "0.3", "--weight-decay", "0.125", "--verify"]
    out = tmp_path / "out"
    assert run(lambda: main([*line, "--density", "--out", str(out)])) == 0
    found = json.loads((out / "hessian.json").read_text())
    exact = np.linalg.eigvalsh(dense(checkpoint, ["3.bias", "5.weight", "5.bias"], 0.3))[::-1] + 0.125
    assert found["parameters"] == len(exact) == 362
    np.testing.assert_allclose(found["eigenvalues"], exact[:6], rtol=1e-6)
    assert abs(found["trace"]["value"] - exact.sum()) <= 4 * found["trace"]["stderr"]
    assert found["density"]["moments"][0] == pytest.approx(exact.mean(), rel=0.1)
    assert (found["block"], found["man"], found["weight_decay"]) == (["3.bias", "5"], 0.3, 0.125)
    assert found["title"].endswith("on digits + 0.3 MAN + 0.125 ‖w‖²/2, block 3.bias 5 (362 of 6,570 parameters)")
    printed = capsys.readouterr().out
    assert found["title"] in printed
    assert printed.partition("loss + MAN")[2].split()[0] == f"{found['loss']:.6g}"
    assert "without the weight decay" in printed
    assert HessianReport.from_dict(found).title == found["title"]


def test_help_shows_every_group_and_default(capsys):
    with pytest.raises(SystemExit):
        main(["--help-all"])
    text = capsys.readouterr().out
    for group in ("spectrum", "extras", "source", "effort", "trust", "output"):
        assert f"{group} options" in text
    assert "(default: )" not in text
    flags = [line for line in text.splitlines() if "--" in line.partition("  ")[0]]
    assert text.count("(default:") >= len(flags)


def test_pyhessian_answers_the_same_question(checkpoint, tmp_path, capsys):
    options = ["--samples", "60", "--top", "1", "--quiet", "--no-trace"]
    assert run(lambda: main([str(checkpoint), *options, "--backend", "pyhessian", "--json", str(tmp_path / "p")])) == 0
    assert run(lambda: main([str(checkpoint), *options, "--compare-pyhessian", "--json", str(tmp_path / "c")])) == 0
    theirs, both = json.loads((tmp_path / "p").read_text()), json.loads((tmp_path / "c").read_text())
    assert theirs["eigenvalues"][0] == pytest.approx(both["eigenvalues"][0], rel=0.02)
    assert both["pyhessian"]["eigenvalues"] == theirs["eigenvalues"]
    assert "power iteration" in capsys.readouterr().out


def by_torchrun(line):
    """What three ranks print."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "-m", "analysis.hessian"]
    return subprocess.run([*launcher, *line], capture_output=True, text=True, check=True).stdout


def with_its_variables(line):
    port = free_port()
    started = [start_process(as_rank, rank, 3, port, main, line) for rank in range(3)]
    printed = [rank.lines.read() for rank in started]
    assert [rank.wait() for rank in started] == [0, 0, 0]
    assert printed[1:] == ["", ""]
    return printed[0]


@pytest.mark.slow
@pytest.mark.parametrize("launch", [with_its_variables, by_torchrun])
def test_under_torchrun_the_ranks_share_the_work_and_one_of_them_speaks(checkpoint, tmp_path, launch):
    options = ["--top", "2", "--dtype", "float64", "--quiet", "--no-trace", "--json"]
    assert run(lambda: main([str(checkpoint), *options, str(tmp_path / "one")])) == 0
    printed = launch([str(checkpoint), *options, str(tmp_path / "three")])
    one, three = (json.loads((tmp_path / name).read_text()) for name in ("one", "three"))
    assert three["eigenvalues"] == pytest.approx(one["eigenvalues"], rel=1e-10)
    assert three["loss"] == pytest.approx(one["loss"], rel=1e-12)
    assert printed.count("Hessian-vector products") == 1


def test_trace_can_be_asked_for_by_name(checkpoint, capsys):
    assert run(lambda: main([str(checkpoint), "--trace", "--samples", "50", "--quiet", "--top", "1"])) == 0
    assert "trace" in capsys.readouterr().out


def test_plots_are_written(checkpoint, tmp_path):
    out = tmp_path / "plots"
    assert run(lambda: main([str(checkpoint), "--samples", "50", "--out", str(out), "--quiet", "--density"])) == 0
    assert (out / "hessian.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "hessian.json").read_text())["samples"] == 50


def test_what_was_measured_is_drawn_again_without_a_product(checkpoint, tmp_path, capsys, monkeypatch):
    initial = checkpoint.parent / "rounds" / "00000.pt"
    options = ["--samples", "40", "--quiet", "--no-trace", "--density", "--steps", "8"]
    assert run(lambda: main([str(initial), *options, "--json", str(tmp_path / "a.json")])) == 0
    assert run(lambda: main([str(checkpoint), str(initial), *options, "--out", str(tmp_path)])) == 0
    before = (tmp_path / "hessian.json").read_bytes(), (tmp_path / "hessian.png").read_bytes()
    measured = capsys.readouterr().out
    monkeypatch.setattr(analysis.hessian.__main__, "measure_hessian", lambda *_, **__: pytest.fail("it measured"))
    files = [str(tmp_path / "hessian.json"), str(tmp_path / "a.json")]
    again = ["--replot", *files, "--ratio", "1/2", "--eigenvalue-axis", "symlog", "--density-axis", "linear"]
    assert run(lambda: main([*again, "--out", str(tmp_path), "--csv", str(tmp_path / "t.csv")])) == 0
    printed = capsys.readouterr().out
    for line in ("λ1  ", "λ < −"):
        assert [x for x in printed.splitlines() if x.startswith(line)][:2] == [
            x for x in measured.splitlines() if x.startswith(line)
        ][1:]
    rows = list(csv.DictReader((tmp_path / "t.csv").open(encoding="utf-8")))
    assert [float(row["λ1/λ2"]) > 1 for row in rows] == [True] * 3
    assert (tmp_path / "hessian.json").read_bytes() == before[0]
    assert (tmp_path / "hessian.png").read_bytes() != before[1]


def test_curves_over_the_rounds_are_drawn_again(checkpoint, tmp_path):
    kept = checkpoint.parent / "rounds" / "00000.pt"  # any checkpoint of the run stands for it
    options = ["--rounds", "--samples", "30", "--top", "1", "--no-trace", "--quiet", "--out"]
    assert run(lambda: main([str(kept), *options, str(tmp_path / "a")])) == 0
    assert run(lambda: main([str(checkpoint.parent), *options, str(tmp_path / "b")])) == 0
    pictures = [(tmp_path / name / "hessian.png").read_bytes() for name in "ab"]
    assert pictures[0] == pictures[1]
    numbers = str(tmp_path / "a" / "hessian.json")
    assert run(lambda: main([numbers, "--replot", "--rounds", "--out", str(tmp_path / "c")])) == 0
    assert (tmp_path / "c" / "hessian.png").read_bytes() == pictures[0]


def test_ratios_are_in_the_rows_and_in_the_json(checkpoint, tmp_path, capsys):
    line = [str(checkpoint), "--samples", "40", "--quiet", "--no-trace", "--ratio", "1/3", "--ratio", "2/3"]
    assert run(lambda: main([*line, "--json", str(tmp_path / "h.json")])) == 0
    numbers = json.loads((tmp_path / "h.json").read_text())
    values = numbers["eigenvalues"]
    assert numbers["ratios"] == {"1/3": values[0] / values[2], "2/3": values[1] / values[2]}
    assert "λ1/λ3  " in capsys.readouterr().out


@pytest.mark.parametrize(("given", "kept"), [(["--graph-memory", "0"], False), (["--graph-memory", "1GB"], True)])
def test_graphs_are_kept_within_the_memory_given(checkpoint, given, kept, monkeypatch):
    products = []
    kind = landscape.autograd.products.HessianProducts
    begin = kind.__init__
    monkeypatch.setattr(kind, "__init__", lambda self, *a: (products.append(self), begin(self, *a))[1])
    line = [str(checkpoint), "--samples", "40", "--top", "1", "--quiet", "--verify", "--no-refine", *given]
    assert run(lambda: main(line)) == 0
    assert len(products) > 2  # of the check, of the eigenvalue, of the sampling error
    assert [p.graphs_kept > 0 for p in products] == [kept] * len(products)


def test_threads_are_as_many_as_asked_for(checkpoint, monkeypatch):
    seen = []
    evaluate = Landscape.evaluate
    monkeypatch.setattr(
        Landscape, "evaluate", lambda *a, **o: (seen.append(torch.get_num_threads()), evaluate(*a, **o))[1]
    )
    before = torch.get_num_threads()
    line = [str(checkpoint), "--samples", "20", "--top", "1", "--quiet", "--no-trace"]
    assert run(lambda: main([*line, "--threads", str(before + 1)])) == 0
    assert run(lambda: main([*line])) == 0
    assert seen == 2 * [before + 1] + 2 * [before]  # the loss, and its sampling error


@pytest.mark.parametrize(("word", "streams"), [("yes", True), ("no", False), ("auto", None)])
def test_streaming_is_asked_for_by_name(checkpoint, word, streams, monkeypatch):
    seen = []
    begin = Landscape.__init__
    monkeypatch.setattr(
        Landscape, "__init__", lambda self, *a, **o: (seen.append(o.get("stream")), begin(self, *a, **o))[1]
    )
    line = [str(checkpoint), "--samples", "20", "--top", "1", "--quiet", "--no-trace", "--stream", word]
    assert run(lambda: main([*line, "--layers"])) == 0
    assert run(lambda: main([*line, "--per-client", "--clients", "1"])) == 0
    assert set(seen) == {streams}


def test_samples_auto_ends_with_a_subset_that_the_tables_share(checkpoint, tmp_path, capsys):
    file = tmp_path / "h.json"
    line = [str(checkpoint), "--samples", "auto", "--sampling-tolerance", "9", "--top", "1", "--no-trace", "--layers"]
    assert run(lambda: main([*line, "--json", str(file), "--quiet"])) == 0
    numbers, printed = json.loads(file.read_text()), capsys.readouterr().out
    sampling = numbers["sampling"]
    assert (numbers["samples"], sampling["population"], sampling["tolerance"]) == (512, 1442, 9.0)
    low, high = sampling["low"][0], sampling["high"][0]
    assert low < numbers["eigenvalues"][0] < high
    assert f"; of all 1,442 samples {low:.4g} to {high:.4g} (95 %)" in printed
    assert f"512 train samples of 1,442, ± {sampling['loss_stderr']:.2g} (standard error)" in printed
    assert f"({sampling['products']} for the sampling error)" in printed.replace("1 of them in float64, ", "")
    around = Landscape.from_checkpoint(checkpoint, samples=512, device="cpu")
    assert numbers["loss"] == pytest.approx(around.value(), rel=1e-6)
    np.testing.assert_allclose(numbers["layers"]["values"], layer_eigenvalues(around).values.tolist(), rtol=1e-5)


def test_progress_goes_to_stderr_and_says_how_far(checkpoint, capsys):
    main([str(checkpoint), "--samples", "50", "--top", "1"])
    captured = capsys.readouterr()
    assert "HVPs" in captured.err
    assert "HVPs/s" not in captured.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no/such.pt"], "there is no file no/such.pt"),
        (["{ckpt}", "--samples", "5000"], "5000 samples are asked for: give a number from 1 to 1442"),
        (["{ckpt}", "--samples", "auto", "--state", "s.pt"], "give --samples N, not auto"),
        (["{ckpt}", "--samples", "auto", "--sampling-tolerance", "0"], "it must be above 0"),
        (["{ckpt}", "--samples", "auto", "--backend", "pyhessian"], "give --samples N, not auto"),
        (["{ckpt}", "--split", "validation"], "invalid choice 'validation'"),
        (["{ckpt}", "--clients", "9"], "there is no client"),
        (["{ckpt}", "--top", "0"], "0 eigenvalues are asked for"),
        (["{ckpt}", "--device", "tpu"], "unknown device 'tpu'"),
        (["{ckpt}", "--out", "{ckpt}/below"], "Not a directory"),
        (["{ckpt}", "--json", "{ckpt}/below.json", "--samples", "20", "--top", "1"], "cannot write"),
        ([], "give at least one checkpoint file"),
        (["{ckpt}", "--ggn", "--matrix", "fisher"], "ask for two matrices"),
        (["{ckpt}", "--which", "middle"], "invalid choice 'middle'"),
        (["{ckpt}", "--ratio", "1/6"], "the ratio 1/6 needs 6 eigenvalues, and there are 5: give --top 6"),
        (["{ckpt}", "--ratio", "1:2"], "'1:2' is no ratio of eigenvalues: give one such as 1/5"),
        (["{ckpt}", "--ratio", "1/2", "--which", "smallest"], "is one of the largest eigenvalues"),
        (["{ckpt}", "--graph-memory", "much"], "'much' is no amount of memory"),
        (["{ckpt}", "--threads", "0"], "0 CPU threads are asked for"),
        (["{ckpt}", "--dtype", "tf32", "--device", "cpu"], "tf32 is arithmetic of CUDA devices"),
        (["{ckpt}", "--stream", "maybe"], "invalid choice 'maybe'"),
        (["{ckpt}", "--density", "--eigenvalue-axis", "log"], "invalid choice 'log'"),
        (["{ckpt}", "--density-axis", "linear"], "give --density too"),
        (["{ckpt}", "--replot"], "is no text"),
        (["{ckpt}", "--replot", "--layers"], "--replot measures nothing"),
        (["no/such.json", "--replot"], "there is no file no/such.json"),
        (["{run}/config.json", "--replot"], "holds no Hessian report"),
        (["{run}/..", "--rounds"], "is no run directory"),
        (["{ckpt}", "{ckpt}", "--state", "s.pt"], "--state keeps one checkpoint's iteration"),
        (
            ["{ckpt}", "--block", "conv1"],
            "no trainable parameter matches 'conv1': there are 1.weight, 1.bias",
        ),
        (["{ckpt}", "--block", "5", "--top", "331"], "331 eigenvalues are asked for"),
        (["{ckpt}", "--block", "1", "--layers"], "ask for them in two commands"),
        (["{ckpt}", "--weight-decay", "1e-4", "--per-client"], "ask for them in two commands"),
        (["{ckpt}", "--weight-decay", "-0.1"], "the weight decay is -0.1: it must be 0 or more"),
        (["{ckpt}", "--weight-decay", "nan"], "the weight decay is nan: it must be 0 or more"),
        (["{ckpt}", "--man", "-0.1"], "MAN's ζ is -0.1: it must be 0 or more"),
        (["{ckpt}", "--product", "fd", "--ggn"], "leave out --product fd, or take --matrix hessian"),
        (["{ckpt}", "--product", "fd", "--layers"], "ask for them without --product fd"),
        (["{ckpt}", "--product", "fd", "--compare-pyhessian"], "PyHessian measures the largest eigenvalues"),
        (["{ckpt}", "--man", "0.1", "--ggn"], "take the Hessian, or leave out --man"),
        (["{ckpt}", "--man", "0.1", "--compare-pyhessian"], "PyHessian measures the largest eigenvalues"),
        (["{ckpt}", "--block", "1", "--backend", "pyhessian"], "PyHessian measures the largest eigenvalues"),
        (["{ckpt}", "--replot", "--block", "1"], "--replot measures nothing"),
        (["{ckpt}", "--backend", "pyhessian", "--ggn"], "PyHessian measures the largest eigenvalues"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(checkpoint, arguments, sentence, capsys):
    before = checkpoint.read_bytes()
    given = [argument.format(ckpt=checkpoint, run=checkpoint.parent) for argument in arguments]
    assert run(lambda: main([*given, "--quiet"])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1
    assert checkpoint.read_bytes() == before
