"""Write what a recipe gives: pictures, numbers, tables, captions."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from figures.contents.content import Picture, Product, Results
from figures.graph.nodes import Node, with_runs
from figures.recipes.recipe import Asked, Recipe
from landscape.storage.files import make_directory, write_text
from landscape.storage.pictures import save_figures, spell_out
from landscape.storage.style import PictureStyle
from landscape.version import __version__
from trainers.runs.planned import PlannedRun

_SCALES = {
    "smoke": "SMOKE SCALE: a few rounds of small nets, to see that everything works; no number here can be compared "
    "with the paper's.",
    "small": "SMALL SCALE: a smaller net, fewer rounds and clients than the paper's; compare shapes, not numbers.",
    "paper": "Paper scale.",
}


def write_recipe(
    recipe: Recipe, asked: Asked, results: Results, folder: Path, style: PictureStyle | None = None
) -> list[Path]:
    """Write all products of a recipe into ``folder/SCALE/PAPER/``: ITEM[-NAME].pdf, .svg and .png of a picture,
    .tex, .md and .html of a table, .csv and .json of the numbers of both, and .caption.txt.

    Args:
        recipe: which.
        asked: at which scale.
        results: of its nodes.
        folder: created where it is missing.
        style: of the pictures; ``screen`` unless given.

    Raises:
        FedscapeError: a node without which it cannot be drawn has no result, or a file cannot be written.
    """
    content = recipe.content(asked)
    target, written = make_directory(folder / asked.scale / recipe.paper), []
    for product in content.products(results, recipe.printed() if asked.scale == "paper" else {}):
        stem = target / "-".join(word for word in (recipe.item, product.name) if word)
        beside = stem.with_name(f"{stem.name}.caption.txt")
        written += [*_write(product, stem, style or PictureStyle()), beside]
        write_text(beside, caption(recipe, asked, content.nodes(), product))
    return list(dict.fromkeys(written))


def _write(product: Product, stem: Path, style: PictureStyle) -> list[Path]:
    written: list[Path] = []
    if isinstance(product.shows, Picture):
        with style.drawing():
            figure = product.shows.draw()
        spell_out(figure)
        written += save_figures(figure, stem, style=style)
    if product.table is not None:
        written += product.table.save(stem, ("tex", "md", "html"))
    return [*written, *product.numbers.save(stem, ("csv", "json"))]


def caption(recipe: Recipe, asked: Asked, nodes: Sequence[Node], product: Product) -> str:
    """What a reader must know: what it shows, the scale, data, seeds, rounds and version, what was chosen where the
    paper leaves it open, what is not reproduced, the paper's slips."""
    runs = [node for node in with_runs(nodes) if isinstance(node, PlannedRun)]
    lines = [f"{recipe.id}: {recipe.shows}", _SCALES[asked.scale]]
    if asked.scale != "paper" and asked.scale in recipe.stand_ins:
        lines.append(recipe.stand_ins[asked.scale])
    lines += [product.caption] if product.caption else []
    for name in ("data", "model", "seed", "rounds"):
        if values := sorted({str(getattr(run.settings, name)) for run in runs}):
            lines.append(f"{name}: {', '.join(values)}.")
    lines += [
        f"Chosen, as the paper leaves it open: {name} = {choice.text(asked.scale)} ({choice.why})."
        if name not in asked.choices
        else f"Chosen by the user: {name} = {asked.choices[name]}."
        for name, choice in recipe.choices.items()
    ]
    lines += [f"Not reproduced, as only the authors' code has it: {hole}." for hole in recipe.holes]
    lines += [f"In the paper: {slip}." for slip in recipe.slips]
    return "\n".join([*lines, f"Made by {version()}."]) + "\n"


def version() -> str:
    """The version, with the commit where the package lies in a git checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return f"Fedscape {__version__}"
    return f"Fedscape {__version__}" + (f", commit {found.stdout.strip()}" if found.returncode == 0 else "")
