"""The examples in the docstrings of ``landscape`` run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import landscape

MODULES = [f"landscape.{module.name}" for module in pkgutil.iter_modules(landscape.__path__)]
HAVE_EXAMPLES = [
    name for name in MODULES if any(t.examples for t in doctest.DocTestFinder().find(importlib.import_module(name)))
]


def test_the_main_class_has_an_example():
    assert "landscape.landscape" in HAVE_EXAMPLES


@pytest.mark.parametrize("name", HAVE_EXAMPLES)
def test_example_prints_what_it_says(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
