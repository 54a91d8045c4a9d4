"""README, CONTRIBUTING and the pages of docs/ as tests read them: their blocks, and the commands in these."""

import re
import shlex
from types import ModuleType
from typing import Any

import analysis.alignment.__main__
import analysis.corruptions.__main__
import analysis.hessian.__main__
import analysis.surface.__main__
import figures.__main__
import landscape.data.__main__
import trainers.__main__
from landscape.terminal.command import read as parsed
from landscape.terminal.program import COMMANDS
from tests.conftest import REPOSITORY
from tests.imports import PACKAGES

PAGES = sorted(
    file.relative_to(REPOSITORY).as_posix()
    for file in (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").glob("*.md"))
)
MAINS: dict[str, ModuleType] = {
    "analysis.hessian": analysis.hessian.__main__,
    "analysis.surface": analysis.surface.__main__,
    "analysis.corruptions": analysis.corruptions.__main__,
    "analysis.alignment": analysis.alignment.__main__,
}


def text(file: str) -> str:
    return (REPOSITORY / file).read_text(encoding="utf-8")


def blocks(file: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(file), re.DOTALL | re.MULTILINE)


def lines(file: str) -> list[list[str]]:
    """Every line of a page's shell blocks as words."""
    every = "\n".join(blocks(file, "sh")).replace("\\\n", " ").splitlines()
    return [words for words in (shlex.split(line, comments=True) for line in every) if words]


def as_module(words: list[str]) -> list[str] | None:
    """The words after ``python -m`` of a command of ours, whichever name it is called by; else ``None``."""
    if words[:1] == ["fedscape"] and words[1:2] and words[1] in COMMANDS:
        return [*COMMANDS[words[1]].split(), *words[2:]]
    if words[:2] == ["python", "-m"] and words[2].split(".")[0] in PACKAGES:
        return words[2:]
    if words[0] in ("torchrun", "sbatch") and "-m" in words:
        return words[words.index("-m") + 1 :]
    return None


def commands_of(file: str) -> list[list[str]]:
    """The commands of ours on a page as words after ``python -m``."""
    return [found for words in lines(file) if (found := as_module(words)) is not None]


def read(module: str, words: list[str]) -> Any:
    """A command line as the command's own parser has it."""
    if module in MAINS:
        kind, config = MAINS[module].kinds()[f"python -m {module}"]
        return parsed(kind, f"python -m {module}", words, config)
    if module == "landscape.data" or (module == "trainers" and words[0] in trainers.__main__.COMMANDS):
        main = landscape.data.__main__ if module == "landscape.data" else trainers.__main__
        kind, config = main.kinds()[f"python -m {module} {words[0]}"]
        return parsed(kind, f"python -m {module} {words[0]}", words[1:], config)
    return {"trainers": trainers.__main__, "figures": figures.__main__}[module].read(words)
