"""``python -m figures gallery``: all figures and tables on one page."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from figures.commands.make import make_recipes
from figures.commands.options import Selection, style_words
from figures.commands.work import Work
from figures.recipes import PAPERS
from figures.recipes.page import Exhibit, gallery_page
from figures.recipes.writing import version
from landscape.storage.files import write_text
from landscape.storage.outputs import Output, check_outputs
from landscape.storage.style import PictureStyle


@dataclass(frozen=True)
class Gallery:
    """Make figures and tables and put them on one static page, DIR/gallery.html, each with its caption, its files and
    the command that makes it. The page needs nothing from elsewhere.

    What fails is told on the page and at the end (exit code 1).
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[ID ...]")] = ("all",)
    """figures and tables (default: all)"""
    selection: Selection = field(default_factory=Selection)
    work: Work = field(default_factory=Work)
    style: PictureStyle = field(default_factory=PictureStyle)

    def run(self) -> int:
        """Make, write the page; the exit code."""
        asked, folder = self.selection.asked, self.selection.out
        recipes = self.selection.recipes(self.ids)
        check_outputs([Output("--out", folder / "gallery.html", "page")], force=self.work.force)
        made = make_recipes(recipes, self.selection, self.work, self.style)
        exhibits = [
            Exhibit(recipe, self.command(recipe.id), made.written.get(recipe.id, ()), made.broken.get(recipe.id, ""))
            for recipe in recipes
        ]
        about = [f"{len(recipes)} figures and tables at the scale {asked.scale}, made by {version()}."]
        if asked.scale != "paper":
            about.append("Smaller than the papers': to see what there is, not to compare numbers with them.")
        page = folder / "gallery.html"
        write_text(page, gallery_page(exhibits, {paper.name: paper.cites for paper in PAPERS}, folder, about))
        print(f"written: {page}")
        return made.report(sys.stderr)

    def command(self, name: str) -> str:
        """What makes one figure or table as it is on the page."""
        words = ["python", "-m", "figures", "make", name, *self.selection.words(name), *style_words(self.style)]
        return shlex.join(words)
