"""The documentation site: built strictly, read without a network, no broken link, and it says what the code says."""

import doctest
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import analysis
import figures
import landscape
import trainers
from landscape import Landscape, build_model
from tests.conftest import REPOSITORY
from tests.pages import blocks, text
from trainers import ALGORITHMS
from trainers.protocols import PROTOCOLS

WHY = "mkdocs is not installed: pip install -e '.[docs]'"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
"""What a browser loads by itself, and where its address stands."""


class Reader(HTMLParser):
    """The addresses of a page: what it loads, where it leads, and the names of its places."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if given.get(LOADED.get(tag, "")):
            self.loads.append(given[LOADED[tag]])
        if tag == "a" and given.get("href"):
            self.leads.append(given["href"])
        self.names |= {given[name] for name in ("id", "name") if given.get(name)}


@pytest.fixture(scope="module")
def hooks():
    """docs/build/pages.py, which makes pages of the code."""
    pytest.importorskip("mkdocs", reason=WHY)
    spec = importlib.util.spec_from_file_location("pages_of_the_site", REPOSITORY / "docs" / "build" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; nothing in it may need a network."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason=WHY)
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """What is read of each page, by its file."""
    return {file: Reader(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site, pages):
    assert len(pages) > 60
    for file, page in pages.items():
        assert page.loads
        assert [address for address in page.loads if re.match(r"(\w+:)?//", address)] == [], file
    for file in site.rglob("*.css"):
        addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", file.read_text(encoding="utf-8"))
        assert not [one for pair in addresses for one in pair if re.match(r"(https?:)?//", one)], file


@pytest.mark.slow
def test_every_link_leads_to_a_page_and_a_place_on_it(pages):
    looked = 0
    for file, page in pages.items():
        if file.name == "404.html":  # it may be served for any address
            continue
        for address in page.leads:
            if re.match(r"\w+:", address):
                continue
            target, _, anchor = unquote(address).partition("#")
            there = (file.parent / target).resolve() if target else file
            assert there.is_file(), f"{file}: {address}"
            assert not anchor or there.suffix != ".html" or anchor in pages[there].names, f"{file}: {address}"
            looked += 1
    assert looked > 1000


@pytest.mark.slow
def test_every_algorithm_and_public_name_has_its_place(site, pages):
    for name, kind in ALGORITHMS.items():
        said = re.sub(r"<[^>]+>", "", (site / "algorithms" / f"{name}.html").read_text(encoding="utf-8"))
        assert kind.paper in said.replace("&amp;", "&"), name
        assert "Pseudo-code" in said, name
    for package in (landscape, trainers, analysis, figures):
        names = pages[(site / "api" / f"{package.__name__}.html").resolve()].names
        for name in package.__all__:
            thing = getattr(package, name)
            algorithm = inspect.isclass(thing) and issubclass(thing, trainers.Algorithm) and name != "Algorithm"
            if callable(thing) and not algorithm:
                assert f"{thing.__module__}.{thing.__qualname__}" in names, name


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_reads_it_from_the_file_system_and_finds_words(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")

    def within(address):
        return address.startswith(("file:", "data:", "blob:", "about:"))

    with playwright.sync_playwright() as drive:
        browser = drive.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (1600, 390):
            page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
            wrong: list[str] = []
            page.on("console", lambda said, wrong=wrong: wrong.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
            page.on("request", lambda asked, wrong=wrong: None if within(asked.url) else wrong.append(asked.url))
            for name in ("index", "algorithms/scaffold", "quantities", "data", "api/landscape", "changelog"):
                page.goto((site / f"{name}.html").as_uri())
                page.wait_for_load_state()
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            if width == 1600:
                page.goto((site / "index.html").as_uri())
                page.fill("input.md-search__input", "control variate")
                page.wait_for_selector(".md-search-result__item")
                assert "glossary.html" in " ".join(
                    link.get_attribute("href") or "" for link in page.locator(".md-search-result__link").all()
                )
            assert wrong == []
        browser.close()


def test_pages_of_algorithms_are_their_code_and_pseudo_code(hooks):
    assert doctest.testmod(hooks).failed == 0
    made = hooks.algorithm_pages()
    assert list(made) == [f"algorithms/{name}.md" for name in ALGORITHMS]
    scaffold = made["algorithms/scaffold.md"]
    assert "return gradient(w) - client.c + (server.c" in scaffold
    ((step, code),) = re.findall(r"```text\n(.*)\n```\n\nand its method `direction` says `(.*)`", text("docs/ideas.md"))
    assert step in made["algorithms/mimelite.md"]
    assert code in made["algorithms/mimelite.md"]
    assert "Client: w ← w − η (g − c_i + c)" in scaffold
    assert "- `local-optimizer`: c_i takes" in scaffold
    adam = made["algorithms/fedadam.md"]
    assert all(
        line in adam for line in ("def _moments(", "Its server optimizer", "server.w + self.server_lr * mean.delta")
    )
    assert "| `--tau` | `0.001` | τ, the degree of adaptivity" in adam
    assert all(f"[`{name}`](algorithms/{name}.md)" in hooks.algorithm_table() for name in ALGORITHMS)


def test_tables_of_protocols_have_every_option_and_source(hooks):
    page = hooks.protocol_tables()
    for protocol in PROTOCOLS.values():
        assert protocol.repository in page
        every = [protocol.common, *protocol.algorithms.values(), *(told for _, told in protocol.when)]
        for name, line in (pair for told in every for pair in told.items()):
            row = f"\\| `--{name.replace('_', '-')}` \\| `{re.escape(str(line.value))}` .*{re.escape(line.source)}"
            assert re.search(row, page), (protocol.name, name)


def test_links_lead_to_the_pages_that_files_have_become(hooks):
    class Page:
        class file:
            src_uri = "records/hessian-2026-11.md"

    place, elsewhere = "benchmarks/records/hessian-2026-11.md", hooks.files_of_the_repository()
    told = {
        "[a](../../CONTRIBUTING.md#b)": "[a](../contributing.md#b)",
        "[c](../../docs/speed.md)": "[c](../speed.md)",
        "[d](../hessian.py)": "d (`benchmarks/hessian.py`)",
        "[e](https://x.y), ![f](g.png)": "[e](https://x.y), ![f](g.png)",
    }
    for words, led in told.items():
        assert hooks._linked(words, place, Page, elsewhere) == led


def test_products_cost_as_many_gradients_as_the_page_says():
    """Operations of more samples less those of fewer: what does not grow with the samples (checks) drops out."""
    head, each, kept = re.findall(r"^\| (?!---).*\|$", text("docs/quantities.md"), re.MULTILINE)
    names = re.findall(r"`(\w+)`", head)
    told = [[float(number) for number in re.findall(r"\d\.\d", row)] for row in (each, kept)]
    assert len(names) == 3
    for place, name in enumerate(names):
        shape = (3, 32, 32) if name == "lenet_fed" else (1, 8, 8)
        few, many = (counted(name, shape, samples) for samples in (8, 16))
        value, gradient, product, again = (b - a for a, b in zip(few, many, strict=True))
        assert 0.345 < value / gradient < 0.425, name
        assert [round(product / gradient, 1), round(again / gradient, 1)] == [row[place] for row in told], name


def counted(name, shape, samples):
    """Operations of a value, a gradient, a product, and one whose graphs are kept."""
    net = build_model(name, seed=0, input_shape=shape, classes=10)
    data = torch.rand(samples, *shape), torch.arange(samples) % 10
    around = Landscape(net, data, torch.nn.functional.cross_entropy, batch_size=4)
    w, v = around.weights, torch.ones(around.dimension)
    kept = around.hessian(w, graph_memory="500MB")
    kept(v)
    found = []
    for work in (lambda: around.value(w), lambda: around.gradient(w), lambda: around.hvp(w, v), lambda: kept(v)):
        with FlopCounterMode(display=False) as counter:
            work()
        found.append(counter.get_total_flops())
    return found


def test_the_sources_of_the_site_are_in_its_navigation():
    """Where mkdocs is not installed, too."""
    named = re.findall(r"([\w-]+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    there = {file.name for file in (REPOSITORY / "docs").glob("*.md")}
    assert sorted(named) == sorted(there - {"algorithms.md"})


def test_every_benchmark_has_its_row_and_its_command():
    """Those that others start or import are none of their own."""
    page = text("docs/benchmarks.md")
    scripts = {file.stem for file in (REPOSITORY / "benchmarks").glob("*.py") if "__main__" in file.read_text("utf-8")}
    scripts -= {"flower_rounds", "gpu_checks", "hessian_demo"}
    assert set(re.findall(r"^\|.*\| `benchmarks/(\w+)\.py` \|", page, re.MULTILINE)) == scripts
    ((block),) = blocks("docs/benchmarks.md", "sh")
    assert set(re.findall(r"benchmarks[/.](\w+?)(?:\.py)?$", block, re.MULTILINE)) == scripts
