"""The examples in the docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

PACKAGES = ("landscape", "trainers", "analysis", "figures")
MODULES = [
    module.name
    for package in PACKAGES
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    if not module.name.endswith("__main__")
]
HAVE_EXAMPLES = [
    name for name in MODULES if any(t.examples for t in doctest.DocTestFinder().find(importlib.import_module(name)))
]


@pytest.mark.parametrize("name", ["landscape.landscape", "analysis.hessian.measure", "analysis.surface.measure"])
def test_the_main_front_doors_have_an_example(name):
    assert name in HAVE_EXAMPLES


@pytest.mark.parametrize("name", HAVE_EXAMPLES)
def test_example_prints_what_it_says(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
