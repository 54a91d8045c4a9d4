"""In a notebook results show themselves, with a picture where they have one; the shipped notebook is full of them."""

import base64
import re
from dataclasses import replace

import pytest

from analysis import measure_corruptions, measure_hessian, measure_surface
from analysis.accuracy import client_accuracies
from analysis.hessian.clients import client_curves, client_eigenvalues
from analysis.hessian.layers import activation_norms, layer_eigenvalues, norm_product
from analysis.hessian.options import Supplements
from analysis.hessian.sharpness import gradient_noise, sam_sharpness
from analysis.hessian.supplements import measure_supplements
from analysis.source import Source
from figures import open_run
from landscape import Landscape
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


@pytest.mark.slow
@pytest.mark.parametrize("inline", [False, True])
def test_each_cell_of_the_shipped_notebook_shows_a_picture_and_no_more_than_one(inline, tmp_path, monkeypatch):
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed: pip install -e '.[test]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e '.[test]'")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e '.[test]'")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = jupytext.read(REPOSITORY / "notebooks" / "explore.py")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 10
    if inline:
        notebook.cells.insert(0, nbformat.v4.new_code_cell("%matplotlib inline"))
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for cell in cells:
        (output,) = cell.outputs  # nothing on stderr either
        assert output.output_type == "execute_result"
        images = pictures(output.data.get("text/html", ""))
        images += [base64.b64decode(output.data["image/png"])] if "image/png" in output.data else []
        (image,) = images
        assert image.startswith(b"\x89PNG")
        assert len(output.data["text/plain"]) <= 240


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
