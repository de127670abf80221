"""Why a document has its score."""

import numpy as np

from lsr_prod.search.query import SparseQuery
from lsr_prod.search.result import Contribution, Explanation
from lsr_prod.search.shard import OpenShard

__all__ = ["explain_document"]


def explain_document(query: SparseQuery, shard: OpenShard, ordinal: int, *, dk: int, impact_step: float) -> Explanation:
    """Score one document from the document-ordered copy, in float32 and in the kernel's order.

    Args:
        query: the terms.
        shard: the document's shard.
        ordinal: the document.
        dk: terms of a document that stand in the postings.
        impact_step: weight of one impact unit.
    """
    impacts = shard.postings_of(ordinal, dk)
    score, contributions, missing = np.float32(0), [], []
    units = query.scaled(impact_step)
    for term, term_id, weight, unit in zip(query.terms, query.ids.tolist(), query.weights, units, strict=True):
        if term_id not in impacts:
            missing.append(term)
            continue
        added = unit * np.float32(impacts[term_id])
        score += added
        contributions.append(Contribution(term, float(weight), impacts[term_id] * impact_step, float(added)))
    return Explanation(shard.doc_id(ordinal), float(score), len(contributions), tuple(contributions), tuple(missing))
