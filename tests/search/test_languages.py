"""Texts of languages without spaces, stems of languages, and words without syntax, by postings and by Tantivy."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod import Index
from lsr_prod.errors import ArtifactError, ConfigError, QueryError
from lsr_prod.search import Hybrid, ParallelSearcher, Searcher, filter_from_json, text_query, words_query
from lsr_prod.serving.wire import WireRequest, request_to_json
from lsr_prod.storage.formats.index_format import IndexVersion
from tests.indexing.corpus import Doc, make_index
from tests.serving.test_scatter import scattering

TEXTS = {
    "zh": "我们住在北京市的中心，天气很好。",
    "ja": "東京都に住んでいる人のガイド",
    "ko": "서울특별시에서 지하철을 탑니다",
    "th": "ฉันอยู่ที่กรุงเทพมหานครและชอบน้ำตก",
    "km": "ភ្នំពេញជារាជធានី",
    "en": "The USB-C cables don't lock, see https://example.com/a?b=1 of 2021-08-22",
    "fr": "Un café près des chevaux",
}
PARTS = [
    ("北京", "zh"),
    ("天气", "zh"),
    ("東京", "ja"),
    ("ｶﾞｲﾄﾞ", "ja"),
    ("住んで", "ja"),
    ("특별시", "ko"),
    (unicodedata.normalize("NFD", "지하철"), "ko"),
    ("กรุงเทพ", "th"),
    ("น้ำตก", "th"),
    ("ពេញ", "km"),
    ("cafe\u0301", "fr"),
    ("ｃａｆé", "fr"),
]
TYPED = [
    "https://example.com/a?b=1",
    "don't",
    'usb-c ""',
    "2021-08-22",
    "see OR >>>",
    "cables AND (",
    "lock -",
    "\ud800 lock",
]


def corpus(texts: dict[str, str]) -> dict[str, Doc]:
    return {name: Doc({0: 1 + place}, text) for place, (name, text) in enumerate(texts.items())}


@pytest.fixture(scope="module", params=[False, True], ids=["tantivy", "postings"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("languages")
    make_index(folder, corpus(TEXTS), vocabulary_size=6, shards=2, bm25=request.param, analyzer="bigrams")
    return folder


def ids(result) -> set[str]:
    return {hit.doc_id for hit in result.hits}


@pytest.mark.parametrize(("part", "found"), PARTS)
def test_a_part_of_a_run_is_found(index: Path, part: str, found: str) -> None:
    with Searcher.open(index) as searcher:
        assert ids(searcher.bm25(part)) == {found}
        for query in (text_query(f'text:"{part}"' if " " in part else part), words_query(part)):
            hits = searcher.search_vector({0: 1.0}, filter=query, highlight=["text"])
            assert ids(hits) == {found}
        assert searcher.match_boolean(part) == {found}


def test_hybrid_search_and_highlights_use_the_analyzer(tmp_path: Path) -> None:
    make_index(tmp_path, corpus(TEXTS), vocabulary_size=6, bm25=True, analyzer="bigrams")
    with Searcher.open(tmp_path) as searcher, ParallelSearcher.open(tmp_path) as parallel:
        options = {"text": "東京都 ｶﾞｲﾄﾞ", "hybrid": Hybrid(), "highlight": ["text"], "min_score": 0.1}
        result = searcher.search_vector({}, **options)
        assert [term.term for term in result.query] == ["東京", "京都", "ガイ", "イド"]
        assert [hit.doc_id for hit in result.hits] == ["ja"]
        assert [TEXTS["ja"][start:stop] for start, stop in result.hits[0].highlights["text"]] == ["東京都", "ガイド"]
        assert parallel.search_vector({}, **options).hits == result.hits
        assert scattering(tmp_path, 2).search_vector({}, **options).hits == result.hits


def test_highlights_of_a_decomposed_text_are_places_in_it(tmp_path: Path) -> None:
    text = unicodedata.normalize("NFD", "Ein Café, ガイド und 한국어")
    make_index(tmp_path, {"a": Doc({0: 1}, text)}, vocabulary_size=2, bm25=True, analyzer="bigrams")
    with Searcher.open(tmp_path) as searcher:
        found = searcher.search_vector({}, text="café ガイ 한국어", hybrid=Hybrid(), highlight=["text"]).hits[0]
        marked = [unicodedata.normalize("NFC", text[start:stop]) for start, stop in found.highlights["text"]]
        assert marked == ["Café", "ガイ", "한국어"]


@pytest.mark.parametrize("bm25", [False, True])
@pytest.mark.parametrize(
    ("analyzer", "text", "found", "missed"),
    [
        ("german", "Die Katzen der Häuser", "katze haus", "katzen-x"),
        ("french", "les chevaux continuellement", "cheval", "les-x"),
        ("simple", "Die Katzen", "KATZEN", "katze"),
        ("english", "Locks", "locking", "key"),
    ],
)
def test_words_are_stemmed_in_the_language(tmp_path, bm25, analyzer, text, found, missed) -> None:
    with Index.from_texts({"a": text, "b": "other"}, bm25=bm25, analyzer=analyzer) as searcher:
        assert searcher.version.analyzer == analyzer
        assert ids(searcher.bm25(found)) == {"a"}
        assert searcher.match_boolean(found.split()[0]) == {"a"}
        assert searcher.search("other", filter=words_query(missed)).hits == ()
        assert IndexVersion.from_json(searcher.version.to_json()) == searcher.version


def test_an_unknown_analyzer_is_refused() -> None:
    with pytest.raises(ConfigError, match="analyzer: 'klingon' is none; choose from english, simple, bigrams"):
        Index.from_texts(["a"], analyzer="klingon")  # type: ignore[arg-type]
    with Index.from_texts(["a"]) as searcher, pytest.raises(ArtifactError, match="analyzer 'klingon' is unknown"):
        IndexVersion.from_json({**searcher.version.to_json(), "analyzer": "klingon"})


@pytest.mark.parametrize("typed", TYPED)
def test_what_people_type_finds_the_documents_with_all_words(index: Path, typed: str) -> None:
    with Searcher.open(index) as searcher:
        assert ids(searcher.search_vector({0: 1.0}, filter=words_query(typed, "any"))) == {"en"}
        unheard = "" if "OR" not in typed and "AND" not in typed else "or and"
        found = ids(searcher.search_vector({0: 1.0}, filter=words_query(typed)))
        assert found == (set() if unheard else {"en"})  # OR and AND are words


def test_any_word_is_enough_and_a_word_needs_all_of_its_parts(index: Path) -> None:
    with Searcher.open(index) as searcher:

        def found(text: str, match: str) -> set[str]:
            return ids(searcher.search_vector({0: 1.0}, filter=words_query(text, match)))

        assert found("北京 東京都 nowhere", "any") == {"zh", "ja"}
        assert found("北京 東京都", "all") == set()
        assert found("lock-unheard", "any") == set()
        assert found("usb cable", "all") == set()
        assert found("usb cables", "all") == {"en"}


@pytest.mark.parametrize("text", ["", " ", ">>>", '""', "\ud800"])
def test_a_text_without_words_finds_nothing(index: Path, text: str) -> None:
    with Searcher.open(index) as searcher:
        for match in ("all", "any"):
            assert searcher.search_vector({0: 1.0}, filter=words_query(text, match)).hits == ()
        assert ids(searcher.search_vector({0: 1.0}, filter=~words_query(text))) == {*TEXTS}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=80) | st.text(st.characters(), max_size=9), match=st.sampled_from(["all", "any"]))
def test_no_text_is_refused(index: Path, text: str, match: str) -> None:
    with Searcher.open(index) as searcher:
        searcher.search_vector(
            {0: 1.0}, filter=filter_from_json(json.loads(json.dumps({"words": text, "match": match})))
        )


def test_a_long_text_is_read_up_to_the_end_of_a_word(index: Path) -> None:
    with Searcher.open(index) as searcher:
        for text in ("lock " * 2000, "x" * 100_000, "東" * 50_000, "usb " * 1023 + "lock unheard"):
            searcher.search_vector({0: 1.0}, filter=words_query(text))
        assert ids(searcher.search_vector({0: 1.0}, filter=words_query("usb " * 1023 + "lock unheard"))) == {"en"}


def test_words_survive_the_wire() -> None:
    options = {"filter": words_query("usb-c >>>", "any") & ~words_query("lock")}
    sent = json.loads(json.dumps(request_to_json(3, options, text="a")))
    assert sent["filter"] == {
        "and": [{"words": "usb-c >>>", "match": "any"}, {"not": {"words": "lock", "match": "all"}}]
    }
    assert WireRequest.read(sent).options["filter"].key == options["filter"].key
    assert filter_from_json({"words": "lock"}) == words_query("lock")


@pytest.mark.parametrize(
    "value",
    [
        {"words": 3},
        {"words": "a", "match": "some"},
        {"words": "a", "match": None},
        {"words": "a", "op": "eq"},
        {"match": "any"},
    ],
)
def test_wrong_json_is_refused(value: dict) -> None:
    with pytest.raises(QueryError, match="filter"):
        filter_from_json(value)
