from pathlib import Path

import numpy as np
import pytest

from lsr_prod.evaluation.cost import Threshold, count_matches
from lsr_prod.evaluation.systems import search_above_weight
from tests.evaluation.index_of_vectors import build, queries, scores


def test_hits_equal_brute_force_and_their_number_equals_the_count(tmp_path: Path) -> None:
    searcher, dense = build(tmp_path)
    for query in queries():
        known = query.ids >= 0
        held = dense.impacts[:, query.ids[known]] > 0
        weight, whole = held @ query.weights[known].astype(np.float64), query.weights.sum(dtype=np.float64)
        for share in (0.2, 0.5, 1.0):
            passing = np.flatnonzero((weight >= share * whole - 1e-9) & held.any(axis=1))
            expected = sorted(passing, key=lambda row: (-np.float32(scores(dense, query)[row]), dense.ids[row]))
            found = search_above_weight(searcher.snapshot, query, share, 100)
            assert [doc_id for doc_id, _ in found] == [dense.ids[row] for row in expected]
            assert [score for _, score in found] == pytest.approx(scores(dense, query)[expected], rel=1e-5)
            (counted,) = count_matches(searcher.snapshot, [query], [Threshold("weight", share)])
            assert counted.tolist() == [len(expected)]
            assert search_above_weight(searcher.snapshot, query, share, 3) == found[:3]
