"""Sorting hits by an attribute, and facet counts over all matches."""

import datetime as dt
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Hybrid, ParallelSearcher, Searcher, field, text_query
from lsr_prod.search import candidates as collect_module
from lsr_prod.search.search_result import Facet
from lsr_prod.serving.wire import WireRequest, request_to_json, result_from_json, result_to_json
from tests.indexing.corpus import Doc, make_index
from tests.search.oracle import brute_force
from tests.serving.test_scatter import scattering

TYPES = {"year": "int64", "lang": "string", "open": "bool", "at": "timestamp", "grade": "float64"}


def stored(i: int) -> dict[str, str | None]:
    return {
        "year": str(2000 + i * 7 % 5) if i % 6 else None,
        "lang": ["en", "de", "é", "\U0001f600", None][i % 5],
        "open": ["true", "false", None][i % 3],
        "at": f"2024-0{1 + i % 4}-01" if i % 7 else None,
        "grade": str((i * 11 % 9) / 4 - 1),
    }


CORPUS = {f"d{i * 31 % 101:03}": Doc({0: 1 + i % 5, 1 + i % 3: 9}, f"word{i % 4}", stored(i)) for i in range(90)}
VECTOR = {0: 1.0, 2: 0.5}
GONE = {"d031", "d062"}
VALUES: dict[str, Callable[[str], Any]] = {
    "year": int,
    "lang": str,
    "open": lambda text: text == "true",
    "at": lambda text: dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC),
    "grade": float,
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sort")
    make_index(folder, CORPUS, vocabulary_size=6, shards=3, bm25=True, attributes=TYPES, deleted=GONE)
    return folder


@pytest.fixture(params=["one window", "many windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many windows":
        monkeypatch.setattr(collect_module, "WINDOW", 5)


def matches(required: int = 1, allowed: Callable[[str], bool] = lambda _: True) -> list[tuple[str, float, int]]:
    return brute_force(CORPUS, VECTOR, required, allowed=lambda doc_id: doc_id not in GONE and allowed(doc_id))


def value(doc_id: str, name: str) -> Any:
    text = CORPUS[doc_id].stored[name]
    return None if text is None else VALUES[name](text)


def by_value(found: list[tuple[str, float, int]], name: str, *, descending: bool) -> list[tuple[str, float, int]]:
    known = sorted(hit for hit in found if value(hit[0], name) is not None)
    known.sort(key=lambda hit: value(hit[0], name), reverse=descending)
    return known + sorted(hit for hit in found if value(hit[0], name) is None)


def facet(found: list[tuple[str, float, int]], name: str, size: int) -> Facet:
    counts = Counter(value(doc_id, name) for doc_id, _, _ in found)
    missing = counts.pop(None, 0)
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Facet(name, tuple(best[:size]), missing, len(counts))


def answer(result) -> list[tuple[str, float, int]]:
    return [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("descending", [False, True])
def test_hits_are_sorted_by_the_attribute(index: Path, windows: None, name: str, descending: bool) -> None:
    expected = by_value(matches(), name, descending=descending)
    with Searcher.open(index) as searcher:
        sort = "-" * descending + name
        result = searcher.search_vector(VECTOR, 100, sort=sort)
        assert answer(result) == expected
        assert (result.matched, result.matched_exact) == (len(expected), True)
        assert answer(searcher.search_vector(VECTOR, 7, sort=sort)) == expected[:7]
        assert answer(searcher.search_vector(VECTOR, 7, sort=sort, offset=10)) == expected[10:17]
        high = [hit for hit in expected if hit[1] >= 0.1]
        assert answer(searcher.search_vector(VECTOR, 100, sort=sort, min_score=0.1)) == high


def test_facets_count_all_matches(index: Path, windows: None) -> None:
    with Searcher.open(index) as searcher:
        for required in (1, 2):
            found = matches(required)
            result = searcher.search_vector(VECTOR, 3, min_terms=required, facets=[*TYPES], facet_size=3)
            assert result.facets == tuple(facet(found, name, 3) for name in TYPES)
            assert answer(result) == found[:3]
            assert (result.matched, result.matched_exact) == (len(found), True)
        result = searcher.search_vector(VECTOR, 0, facets=["lang"], filter=field("year") >= 2002, sort="year")
        recent = matches(allowed=lambda doc_id: (value(doc_id, "year") or 0) >= 2002)
        assert result.facets == (facet(recent, "lang", 10),)


def test_all_searchers_agree(index: Path) -> None:
    options = {"k": 9, "sort": "-year", "facets": ["lang", "at"], "filter": text_query("word1 OR word2")}
    with Searcher.open(index) as searcher, ParallelSearcher.open(index) as parallel:
        expected = searcher.search_vector(VECTOR, **options)
        assert len(expected.hits) == 9
        for other in (parallel, scattering(index, 2)):
            found = other.search_vector(VECTOR, **options)
            assert (found.hits, found.facets, found.matched) == (expected.hits, expected.facets, expected.matched)


def test_pages_of_a_sorted_result(index: Path) -> None:
    with Searcher.open(index) as searcher:
        expected = by_value(matches(), "year", descending=True)
        pages = [searcher.search_vector(VECTOR, 20, sort="-year")]
        while pages[-1].next_page is not None:
            pages.append(searcher.search_vector(VECTOR, 20, sort="-year", search_after=pages[-1].next_page))
        assert [hit for page in pages for hit in answer(page)] == expected


def test_words_of_a_hybrid_search_are_matched_too(index: Path) -> None:
    with Searcher.open(index) as searcher:
        for hybrid in (Hybrid(), Hybrid(fusion="rrf")):
            how = {"text": "word3", "hybrid": hybrid, "min_terms": 1}
            whole = searcher.search_vector({5: 1.0}, 100, count=True, facets=["lang"], **how)
            assert whole.matched == sum("word3" in doc.text for doc_id, doc in CORPUS.items() if doc_id not in GONE)
            assert sum(count for _, count in whole.facets[0].values) + whole.facets[0].missing == whole.matched
        in_order = searcher.search_vector({5: 1.0}, 100, text="word3", hybrid=Hybrid(), sort="year")
        assert {hit.doc_id for hit in in_order.hits} == {hit.doc_id for hit in whole.hits}


def test_deadline_ends_collection(index: Path) -> None:
    with Searcher.open(index) as searcher:
        result = searcher.search_vector(VECTOR, 5, sort="year", facets=["lang"], deadline_ms=0)
        assert result.partial
        assert not result.matched_exact


def test_facet_with_too_many_values_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_module, "MAX_FACET_VALUES", 3)
    with Searcher.open(index) as searcher:
        with pytest.raises(QueryError, match="'lang' has more than 3 values"):
            searcher.search_vector(VECTOR, facets=["lang"])
        assert searcher.search_vector(VECTOR, facets=["open"]).facets[0].distinct == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "color"}, "no attribute 'color'"),
        ({"sort": "text"}, "no attribute 'text'"),
        ({"sort": 3}, "sort=3"),
        ({"sort": "year", "rescore": 10}, "sort .* rescore"),
        ({"sort": "year", "deduplicate": "lang"}, "sort .* deduplicate"),
        ({"sort": "year", "hybrid": Hybrid(fusion="rrf"), "text": "a"}, "sort .* rrf"),
        ({"facets": "year"}, "facets='year'"),
        ({"facets": ["color"]}, "no attribute 'color'"),
        ({"facets": ["year"] * 17}, "at most 16"),
        ({"facets": ["year"], "facet_size": 0}, "facet_size=0"),
        ({"facets": ["year"], "facet_size": 1001}, "facet_size=1001"),
    ],
)
def test_wrong_options_are_refused(index: Path, options: dict, message: str) -> None:
    with Searcher.open(index) as searcher, pytest.raises(QueryError, match=message):
        searcher.search_vector(VECTOR, **options)


def test_sort_and_facets_survive_the_wire(index: Path) -> None:
    options = {"sort": "-at", "facets": ("at", "lang"), "facet_size": 2}
    with Searcher.open(index) as searcher:
        result = searcher.search_vector(VECTOR, 3, **options)
    value = result_to_json(result)
    assert value["facets"][0]["values"][0][0].startswith("2024-0")
    assert result_from_json(value) == result
    read = WireRequest.read(request_to_json(3, options, vector=VECTOR)).options
    assert read == {"sort": "-at", "facets": ["at", "lang"], "facet_size": 2}
