"""Recipes: what a figure or table of a paper is made of, at each scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, get_args

from figures.contents.content import Content
from figures.printed import Printed, printed_numbers
from landscape.errors import FedscapeError
from trainers.runs import PlannedRun
from trainers.settings import Settings

ScaleName = Literal["smoke", "small", "paper"]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)


@dataclass(frozen=True)
class Choice:
    """Something that a paper leaves open.

    Attributes:
        default: what is taken; its type is that of the values a user may give.
        why: what the paper says or does not say, and where the default is from.
        at: other defaults, by scale.
    """

    default: Any
    why: str
    at: Mapping[ScaleName, Any] = field(default_factory=dict)

    def value(self, scale: ScaleName, given: str | None) -> Any:
        """The value at a scale, or the given one in the default's type.

        Raises:
            FedscapeError: the given text is of another type.
        """
        default = self.at.get(scale, self.default)
        if given is None:
            return default
        try:
            if isinstance(default, tuple):
                return tuple(type(default[0])(word) for word in given.split(","))
            if isinstance(default, bool):
                return {"yes": True, "no": False}[given]
            return type(default)(given)
        except (ValueError, KeyError):
            raise FedscapeError(f"it cannot be '{given}': give a value such as {self.text(scale)}") from None

    def text(self, scale: ScaleName) -> str:
        """The default at a scale, as a user would give it."""
        default = self.at.get(scale, self.default)
        if isinstance(default, tuple):
            return ",".join(map(str, default))
        return {True: "yes", False: "no"}[default] if isinstance(default, bool) else str(default)


@dataclass(frozen=True)
class Asked:
    """What a user asks of recipes.

    Attributes:
        scale: how large.
        data: data set in place of the scale's.
        model: network in place of the scale's.
        seeds: in place of the paper's, or of the scale's.
        rounds: in place of the scale's.
        choices: values for what papers leave open, by name.
    """

    scale: ScaleName = "smoke"
    data: str | None = None
    model: str | None = None
    seeds: tuple[int, ...] | None = None
    rounds: int | None = None
    choices: Mapping[str, str] = field(default_factory=dict)

    def settings(self, base: Settings) -> Settings:
        """Settings of a scale with what is asked in place of theirs."""
        given: dict[str, Any] = {"data": self.data, "model": self.model, "rounds": self.rounds}
        return replace(base, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class Order:
    """What is asked of one recipe: its builder reads scale, seeds and choices here.

    Attributes:
        recipe: which.
        asked: by the user.
    """

    recipe: Recipe
    asked: Asked

    @property
    def scale(self) -> ScaleName:
        """How large."""
        return self.asked.scale

    def seeds(self, paper: Sequence[int], smoke: Sequence[int] = (0,)) -> tuple[int, ...]:
        """Those asked for; else ``paper``'s at the paper's scale, and ``smoke``'s at the smaller ones."""
        return self.asked.seeds or tuple(paper if self.scale == "paper" else smoke)

    def over_seeds(self, run: PlannedRun, paper: Sequence[int], smoke: Sequence[int] = (0,)) -> tuple[PlannedRun, ...]:
        """A run with each of :meth:`seeds`."""
        return tuple(run.seeded(seed) for seed in self.seeds(paper, smoke))

    def choice(self, name: str) -> Any:
        """The value of what the paper leaves open."""
        try:
            return self.recipe.choices[name].value(self.scale, self.asked.choices.get(name))
        except FedscapeError as error:
            raise FedscapeError(f"--choose {name}: {error}") from None


@dataclass(frozen=True)
class Recipe:
    """One figure or table of a paper.

    Attributes:
        paper: such as ``flat-minima``.
        item: such as ``F1``.
        shows: what it shows, in a line.
        build: its content for an order.
        choices: what the paper leaves open, by name.
        slips: known errors of the paper that concern it; footnotes.
        holes: settings that only the authors' code has, and which are not reproduced.
        stand_ins: what stands in for the paper's data and models at the smaller scales.
        told: sections whose text gives numbers of it, as the printed numbers name them (``text-5.1``).
    """

    paper: str
    item: str
    shows: str
    build: Callable[[Order], Content]
    choices: Mapping[str, Choice] = field(default_factory=dict)
    slips: tuple[str, ...] = ()
    holes: tuple[str, ...] = ()
    stand_ins: Mapping[ScaleName, str] = field(default_factory=dict)
    told: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Such as ``flat-minima/F1``."""
        return f"{self.paper}/{self.item}"

    def content(self, asked: Asked) -> Content:
        """What it is made of, as asked.

        Raises:
            FedscapeError: a choice of another type.
        """
        return self.build(Order(self, asked))

    def printed(self) -> Mapping[tuple[str, str], Printed]:
        """The numbers that the paper prints in it, or gives of it in its text, by row and column."""
        numbers, items = printed_numbers(self.paper), (self.item, *self.told)
        return {(row, column): number for (item, row, column), number in numbers.items() if item in items}


@dataclass(frozen=True)
class Paper:
    """A paper and the recipes of its figures and tables.

    Attributes:
        name: short, as in ids.
        cites: authors, venue, year.
        stand_ins: as :attr:`Recipe.stand_ins`, of all of its recipes.
        recipes: by item, in the order in which they are declared.

    Example:
        >>> from figures.contents.table import Entry, TableOf
        >>> from figures.recipes.recipe import Asked, Paper
        >>> from trainers import FedAvg, Settings
        >>> from trainers.runs import PlannedRun
        >>> mine = Paper("mine", "nobody, 2026")
        >>> @mine.recipe("T1", "final accuracy")
        ... def t1(order):
        ...     run = PlannedRun(FedAvg(), order.asked.settings(Settings(rounds=5)))
        ...     return TableOf({("FedAvg", "accuracy"): Entry((run,), lambda run: run.last("test_accuracy"))})
        >>> [node.settings.rounds for node in mine.recipes["T1"].content(Asked(rounds=2)).nodes()]
        [2]
    """

    name: str
    cites: str
    stand_ins: Mapping[ScaleName, str] = field(default_factory=dict)
    recipes: dict[str, Recipe] = field(default_factory=dict)

    def recipe(
        self,
        item: str,
        shows: str,
        *,
        choices: Mapping[str, Choice] = MappingProxyType({}),
        slips: Sequence[str] = (),
        holes: Sequence[str] = (),
        told: Sequence[str] = (),
    ) -> Callable[[Callable[[Order], Content]], Callable[[Order], Content]]:
        """Decorator: declare a figure or table by the function that builds its content."""

        def declare(build: Callable[[Order], Content]) -> Callable[[Order], Content]:
            self.recipes[item] = Recipe(
                self.name, item, shows, build, choices, tuple(slips), tuple(holes), self.stand_ins, tuple(told)
            )
            return build

        return declare


def chosen(papers: Iterable[Paper], ids: Sequence[str]) -> list[Recipe]:
    """The recipes that ids name: ``flat-minima/F1``, ``man/F4`` (F4a and F4b), ``man``, ``all``.

    Raises:
        FedscapeError: an id that names none.
    """
    table = {recipe.id: recipe for paper in papers for recipe in paper.recipes.values()}
    found: dict[str, Recipe] = {}
    for wanted in ids:
        names = [name for name in table if wanted == "all" or name == wanted or name.startswith(f"{wanted}/")]
        names = names or [name for name in table if name[:-1] == wanted and name[-1].isalpha()]
        if not names:
            raise _unknown_id(wanted, list(table))
        found |= {name: table[name] for name in names}
    return list(found.values())


def _unknown_id(wanted: str, known: list[str]) -> FedscapeError:
    """The error for an id that names nothing: the nearest one, or those that end so, and where all are told."""
    near = get_close_matches(wanted, known, n=1) or [name for name in known if name.endswith(f"/{wanted}")]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    papers = ", ".join(dict.fromkeys(name.partition("/")[0] for name in known))
    return FedscapeError(
        f"unknown figure or table '{wanted}': {hint}give a paper ({papers}), one of what `list` shows, such as "
        f"{known[0]}, or all"
    )
