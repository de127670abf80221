"""Search with a threshold on the share of a query's weight, for evaluation only: no search of the library offers it."""

import heapq

import numpy as np

from lsr_prod.evaluation.matched import WEIGHT_TOLERANCE
from lsr_prod.interchange.runs import Ranking
from lsr_prod.search.candidates import Ranked
from lsr_prod.search.query.sparse_query import MAX_K, SparseQuery
from lsr_prod.search.shard.shard_query import ShardQuery
from lsr_prod.search.snapshot import Snapshot


def search_above_weight(snapshot: Snapshot, query: SparseQuery, share: float, k: int) -> Ranking:
    """Return the best documents whose shared terms have at least a share of the query's weight.

    Documents after the best 10,000 of a search without a threshold are not considered.

    Returns:
        Document ids and scores, best first.
    """
    known = query.ids >= 0
    ids, weights = query.ids[known], query.weights[known]
    counted = np.ones(len(ids), np.uint8)
    found = snapshot.match(ShardQuery(ids, query.scaled(snapshot.version.impact_step)[known], counted, 1, MAX_K))
    least = (share - WEIGHT_TOLERANCE) * float(query.weights.sum(dtype=np.float64))
    passing: list[Ranked] = []
    for number, reader in snapshot.readers.items():
        mine = [row for row in found.ranked if row[2] == number]
        ordinals = np.array([row[3] for row in mine], np.int64)
        offsets, terms, impacts = reader.shard.forward.gather(ordinals, reader.dk)
        ones = np.ones_like(impacts)  # scores are then sums of the query's weights
        covered, _ = reader.shard.forward.score(ordinals, ids, weights, dk=reader.dk, vectors=(offsets, terms, ones))
        passing += [row for row, enough in zip(mine, (covered >= least).tolist(), strict=True) if enough]
    return [(doc_id, -negative) for negative, doc_id, *_ in heapq.nsmallest(k, passing)]
