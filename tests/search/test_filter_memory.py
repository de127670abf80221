"""Filters are evaluated once per shard; their masks are bounded in bytes, and ids are found in the order of ids."""

import gc
from pathlib import Path

import numpy as np
import pytest

from lsr_prod.search import ParallelSearcher, Searcher, field
from lsr_prod.search.query import filters
from lsr_prod.search.shard.documents import Documents
from tests.indexing.corpus import Doc, make_index

N = 3_000


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masks")
    corpus = {f"d{i:04}": Doc({i % 3: 9}, stored={"year": str(i)}) for i in range(N)}
    make_index(folder, corpus, vocabulary_size=4, shards=3, attributes={"year": "int64"})
    return folder


def bytes_of_masks() -> int:
    gc.collect()
    arrays = [found for found in gc.get_objects() if type(found).__name__ == "Mask"]
    return sum(mask.nbytes for mask in arrays)


@pytest.mark.long
def test_masks_of_a_version_are_bounded_in_bytes(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.search.index_snapshot._MASK_BYTES", 0, raising=False)
    before = bytes_of_masks()
    searcher = Searcher.open(index)
    kept = [field("year") > year for year in range(40)]
    for expression in kept:
        assert searcher.search_vector({1: 1.0}, filter=expression).hits
    assert 0 < bytes_of_masks() - before <= 4 * N  # four whole masks


def test_ordinals_are_kept_for_small_sets_only(index: Path) -> None:
    searcher = Searcher.open(index)
    for expression, few in ((field("year") > 5, False), (field("year") == 5, True)):
        checked = searcher.snapshot.check_filter(expression)
        masks = [reader._mask(checked) for reader in searcher.snapshot.readers.values()]
        assert [mask.ordinals is not None for mask in masks] == [few] * 3
        if few:
            assert sum(len(mask.ordinals) for mask in masks) == 1


@pytest.mark.parametrize("kind", [Searcher, ParallelSearcher])
def test_key_of_a_filter_is_computed_once_for_all_shards(
    index: Path, kind: type[Searcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = filters.Condition.to_json
    monkeypatch.setattr(filters.Condition, "to_json", lambda self: calls.append(self) or original(self))
    with kind.open(index) as searcher:
        searcher.search_vector({1: 1.0}, filter=field("year") > 5)
        assert len(calls) == 1
        searcher.search_vector({1: 1.0}, filter=field("year") > 5)  # an equal filter of another request
        assert len(calls) == 2
        assert (searcher.snapshot.masks.misses, searcher.snapshot.masks.hits) == (3, 3)


def test_large_filter_is_found_by_value_and_not_kept(index: Path) -> None:
    searcher = Searcher.open(index)
    for _ in range(2):
        searcher.search_vector({1: 1.0}, filter=field("year").is_in(range(10**9, 10**9 + 9_000)))
    assert (searcher.snapshot.masks.misses, searcher.snapshot.masks.hits) == (3, 3)
    assert searcher.snapshot._filters == ()


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        (field("doc_id") == "d0007", set()),
        (field("doc_id") == "unknown", set()),
        (field("doc_id").is_in(["d0001"]), set()),
        (field("doc_id").is_in([f"d{i:04}" for i in range(600)]), {"doc_id"}),
        (~(field("doc_id") == "d0007") & (field("year") > 5), {"attribute.year"}),
        (field("doc_id").starts_with("d000"), {"doc_id"}),
        (field("year") > 5, {"attribute.year"}),
    ],
)
def test_ids_are_found_in_their_order(
    index: Path, expression: filters.Filter, columns: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: set[str] = set()
    original = Documents.verify_columns

    def verify_columns(self: Documents, names: list[str]) -> None:
        verified.update(names)
        original(self, names)

    monkeypatch.setattr(Documents, "verify_columns", verify_columns)
    snapshot = Searcher.open(index).snapshot
    checked, found = snapshot.check_filter(expression), set()
    for reader in snapshot.readers.values():
        allowed = reader.allowed(checked)
        found |= {reader.shard.documents.doc_id(int(ordinal)) for ordinal in np.flatnonzero(allowed)}
    expected = snapshot_scan(snapshot, expression)
    assert found == expected
    assert verified == columns


def snapshot_scan(snapshot, expression) -> set[str]:
    """Return the ids that pass the filter, with ids compared one by one."""
    from lsr_prod.search.shard.shard_reader import evaluate

    found = set()
    for reader in snapshot.readers.values():
        documents = reader.shard.documents
        found |= set(documents.doc_ids(np.flatnonzero(evaluate(expression, documents.batches)).tolist()))
    return found
