from pathlib import Path

import numpy as np
import pytest

from lsr_prod.evaluation.cost import block_bounds, count_blocks
from lsr_prod.search import Searcher
from tests.evaluation.index_of_vectors import TERMS, build, queries, scores
from tests.indexing.corpus import STEP, Doc, make_index


def test_blocks_and_postings_equal_brute_force(tmp_path: Path) -> None:
    searcher, dense = build(tmp_path)
    candidates, reached, postings = [], [], []
    for query in queries():
        known = query.ids >= 0
        ids, weights = query.ids[known], query.weights[known].astype(np.float64) * STEP
        best = sorted((score for score in scores(dense, query) if score > 0), reverse=True)
        least = best[9] if len(best) >= 10 else 0.0
        bounds = []
        for reader in searcher.snapshot.readers.values():
            shard = reader.shard
            for start in range(0, shard.manifest.documents, shard.manifest.block_size):
                stop = min(start + shard.manifest.block_size, shard.manifest.documents)
                rows = [_vector(shard, ordinal, reader.dk) for ordinal in range(start, stop)]
                largest = np.max(rows, axis=0)[ids]
                if largest.any():
                    bounds.append(float(largest @ weights))
        candidates.append(len(bounds))
        reached.append(sum(bound >= least * (1 - 1e-6) for bound in bounds))
        postings.append(sum(searcher.document_frequency(int(term)) for term in ids))

    found = count_blocks(searcher.snapshot, queries())

    assert found.total == sum(-(-shard.documents // 4) for shard in searcher.version.shards)
    assert found.candidates == pytest.approx(np.mean(candidates))
    assert found.read == pytest.approx(np.mean(reached))
    assert 0 < found.read < found.candidates
    assert found.postings == pytest.approx(np.mean(postings))
    assert 0 < found.postings_read <= found.postings


def test_bound_of_each_block_equals_brute_force_across_skipped_blocks(tmp_path: Path) -> None:
    """More than 255 blocks lie between two documents of a term, which its gaps can only say in two steps."""
    corpus = {f"d{number:04}": Doc({1: 1 + number % 200}) for number in range(1_100)}
    corpus["d0003"], corpus["d1099"] = Doc({2: 90, 1: 30}), Doc({2: 50})
    make_index(tmp_path, corpus, vocabulary_size=4, block_size=4, order="id")
    (reader,) = Searcher.open(tmp_path).snapshot.readers.values()
    ids, weights = np.array([2, 1, 3], np.int32), np.array([2.0, 0.5, 9.0], np.float32)
    rows = np.array([[doc.terms.get(term, 0) for term in (2, 1, 3)] for doc in corpus.values()])
    expected = rows.reshape(-1, 4, 3).max(axis=1) @ weights
    assert block_bounds(reader.shard.arrays, ids, weights, 275).tolist() == expected.tolist()
    only_two = block_bounds(reader.shard.arrays, ids[:1], weights[:1], 275)
    assert only_two.tolist() == [180.0, *[-1.0] * 273, 100.0]


def _vector(shard, ordinal: int, dk: int) -> np.ndarray:
    """Return the impacts of a document, deleted or not, as a dense row."""
    row = np.zeros(TERMS, np.int64)
    for term, impact in shard.forward.vector(ordinal, dk).items():
        row[term] = impact
    return row


def test_no_query_reads_no_block(tmp_path: Path) -> None:
    found = count_blocks(build(tmp_path)[0].snapshot, [])
    assert (found.candidates, found.read, found.postings, found.postings_read) == (0, 0, 0, 0)
