"""The report page in a browser: what a reader does with it works, and it asks for nothing."""

import shutil
from dataclasses import replace

import pytest

from analysis.source import Source
from figures.report import contents, report_page
from figures.reporting import measured
from tests.figures.report.test_page import NASTY, RECIPE, runs  # noqa: F401 - a fixture

playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
INSIDE = ("file:", "data:", "blob:")
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


@pytest.fixture(scope="module")
def opened(runs, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("page")
    subjects = measured(runs, folder, replace(RECIPE, points=5), Source(device="cpu", samples=40))
    found = contents(subjects, "fedscape report runs/*")
    found["subjects"][2]["label"] = found["groups"][1]["label"] = NASTY
    (folder / "report.html").write_text(report_page(found), encoding="utf-8")
    with playwright.sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser, (folder / "report.html").as_uri()
        browser.close()


@pytest.fixture
def view(opened):
    browser, address = opened
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, color_scheme="light", accept_downloads=True)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append("a dialog"))
    page.on(
        "request", lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else wrong.append(asked.url)
    )
    page.goto(address)
    page.wait_for_function("document.querySelectorAll('#grid .plot .gl-container').length === 3")
    yield page
    assert wrong == []
    context.close()


def labels(view):
    return view.locator("#table tbody th").all_inner_texts()


def test_headings_sort_and_words_filter(view):
    view.get_by_role("button", name="λ1", exact=True).click()
    values = [float(text.split(" ±")[0]) for text in view.locator("#table tbody td:nth-child(8)").all_inner_texts()]
    assert values == sorted(values)
    view.get_by_role("button", name="λ1", exact=True).click()
    values = [float(text.split(" ±")[0]) for text in view.locator("#table tbody td:nth-child(8)").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    view.get_by_label("Filter").fill("seed 1")
    assert labels(view) == ["fedavg, seed 1"]
    assert view.locator("#count").inner_text() == "1 of 3 models"


def test_unticked_models_leave_the_pictures(view):
    view.get_by_label("show fedavg, seed 0").uncheck()
    view.wait_for_function("document.querySelectorAll('#grid figure').length === 2")
    assert view.evaluate("document.getElementById('density').data.length") == 2


def test_turning_one_relief_turns_all(view):
    view.evaluate(
        "Plotly.relayout(document.querySelector('#grid .plot'), {'scene.camera': {eye: {x: 0.1, y: 0.2, z: 2.5}}})"
    )
    view.wait_for_function(
        "[...document.querySelectorAll('#grid .plot')].every(p => p.layout.scene.camera.eye.z === 2.5)"
    )


def test_the_slider_widens_the_kernel_and_keeps_the_area(view):
    area = (
        "(() => { const t = document.getElementById('density').data[0]; let s = 0; for (let i = 1; i < t.x.length; i++)"
    )
    area += " s += (t.x[i] - t.x[i-1]) * (t.y[i] + t.y[i-1]) / 2; return [s, Math.max(...t.y)]; })()"
    before = view.evaluate(area)
    view.locator("#width").fill("1")
    after = view.evaluate(area)
    assert before[0] == pytest.approx(1, abs=0.02)
    assert after[0] == pytest.approx(1, abs=0.02)
    assert after[1] < before[1]
    assert "(2 times the usual)" in view.locator("#width-told").inner_text()


def test_quantity_view_and_scale_switch(view):
    view.get_by_label("accuracy", exact=True).check()
    view.get_by_label("map", exact=True).check()
    view.wait_for_function("document.querySelectorAll('#grid .heatmaplayer').length === 3")
    values = view.evaluate("document.querySelector('#grid .plot').data[0].z.flat()")
    assert all(0 <= value <= 100 for value in values)


def test_dark_and_phone_fit(opened):
    browser, address = opened
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#grid .plot .gl-container", state="attached")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    context.close()


def test_numbers_are_saved(view):
    with view.expect_download() as saved:
        view.get_by_role("button", name="Save the table (CSV)").click()
    text = saved.value.path().read_text(encoding="utf-8")
    assert text.splitlines()[0].startswith("model,seed,round,file,digest,test_accuracy")
    assert len(text.splitlines()) == 4


def test_it_prints(opened, tmp_path):
    browser, address = opened
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("#grid .plot .gl-container", state="attached")
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000
    page.close()
