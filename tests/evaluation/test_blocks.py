from pathlib import Path

import numpy as np
import pytest

from lsr_prod.evaluation.blocks import count_blocks
from tests.evaluation.index_of_vectors import TERMS, build, queries, scores
from tests.indexing.corpus import STEP


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


def _vector(shard, ordinal: int, dk: int) -> np.ndarray:
    """Return the impacts of a document, deleted or not, as a dense row."""
    row = np.zeros(TERMS, np.int64)
    for term, impact in shard.forward.vector(ordinal, dk).items():
        row[term] = impact
    return row


def test_no_query_reads_no_block(tmp_path: Path) -> None:
    found = count_blocks(build(tmp_path)[0].snapshot, [])
    assert (found.candidates, found.read, found.postings, found.postings_read) == (0, 0, 0, 0)
