"""Deduplication reads more documents until the page is full, within the deadline and the limit of ``k``."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.search import Hybrid, Searcher
from lsr_prod.search.candidates import Candidates, Shards, find_distinct
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.search_request import Request
from lsr_prod.search.shard.postings import ShardQuery
from tests.indexing.corpus import Doc, make_index

COPIES = {f"d{i:02}": Doc({1: 250 - i}, "same" if i < 30 else f"other {i}") for i in range(40)}
ROUNDS: list[int] = []


class ObservedShards:
    """The shards of a snapshot; the deadline passes before the call of number ``late``, counted from 0."""

    missing_groups = ()

    def __init__(self, snapshot: Snapshot, late: int | None) -> None:
        self._snapshot = snapshot
        self._late = late
        self.word_frequencies = snapshot.word_frequencies
        self.rescore = snapshot.rescore
        self.fields = snapshot.fields

    def match(self, query: ShardQuery) -> Candidates:
        """Match and record ``k``."""
        passed = self._late is not None and len(ROUNDS) >= self._late
        ROUNDS.append(query.k)
        return self._snapshot.match(replace(query, deadline=0.0) if passed else query)


class ObservedSearcher(Searcher):
    """Records the ``k`` of every call of ``match``."""

    late: int | None = None

    def _shards(self, snapshot: Snapshot) -> Shards:
        ROUNDS.clear()
        return ObservedShards(snapshot, self.late)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copies")
    make_index(folder, COPIES, vocabulary_size=4, shards=2, bm25=True)
    return folder


@pytest.fixture
def searcher(index: Path) -> ObservedSearcher:
    return ObservedSearcher.open(index)


def ids(searcher: Searcher, k: int, **options: object) -> list[str]:
    return [hit.doc_id for hit in searcher.search_vector({1: 1.0}, k, deduplicate="text", **options).hits]


def test_deadline_in_a_later_round_keeps_the_hits_of_earlier_rounds(searcher: ObservedSearcher) -> None:
    whole = ids(searcher, 5)
    assert whole == ["d00", "d30", "d31", "d32", "d33"]
    rounds = len(ROUNDS)
    assert rounds > 1
    for late in range(1, rounds):
        searcher.late = late
        result = searcher.search_vector({1: 1.0}, 5, deduplicate="text", deadline_ms=1e6)
        assert result.partial
        assert result.hits
        assert [hit.doc_id for hit in result.hits] == whole[: len(result.hits)]


def test_rounds_grow_to_the_limit_of_k(searcher: ObservedSearcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.search.query.sparse_query.MAX_K", 32)
    assert ids(searcher, 5) == ["d00", "d30", "d31"]  # the best of 32 documents
    assert max(ROUNDS) == 32
    assert sum(ROUNDS) < 64


def test_all_copies_of_one_text_need_few_rounds(searcher: ObservedSearcher) -> None:
    assert ids(searcher, 12) == ["d00", *(f"d{i}" for i in range(30, 40))]
    assert len(ROUNDS) <= 3


def test_count_is_computed_in_one_round(searcher: ObservedSearcher) -> None:
    result = searcher.search_vector({1: 1.0}, 5, deduplicate="text", count=True)
    assert (result.matched, result.matched_exact, len(result.hits)) == (40, True, 5)
    searcher.late = 1
    result = searcher.search_vector({1: 1.0}, 5, deduplicate="text", count=True, deadline_ms=1e6)
    assert (result.matched, result.matched_exact, result.partial) == (40, True, True)


def test_fused_ranks_are_computed_once(searcher: ObservedSearcher) -> None:
    hybrid = Hybrid(fusion="rrf", depth=40)
    assert ids(searcher, 4, text="same other", hybrid=hybrid)[0] == "d00"
    assert ROUNDS == [40, 40]


def test_values_are_read_before_the_deadline_only(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.search.candidates._READ", 8)
    snapshot = searcher.snapshot
    arrays = np.array([1], np.int32), np.ones(1, np.float32), np.ones(1, np.uint8)

    def find(query: ShardQuery) -> Candidates:
        found = snapshot.match(replace(query, deadline=None))
        return replace(found, ranked=sorted(found.ranked)[: query.k])

    for deadline, expected in ((0.0, 1), (None, 11)):  # without a deadline: all texts of 40 documents
        query = ShardQuery(*arrays, 1, 40, deadline=deadline)
        found = find_distinct(find, snapshot, query, Request(k=12, deduplicate="text"))
        assert (len(found.ranked), found.partial) == (expected, deadline is not None)
