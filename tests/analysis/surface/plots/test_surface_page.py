"""The page holds every value, loads nothing, and does in a browser what its form says."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from analysis.surface.marked_points import Mark
from analysis.surface.plots.page import check_page, page, save_page
from landscape import FedscapeError
from tests.analysis.surface.plots.chromium import EXECUTABLE, Browser
from tests.analysis.surface.plots.test_surface_plots import X, Y, line, made, with_test

pytest.importorskip("plotly", reason="interactive pages need Plotly")


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_page_holds_every_value_to_the_last_bit():
    loss = made().loss + np.pi * 1e-9
    loss[1, 2] = np.nan
    way, marks = np.array([[0.1, 0.2], [0.3, 0.4]]), (Mark("start", 0.1, 0.2),)
    surface = made(loss, loss_stderr=loss / 7, marks=marks, trajectory=way)
    (found,) = data_of(page([surface]))["surfaces"]
    assert (found["x"], found["y"]) == (X.tolist(), Y.tolist())
    for name, values in (("loss", loss), ("loss_stderr", loss / 7), ("accuracy", 100 * surface.accuracy)):
        assert found["values"][0][name] == [[v if np.isfinite(v) else None for v in row] for row in values.tolist()]
    assert found["marks"] == [{"label": "start", "x": 0.1, "y": 0.2}]
    assert found["trajectory"] == way.tolist()


def test_page_tells_which_values_are_measured():
    computed = np.zeros((5, 7), bool)
    computed[::2, ::2] = True
    text = page([made(computed=computed, estimated_error=0.005)])
    assert data_of(text)["surfaces"][0]["measured"] == computed.astype(int).tolist()
    assert "; small dots on the map: measured" in text
    assert "12 of them measured, the others interpolated (estimated errors: loss 0.5 %)" in text


def test_page_holds_the_test_data_too():
    surface = with_test(made(), 30 * made().loss)
    found = data_of(page([surface]))
    assert found["splits"] == ["training", "test"]
    for k, one in enumerate((surface, surface.test)):
        assert found["surfaces"][0]["values"][k]["loss"] == one.loss.tolist()
        assert found["surfaces"][0]["values"][k]["accuracy"] == (100 * one.accuracy).tolist()
    assert [labels["accuracy"] for labels in found["labels"]] == ["training accuracy (%)", "test accuracy (%)"]
    assert found["log"] == pytest.approx([surface.loss.min(), surface.test.loss.max()])
    assert data_of(page([surface, made()]))["splits"] == ["training"]


def test_page_holds_the_largest_eigenvalues():
    curved = with_test(made(lambda_max=7 * made().loss), made().loss)
    curved = replace(curved, test=replace(curved.test, lambda_max=None))
    found = data_of(page([curved]))
    assert found["quantities"] == ["loss", "accuracy", "lambda_max"]
    for k in range(2):  # of the training loss, whatever data are shown
        assert found["surfaces"][0]["values"][k]["lambda_max"] == curved.lambda_max.tolist()
        assert found["labels"][k]["lambda_max"] == "λ_max of the Hessian (training loss)"
    assert "lambda_max" not in data_of(page([curved, made()]))["quantities"]


def test_page_says_what_is_not_to_scale():
    for surface, wanted in ((made(), False), (made(x=X / 1.5), True)):
        text = page([surface])
        assert data_of(text)["to_scale"] is wanted
        assert ("axes not to the same scale" in text) is not wanted


def test_page_loads_nothing():
    text = page([made()])
    assert "default-src 'none'" in text
    scripts = re.findall(r"<script[^>]*>", text[:3000])
    assert not any("src" in tag for tag in scripts)
    beside_plotly = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.search(r"https?:|//|<link|<img|<iframe|src=|url\(", beside_plotly)


def test_page_runs_no_text_of_the_data():
    evil = '</script><script>alert(1)</script><img src="https://example.org/x.png">$title'
    text = page([made(marks=(Mark(evil, 0.0, 0.0),))], [evil])
    assert data_of(text)["surfaces"][0]["marks"][0]["label"] == evil
    assert data_of(text)["surfaces"][0]["label"] == evil
    assert "<script>alert" not in text
    assert "<img src" not in text


def test_logarithm_is_offered_where_there_is_one():
    assert data_of(page([made()]))["log"] == pytest.approx([made().loss.min(), made().loss.max()])
    assert data_of(page([made(made().loss - 5)]))["log"] is None
    assert data_of(page([made()], scale="log"))["scale"] == "log"
    assert data_of(page([made(np.full((5, 7), np.nan))]))["log"] is None


def test_bad_input_is_told_in_a_sentence(tmp_path, monkeypatch):
    for call, sentence in (
        (lambda: page([]), "no surface"),
        (lambda: page([made(), line(np.arange(3.0))], ["a", "b"]), "lines and planes"),
        (lambda: page([made(made().loss - 5)], scale="log"), "no logarithmic scale"),
        (lambda: save_page([made()], tmp_path / "s.png"), "end it in .html"),
        (lambda: save_page([made()], tmp_path / "none" / "s.html"), "cannot write"),
    ):
        with pytest.raises(FedscapeError, match=sentence):
            call()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(FedscapeError, match=r"need Plotly, which is not installed: pip install 'fedscape\[html\]'"):
        check_page("s.html")


@pytest.fixture(scope="module")
def browser():
    if EXECUTABLE is None:
        pytest.skip("there is no Chromium")
    browser = Browser()
    yield browser
    browser.close()


def choose(browser: Browser, name: str, value: str) -> None:
    browser.run(f"[...form.elements['{name}']].find(input => input.value === '{value}').click()")


@pytest.mark.slow
def test_browser_turns_switches_and_shows_the_values(browser, tmp_path):
    surface = made(50 * made().loss, marks=(Mark("<b>α</b>", 0.0, 0.5), Mark("β", 1.0, 0.5)), loss_stderr=made().loss)
    save_page([surface], tmp_path / "s.html")
    browser.open(tmp_path / "s.html")
    drawn = "plot.data.find(t => t.type === 'surface')"
    assert browser.run(f"{drawn}.z.map(row => [...row])") == surface.loss.tolist()
    assert browser.run("plot.layout.scene.annotations[0].text") == "&lt;b&gt;α&lt;/b&gt;"
    text = browser.run(f"{drawn}.text[1][2]")
    assert f"loss: {surface.loss[1, 2]:.6g} ± {made().loss[1, 2]:.6g}" in text
    assert f"accuracy: {100 * surface.accuracy[1, 2]:.6g} %" in text

    eye = "plot._fullLayout.scene._scene.getCamera().eye"
    browser.wait(f"{eye} !== undefined")
    before = browser.run(eye)
    browser.drag((500, 450), (650, 420))
    browser.wait(f"Math.abs({eye}.x - {before['x']}) > 0.1")
    turned = browser.run("plot._fullLayout.scene.camera.eye")  # as Plotly keeps it, a last bit of the way behind
    assert abs(turned["x"] - before["x"]) > 0.1
    angle = np.degrees(np.arctan2(turned["y"], turned["x"])) % 360
    browser.wait(f"Math.abs(form.elements.turn.value - {angle}) < 2")
    assert abs(angle - 305) > 5, "the drag has turned it"

    choose(browser, "scale", "log")
    np.testing.assert_allclose(browser.run(f"{drawn}.z.map(row => [...row])"), np.log10(surface.loss), rtol=1e-12)
    assert "log scale" in browser.run("plot.layout.scene.zaxis.title.text")
    choose(browser, "quantity", "accuracy")
    np.testing.assert_array_equal(browser.run(f"{drawn}.z.map(row => [...row])"), 100 * surface.accuracy)
    assert browser.run("plot.layout.scene.zaxis.title.text") == "training accuracy (%)"
    browser.wait(f"Math.abs({eye}.x - {turned['x']}) < 0.001")  # a switch leaves the camera alone
    browser.run("form.elements.turn.value = 90; form.elements.turn.dispatchEvent(new Event('input'))")
    browser.wait(f"Math.abs({eye}.x) < 0.01")

    tools = browser.run("[...document.querySelectorAll('.modebar-btn')].map(tool => tool.dataset.title)")
    assert not any("hare" in tool or "loud" in tool for tool in tools)

    choose(browser, "view", "map")
    assert browser.run("plot.data[0].type") == "heatmap"
    assert browser.run("plot.data[0].z.map(row => [...row])") == (100 * surface.accuracy).tolist()
    browser.screenshot(tmp_path / "s.png")
    assert (tmp_path / "s.png").stat().st_size > 10_000
    assert browser.errors == []
    assert {url.split(":")[0] for url in browser.requests} <= {"file", "data", "blob"}


@pytest.mark.slow
def test_browser_shows_training_and_test_data(browser, tmp_path):
    surface = with_test(made(x=X / 1.5, lambda_max=7 * made().loss), 2 * made().loss)
    save_page([surface], tmp_path / "s.html", scale="linear")
    browser.open(tmp_path / "s.html")
    drawn, title = "plot.data.find(t => t.type === 'surface')", "plot.layout.scene.zaxis.title.text"
    colours = browser.run(f"[{drawn}.cmin, {drawn}.cmax]")
    assert browser.run(title) == "mean training loss<br>(cross-entropy, nats)"
    choose(browser, "split", "1")
    assert browser.run(f"{drawn}.z.map(row => [...row])") == surface.test.loss.tolist()
    assert browser.run(title) == "mean test loss<br>(cross-entropy, nats)"
    assert browser.run(f"[{drawn}.cmin, {drawn}.cmax]") == colours == [surface.loss.min(), surface.test.loss.max()]
    text = browser.run(f"{drawn}.text[1][2]")
    assert f"training loss: {surface.loss[1, 2]:.6g}<br>" in text
    assert f"test loss: {surface.test.loss[1, 2]:.6g}<br>" in text
    base = browser.run("plot._fullLayout.scene.aspectratio")
    assert base["x"] / base["y"] == pytest.approx(2.0)
    choose(browser, "view", "map")
    assert browser.run("plot.data[0].z.map(row => [...row])") == surface.test.loss.tolist()
    choose(browser, "quantity", "lambda_max")
    assert browser.run("plot.data[0].z.map(row => [...row])") == surface.lambda_max.tolist()
    assert browser.run("plot.data[0].colorbar.title.text") == "λ_max of the Hessian (training loss)"
    assert "λ_max: " in browser.run("plot.data[0].text[1][2]")
    assert "λ_max" in browser.run("form.textContent")
    row = np.array([[1.0, 2.0, 4.0]])
    save_page([with_test(line(row, lambda_max=3 * row), 2 * row)], tmp_path / "l.html", ["m"], "linear")
    browser.open(tmp_path / "l.html")
    assert browser.run("plot.data.map(t => [...t.y])") == [row[0].tolist(), (2 * row[0]).tolist()]
    assert browser.run("plot.data.map(t => t.name + ' ' + t.line.dash)") == ["m, training solid", "m, test dash"]
    choose(browser, "quantity", "lambda_max")
    assert browser.run("plot.data.map(t => [...t.y])") == (3 * row).tolist()
    assert browser.errors == []


@pytest.mark.slow
def test_browser_superimposes_and_draws_lines(browser, tmp_path):
    save_page([made(), made(made().loss + 1), made(made().loss + 2)], tmp_path / "s.html", ["a", "b", "c"])
    browser.open(tmp_path / "s.html")
    shown = "plot.data.filter(t => t.name !== 'models').map(t => t.name + ' ' + t.type)"
    assert browser.run(shown) == ["a surface", "b scatter3d"]
    choose(browser, "show2", "solid")
    assert browser.run(shown) == ["a surface", "b scatter3d", "c surface"]
    rows = np.array([[1.0, 2.0, 4.0], [2.0, 3.0, 5.0]])
    ends = (Mark("a", 0.0, 0.0), Mark("b", 1.0, 0.0))
    assert data_of(page([line(rows[0], marks=ends)]))["surfaces"][0]["label"] == "a → b"
    save_page([line(rows)], tmp_path / "l.html", ["seeds"], "linear")
    browser.open(tmp_path / "l.html")
    assert browser.run("plot.data.map(t => [...t.y])") == rows.tolist()
    assert browser.errors == []
