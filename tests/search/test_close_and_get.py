"""``close`` releases an index, and ``get`` returns documents; attributes have their type."""

import datetime as dt
import gc
from pathlib import Path

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import ParallelSearcher, Searcher, field
from tests.indexing.corpus import Doc, make_index

TYPES = {"year": "int64", "open": "bool", "at": "timestamp", "lang": "string"}
STORED = {"year": " 7", "open": "TRUE", "at": "2024-05-01", "lang": " en"}
TYPED = {"year": 7, "open": True, "at": dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "lang": " en"}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    corpus = {
        "a": Doc({1: 9}, "text a", STORED),
        "b": Doc({1: 7}, "text b", {"year": "7", "lang": "de"}),
        "c": Doc({1: 5}, "text c", {"year": "07", "at": "no time"}),
        "d": Doc({1: 3}, "text d"),
        "gone": Doc({1: 8}, "text gone"),
    }
    make_index(tmp_path, corpus, vocabulary_size=4, shards=2, attributes=TYPES, deleted={"gone"})
    return tmp_path


def mapped(folder: Path) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(folder) in line]


@pytest.mark.parametrize("kind", [Searcher, ParallelSearcher])
def test_closed_searcher_releases_its_files_and_refuses(index: Path, kind: type[Searcher]) -> None:
    with kind.open(index) as searcher:
        assert len(searcher.search_vector({1: 1.0}, fields=["year"]).hits) == 4
        assert mapped(index)
    gc.collect()
    assert not mapped(index)
    searcher.close()
    for call in (
        lambda: searcher.search_vector({1: 1.0}),
        lambda: searcher.get(["a"]),
        lambda: searcher.match_boolean("text"),
        lambda: searcher.snapshot,
        searcher.refresh,
        searcher.warm,
    ):
        with pytest.raises(QueryError, match="this searcher is closed; open another one"):
            call()


def test_running_query_outlives_close(index: Path) -> None:
    searcher = Searcher.open(index)
    snapshot = searcher.snapshot
    searcher.close()
    assert snapshot.place("a") is not None
    assert snapshot.fields([(0.0, "", *snapshot.find("a"), 0)], ["text"]) == [{"text": "text a"}]


def test_attributes_have_their_type(index: Path) -> None:
    hits = Searcher.open(index).search_vector({1: 1.0}, fields=[*TYPES, "text"]).hits
    assert hits[0].fields == {**TYPED, "text": "text a"}
    assert hits[2].fields == {"year": 7, "open": None, "at": None, "lang": None, "text": "text c"}


def test_deduplication_by_an_attribute_compares_values(index: Path) -> None:
    hits = Searcher.open(index).search_vector({1: 1.0}, deduplicate="year").hits
    assert [hit.doc_id for hit in hits] == ["a", "d"]
    hits = Searcher.open(index).search_vector({1: 1.0}, deduplicate="year", filter=field("lang") == "de").hits
    assert [hit.doc_id for hit in hits] == ["b"]


def test_get_returns_documents_in_the_order_of_ids(index: Path) -> None:
    searcher = Searcher.open(index)
    found = searcher.get(["d", "unknown", "a", "gone", "a"], ["year", "text"])
    a = {"year": 7, "text": "text a"}
    assert found == [{"year": None, "text": "text d"}, None, a, None, a]
    assert searcher.get([]) == []
    assert searcher.get(["a"]) == [{"title": None, "text": "text a", **TYPED}]


def test_wrong_ids_are_refused(index: Path) -> None:
    searcher = Searcher.open(index)
    for given, message in (("a", "not a list"), ([3], "not a list"), (["a"] * 10_001, "at most 10000")):
        with pytest.raises(QueryError, match=message):
            searcher.get(given)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="does not store the field"):
        searcher.get(["a"], ["unknown"])
