"""``python -m figures gallery``: the page, its links, its commands, and how it looks in a browser."""

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import figures.commands.gallery
import figures.commands.options
from figures.__main__ import main
from figures.commands.gallery import Gallery
from figures.commands.options import Selection
from figures.contents.curves import Curves
from figures.contents.values import accuracy
from figures.recipes.recipe import Choice
from landscape.storage.style import PictureStyle
from tests.analysis.surface.plots.chromium import EXECUTABLE, Browser
from tests.figures.graph.small import FAILING, paper, planned

VOID = {"meta", "img", "link", "br"}


class Page(HTMLParser):
    """What is on a page; a tag that is not closed in order is an error."""

    def __init__(self, text):
        super().__init__()
        self.links, self.images, self.ids, self.headings, self.code, self.open = [], [], [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        self.images += [given] if tag == "img" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        inside = self.open[-1] if self.open else ""
        if inside in ("h1", "h2", "h3", "h4"):
            self.headings.append((inside, text))
        if inside == "code":
            self.code.append(text)


def larger():
    """The small paper with a picture, and a figure that cannot be made."""
    made = paper()
    runs = [planned(seed=seed) for seed in (0, 1)]

    @made.recipe("F2", "accuracy <over> rounds", choices={"smoothing": Choice(1, "unsaid")})
    def f2(order):
        return Curves({"digits": {"FedAvg & co": tuple(runs)}}, smoothing=order.choice("smoothing"))

    @made.recipe("F3", "what cannot be trained")
    def f3(order):
        return Curves({"nothing": {"FedAvg": (planned(**FAILING),)}})

    return made


@pytest.fixture(autouse=True)
def only(monkeypatch):
    """The only paper is this one."""
    for module in (figures.commands.options, figures.commands.gallery):
        monkeypatch.setattr(module, "PAPERS", (larger(),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A gallery."""
    out = tmp_path_factory.mktemp("gallery") / "a folder"
    with pytest.MonkeyPatch.context() as patch:
        for module in (figures.commands.options, figures.commands.gallery):
            patch.setattr(module, "PAPERS", (larger(),))
        assert main(["gallery", "--out", str(out), "--quiet", "--device", "cpu", "--choose", "smoothing=1"]) == 1
    return out


@pytest.fixture
def page(folder):
    return Page((folder / "gallery.html").read_text(encoding="utf-8"))


def test_every_figure_is_there_with_its_caption_its_command_and_its_files(folder, page):
    text = (folder / "gallery.html").read_text(encoding="utf-8")
    assert [name for level, name in page.headings if level == "h3"] == [
        "small/T1: accuracies and curvatures",
        "small/F2: accuracy <over> rounds",
        "small/F3: what cannot be trained",
    ]
    assert [name for level, name in page.headings if level == "h4"] == ["runs", "measures"]
    assert text.count("SMOKE SCALE") == 2  # once for both tables of T1
    assert text.count("<table>") == 2
    assert [image["src"] for image in page.images] == ["smoke/small/F2.png"]
    assert page.images[0]["alt"] == "small/F2: accuracy <over> rounds"
    assert "smoke/small/F2.pdf" in page.links
    assert "smoke/small/T1-runs.tex" in page.links
    assert "smoke/small/T1-measures.csv" in page.links


def test_what_could_not_be_made_is_said_with_the_reason(folder):
    text = (folder / "gallery.html").read_text(encoding="utf-8")
    assert re.search(r'class="problem">Not made: .*no-such-file\.npz', text)


def test_links_lead_to_files_beside_it_or_places_on_it_and_nowhere_else(folder, page):
    assert len(page.ids) == len(set(page.ids))
    for link in [*page.links, *(image["src"] for image in page.images)]:
        assert not re.match(r"\w+:|/", link)
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (folder / unquote(link)).is_file()
    assert "http" not in (folder / "gallery.html").read_text(encoding="utf-8")


def test_the_commands_make_what_is_shown(folder, page, capsys):
    assert len(page.code) == 3
    line = page.code[1]
    told = f"python -m figures make small/F2 --scale smoke --out '{folder}' --choose smoothing=1"
    assert line == told
    assert "--choose" not in page.code[0]  # it leaves nothing open
    picture = folder / "smoke" / "small" / "F2.png"
    before = picture.read_bytes()
    picture.unlink()
    assert main([*shlex.split(line)[3:], "--quiet"]) == 0
    assert picture.read_bytes() == before


def test_commands_have_every_option_that_was_given():
    selection = Selection("small", "fashion_mnist", "digits_cnn", "0,1", 7, ("smoothing=3",), Path("out"))
    command = Gallery(selection=selection, style=PictureStyle("paper", venue="neurips2024")).command("small/F2")
    assert shlex.split(command)[5:] == [
        *("--scale", "small", "--data", "fashion_mnist", "--model", "digits_cnn", "--seeds", "0,1", "--rounds", "7"),
        *("--out", "out", "--choose", "smoothing=3", "--style", "paper", "--venue", "neurips2024"),
    ]


@pytest.mark.slow
@pytest.mark.skipif(EXECUTABLE is None, reason="there is no Chromium")
def test_a_browser_shows_it_from_the_disk_without_asking_for_anything_else(folder, tmp_path):
    browser = Browser()
    try:
        browser.call("Page.navigate", url=(folder / "gallery.html").resolve().as_uri())
        browser.wait("document.readyState === 'complete' && document.title !== ''")
        browser.run("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
        browser.wait("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        assert all(url.startswith("file://") or url == "about:blank" for url in browser.requests)
        assert browser.errors == []
    finally:
        browser.close()


def test_accuracies_of_the_page_are_those_of_the_runs(folder):
    made = figures.commands.options.PAPERS[0].recipes["T1"].content(Selection().asked).nodes()[0]
    run = Selection(out=folder).store.result(made)
    text = (folder / "smoke" / "small" / "T1-runs.html").read_text(encoding="utf-8")
    assert f"<td>{accuracy()(run):.2f}</td>" in text
