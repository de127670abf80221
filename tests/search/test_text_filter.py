"""A Boolean text query as the filter of a ranked search."""

import json
from pathlib import Path

import pytest

from lsr_prod.errors import ArtifactError, QueryError
from lsr_prod.search import Hybrid, ParallelSearcher, Searcher, field, filter_from_json, text_query
from tests.indexing.corpus import Doc, make_index
from tests.serving.test_scatter import scattering

WORDS = ["lock", "thread", "json", "xml", "running"]
CORPUS = {
    f"d{i:02}": Doc(
        {0: 1 + i % 5, 1 + i % 3: 9},
        " ".join(word for place, word in enumerate(WORDS) if (i * 37 + 5) >> place & 1),
        {"year": str(2000 + i % 7) if i % 4 else None, "lang": "en" if i % 3 else "de"},
    )
    for i in range(64)
}
TYPES = {"year": "int64", "lang": "string"}
QUERIES = [
    "lock",
    "Locks AND NOT thread",
    "+json -xml",
    "(json OR xml) AND year:[2002 TO *]",
    "runs",
    "lang:de lock",
    "NOT lang:de",
    "*",
    "unheard OR json",
    "unheard",
    "year:*",
    "lang:IN [de fr]",
]


@pytest.fixture(scope="module", params=[False, True], ids=["tantivy", "postings"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text_filter")
    make_index(
        folder, CORPUS, vocabulary_size=6, shards=3, bm25=request.param, attributes=TYPES, deleted={"d07", "d21"}
    )
    return folder


def ids(result) -> set[str]:
    return {hit.doc_id for hit in result.hits}


@pytest.mark.parametrize("query", QUERIES)
def test_filter_finds_the_documents_of_the_boolean_query(index: Path, query: str) -> None:
    with Searcher.open(index) as searcher:
        expected = searcher.match_boolean(query)
        found = searcher.search_vector({0: 1.0}, 100, filter=text_query(query), count=True)
        assert ids(found) == expected
        assert found.matched == len(expected)
        german = searcher.search_vector({0: 1.0}, 100, filter=text_query(query) & (field("lang") == "de"))
        assert ids(german) == searcher.match_boolean("lang:de") & expected
        negated = searcher.search_vector({0: 1.0}, 100, filter=~text_query(query))
        assert ids(negated) == searcher.match_boolean(f"NOT ({query})")


def test_all_searchers_give_the_same_hits(index: Path) -> None:
    options = {"filter": text_query("lock AND NOT thread") | (field("year") == 2003), "k": 7}
    with Searcher.open(index) as searcher, ParallelSearcher.open(index) as parallel:
        expected = searcher.search_vector({0: 1.0, 2: 1.0}, **options).hits
        assert len(expected) == 7
        assert parallel.search_vector({0: 1.0, 2: 1.0}, **options).hits == expected
        assert scattering(index, 2).search_vector({0: 1.0, 2: 1.0}, **options).hits == expected


def test_filter_survives_json() -> None:
    expression = text_query("lock AND NOT thread") & ~text_query("json")
    value = expression.to_json()
    assert value == {"and": [{"not": {"text": "json"}}, {"text": "lock AND NOT thread"}]}
    assert filter_from_json(json.loads(json.dumps(value))).key == expression.key


def test_filter_of_a_hybrid_search_and_of_arrays(tmp_path: Path) -> None:
    make_index(tmp_path, CORPUS, vocabulary_size=6, shards=2, bm25=True, attributes=TYPES)
    with Searcher.open(tmp_path) as searcher:
        hits = searcher.search_vector({0: 1.0}, 64, text="xml", hybrid=Hybrid(), filter=text_query("json")).hits
        assert {hit.doc_id for hit in hits} == searcher.match_boolean("json")


def test_filter_of_a_later_version_reads_its_documents(tmp_path: Path) -> None:
    make_index(tmp_path, CORPUS, vocabulary_size=6, attributes=TYPES)
    with Searcher.open(tmp_path) as searcher:
        before = ids(searcher.search_vector({0: 1.0}, 100, filter=text_query("lock")))
        gone = min(before)
        make_index(tmp_path, CORPUS, vocabulary_size=6, attributes=TYPES, deleted={gone})
        searcher.refresh()
        assert ids(searcher.search_vector({0: 1.0}, 100, filter=text_query("lock"))) == before - {gone}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("lock AND", "cannot be parsed"),
        ('"lock thread"', "stores no positions"),
        ("thr*", "prefix of a word"),
        ("color:red", "no attribute 'color'"),
        ("year:abc", "does not fit attribute 'year'"),
        ("", "the query is empty"),
        ("a" * 5000, "at most 4096"),
        ("(" * 20 + "a" + ")" * 20, "nests more than 16"),
        (7, "not a valid string"),
        ("\ud800", "not a valid string"),
    ],
)
def test_wrong_query_is_refused_before_any_shard(index: Path, query: object, message: str) -> None:
    with Searcher.open(index) as searcher, pytest.raises(QueryError, match=message):
        searcher.search_vector({0: 1.0}, filter=text_query(query))  # type: ignore[arg-type]


def test_number_of_text_queries_is_limited(index: Path) -> None:
    expression = text_query("lock")
    for number in range(12):
        expression = expression | text_query(f"lock{number}")
    with Searcher.open(index) as searcher, pytest.raises(QueryError, match="holds more than"):
        searcher.search_vector({0: 1.0}, filter=expression)


def test_damaged_text_index_is_refused(tmp_path: Path) -> None:
    make_index(tmp_path, CORPUS, vocabulary_size=6, attributes=TYPES)
    file = next(tmp_path.glob("shards/*/tantivy/*.term"))
    data = bytearray(file.read_bytes())
    data[5] ^= 1
    file.write_bytes(data)
    with Searcher.open(tmp_path) as searcher, pytest.raises(ArtifactError):
        searcher.search_vector({0: 1.0}, filter=text_query("lock"))


@pytest.mark.parametrize("value", [{"text": 3}, {"text": ["a"]}, {"text": "a", "op": "eq"}])
def test_wrong_json_is_refused(value: dict) -> None:
    with pytest.raises(QueryError, match="filter"):
        filter_from_json(value)
