"""The options of dataclasses: their types with the strings below their fields, for command lines."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro

# Written with run-time values, which type checkers refuse in Annotated[...].
_annotated: Any = Annotated


@cache
def field_docstrings(kind: type) -> dict[str, str]:
    """The strings below the fields of a dataclass, also of inherited ones, by field.

    Example:
        >>> from trainers import SAM
        >>> from trainers.parts.options import field_docstrings
        >>> field_docstrings(SAM)
        {'rho': 'ρ, radius of the ascent step'}
    """
    found = {}
    for each in reversed(kind.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for statement, text in pairwise(definition.body):
            if isinstance(statement, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[ast.unparse(statement.target)] = inspect.cleandoc(ast.literal_eval(text.value))
    return found


def field_type(kind: type, name: str) -> tuple[Any, list[Any]]:
    """The plain type of a dataclass's field, and what it is annotated with."""
    hint = get_type_hints(kind, include_extras=True)[name]
    plain, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return plain, extras


def described(kind: type, name: str, text: str = "") -> Any:
    """The type of a dataclass's field with its help for tyro: ``text``, or the string below the field."""
    plain, extras = field_type(kind, name)
    return _annotated[(plain, tyro.conf.arg(help=text or field_docstrings(kind)[name]), *extras)]
