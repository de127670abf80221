"""Drift of terms between two sides: weights in queries, and frequencies and weights in documents."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsr_prod.search import Searcher, SearchResult
from lsr_prod.search.snapshot import Snapshot

_SAMPLE = 20_000  # documents per side whose vectors are read


@dataclass(frozen=True, slots=True)
class QueryTermDrift:
    """Weight of one term in the queries."""

    term: str  # the term
    weight_a: float  # mean weight on side A over the queries that have the term on a side; 0 where A does not have it
    weight_b: float  # mean weight on side B over the same queries
    queries_a: int  # number of queries that have the term on side A
    queries_b: int  # number of queries that have the term on side B
    drift: float  # ``weight_b`` - ``weight_a``


@dataclass(frozen=True, slots=True)
class DocumentTermDrift:
    """Frequency and weight of one term in the documents."""

    term: str  # the term
    share_a: float  # share of the documents of side A that have it in their postings
    share_b: float  # share of the documents of side B that have it
    # mean weight in a sample of the documents of side A that have it; None: it is not in the sample
    weight_a: float | None
    weight_b: float | None  # mean weight on side B
    drift: float  # ``share_b`` - ``share_a``


class QueryTermTotals:
    """Running totals of the weights of query terms; their number is bounded by the two vocabularies."""

    def __init__(self) -> None:
        # term -> sum of weights and number of queries of A, the same of B, number of queries with the term on a side
        self._totals: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0, 0.0, 0, 0])

    def add(self, a: SearchResult, b: SearchResult) -> None:
        """Add the terms of one query on both sides."""
        weights = [{term.term: term.weight for term in each.query if term.field == "terms"} for each in (a, b)]
        for term in weights[0].keys() | weights[1].keys():
            totals = self._totals[term]
            for side in (0, 1):
                if term in weights[side]:
                    totals[2 * side] += weights[side][term]
                    totals[2 * side + 1] += 1
            totals[4] += 1

    def largest(self, count: int) -> list[QueryTermDrift]:
        """Return the terms whose weight changed most, summed over the queries; unchanged ones are left out."""
        changed = ((abs(each[2] - each[0]), term) for term, each in self._totals.items())
        found = heapq.nsmallest(count, ((-total, term) for total, term in changed if total > 1e-6))
        return [_drift(term, self._totals[term]) for _, term in found]


def document_drift(a: Searcher, b: Searcher, count: int) -> list[DocumentTermDrift]:
    """Return the common terms whose share of the documents changed most.

    Weights come from an evenly spaced sample of the documents of each side.
    """
    sides = a.snapshot, b.snapshot
    names, ids_a, ids_b = _common_terms(*sides)
    shares = [
        snapshot.document_frequencies[ids] / max(1, sum(shard.documents for shard in snapshot.version.shards))
        for snapshot, ids in zip(sides, (ids_a, ids_b), strict=True)
    ]
    drift = shares[1] - shares[0]
    order = np.argsort(-np.abs(drift), kind="stable")[:count]
    order = order[drift[order] != 0]
    weights = [
        _mean_weights(snapshot)[ids] if len(order) else np.empty(0)
        for snapshot, ids in zip(sides, (ids_a[order], ids_b[order]), strict=True)
    ]
    return [
        DocumentTermDrift(
            names[i],
            float(shares[0][i]),
            float(shares[1][i]),
            _known(weights[0][place]),
            _known(weights[1][place]),
            float(drift[i]),
        )
        for place, i in enumerate(order.tolist())
    ]


def _drift(term: str, totals: Sequence[float]) -> QueryTermDrift:
    sum_a, queries_a, sum_b, queries_b, queries = totals
    a, b = sum_a / queries, sum_b / queries
    return QueryTermDrift(term, a, b, int(queries_a), int(queries_b), b - a)


def _known(weight: float) -> float | None:
    return None if np.isnan(weight) else float(weight)


def _common_terms(a: Snapshot, b: Snapshot) -> tuple[Sequence[str], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the terms of both vocabularies and their ids on each side."""
    if a.version.vocabulary_sha256 == b.version.vocabulary_sha256:
        ids = np.arange(len(a.vocabulary.names))
        return a.vocabulary.names, ids, ids
    known = b.vocabulary.ids
    pairs = [(term, i, known[term]) for i, term in enumerate(a.vocabulary.names) if term in known]
    return (
        [term for term, _, _ in pairs],
        np.array([i for _, i, _ in pairs], np.int64),
        np.array([i for _, _, i in pairs], np.int64),
    )


def _mean_weights(snapshot: Snapshot) -> npt.NDArray[np.float64]:
    """Return float64 [V]: mean weight of each term in a sample of the documents that have it; NaN: in none of them."""
    size = len(snapshot.vocabulary.names)
    sums, counts = np.zeros(size), np.zeros(size)
    rows = sum(shard.documents for shard in snapshot.version.shards)
    for reader in snapshot.readers.values():
        documents = reader.shard.manifest.documents
        wanted = max(1, round(_SAMPLE * documents / max(1, rows)))
        ordinals = np.unique(np.linspace(0, documents - 1, min(documents, wanted)).astype(np.int64))
        if reader.alive is not None:
            ordinals = ordinals[reader.alive[ordinals] > 0]
        if len(ordinals):
            _, terms, impacts = reader.shard.forward.gather(ordinals, snapshot.version.dk)
            sums += np.bincount(terms, weights=impacts, minlength=size)[:size]
            counts += np.bincount(terms, minlength=size)[:size]
    with np.errstate(invalid="ignore"):
        return sums / np.where(counts > 0, counts, np.nan) * snapshot.version.impact_step
