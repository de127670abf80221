"""Deadlines count from the text on, a batch shares one, and texts are bounded before they are tokenized."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.inference import BundleEncoder
from lsr_prod.search import Hybrid, Searcher, field
from lsr_prod.search.candidates import Candidates
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.query_text import MAX_QUERY_BYTES, cut_text
from lsr_prod.search.query.search_request import Request
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.shard.postings import ShardQuery
from tests.indexing.corpus import Doc, make_index


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The texts of every call of the tokenizer."""
    calls: list[Sequence[str]] = []
    original = BundleEncoder.token_ids

    def token_ids(self: BundleEncoder, texts: Sequence[str], **options: Any) -> list[list[int]]:
        calls.append(list(texts))
        return original(self, texts, **options)

    monkeypatch.setattr(BundleEncoder, "token_ids", token_ids)
    return calls


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    corpus = {f"d{i}": Doc({i % 4: 9}, f"fox {i}", {"year": str(i)}) for i in range(20)}
    make_index(folder, corpus, vocabulary_size=4, bm25=True, shards=2, attributes={"year": "int64"})
    return folder


def test_long_text_is_cut_before_it_is_tokenized(text_index: Path, tokenized: list[Sequence[str]]) -> None:
    searcher = Searcher.open(text_index)
    found = searcher.search("thread lock " * 100_000)
    assert [len(text) for text in tokenized[-1]] == [MAX_QUERY_BYTES - MAX_QUERY_BYTES % 12 + 6]
    assert found.hits == searcher.search("thread lock " * 1_000).hits
    searcher.encode(["é" * 100_000])
    assert len(tokenized[-1][0].encode()) == MAX_QUERY_BYTES
    Searcher.open(text_index, max_query_bytes=64).search("thread lock " * 100)
    assert tokenized[-1] == [("thread lock " * 5).strip()]


def test_words_of_a_long_text_are_bounded(words: Path) -> None:
    text = "cat " * 10_000 + "fox"
    for size, names in ((MAX_QUERY_BYTES, {"t1", "cat"}), (1 << 20, {"t1", "cat", "fox"})):
        with Searcher.open(words, max_query_bytes=size) as searcher:
            result = searcher.search_vector({1: 1.0}, text=text, hybrid=Hybrid())
            assert {term.term for term in result.query} == names
            assert {term.term for term in searcher.bm25(text).query} == names - {"t1"}


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("lock thread", 64, "lock thread"),
        ("a" * 64, 64, "a" * 64),
        ("a" * 65, 64, "a" * 64),
        ("a" * 64 + " b", 64, "a" * 64),
        ("a" * 40 + " " + "b" * 40, 64, "a" * 40),
        ("a" * 10 + " " + "b" * 90, 64, "a" * 10 + " " + "b" * 53),
        ("€" * 30, 64, "€" * 21),
        ("€" * 21, 64, "€" * 21),
        ("😀" * 17, 64, "😀" * 16),
        (" " * 70 + "a", 64, " " * 64),
    ],
)
def test_text_is_cut_after_a_word_or_a_character(text: str, size: int, expected: str) -> None:
    assert cut_text(text, size) == expected
    assert len(expected.encode()) <= size


@pytest.mark.parametrize("size", [0, 63, True, 1e6, "64", 1 << 27])
def test_impossible_limit_is_refused(words: Path, size: Any) -> None:
    with pytest.raises(ConfigError, match="max_query_bytes"):
        Searcher.open(words, max_query_bytes=size)


def test_text_is_validated_before_it_is_cut(words: Path) -> None:
    with pytest.raises(QueryError, match="not valid Unicode"):
        Searcher.open(words).bm25("a" * 100_000 + "\ud800")


class ObservedSearcher(Searcher):
    """Records the deadlines of the queries that the shards match."""

    def _shards(self, snapshot: Snapshot) -> Snapshot:
        self.deadlines: list[float | None] = getattr(self, "deadlines", [])

        class Observed(Snapshot):
            def __init__(self) -> None:
                self.__dict__ = snapshot.__dict__

            def match(this, query: ShardQuery) -> Candidates:  # noqa: N805
                self.deadlines.append(query.deadline)
                return snapshot.match(query)

            def search(this, query: SparseQuery, request: Request, required: int, deadline: float | None) -> Any:  # noqa: N805
                self.deadlines.append(deadline)
                return snapshot.search(query, request, required, deadline)

        return Observed()


def test_texts_of_a_batch_share_one_deadline(text_index: Path) -> None:
    searcher = ObservedSearcher.open(text_index)
    for options in ({}, {"fields": ["text"]}):
        before = time.monotonic()
        results = searcher.search_batch(["a lock", "a socket", "a file"], deadline_ms=1e6, **options)
        assert not any(result.partial for result in results)
        assert len(searcher.deadlines) == 3
        [deadline] = set(searcher.deadlines)
        assert deadline is not None
        assert before + 1e3 <= deadline <= time.monotonic() + 1e3
        searcher.deadlines.clear()


def test_texts_are_not_encoded_after_the_deadline(text_index: Path, tokenized: list[Sequence[str]]) -> None:
    searcher = Searcher.open(text_index)
    results = searcher.search_batch(["a lock"] * 40, deadline_ms=0)
    assert not tokenized
    assert [(result.partial, result.hits) for result in results] == [(True, ())] * 40


def test_encoding_of_a_batch_ends_at_the_deadline(text_index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher, calls = Searcher.open(text_index), []
    searcher.warm()
    original = BundleEncoder.encode

    def encode(self: BundleEncoder, texts: Sequence[str], **options: Any) -> Any:
        calls.append(len(texts))
        time.sleep(0.05)
        return original(self, texts, **options)

    monkeypatch.setattr(BundleEncoder, "encode", encode)
    results = searcher.search_batch(["a lock"] * 100, deadline_ms=40)
    assert calls in ([16], [])  # none if the machine is slow
    assert all(result.partial for result in results)
    calls.clear()
    results = searcher.search_batch(["a lock"] * 20, deadline_ms=1e6)
    assert calls == [16, 4]
    assert {result.hits[0].doc_id for result in results} == {"threading.Lock"}


def test_words_are_not_looked_up_after_the_deadline(words: Path) -> None:
    reader = next(iter(Searcher.open(words).snapshot.readers.values()))
    names = ["fox", *(f"w{i}" for i in range(600)), "fox"]
    assert np.array_equal(reader.word_ids(names), reader.word_ids(names, time.monotonic() + 1e3))
    assert reader.word_ids(names)[-1] >= 0
    assert (reader.word_ids(names, 0.0) == -1).all()


def test_filter_of_a_batch_is_not_evaluated_after_the_deadline(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []
    monkeypatch.setattr(
        "lsr_prod.search.shard.shard_reader.evaluate", lambda *arguments, **_: evaluated.append(arguments)
    )
    arrays = np.array([0, 1]), np.array([1], np.int32), np.ones(1, np.float32)
    found = Searcher.open(words).search_arrays(*arrays, filter=field("year") > 3, deadline_ms=0)
    assert (found.partial, found.numbers.tolist()) == (True, [0])
    assert not evaluated


def test_filter_of_facets_is_not_evaluated_after_the_deadline(words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []
    monkeypatch.setattr(
        "lsr_prod.search.shard.shard_reader.evaluate", lambda *arguments, **_: evaluated.append(arguments)
    )
    options = {"sort": "year", "facets": ["year"], "filter": field("year") > 3}
    found = Searcher.open(words).search_vector({1: 1.0}, deadline_ms=0, **options)
    assert (found.partial, found.matched, found.hits) == (True, 0, ())
    assert not evaluated
