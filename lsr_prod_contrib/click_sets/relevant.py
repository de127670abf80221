"""Relevant documents of the usable queries of a click log, and their order (C.1, 3.5.2)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.config.click_set import ClickSetSettings
from lsr_prod_contrib.click_sets.hashing import Hashes, mix
from lsr_prod_contrib.click_sets.log import ClickLog

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Relevant:
    """Relevant documents by query, best first."""

    query: Ints  # int64 [n], rising
    document: Ints  # int64 [n], by falling label score inside a query; ties by the seeded hash of the pair
    rank: Ints  # int64 [n], from 0 inside a query
    unclicked_enough: int  # pairs of the log with too few clicks
    queries_with_few: int  # queries that have a relevant document, but too few

    def of(self, queries: npt.NDArray[np.bool_], most: int | None = None) -> tuple[Ints, Ints]:
        """Return the pairs (query, document) of some queries, of each the first ``most``."""
        chosen = queries[self.query]
        if most is not None:
            chosen &= self.rank < most
        return self.query[chosen], self.document[chosen]


def relevant_pairs(
    log: ClickLog, query_hashes: Hashes, document_hashes: Hashes, settings: ClickSetSettings
) -> Relevant:
    """Return the pairs with enough clicks, of queries with enough of them."""
    clicked = log.clicks >= settings.min_clicks
    number = np.bincount(log.pair_query[clicked], minlength=len(log.keys))
    usable = number >= settings.min_documents
    kept = clicked & usable[log.pair_query]
    query, document = log.pair_query[kept], log.pair_document[kept]
    score = log.clicks[kept].astype(np.float64)
    if settings.label_score == "rate":
        score /= np.maximum(log.impressions[kept], log.clicks[kept])
    ties = mix(document_hashes[document], query_hashes[query])
    order = np.lexsort((document, ties, -score, query))
    query, document = query[order], document[order]
    first = np.searchsorted(query, query, side="left")
    return Relevant(
        query,
        document,
        np.arange(len(query), dtype=np.int64) - first,
        int((~clicked).sum()),
        int(((number > 0) & ~usable).sum()),
    )
