"""Pages of the site that are made when it is built: algorithms, public names, notebooks, and files from elsewhere.

What these say is read from the code, so that they never disagree with it.  MkDocs calls the functions ``on_...`` (see
``hooks`` in mkdocs.yml).  Words in the ``nav`` of mkdocs.yml such as ``algorithms`` stand for the pages made here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import posixpath
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("landscape", "trainers", "analysis", "figures")
PROJECT = {"CONTRIBUTING.md": "contributing.md", "ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}

WIDE = ("all_algorithms.md", "data.md", "parity.md")
"""Pages of wide tables, which have no table of contents beside them."""


def _table(*rows: tuple[str, ...]) -> str:
    """Rows as a Markdown table; the first has the headings."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _docstring(kind: type) -> tuple[str, str, str]:
    """First line, what is below it (the pseudo-code), and the example of an algorithm's docstring."""
    text, _, example = inspect.cleandoc(kind.__doc__ or "").partition("\nExample:\n")
    first, _, rest = text.partition("\n")
    return first, rest.strip(), textwrap.dedent(example).strip()


def _methods(kind: type) -> str:
    """The text of a class's methods and of the functions beside it that they call, without docstring and fields."""
    source = textwrap.dedent(inspect.getsource(kind))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    lines = source.splitlines()
    found = []
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name != "__post_init__":
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.append(textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno])))
    called = sorted({node.id for node in ast.walk(definition) if isinstance(node, ast.Name)})
    beside = [getattr(sys.modules[kind.__module__], name, None) for name in called]
    found += [
        inspect.getsource(one).strip()
        for one in beside
        if inspect.isfunction(one) and one.__module__ == kind.__module__
    ]
    return "\n\n".join(found)


def _code(kind: type) -> Iterator[str]:
    """The code of an algorithm: of itself, or of its base and parts where it is a combination."""
    for part, each in getattr(kind, "kinds", {"": kind}).items():
        words = {"": "The algorithm", "base": "Its base"}.get(part, f"Its {part.replace('_', ' ')}")
        methods = _methods(each) or "# FedAvg's: every method of trainers.Algorithm at its default"
        yield f"{words}, `{each.__module__}.{each.__qualname__}`:\n\n```python\n{methods}\n```"


def _options(kind: type) -> Iterator[tuple[str, str, str]]:
    """Each hyper-parameter: the option, its default, what it is."""
    from trainers.parts.options import field_docstrings, field_type

    for each in fields(kind):
        told = [extra.help for extra in field_type(kind, each.name)[1] if getattr(extra, "help", None)]
        text = told[0] if told else field_docstrings(kind)[each.name]
        default = "" if each.default is MISSING else f"`{each.default}`"
        yield f"`--{each.name.replace('_', '-')}`", default, text


def _algorithm(name: str, kind: type, entry: Any) -> str:
    first, pseudo, example = _docstring(kind)
    options = list(_options(kind))
    refused = "\n".join(f"- `{part.replace('_', '-')}`: {why}" for part, why in kind().excludes.items())
    rest = f"∇F ≠ 0: {entry.bias}" if entry.bias else "∇F = 0"
    facts = "\n".join(
        [
            f"- A client keeps {_names(entry.client)}, the server {_names(('w', *entry.server))}.",
            f"- Model sizes that a sampled client receives and sends each round: {entry.down:g} and {entry.up:g}.",
            f"- With its defaults it comes to rest where {rest}.",
        ]
    )
    return "\n\n".join(
        [
            f"---\nhide: [toc]\n---\n\n# {kind.__name__}",
            first,
            f"*{kind.paper}* · `fedscape train {name}`",  # type: ignore[attr-defined]
            '<div class="beside" markdown>\n<div markdown>\n\n## Pseudo-code',
            f'<pre class="pseudo"><code>{_escaped(pseudo)}</code></pre>',
            facts,
            "</div>\n<div markdown>\n\n## Code",
            *_code(kind),
            "</div>\n</div>",
            "## Options",
            _table(("option", "default", "what it is"), *options) if options else "It has none of its own.",
            *(["## Parts that make no sense with it", refused] if refused else []),
            *(["## A step by hand", f"```pycon\n{example}\n```"] if example else []),
        ]
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def _escaped(text: str) -> str:
    """Pseudo-code as HTML, a line for each sentence or step, and no Markdown in it."""
    whole = re.sub(r"(?<![.;:])\n+|\n(?=\n)", " ", text)
    parts = re.sub(r"\s+(?=(?:Client|Server|Traffic)\b[^:\n]{0,40}:)", "\n", whole)
    return parts.replace("&", "&amp;").replace("<", "&lt;").replace("``", "")


def algorithm_pages() -> dict[str, str]:
    """The text of each algorithm's page by its address, in the order of the registry."""
    from trainers.algorithms import ALGORITHMS
    from trainers.commands.listing import entry

    return {f"algorithms/{name}.md": _algorithm(name, kind, entry(name, kind())) for name, kind in ALGORITHMS.items()}


def algorithm_table() -> str:
    """The table of docs/algorithms.md."""
    from trainers.algorithms import ALGORITHMS

    rows = [(f"[`{name}`](algorithms/{name}.md)", _docstring(kind)[0], kind.paper) for name, kind in ALGORITHMS.items()]
    return _table(("algorithm", "in one line", "paper"), *rows)


def protocol_tables() -> str:
    """The tables of docs/protocols.md: each repository's options with their sources."""
    from trainers.protocols import PROTOCOLS

    found = []
    for one in PROTOCOLS.values():
        groups = [("", one.common), *one.algorithms.items()]
        groups += [
            (" ".join(f"{name}={value or '…'}" for name, value in case.items()), told) for case, told in one.when
        ]
        rows = [
            (f"`--{name.replace('_', '-')}`", f"`{line.value}`", f"`{with_}`" if with_ else "", line.source)
            for with_, told in groups
            for name, line in told.items()
        ]
        found += [
            f"## {one.name}",
            f"[{one.repository}]({one.repository}) at `{one.commit}`: {', '.join(one.algorithms)}.",
            _table(("option", "value", "with", "source"), *rows),
            *(["No option says:", "\n".join(f"- {sentence}" for sentence in one.left)] if one.left else []),
        ]
    return "\n\n".join(found)


def api_pages() -> dict[str, str]:
    """A page of each package: its public names, which mkdocstrings fills from their docstrings."""
    from trainers.algorithms import ALGORITHMS

    algorithms = {kind for _, kind in ALGORITHMS.items()}
    pages = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        lines = [f"# {package}", inspect.cleandoc(module.__doc__ or "").replace(":func:", "")]
        for name in sorted(module.__all__):
            thing = getattr(module, name)
            if thing in algorithms if inspect.isclass(thing) else not callable(thing):
                continue
            if inspect.isclass(thing) or inspect.isfunction(inspect.unwrap(thing)):
                lines.append(f"::: {thing.__module__}.{thing.__qualname__}")
        if package == "trainers":
            lines.insert(2, "The algorithms have [pages of their own](../algorithms.md).")
        pages[f"api/{package}.md"] = "\n\n".join(lines)
    return pages


def notebook_page(text: str) -> str:
    """A paired script (Jupytext's percent format) as a page: its cells, Markdown and code.

    Example:
        >>> print(notebook_page("# ---\\n# x\\n# ---\\n\\n# %% [markdown]\\n# # Title\\n\\n# %%\\n1 + 1\\n"))
        # Title
        <BLANKLINE>
        ```python
        1 + 1
        ```
    """
    _, *cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    found = []
    for cell in cells:
        head, _, body = cell.partition("\n")
        if "[markdown]" in head:
            found.append(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
        else:
            found.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(found)


def notebook_pages() -> dict[str, str]:
    """The notebooks, each with how to open it."""
    pages = {}
    for file in sorted((REPOSITORY / "notebooks").glob("*.py")):
        title, _, rest = notebook_page(file.read_text(encoding="utf-8")).partition("\n")
        opened = f"*The notebook `notebooks/{file.name}`: [how to open it](../docs/python.md#notebooks).*"
        pages[f"notebooks/{file.stem}.md"] = f"{title}\n\n{opened}\n{rest}"
    return pages


def files_of_the_repository() -> dict[str, str]:
    """Pages that are files beside docs/, by the place of the file: the page's address."""
    notebooks = sorted((REPOSITORY / "notebooks").glob("*.py"))
    records = sorted((REPOSITORY / "benchmarks" / "records").glob("*.md"))
    scripts = {f"notebooks/{script.name}": f"notebooks/{script.stem}.md" for script in notebooks}
    return PROJECT | scripts | {f"benchmarks/records/{record.name}": f"records/{record.name}" for record in records}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and name them in the navigation."""
    sys.path.insert(0, str(REPOSITORY))  # the site is of these sources, also where another version is installed
    elsewhere = files_of_the_repository()
    made = algorithm_pages() | api_pages() | notebook_pages()
    made |= {
        page: (REPOSITORY / file).read_text(encoding="utf-8") for file, page in elsewhere.items() if page not in made
    }
    for address, text in made.items():
        files.append(File.generated(config, address, content=text))

    def pages(folder: str) -> list[str]:
        return [address for address in made if address.startswith(f"{folder}/")]

    meant: dict[str, list[Any]] = {
        "algorithms": [{"All of them": "algorithms.md"}, *pages("algorithms")],
        "notebooks": pages("notebooks"),
        "records": [{"Records": pages("records")}],
        "api": [{"Python": pages("api")}],
        "project": list(PROJECT.values()),
    }
    config.nav = _named(config.nav, meant)
    return files


def _named(nav: Any, meant: dict[str, list[Any]]) -> Any:
    """The navigation with words replaced by the pages they stand for."""
    if isinstance(nav, list):
        parts = [_named(item, meant) for item in nav]
        return [one for part in parts for one in (part if isinstance(part, list) else [part])]
    if isinstance(nav, dict):
        return {title: _named(inner, meant) for title, inner in nav.items()}
    return meant.get(nav, nav)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill the table of algorithms; let links to files of the repository lead to their pages."""
    if page.file.src_uri == "algorithms.md":
        markdown = markdown.replace("<!-- table of the registry -->", algorithm_table())
    if page.file.src_uri == "protocols.md":
        markdown = markdown.replace("<!-- tables of the protocols -->", protocol_tables())
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    elif page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
    elsewhere = files_of_the_repository()
    place = {address: file for file, address in elsewhere.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if number % 2 else _linked(part, place, page, elsewhere) for number, part in enumerate(parts))


def _linked(text: str, place: str, page: Page, elsewhere: dict[str, str]) -> str:
    here = posixpath.dirname(page.file.src_uri)

    def lead(found: re.Match[str]) -> str:
        words, target, anchor = found["words"], found["target"], found["anchor"] or ""
        file = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        address = elsewhere.get(file, file.removeprefix("docs/") if file.startswith("docs/") else None)
        if address is not None:
            return f"[{words}]({posixpath.relpath(address, here or '.')}{anchor})"
        return words if words.startswith("`") else f"{words} (`{file}`)"  # the site has no such page

    link = r"(?<!!)\[(?P<words>[^\]\[]+)\]\((?!\w+:)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
    return re.sub(link, lead, text)
