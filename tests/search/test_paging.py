"""Paging: ``offset`` and ``search_after`` return consecutive parts of one long result."""

from pathlib import Path

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Hybrid, ParallelSearcher, Searcher
from lsr_prod.search.query.filters import Cursor
from lsr_prod.serving.wire import WireRequest, request_to_json, result_from_json, result_to_json
from tests.indexing.corpus import Doc, make_index

CORPUS = {f"d{i:02}": Doc({0: 1 + i % 3, 1 + i % 4: 7}, f"word{i % 3} text{i % 11}") for i in range(40)}
VECTOR = {0: 1.0, 2: 1.0}
OPTIONS = [
    {},
    {"min_score": 0.07},
    {"deduplicate": "text"},
    {"rescore": 40},
    {"rescore": 23},
    {"text": "word1 text2", "hybrid": Hybrid()},
    {"text": "word1 text2", "hybrid": Hybrid(fusion="rrf", depth=40)},
    {"count": True, "min_terms": 2},
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paging")
    make_index(folder, CORPUS, vocabulary_size=6, shards=3, bm25=True, deleted={"d07"})
    return folder


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", [Searcher, ParallelSearcher])
def test_pages_together_equal_one_long_result(index: Path, kind: type[Searcher], options: dict) -> None:
    with kind.open(index) as searcher:
        whole = searcher.search_vector(VECTOR, options.get("rescore", 40), **options).hits
        assert len(whole) > 4
        by_offset = [searcher.search_vector(VECTOR, 4, offset=at, **options).hits for at in range(0, 44, 4)]
        assert sum(by_offset, ()) == whole
        pages = [searcher.search_vector(VECTOR, 4, **options)]
        while pages[-1].next_page is not None:
            pages.append(searcher.search_vector(VECTOR, 4, search_after=pages[-1].next_page, **options))
        assert sum((page.hits for page in pages), ()) == whole
        assert [page.offset for page in pages] == list(range(0, len(whole) + 1, 4))[: len(pages)]


def test_page_of_another_version_is_refused(tmp_path: Path) -> None:
    make_index(tmp_path, CORPUS, vocabulary_size=6)
    with Searcher.open(tmp_path) as searcher:
        page = searcher.search_vector(VECTOR, 4)
        make_index(tmp_path, CORPUS, vocabulary_size=6, deleted={"d01"})
        assert searcher.refresh()
        with pytest.raises(QueryError, match=f"{page.version}', but .* start again with the first page"):
            searcher.search_vector(VECTOR, 4, search_after=page.next_page)


def test_page_of_another_query_is_refused(index: Path) -> None:
    with Searcher.open(index) as searcher:
        token = searcher.search_vector({1: 1.0}, 4).next_page
        with pytest.raises(QueryError, match="search_after belongs to another query"):
            searcher.search_vector({3: 1.0}, 4, search_after=token)


def test_partial_result_has_no_next_page(index: Path) -> None:
    with Searcher.open(index) as searcher:
        assert searcher.search_vector(VECTOR, 4).next_page is not None
        late = searcher.search_vector(VECTOR, 4, deadline_ms=0)
        assert late.partial
        assert late.next_page is None


def test_page_that_the_deadline_ends_early_repeats_no_hit(index: Path) -> None:
    with Searcher.open(index) as searcher:
        first = searcher.search_vector(VECTOR, 4)
        late = searcher.search_vector(VECTOR, 4, search_after=first.next_page, deadline_ms=0)
        assert late.partial
        assert not {hit.doc_id for hit in late.hits} & {hit.doc_id for hit in first.hits}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"offset": -1}, "offset=-1 is not possible"),
        ({"offset": 9_999}, "offset=9999 with k=10 passes hit 10000"),
        ({"search_after": "no token"}, "is not a token"),
        ({"search_after": 7}, "is not a token"),
        ({"search_after": Cursor("v", 1.0, "a", 9_995).token}, "offset=9995 with k=10 passes hit 10000"),
        ({"search_after": Cursor("v", 1.0, "a", 4).token, "offset": 4}, "give one of them"),
    ],
)
def test_wrong_pages_are_refused(index: Path, options: dict, message: str) -> None:
    with Searcher.open(index) as searcher, pytest.raises(QueryError, match=message):
        searcher.search_vector(VECTOR, **options)


@pytest.mark.parametrize(
    "token", ["", "e30", "W10", "WzEsMiwzLDRd", "[]", "é", "A" * 100_000, "WyJ2Iiwibm9uZSIsImEiLDFd"]
)
def test_damaged_token_is_refused(token: str) -> None:
    with pytest.raises(QueryError, match="is not a token"):
        Cursor.read(token)


def test_token_survives_the_round_trip() -> None:
    cursor = Cursor("0" * 64, 0.1, "é/ \U0001f600", 3)
    assert Cursor.read(cursor.token) == cursor


def test_token_of_a_page_needs_one_text(text_index: Path) -> None:
    with Searcher.open(text_index) as searcher:
        token = searcher.search("thread lock", 2).next_page
        assert searcher.search_batch(["thread lock"], 2, search_after=token)[0].offset == 2
        with pytest.raises(QueryError, match="search_after belongs to one query"):
            searcher.search_batch(["thread lock", "thread"], 2, search_after=token)


def test_pages_survive_the_wire(index: Path) -> None:
    with Searcher.open(index) as searcher:
        page = searcher.search_vector(VECTOR, 4, offset=4)
    value = result_to_json(page)
    assert value["next_page"] == page.next_page
    assert result_from_json(value) == page
    options = WireRequest.read(request_to_json(4, {"search_after": page.next_page}, vector=VECTOR)).options
    assert options == {"search_after": page.next_page}
    assert WireRequest.read({"text": "a", "offset": 4}).options == {"offset": 4}
