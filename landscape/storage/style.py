"""How pictures are dressed: for the screen, or for a paper of a venue."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, get_args

import tyro

from landscape.errors import FedscapeError

StyleName = Literal["screen", "paper"]
Venue = Literal[
    "aaai2024", "aistats2025", "colm2026", "cvpr2024", "eccv2024", "iclr2024", "icml2024", "jmlr2001", "neurips2024",
    "probnum2025", "tmlr2023", "uai2023",
]  # fmt: skip
"""Conferences and journals whose page tueplots knows: the bundles of its version of ``constraints.txt``."""

_SHIPPED = {"serif": ("STIXGeneral", "DejaVu Serif"), "sans-serif": ("DejaVu Sans",)}
"""Fonts that come with Matplotlib, for machines without the venue's and for what the venue's lacks."""


@dataclass(frozen=True)
class PictureStyle:
    """How pictures are dressed.

    Example:
        >>> from landscape.storage.style import PictureStyle
        >>> paper = PictureStyle("paper", venue="icml2024")
        >>> paper.width(), paper.width(several=True)  # inches of a column, and of the text
        (3.25, 6.75)
    """

    style: StyleName = "screen"
    """screen: title and caption in the picture; paper: the venue's width and fonts, title and caption beside the
    picture, in NAME.caption.txt"""
    venue: Venue = "icml2024"
    """of --style paper: whose"""
    columns: Annotated[
        Literal[1, 2] | None,
        tyro.conf.arg(metavar="{1,2}", help_behavior_hint="(default: 1 for a single panel, 2 for several beside)"),
    ] = None
    """of --style paper: how many of the page's columns wide, where the venue has two"""

    def __post_init__(self) -> None:
        for name, value, kinds in (("style", self.style, StyleName), ("venue", self.venue, Venue)):
            if value not in get_args(kinds):
                raise FedscapeError(f"unknown {name} of pictures '{value}': give {', '.join(get_args(kinds))}")
        if self.columns not in (None, 1, 2):
            raise FedscapeError(f"a picture cannot be {self.columns} columns wide: give 1 or 2")

    @classmethod
    def of(cls, style: PictureStyle | StyleName) -> PictureStyle:
        """The style itself, or by its name that of the default venue.

        Raises:
            FedscapeError: no such style.
        """
        return style if isinstance(style, PictureStyle) else cls(style)

    @property
    def paper(self) -> bool:
        """Whether pictures are for a paper."""
        return self.style == "paper"

    def width(self, *, several: bool = False) -> float:
        """Inches that a picture is wide in a paper: a column, or with ``several`` panels beside each other the text."""
        full = (2 if several else 1) if self.columns is None else self.columns
        return float(_venue(self.venue, "full" if full == 2 else "half")["figure.figsize"][0])

    def settings(self) -> Any:
        """Matplotlib's settings, a dictionary, for drawing in this style; none for the screen."""
        if not self.paper:
            return {}
        from tueplots import axes

        kept = {name: value for name, value in _venue(self.venue, "half").items() if name.endswith("size")}
        kept.pop("figure.figsize")
        thin = {name: value for name, value in axes.lines().items() if not name.startswith("legend")}
        return {**thin, "lines.markersize": 4, **kept, **_fonts(self.venue)}

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside, Matplotlib draws in this style, and :func:`current_style` is it.

        Example:
            >>> from matplotlib import rcParams
            >>> from landscape.storage.style import PictureStyle
            >>> with PictureStyle("paper").drawing():
            ...     rcParams["font.size"]
            8.0
        """
        from matplotlib import rc_context

        with rc_context(self.settings()):
            token = _CURRENT.set(self)
            try:
                yield
            finally:
                _CURRENT.reset(token)


_SCREEN = PictureStyle()
_CURRENT: ContextVar[PictureStyle] = ContextVar("style", default=_SCREEN)


def current_style() -> PictureStyle:
    """The style of the innermost :meth:`PictureStyle.drawing`; outside of all, that of the screen."""
    return _CURRENT.get()


@lru_cache
def _venue(venue: Venue, column: str) -> dict[str, Any]:
    """tueplots' settings for a venue, without LaTeX; those with one column of text know no ``column``."""
    from tueplots import bundles

    bundle = getattr(bundles, venue)
    taken = inspect.signature(bundle).parameters
    asked = {"usetex": False, "column": column}
    return dict(bundle(**{name: value for name, value in asked.items() if name in taken}))


@lru_cache
def _fonts(venue: Venue) -> dict[str, Any]:
    """The venue's fonts that this machine has as TrueType, then Matplotlib's own, which are like them."""
    from matplotlib import font_manager

    wanted = _venue(venue, "half")
    family = wanted.get("font.family", "serif")
    files = {font.name: font.fname for font in font_manager.fontManager.ttflist}
    there = [name for name in wanted.get(f"font.{family}", ()) if files.get(name, "").lower().endswith(".ttf")]
    return {
        "font.family": [*there[:1], *_SHIPPED[family]],
        "mathtext.fontset": "stix" if family == "serif" else "dejavusans",
        "text.usetex": False,
    }
