"""In a notebook results show themselves, with a picture where they have one; the shipped notebook is full of them."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh

from analysis import measure_corruptions, measure_hessian, measure_surface
from analysis.accuracy import client_accuracies
from analysis.hessian.clients import client_curves, client_eigenvalues
from analysis.hessian.layers import activation_norms, layer_eigenvalues, norm_product
from analysis.hessian.options import Supplements
from analysis.hessian.sharpness import gradient_noise, sam_sharpness
from analysis.hessian.supplements import measure_supplements
from analysis.source import Source
from figures import open_run
from landscape import Landscape, build_model
from tests.conftest import REPOSITORY
from trainers import FedAvg, Settings, train
from trainers.runs import read_runs

HERE = {"samples": 40, "device": "cpu"}
NASTY = "<script>alert(1)</script>"
MARKUP = {"p", "b", "img", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"}
"""All that the pages of results are made of."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run whose folder has a nasty name."""
    folder = tmp_path_factory.mktemp("runs") / "a<b>&"
    settings = Settings(rounds=3, clients=4, per_round=2, device="cpu", save_every=1)
    return train(FedAvg(), settings, out=folder)


@pytest.fixture(scope="module")
def drawn(run):
    """Results that have a picture."""
    opened = open_run(run.path, device="cpu")
    report = measure_hessian(run.checkpoint, 3, density=True, density_probes=2, density_steps=8, **HERE)
    rounds = sorted((run.path / "rounds").iterdir())
    sizes = {"top": 2, "points": 3, "samples": 40, "probes": 2, "steps": 8}
    return {
        "run": run,
        "recorded": read_runs([run.path])[0],
        "opened": opened,
        "report": replace(report, title=NASTY),
        "density": report.density,
        "surface": measure_surface(run.checkpoint, points=5, **HERE),
        "line": measure_surface(run.checkpoint, plane="line", others=[rounds[0]], points=5, **HERE),
        "profile": measure_surface(run.checkpoint, plane="line", seeds=2, points=5, **HERE),
        "clients": replace(client_eigenvalues(run.checkpoint, samples=20, device="cpu"), title=NASTY),
        "client curves": client_curves(rounds, samples=20, device="cpu"),
        "corruptions": measure_corruptions(
            [run.checkpoint], generate=True, corruptions=("brightness",), severities=(1, 5), device="cpu", samples=20
        ),
        "comparison": opened.compare(rounds[1], **sizes),
    }


@pytest.fixture(scope="module")
def told(run, drawn):
    """Results without a picture."""
    around = Landscape.from_checkpoint(run.checkpoint, **HERE)
    supplements = measure_supplements(
        Supplements(layers=True, sharpness=0.05), run.checkpoint, Source(samples=40, device="cpu")
    )
    return {
        "checkpoint": drawn["opened"].checkpoint,
        "landscape": around,
        "evaluation": around.evaluate(),
        "subject": drawn["comparison"].subjects[0],
        "table": drawn["comparison"].table(),
        "eigenpairs": drawn["report"].eigen,
        "trace": drawn["report"].trace,
        "blocks": layer_eigenvalues(around),
        "norms of activations": activation_norms(around),
        "norms": norm_product(around),
        "SAM's": sam_sharpness(around, 0.05),
        "noise": gradient_noise(around, 10),
        "accuracies": client_accuracies(sorted((run.path / "rounds").iterdir()), device="cpu"),
        **{one.key: one for one in supplements},
    }


def pictures(page):
    return [base64.b64decode(found) for found in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]


def check(results, count):
    for name, one in results.items():
        page, line = one._repr_html_(), repr(one)
        assert "\n" not in line, name
        assert len(line) <= 240, name
        assert not re.search(r"tensor\(|array\(|\[\d", line), name
        assert set(re.findall(r"<(\w+)", page)) <= MARKUP, name
        images = pictures(page)
        assert len(images) == count, name
        for image in images:
            assert image.startswith(b"\x89PNG\r\n\x1a\n")
            assert 690 <= int.from_bytes(image[16:20], "big") <= 1610, name
            assert 200 <= int.from_bytes(image[20:24], "big") <= 1610, name
        yield name, line, page


def test_results_with_a_picture_show_it_and_tell_what_it_is_of(drawn):
    pages = {name: (line, page) for name, line, page in check(drawn, 1)}
    report = drawn["report"]
    assert f"{report.eigen.values[0]:.4g} ± {report.eigen.bounds[0]:.1g}" in pages["report"][0]
    assert "&lt;script&gt;" in pages["report"][1]
    assert "&lt;script&gt;" in pages["clients"][1]
    assert "a&lt;b&gt;&amp;" in pages["run"][1]
    assert "barrier" in pages["line"][1]
    assert "5 points along 2 lines through fedavg" in pages["profile"][0]
    accuracy = drawn["run"].metrics[-1]["test_accuracy"]
    assert all(f"{accuracy:.2%}" in pages[name][0] for name in ("run", "recorded", "opened"))


def test_results_without_a_picture_tell_their_facts(told):
    pages = {name: (line, page) for name, line, page in check(told, 0)}
    assert "a&lt;b&gt;&amp;" in pages["checkpoint"][1]
    assert f"{told['eigenpairs'].values[0]:.4g}" in pages["eigenpairs"][0]
    assert f"{told['blocks'].values[0, 0]:.4g}" in pages["blocks"][0]
    assert "λ_max of its block" in pages["layers"][1]
    assert f"trace {told['noise'].trace:.4g}" in pages["noise"][0]
    assert f"{told['accuracies'].test_accuracy[-1]:.2%}" in pages["accuracies"][0]


def test_figures_are_pictures_to_ipython_and_shown_once_beside_its_own(drawn):
    formatters = pytest.importorskip("IPython.core.formatters", reason="IPython is not installed")
    pylab = pytest.importorskip("IPython.core.pylabtools")
    for figure in (drawn["opened"].curves(), drawn["report"].plot()):
        formatter = formatters.DisplayFormatter()
        data, _ = formatter.format(figure)
        assert set(data) == {"text/plain", "image/png"}
        assert data["image/png"].startswith(b"\x89PNG")
        shell = type("Shell", (), {"display_formatter": formatter})()
        pylab.select_figure_formats(shell, {"png"})  # what %matplotlib inline does
        assert set(formatter.format(figure)[0]) == {"text/plain", "image/png"}
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == [], "pyplot would show them a second time"


PICTURES = {
    "explore": 10, "compare_algorithms": 4, "your_own": 6, "pyhessian_and_transformer": 7, "record_your_loop": 4,
}  # fmt: skip
"""The notebooks, and how many of their cells show a picture: all but the ones that only import or define."""


def test_every_notebook_is_counted_and_on_its_page():
    names = {file.stem for file in (REPOSITORY / "notebooks").iterdir()}
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    assert names == set(PICTURES)
    assert all(f"(../notebooks/{name}.py)" in page for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "inline"), [("explore", True), *((name, False) for name in PICTURES)])
def test_cells_of_the_shipped_notebooks_show_a_picture_and_no_more_than_one(name, inline, tmp_path, monkeypatch):
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed: pip install -e '.[test]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[test]'")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e '.[test]'")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore:IProgress not found")  # tqdm's, which transformers loads
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = jupytext.read(REPOSITORY / "notebooks" / f"{name}.py")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if inline:
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%matplotlib inline"))
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    counted = 0
    for cell in cells:
        shown = [output for output in cell.outputs if output.output_type != "stream"]
        said = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        assert not said or re.fullmatch(r"weights\.pt: the inputs of digits are normalised .*\s+", said), said
        if not shown:
            assert "import " in cell.source or "def " in cell.source
            continue
        (output,) = shown
        images = pictures(output.data.get("text/html", ""))
        images += [base64.b64decode(output.data["image/png"])] if "image/png" in output.data else []
        (image,) = images
        assert image.startswith(b"\x89PNG")
        assert len(output.data["text/plain"]) <= 240
        counted += 1
    assert counted == PICTURES[name]


def edge_of_stability(monkeypatch, *smaller):
    """The names that the notebook of the recorded loop leaves, run as the script that it is."""
    code = (REPOSITORY / "notebooks" / "record_your_loop.py").read_text(encoding="utf-8")
    code = code.partition('last = open_run(folder / "0.25")')[0]
    for whole, little in smaller:
        assert whole in code
        code = code.replace(whole, little)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    names = {"__name__": "notebook"}
    exec(compile(code, "record_your_loop.py", "exec"), names)
    names["plt"].close("all")
    return names


def test_the_recorded_eigenvalue_is_that_of_products_made_otherwise(monkeypatch):
    names = edge_of_stability(monkeypatch, ("(0.25, 0.15), 600, 20", "(0.25,), 2, 2"))
    net = build_model("digits_mlp", seed=0, input_shape=(1, 8, 8), classes=10).double()
    like = dict(net.named_parameters())
    w = torch.cat([tensor.detach().reshape(-1) for tensor in like.values()])

    def loss(flat):
        parts = flat.split([tensor.numel() for tensor in like.values()])
        shaped = {name: part.reshape(like[name].shape) for name, part in zip(like, parts, strict=True)}
        outputs = torch.func.functional_call(net, shaped, names["inputs"].double())
        return ((outputs - names["targets"]) ** 2).sum(1).mean() / 2

    def product(v):
        return torch.func.jvp(torch.func.grad(loss), (w,), (torch.from_numpy(v.ravel()),))[1].numpy()

    operator = LinearOperator((len(w), len(w)), matvec=product, dtype=np.float64)
    (exact,) = eigsh(operator, k=1, which="LA", tol=1e-6, return_eigenvectors=False)
    first, _, last = names["runs"][0.25].metrics
    assert first["lambda_1"] == pytest.approx(exact, rel=1e-3)
    assert abs(first["lambda_1"] - exact) <= first["lambda_1_bound"] + 1e-5 * exact
    assert last["lambda_1"] != first["lambda_1"]


@pytest.mark.slow
def test_gradient_descent_goes_to_the_edge_of_stability(monkeypatch):
    """λ1 begins below 2/η, crosses it, and hovers within an eighth of it from step 200 on, while the loss falls."""
    for rate, run in edge_of_stability(monkeypatch)["runs"].items():
        measured = {line["round"]: line["lambda_1"] * rate / 2 for line in run.metrics if "lambda_1" in line}
        assert measured[0] < 0.9
        assert max(measured.values()) > 1
        assert all(0.88 < value < 1.1 for step, value in measured.items() if step >= 200)
        assert run.metrics[-1]["train_loss"] < 0.5 * run.metrics[200]["train_loss"]


def test_a_mistake_shows_the_users_lines_and_one_sentence(tmp_path, capsys):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell(colors="nocolor")
    missing = tmp_path / "no run"
    cell = f"from figures import open_run\ndef mine(path):\n    return open_run(path)\nmine({str(missing)!r})\n"
    assert shell.run_cell(cell).error_in_exec is not None
    shown = capsys.readouterr().out
    assert "in mine" in shown
    assert shown.rstrip().endswith(f"FedscapeError: there is no run and no checkpoint {missing}")
    assert "figures/runs.py" not in shown
    assert len(shown.splitlines()) <= 7
