"""Long names of rows in the report page's pictures, in a browser: each is told from the others, and in full."""

import random

import pytest

from tests.figures.report.test_browser import CHROMIUM, opened, runs, view  # noqa: F401 - fixtures

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
RHOS = ["0.02", "0.05", "0.10"]
ALIKE = [f"fedsam + momentum + man, local lr 0.05, rho {rho}, local epochs 5, seed 0 (dirichlet-0.1)" for rho in RHOS]
RENAMED = """names => { page.subjects.forEach((s, i) => { s.label = names[i]; });
  for (const s of page.subjects) s.layers.names = names.map((n) => n.replaceAll(" ", "_"));
  drawPictures(); }"""
ROWS = """id => [...byId(id).querySelectorAll('.ytick text')]
  .map((text) => [text.textContent, text.querySelector("title")?.textContent])"""
REACHED = """id => [...byId(id).querySelectorAll('.ytick text:has(title)')].every((text) => {
  const { left, top, width, height } = text.getBoundingClientRect();
  return text.contains(document.elementFromPoint(left + width / 2, top + height / 2)); })"""


@pytest.mark.parametrize("width", [1600, 390])
@pytest.mark.parametrize("picture", ["clients", "means", "layers"])
def test_long_names_of_rows_show_where_they_differ_and_are_told_in_full(view, picture, width):  # noqa: F811
    view.set_viewport_size({"width": width, "height": 900})
    assert not view.locator("#means-names").is_visible()  # nothing was shortened
    view.evaluate(RENAMED, ALIKE)
    names = ALIKE[:2] if picture == "means" else ALIKE  # of the third nothing was measured there
    names = [name.replace(" ", "_") for name in names] if picture == "layers" else names
    view.locator(f"#{picture}").scroll_into_view_if_needed()
    rows = view.evaluate(ROWS, picture)[: len(names)]
    assert [title for _, title in rows] == names
    assert view.evaluate(REACHED, picture)  # the pointer finds the text, and with it the title
    told = view.locator(f"#{picture}-names")
    assert not told.locator("dl").is_visible()
    told.locator("summary").click()
    assert told.locator("dd").all_inner_texts() == names
    texts = [text.removesuffix(name).partition(" · ")[0] for (text, _), name in zip(rows, names, strict=True)]
    assert texts == told.locator("dt").all_inner_texts()
    assert len(set(texts)) == len(names)
    assert all(len(text) <= (15 if width < 640 else 40) and rho in text for text, rho in zip(texts, RHOS, strict=False))
    assert view.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_names_of_rows_that_have_moved_are_those_of_the_rows_and_paper_has_them_in_full(view):  # noqa: F811
    view.evaluate(RENAMED, ALIKE)
    view.locator("#table tbody input").first.uncheck()
    assert [title for _, title in view.evaluate(ROWS, "clients")] == ALIKE[1:]
    assert view.locator("#clients-names dd").all_text_contents() == ALIKE[1:]
    view.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert view.locator("#clients-names dl").is_visible()
    view.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not view.locator("#clients-names dl").is_visible()
    view.get_by_label("by label mix").check()
    assert not view.locator("#clients-names").is_visible()


def test_no_two_names_become_the_same(view):  # noqa: F811
    """However names differ: single letters anywhere, one in another, in letters of two code units."""
    rng = random.Random(0)
    for _ in range(60):
        base = "".join(rng.choices("ab 0.🙂", k=rng.randrange(70)))
        names = {base}
        while len(names) < 6:
            at = rng.randrange(len(base) + 1)
            names.add(base[:at] + "".join(rng.choices("ab 0.🙂", k=rng.randrange(3))) + base[at + rng.randrange(2) :])
        for most in (40, 15):
            texts = dict(view.evaluate("([names, most]) => [...shortened(names, most)]", [sorted(names), most]))
            assert texts.keys() == names
            assert len(set(texts.values())) == len(names)
            assert max(map(len, texts.values())) <= most
