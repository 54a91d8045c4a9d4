"""Calling a network's factory with what its signature takes: ours, the user's, other libraries'."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from landscape.errors import FedscapeError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PASSED_ON = (("input_shape", "classes"), ("num_classes",), ("classes",), ("input_shape",), ())
"""What a factory with nothing but ``**kwargs`` may pass on, in the order in which it is tried."""


def call_factory(factory: Callable[..., Any], name: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Call a factory with those of the known arguments that it takes, and all that are given.

    A factory with ``**kwargs`` and none of the known names, such as torchvision's ``resnet18``, gets those that what it
    calls takes, found by trying.

    Args:
        factory: any callable.
        name: of the factory, for the error.
        known: arguments that it may take.
        given: arguments that it must take.

    Raises:
        FedscapeError: it needs an argument that is not known.
        TypeError: it does not take what is given.

    Example:
        >>> from landscape.models.factories import call_factory
        >>> known = {"input_shape": (1, 8, 8), "classes": 10, "num_classes": 10}
        >>> call_factory(lambda num_classes=1000: num_classes, "net", known, {})
        10
        >>> call_factory(lambda depth, num_classes: None, "zoo:net", known, {})
        Traceback (most recent call last):
            ...
        landscape.errors.FedscapeError: the model 'zoo:net' cannot be built: it needs depth, which is not known here: \
write a function that gives it, such as def net(num_classes): return zoo.net(depth=..., num_classes=num_classes) \
in own.py, and give --model own:net
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # of some built-in callables there is none
        parameters = inspect.signature(lambda **kwargs: None).parameters
    named = {key: value for key, value in known.items() if key in parameters and parameters[key].kind in _NAMED}
    needed = [
        key
        for key, p in parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and not {key} & {*named, *given}
    ]
    if needed:
        raise _needs(name, needed)
    if named or not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return _called(factory, name, {**named, **given})
    for keys in _PASSED_ON:
        try:
            return _called(factory, name, {**{key: known[key] for key in keys}, **given})
        except TypeError as error:
            found = re.search(r"keyword argument '(\w+)'|for keyword argument '(\w+)'", str(error))
            if found is None or not {*found.groups()} & {*keys}:
                raise
    raise AssertionError("the last try has no keyword of ours")


def _called(factory: Callable[..., Any], name: str, arguments: Mapping[str, Any]) -> Any:
    try:
        return factory(**arguments)
    except TypeError as error:
        missing = re.search(r"missing \d+ required .*arguments?: (.*)", str(error))
        if missing is None:
            raise
        raise _needs(name, re.findall(r"'(\w+)'", missing[1])) from error


def _needs(name: str, missing: list[str]) -> FedscapeError:
    module, colon, function = name.rpartition(":")
    arguments = ", ".join([*(f"{key}=..." for key in missing), "num_classes=num_classes"])
    return FedscapeError(
        f"the model '{name}' cannot be built: it needs {', '.join(missing)}, which is not known here: write a function "
        f"that gives it, such as def net(num_classes): return {module}{'.' if colon else ''}{function}({arguments}) in "
        "own.py, and give --model own:net"
    )
