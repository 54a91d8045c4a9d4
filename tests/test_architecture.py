"""The house as ARCHITECTURE.md draws it: which folder imports which, and how large a room may be."""

import ast
import re

import pytest

from tests.conftest import REPOSITORY
from tests.imports import (
    MODULES,
    PACKAGES,
    circles,
    import_graph,
    imports,
    is_drawing,
    parsed,
    room_graph,
    sources,
    tracked,
    wings,
)

ALLOWED = {
    "landscape": {"landscape"},
    "trainers": {"landscape", "trainers"},
    "analysis": {"landscape", "analysis"},
    "figures": {"landscape", "trainers", "analysis", "figures"},
}
MANY_ALIKE = {"trainers/algorithms", "landscape/data/formats"}
"""Folders of as many modules as there are things of one kind."""
MOST_MODULES, MOST_LINES, MOST_LINES_OF_A_FUNCTION = 16, 400, 60


def test_no_circle_between_folders():
    assert circles(room_graph()) == []


def test_no_circle_between_modules_but_of_results_and_their_plots():
    """``plot()`` imports the drawing functions, and these take the result."""
    graph = {
        module: {other for other in others if is_drawing(module) or not is_drawing(other)}
        for module, others in import_graph().items()
    }
    assert circles(graph) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_down_the_floors(package):
    graph = {module: others for module, others in import_graph().items() if module.split(".")[0] == package}
    wrong = [(a, b) for a, others in graph.items() for b in others if b.split(".")[0] not in ALLOWED[package]]
    assert graph
    assert not wrong


def test_nothing_imports_the_tests():
    for name, file in MODULES.items():
        assert not [other for other in imports(parsed(file), set(MODULES)) if other.split(".")[0] == "tests"], name


def test_arithmetic_imports_no_drawing():
    """Plots are imported inside a function alone: a result's ``plot()``, or that of a command that draws."""
    for name, file in MODULES.items():
        if is_drawing(name) or (name.startswith("figures") and not name.startswith("figures.statistics")):
            continue
        at_the_top = [node for node in parsed(file).body if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
        found = list(imports(ast.Module(at_the_top, []), set(MODULES)))
        assert not [other for other in found if is_drawing(other)], name


def test_a_circle_would_be_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    local = "def f():\n    from trainers.runs import run\n"
    assert list(imports(ast.parse(local), {"trainers.runs.run"})) == ["trainers.runs.run"]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_folder_has_more_modules_than_a_newcomer_can_see(package):
    for folder in {file.parent for file in sources(package).values()}:
        count = sum(file.name != "__init__.py" for file in folder.glob("*.py"))
        assert count <= MOST_MODULES or folder.relative_to(REPOSITORY).as_posix() in MANY_ALIKE, folder


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_says_what_it_is_for(package):
    for folder in {file.parent for file in sources(package).values()}:
        assert ast.get_docstring(parsed(folder / "__init__.py")), folder


def test_the_command_imports_what_commands_share_and_nothing_imports_it():
    roof = set(imports(parsed(REPOSITORY / "fedscape.py"), set(MODULES)))
    ours = {name for name in roof if name.split(".")[0] in PACKAGES}
    assert ours
    light = ("landscape.terminal.", "landscape.errors", "landscape.registry", "landscape.version")
    assert all(name.startswith(light) for name in ours), ours
    for name, file in MODULES.items():
        assert "fedscape" not in imports(parsed(file), {"fedscape"}), name


def page() -> str:
    return (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_drawing_has_the_arrows_that_the_imports_have():
    drawn = set(re.findall(r"^ +(\w+) --> (\w+)$", page(), re.M))
    there = {(a.replace(".", "_"), b.replace(".", "_")) for a, others in wings().items() for b in others}
    assert drawn == there


def test_the_table_has_every_folder():
    told = re.findall(r"^\| `([\w/]+)` \|", page(), re.M)
    assert sorted(told) == sorted(node.replace(".", "/") for node in wings())


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) else None
    told = 0 if docstring is None else docstring.end_lineno - docstring.lineno + 1
    return function.end_lineno - function.lineno + 1 - told


def test_files_and_functions_fit_on_a_few_screens():
    for name in tracked("*.py"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MOST_LINES, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert length(node) <= MOST_LINES_OF_A_FUNCTION, f"{name}:{node.lineno} {node.name}"
