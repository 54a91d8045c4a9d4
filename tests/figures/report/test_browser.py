"""The report page in a browser: what a reader does with it works, and it asks for nothing."""

import csv
import re
import shutil
from dataclasses import replace

import pytest

from analysis.alignment import measure_alignment
from figures.alike import Panels
from figures.report import contents, read_alignments, report_page
from figures.reporting import measured
from figures.reporting import opened as opened_models
from landscape.storage.files import write_json
from tests.figures.report.test_page import NASTY, RECIPE, SOURCE, runs  # noqa: F401 - a fixture

playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
INSIDE = ("file:", "data:", "blob:")
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


LONG = "encoder.block.with.a.very.long.name." * 8


@pytest.fixture(scope="module")
def opened(runs, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("page")
    models, panels = opened_models(runs, SOURCE), Panels(curvature_map=3)
    subjects = measured(models, folder, replace(RECIPE, points=5), SOURCE, panels=panels)
    aligned = measure_alignment(runs[:2], "all", parts=("gradients", "perturbations"), device="cpu", samples=30)
    write_json(folder / "alignment.json", aligned.to_dict())
    found, _ = read_alignments([folder], [one.checkpoint.digest() for one in models])
    found = contents(
        [replace(one, alignment=each) for one, each in zip(subjects, found, strict=True)], "fedscape report runs/*"
    )
    found["subjects"][2]["label"] = found["groups"][1]["label"] = NASTY
    for one in found["subjects"]:
        one["layers"]["names"][:2] = [NASTY, LONG]
        one["layers"]["names"][2] = "=1+1"
    for one in found["subjects"][:2]:
        one["alignment"]["titles"]["gradient_cosine"] = one["alignment"]["maps"][0]["title"] = NASTY
        one["alignment"]["notes"], one["alignment"]["ordered"] = [NASTY], NASTY
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
    view.locator("#quantity-choice").get_by_label("accuracy", exact=True).check()
    view.get_by_label("map", exact=True).check()
    view.wait_for_function("document.querySelectorAll('#grid .heatmaplayer').length === 3")
    values = view.evaluate("document.querySelector('#grid .plot').data[0].z.flat()")
    assert all(0 <= value <= 100 for value in values)


def test_the_curvature_has_a_grid_of_its_own(view):
    view.locator("#quantity-choice").get_by_label("λmax", exact=True).check()
    view.wait_for_function("document.querySelector('#grid .plot').data[0].z.length === 3")
    view.locator("#quantity-choice").get_by_label("loss", exact=True).check()
    view.wait_for_function("document.querySelector('#grid .plot').data[0].z.length === 5")


FOLLOWED = "document.getElementById('clients').data.at(-1)"


def test_a_client_is_followed_over_the_models_of_its_partition(view):
    assert view.evaluate(f"{FOLLOWED}.x.length") == 0
    view.get_by_label("Follow").focus()
    view.keyboard.press("ArrowDown")  # client 0, without a mouse
    drawn, ours = view.evaluate(f"[{FOLLOWED}.x, page.subjects.map(s => s.clients.lambda_max[0])]")
    assert [x for x in drawn if x is not None] == [
        ours[0],
        ours[2],
        ours[1],
    ]  # seed 0 has one partition, seed 1 another
    assert drawn.count(None) == 2
    assert "Client 0. fedavg, seed 0: " in view.locator("#client-told").inner_text()
    view.locator("#clients-quantity").get_by_label("accuracy").check()
    assert view.evaluate(f"{FOLLOWED}.x[0]") == 100 * view.evaluate("page.subjects[0].clients.accuracy[0]")
    view.get_by_label("by label mix").check()
    assert view.evaluate(f"{FOLLOWED}.x[0]") == view.evaluate("page.subjects[0].clients.effective_labels[0]")


def test_pointing_at_a_client_follows_it(view):
    view.locator("#clients").scroll_into_view_if_needed()
    box = view.locator("#clients .scatterlayer .trace path.point").nth(1).bounding_box()
    view.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    view.wait_for_function(f"{FOLLOWED}.x.length === 3")
    view.mouse.move(5, 5)
    view.wait_for_function(f"{FOLLOWED}.x.length === 0")


def test_layers_are_rows_from_the_input_down_and_all_is_below_the_whole(view):
    rows = view.evaluate("document.getElementById('layers').layout.yaxis.ticktext")
    assert rows[-1] == "<b>whole model</b>"
    assert "&lt;/script&gt;&lt;img" in rows[0]
    assert len(rows[1]) < 80
    first = view.evaluate("document.getElementById('layers').data[0].x")
    assert max(first[:-1]) <= first[-1] * 1.001


def test_local_against_global_has_means_pairs_and_names_that_stay_text(view):
    assert "Not measured of 1 model: not in what --alignment gave" in view.locator("#alignment-absent").inner_text()
    view.locator("#mean").select_option("gradient_cosine")
    assert view.evaluate("document.getElementById('means').data.length") == 4
    assert NASTY in view.locator("#mean").inner_text()
    cells = view.evaluate("document.getElementById('pairs').data[0].z")
    assert cells == view.evaluate("page.subjects[0].alignment.maps[0].values")
    view.locator("#pairs-model").select_option(index=1)
    assert view.evaluate("document.getElementById('pairs').data[0].z") != cells
    view.locator("#pairs-map").select_option("gains")
    assert view.evaluate("document.getElementById('pairs').data[0].zmin") < 0
    view.locator("#means-table summary").click()
    told = view.locator("#means-rows tbody tr").nth(0).inner_text()
    loss = view.evaluate("page.subjects[0].alignment.rounds[0].means.loss.value")
    assert told.startswith(f"loss of the federation, f(w)\t{loss:.4g}")


@pytest.mark.parametrize(
    ("button", "head", "lines"),
    [
        ("clients", "model,client,partition,samples,lambda_max,error_bound,converged,loss,accuracy", 12),
        ("layers", "model,place,layer,parameters,lambda_max,error_bound,converged", 9),
        ("means", "model,round,quantity,value,stderr,measurement_error,low,high,count,left_out", None),
        ("curves", "model,round,test_accuracy,test_loss,train_loss", 6),
        ("eigenvalues", "model,eigenvalue,value,error_bound,converged,low,high", 6),
    ],
)  # fmt: skip
def test_each_panel_saves_its_table_and_no_cell_is_a_formula(view, button, head, lines):
    with view.expect_download() as saved:
        view.get_by_role("button", name=f"Save the {button} (CSV)").click()
    rows = list(csv.reader(saved.value.path().read_text(encoding="utf-8").splitlines()))
    assert ",".join(rows[0]).startswith(head)
    assert lines is None or len(rows) == 1 + lines
    numbers = r"-?[\d.]+(e[+-]?\d+)?"
    assert not [cell for row in rows for cell in row if cell[:1] in "=+-@" and cell and not re.fullmatch(numbers, cell)]


def test_a_table_is_saved_once_however_often_the_page_was_dark(view):
    saved = []
    view.on("download", lambda each: saved.append(each.suggested_filename))
    for _ in range(2):
        view.get_by_role("button", name="Dark").click()
    for button in ("curves", "eigenvalues"):
        with view.expect_download():
            view.get_by_role("button", name=f"Save the {button} (CSV)").click()
    view.wait_for_timeout(300)
    assert saved == ["fedscape-training.csv", "fedscape-spectra.csv"]


def test_groups_of_one_colour_have_other_marks_and_dashes(view):
    looks = view.evaluate("Array.from({ length: 49 }, (_, g) => [g % 7, markerOf({ group: g }), dashOf(g)].join())")
    assert len(set(looks)) == 49
    assert view.evaluate("[among('abc', 0), among('abc', 3), among('abc', 7)]") == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ([12, 26.6], ["15", "20", "25"]),
        ([5.9, 41.6], ["6", "7", "8", "9", "10", "20", "30", "40"]),
        ([0.9, 1100], ["1", "10", "100", "1000"]),
    ],
)
def test_a_logarithmic_ruler_has_several_numbers_in_sight(view, ends, ticks):
    told = view.evaluate("ends => logTicks(ends.map(Math.log10)).ticktext", ends)
    assert [text for text in told if ends[0] <= float(text) <= ends[1]] == ticks


def test_subscripts_stand_below_the_line_in_every_list(view):
    assert "f_i" in view.evaluate("[...local.titles.values()].join()")
    for listed in ("#mean", "#means-rows", "#clients-quantity", "#quantity-choice", "#pairs-map", ".notes"):
        assert not re.search(r"(λ|f)_(max|i|j)", view.locator(listed).first.text_content())
    assert "rise of fᵢ by client i's own ascent step" in view.locator("#mean").text_content()
    view.locator("#mean").select_option("own_gain")
    drawn = view.evaluate("byId('means').layout.xaxis.title.text")
    assert drawn == "rise of f<sub>i</sub> by client i's own ascent step"
    assert view.locator("#pairs-told sub").all_inner_texts() == ["i", "j"]


def test_unticking_all_models_empties_the_pictures(view):
    for box in view.locator("#table tbody input").all():
        box.uncheck()
    for picture in ("curves", "eigenvalues", "density", "layers", "means"):
        assert view.evaluate(f"byId('{picture}').data.length") == 0
    assert view.locator("#surface-told").inner_text().startswith("0 models")


def test_many_groups_leave_the_pictures_their_height(view):
    view.evaluate(
        "() => { for (let g = 2; g < 20; g += 1) {"
        " page.groups.push({ label: `${'a long name '.repeat(4)}${g}`, colour: '#000000' });"
        " page.subjects.push({ ...page.subjects[0], group: g }); shown.add(page.subjects.length - 1); }"
        " drawCurves(); drawLayers(); }"
    )
    for picture in ("curves", "layers"):
        heights = view.evaluate(f"(s => [s._size.h, s.height])(byId('{picture}')._fullLayout)")
        assert heights[0] > 0.5 * heights[1]


CUT = """ids => ids.filter((id) => [...byId(id).querySelectorAll('.legendtext')].some((text) =>
  text.getBoundingClientRect().bottom > byId(id).querySelector('.legend .bg').getBoundingClientRect().bottom + 1))"""
LEGENDS = ["curves", "eigenvalues", "density", "layers"]


def test_on_paper_the_legends_of_many_groups_are_whole_below_their_pictures(view):
    view.evaluate(
        "() => { for (let g = 2; g < 15; g += 1) {"
        " page.groups.push({ label: `group ${g}`, colour: '#000000' });"
        " page.subjects.push({ ...page.subjects[0], group: g, label: `group ${g}` });"
        " shown.add(page.subjects.length - 1); } drawPictures(); }"
    )
    assert view.evaluate(CUT, LEGENDS) == LEGENDS  # on the screen they scroll
    before = view.evaluate("[...byId('curves').querySelectorAll('.legend path.js-line')].map(p => p.style.cssText)")
    view.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate(CUT, LEGENDS) == []
    groups = view.evaluate("page.groups.map(g => g.label)")
    for picture in LEGENDS:
        lines = view.locator(f"#{picture} + .key li")
        names = [name.removesuffix(", mean of 2") for name in lines.all_inner_texts()]
        assert sorted(names) == sorted(groups)
        assert lines.locator("svg path").count() >= len(groups)
    drawn = "[...document.querySelectorAll('#curves + .key path.js-line')].map(p => p.style.cssText)"
    assert view.evaluate(drawn) == before
    view.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert view.locator(".key").count() == 0
    assert view.evaluate("byId('curves').querySelectorAll('.legendtext').length") == len(groups)


def test_on_paper_a_legend_that_fits_stays_in_its_picture(view):
    view.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert view.locator(".key").count() == 0
    assert view.evaluate("byId('curves').querySelectorAll('.legendtext').length") == 2


def test_models_without_recorded_training_say_so_and_what_was_recorded_is_drawn(opened, tmp_path):
    browser, address = opened
    for kept, told in ((("train_loss",), ""), ((), "No training was recorded")):
        view = browser.new_page()
        view.goto(address)
        found = view.evaluate("page")
        for one in found["subjects"]:
            one["curves"] |= {n: [None] * 2 for n in ("train_loss", "test_loss", "test_accuracy") if n not in kept}
        (tmp_path / "bare.html").write_text(report_page(found), encoding="utf-8")
        view.goto((tmp_path / "bare.html").as_uri())
        view.wait_for_selector("#grid .plot .gl-container", state="attached")
        assert view.locator("#curves-absent").inner_text().startswith(told)
        assert view.locator("#curves").is_visible() == bool(kept)
        if kept:
            assert view.get_by_label("training loss").is_checked()
            assert view.evaluate("byId('curves').data.length") == 4  # three runs, the mean of two
        view.close()


def test_paper_is_light_and_as_wide_as_a_page_and_the_screen_comes_back(view):
    view.get_by_role("button", name="Dark").click()
    view.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert view.evaluate("document.documentElement.dataset.theme") == "light"
    assert view.evaluate("['curves', 'clients', 'layers', 'means'].every(id => byId(id)._fullLayout.width === 700)")
    assert view.locator("#of-clients details[open]").count() == 2  # how to read it, and a long name in full
    view.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert view.evaluate("document.documentElement.dataset.theme") == "dark"
    assert view.evaluate("byId('curves')._fullLayout.width") > 1000
    assert view.locator("#of-clients details[open]").count() == 0


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
