"""Highlighting: places of the words of a query in stored text."""

from pathlib import Path

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import Searcher
from lsr_prod.search.highlight import MAX_CHARACTERS, MAX_SPANS, find_words, words_to_find
from lsr_prod.serving.wire import WireRequest, request_to_json, result_from_json, result_to_json
from tests.indexing.corpus import Doc, make_bundle, make_index

TEXT = "Locks, threads\u2014and LOCKING: Größe 42, \U0001f600 a lock."


def marked(text: str, wanted: frozenset[str]) -> list[str]:
    return [text[start:stop] for start, stop in find_words(text, wanted)]


def test_words_are_found_by_their_stem() -> None:
    assert marked(TEXT, words_to_find("how does a lock work?", ())) == ["Locks", "LOCKING", "a", "lock"]
    assert marked(TEXT, words_to_find("größe 42", ())) == ["Größe", "42"]
    assert marked(TEXT, words_to_find("", ())) == []


def test_terms_that_are_whole_words_are_found() -> None:
    terms = ("lock", "##ing", "\u0120threads", "\u2581and", "[CLS]", "42")
    assert marked(TEXT, words_to_find(None, terms)) == ["Locks", "threads", "and", "LOCKING", "42", "lock"]


def test_work_and_places_are_bounded() -> None:
    wanted = words_to_find("lock", ())
    assert len(find_words("lock " * 10_000, wanted)) == MAX_SPANS
    assert find_words(" " * MAX_CHARACTERS + "lock", wanted) == ()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("highlight")
    make_bundle(folder / "bundle", ["lock", "thread", "##ing"])
    corpus = {"a": Doc({0: 9, 1: 5}, TEXT), "b": Doc({1: 7}, "Only a thread."), "c": Doc({1: 3})}
    make_index(folder / "index", corpus, bundle=folder / "bundle", shards=2)
    return folder / "index"


def test_hits_have_the_places_of_matched_words(index: Path) -> None:
    with Searcher.open(index) as searcher:
        result = searcher.search_vector({"lock": 1.0, "thread": 1.0}, highlight=["text", "title"], fields=["title"])
        hits = {hit.doc_id: hit for hit in result.hits}
        places = hits["a"].highlights
        assert places is not None
        assert [TEXT[start:stop] for start, stop in places["text"]] == ["Locks", "threads", "LOCKING", "lock"]
        assert hits["a"].fields == {"title": None}
        assert hits["b"].highlights == {"text": ((7, 13),), "title": ()}
        assert hits["c"].highlights == {"text": (), "title": ()}
        assert searcher.search_vector({"lock": 1.0}).hits[0].highlights is None


def test_words_of_the_text_are_highlighted(text_index: Path) -> None:
    with Searcher.open(text_index) as searcher:
        hit = searcher.search("thread waits", 1, highlight=["text"], fields=["text"]).hits[0]
        found = {hit.fields["text"][start:stop] for start, stop in hit.highlights["text"]}
        assert {"thread", "waits"} <= found


def test_highlights_survive_the_wire(index: Path) -> None:
    with Searcher.open(index) as searcher:
        result = searcher.search_vector({"lock": 1.0}, highlight=["text"])
        assert result_from_json(result_to_json(result)) == result
    request = WireRequest.read(request_to_json(1, {"highlight": ("text",)}, vector={"lock": 1.0}))
    assert request.options == {"highlight": ["text"]}


@pytest.mark.parametrize(
    ("highlight", "message"), [("text", "highlight='text'"), (["color"], "does not store"), ([3], "highlight=")]
)
def test_wrong_fields_are_refused(index: Path, highlight: object, message: str) -> None:
    with Searcher.open(index) as searcher, pytest.raises(QueryError, match=message):
        searcher.search_vector({"lock": 1.0}, highlight=highlight)  # type: ignore[arg-type]
