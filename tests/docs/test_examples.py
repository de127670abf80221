"""The examples in docstrings of public classes run, and print what they show."""

import doctest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from lsr_prod import Index

MODULES = [
    "lsr_prod.indexing.text_index",
    "lsr_prod.inference.encoder",
    pytest.param("lsr_prod.integrations.mteb", marks=pytest.mark.long),
    "lsr_prod.integrations.mteb_model",
    "lsr_prod.integrations.pyterrier",
    "lsr_prod.model.encoder",
    "lsr_prod.search.array_search",
    "lsr_prod.search.observers",
    "lsr_prod.search.parallel_searcher",
    "lsr_prod.search.query.filters",
    "lsr_prod.search.query.search_request",
    "lsr_prod.search.search_result",
    "lsr_prod.search.searcher",
    "lsr_prod.storage.stores",
]
SEARCH = [name for name in import_module("lsr_prod.search").__all__ if name[0].isupper()]


@pytest.fixture
def _folders(tiny_model: Path, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folders that the examples open: ``model``, ``bundle`` and ``index``."""
    with Index.from_texts(["hold a lock", "parse a date"]) as index:
        for name, folder in (("model", tiny_model), ("bundle", tiny_bundle), ("index", index.snapshot.index)):
            (tmp_path / name).symlink_to(folder)
        monkeypatch.chdir(tmp_path)
        yield


@pytest.mark.usefixtures("_folders")
@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_module_run(name: str) -> None:
    done = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted
    assert not done.failed


@pytest.mark.parametrize("name", SEARCH)
def test_public_class_of_the_search_has_an_example(name: str) -> None:
    assert ">>>" in getattr(import_module("lsr_prod.search"), name).__doc__
