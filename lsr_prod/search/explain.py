"""Why a document has its score."""

import numpy as np

from lsr_prod.search.part import ShardQuery
from lsr_prod.search.query import MAX_K, SparseQuery
from lsr_prod.search.result import Contribution, Explanation
from lsr_prod.search.snapshot import Snapshot

__all__ = ["explain_document"]


def explain_document(query: SparseQuery, snapshot: Snapshot, doc_id: str) -> Explanation:
    """Score one document from the document-ordered copy, in float32 and in the kernel's order.

    Args:
        query: the terms.
        snapshot: the open version.
        doc_id: the document.

    Raises:
        QueryError: there is no such document.
    """
    number, ordinal = snapshot.find(doc_id)
    step = snapshot.version.impact_step
    impacts = snapshot.parts[number].shard.vector(ordinal, snapshot.version.dk)
    score, contributions, missing = np.float32(0), [], []
    for term, term_id, weight, unit in zip(
        query.terms, query.ids.tolist(), query.weights, query.scaled(step), strict=True
    ):
        if term_id not in impacts:
            missing.append(term)
            continue
        added = unit * np.float32(impacts[term_id])
        score += added
        contributions.append(Contribution(term, float(weight), impacts[term_id] * step, float(added)))
    ranks = tuple(
        _rank(query, snapshot, doc_id, float(score), required) for required in range(1, len(contributions) + 1)
    )
    return Explanation(doc_id, float(score), len(contributions), tuple(contributions), tuple(missing), ranks)


def _rank(query: SparseQuery, snapshot: Snapshot, doc_id: str, score: float, required: int) -> int | None:
    """Place of a document among those that share ``required`` terms; None past the 10,000th."""
    known = query.ids >= 0
    asked = ShardQuery(
        query.ids[known],
        query.scaled(snapshot.version.impact_step)[known],
        np.ones(int(known.sum()), np.uint8),
        required,
        MAX_K,
        floor=score,
    )
    # The kernel's float32 sums are equal to the bit, so that the document itself is among its betters.
    better = sorted(snapshot.match(asked).ranked)[:MAX_K]
    return next((place for place, row in enumerate(better, 1) if row[1] == doc_id), None)
