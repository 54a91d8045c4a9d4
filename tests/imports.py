"""Who imports whom in the four packages, read from their text: also imports in functions and for type checkers."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import REPOSITORY

PACKAGES = ("landscape", "trainers", "analysis", "figures")


def sources(*packages: str) -> dict[str, Path]:
    """The modules of some packages by dotted name; a package's ``__init__`` has the package's."""
    files = [file for package in packages for file in sorted((REPOSITORY / package).rglob("*.py"))]
    names = [".".join(file.relative_to(REPOSITORY).with_suffix("").parts) for file in files]
    return dict(zip((name.removesuffix(".__init__") for name in names), files, strict=True))


MODULES = sources(*PACKAGES)


def tracked(*patterns: str) -> list[str]:
    """The files of the repository that match some pattern, or all of them."""
    command = ["git", "ls-files", *patterns]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [name for name in found.stdout.splitlines() if (REPOSITORY / name).is_file()]


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """What a module imports, anywhere in it: of ``modules`` by their whole names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def import_graph() -> dict[str, set[str]]:
    """Each module of the four packages with those it imports."""
    known = set(MODULES)
    return {name: (set(imports(parsed(file), known)) & known) - {name} for name, file in MODULES.items()}


def room(module: str) -> str:
    """The folder a module lies in.

    What lies directly in one of the four packages stands for itself, because these are floors of rooms; and so does a
    command (``__main__``), which nobody imports.
    """
    file = MODULES[module]
    folder = file.parent.relative_to(REPOSITORY)
    if file.name == "__main__.py" or len(folder.parts) == 1:
        return module
    return ".".join(folder.parts)


def is_drawing(module: str) -> bool:
    """Whether it draws: it lies in a folder ``plots``, or is a module of such a name."""
    return "plots" in module.split(".") or module.endswith("_plots")


def room_graph() -> dict[str, set[str]]:
    """Each room with those it imports; a folder and its own ``plots`` aside (:func:`is_drawing`)."""
    graph: dict[str, set[str]] = {}
    for module, others in import_graph().items():
        here = room(module)
        there = {room(other) for other in others} - {here}
        graph.setdefault(here, set()).update(other for other in there if not other.startswith(f"{here}.plots"))
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The nodes that reach one another: the strongly connected components of more than one (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def wings() -> dict[str, set[str]]:
    """The folders below the four packages with those each imports, without what follows from others.

    What lies directly in ``figures`` and the front of ``landscape`` (its public names, and the class they are for) are
    one node each; other modules that lie directly in a package are foundations or fronts, and not drawn.  This is the
    transitive reduction of what :func:`room_graph` tells of folders.
    """
    folders = {name for name, file in MODULES.items() if file.name == "__init__.py" and "." in name}
    graph: dict[str, set[str]] = {node: set() for node in (*folders, "figures", "landscape")}
    for module, others in room_graph().items():
        here = _node(module)
        if here in graph:
            graph[here] |= {_node(other) for other in others} & (set(graph) - {here})

    def reached(start: str, without: str) -> set[str]:
        seen: set[str] = set()
        waiting = [other for other in graph[start] if other != without]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += graph[node]
        return seen

    return {here: {other for other in others if other not in reached(here, other)} for here, others in graph.items()}


def _node(module: str) -> str:
    if module == "landscape.landscape":
        return "landscape"
    folder = MODULES[module].name == "__init__.py"
    return "figures" if module.startswith("figures.") and not folder else module
