"""The examples in docstrings of public classes run, and print what they show."""

import doctest
from importlib import import_module

import pytest

MODULES = [
    "lsr_prod.indexing.text_index",
    "lsr_prod.search.query.filters",
    "lsr_prod.search.query.request",
    "lsr_prod.search.result",
    "lsr_prod.search.searcher",
    "lsr_prod.storage.store",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_module_run(name: str) -> None:
    done = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted
    assert not done.failed
