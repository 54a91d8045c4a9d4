"""The gallery: one static page of all pictures and tables, with captions and the commands that make them."""

from __future__ import annotations

import html
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from urllib.parse import quote

from figures.recipes.recipe import Recipe

_SUFFIXES = (".caption.txt", ".png", ".pdf", ".svg", ".csv", ".json", ".tex", ".md", ".html")
_LINKED = ("pdf", "svg", "png", "tex", "md", "html", "csv", "json")


@dataclass(frozen=True)
class Exhibit:
    """A figure or table of a paper on the page.

    Attributes:
        recipe: which.
        command: what makes it.
        written: its files, below the page's folder; empty where it could not be made.
        problem: why it could not.
    """

    recipe: Recipe
    command: str
    written: Sequence[Path] = ()
    problem: str = ""
    products: Mapping[str, Mapping[str, Path]] = field(init=False)
    """Its files by product and suffix without the dot, such as ``{"F1-relief": {"png": ...}}``."""

    def __post_init__(self) -> None:
        found: dict[str, dict[str, Path]] = {}
        for file in self.written:
            suffix = next(each for each in _SUFFIXES if file.name.endswith(each))
            found.setdefault(file.name.removesuffix(suffix), {})[suffix[1:]] = file
        object.__setattr__(self, "products", found)


def gallery_page(exhibits: Sequence[Exhibit], cites: Mapping[str, str], folder: Path, about: Sequence[str]) -> str:
    """The page's HTML.

    It needs nothing from elsewhere but the pictures beside it: it can be opened from a disk.

    Args:
        exhibits: in the order of the page, those of a paper together.
        cites: authors, venue and year, by paper.
        folder: where the page lies; links are relative to it.
        about: sentences at its top.
    """
    contents, sections = [], []
    for paper, group in groupby(exhibits, key=lambda each: each.recipe.paper):
        mine, name = list(group), html.escape(paper)
        links = "".join(f"<li>{_link(each)} {html.escape(each.recipe.shows)}</li>\n" for each in mine)
        contents.append(f'<li><a href="#{name}">{name}</a>: {html.escape(cites[paper])}<ul>\n{links}</ul></li>\n')
        items = "".join(_exhibit(each, folder) for each in mine)
        heading = f'<h2 id="{name}-heading">{name}: {html.escape(cites[paper])}</h2>'
        sections.append(f'<section id="{name}" aria-labelledby="{name}-heading">\n{heading}\n{items}</section>\n')
    return Template(files("figures.recipes").joinpath("gallery.html").read_text(encoding="utf-8")).substitute(
        about="".join(f"<p>{html.escape(sentence)}</p>\n" for sentence in about),
        contents="".join(contents),
        sections="".join(sections),
    )


def _anchor(each: Exhibit) -> str:
    return html.escape(each.recipe.id.replace("/", "-"))


def _link(each: Exhibit) -> str:
    return f'<a href="#{_anchor(each)}">{html.escape(each.recipe.item)}</a>'


def _exhibit(each: Exhibit, folder: Path) -> str:
    recipe = each.recipe
    lines = [f'<article id="{_anchor(each)}">', f"<h3>{html.escape(recipe.id)}: {html.escape(recipe.shows)}</h3>"]
    if each.problem:
        lines.append(f'<p class="problem">Not made: {html.escape(each.problem)}</p>')
    captions = {
        name: parts["caption.txt"].read_text(encoding="utf-8").splitlines()[1:] for name, parts in each.products.items()
    }
    shared = [line for line in next(iter(captions.values()), []) if all(line in told for told in captions.values())]
    for name, parts in each.products.items():
        own = [line for line in captions[name] if line not in shared]
        lines.append(_product(each, name, parts, own, folder))
    if shared:
        said = "".join(f"<li>{html.escape(line)}</li>\n" for line in shared)
        summary = f"<summary>About {html.escape(recipe.id)}</summary>"
        lines.append(f"<details open>{summary}<ul>\n{said}</ul></details>")
    return "\n".join([*lines, f"<pre><code>{html.escape(each.command)}</code></pre>", "</article>\n"])


def _product(each: Exhibit, name: str, parts: Mapping[str, Path], told: Sequence[str], folder: Path) -> str:
    where = {kind: quote(file.relative_to(folder).as_posix()) for kind, file in parts.items()}
    words = name.removeprefix(each.recipe.item).strip("-").replace("-", " ")
    heading = [f"<h4>{html.escape(words)}</h4>"] if words else []
    if "png" in parts:
        alt = html.escape(f"{each.recipe.id}{f', {words}' if words else ''}: {each.recipe.shows}", quote=True)
        width, height = _size(parts["png"])
        shown = f'<img src="{where["png"]}" alt="{alt}" width="{width}" height="{height}" loading="lazy">'
        shown = f'<a href="{where.get("pdf", where["png"])}">{shown}</a>'
    else:
        table = parts["html"].read_text(encoding="utf-8").strip()
        label = html.escape(f"Table {each.recipe.id} {words}".strip(), quote=True)
        shown = f'<div class="table" role="region" aria-label="{label}" tabindex="0">\n{table}\n</div>'
    links = " · ".join(
        f'<a href="{where[kind]}" aria-label="{html.escape(name)} as {kind.upper()}">{kind}</a>'
        for kind in _LINKED
        if kind in where
    )
    caption = "".join(f"<p>{html.escape(line)}</p>\n" for line in told)
    body = f"{shown}\n<figcaption>\n{caption}<p>{links}</p>\n</figcaption>"
    return "\n".join([*heading, f"<figure>\n{body}\n</figure>"])


def _size(picture: Path) -> tuple[int, int]:
    """Pixels of a PNG file, from its header."""
    with open(picture, "rb") as file:
        width, height = struct.unpack(">II", file.read(24)[16:])
    return width, height
