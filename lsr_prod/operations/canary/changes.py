"""Changes between two sides: rankings (overlap, rank-biased overlap, moves), and terms of queries and documents."""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lsr_prod.evaluation.runs import Ranking
from lsr_prod.search import Searcher, SearchResult, index_snapshot

PERSISTENCE = 0.9  # of rank-biased overlap: the first 10 ranks have 86 % of the weight
_SAMPLE = 20_000  # documents per side whose vectors are read


@dataclass(frozen=True, slots=True)
class QueryChange:
    """The hits of one query on both sides."""

    query_id: str  # its id
    text: str  # the query
    a: Ranking  # hits of side A, best first
    b: Ranking  # hits of side B, best first
    overlap: float  # share of the hits of A that B found too, 0..1; 1 if neither side found anything, 0 if only B did
    rbo: float  # rank-biased overlap of the two rankings, 0..1
    entered: int  # number of documents that only B found
    left: int  # number of documents that only A found
    moved: int  # number of documents that both found, on different ranks
    value_a: float | None = None  # measure of A; None: the query is not judged
    value_b: float | None = None  # measure of B; None: the query is not judged

    @property
    def change(self) -> float:
        """1 - ``rbo``: 0 for equal rankings, 1 for rankings without a common document."""
        return 1.0 - self.rbo

    @property
    def difference(self) -> float | None:
        """Measure of B minus measure of A; None: the query is not judged."""
        if self.value_a is None or self.value_b is None:
            return None
        return self.value_b - self.value_a

    def to_json(self) -> dict[str, Any]:
        """Return the row of ``canary.json``."""
        figures = ("overlap", "rbo", "change", "entered", "left", "moved", "value_a", "value_b")
        values = {name: getattr(self, name) for name in ("query_id", "text", *figures)}
        return {**values, "a": _ranked(self.a), "b": _ranked(self.b)}


def compare_rankings(query_id: str, text: str, a: Ranking, b: Ranking) -> QueryChange:
    """Compare the hits of one query.

    Args:
        query_id: its id.
        text: the query.
        a: hits of side A, best first, each document once.
        b: hits of side B, best first, each document once.
    """
    ranks_a, ranks_b = ({doc_id: rank for rank, (doc_id, _) in enumerate(hits, 1)} for hits in (a, b))
    common = ranks_a.keys() & ranks_b.keys()
    return QueryChange(
        query_id,
        text,
        a,
        b,
        overlap=len(common) / len(ranks_a) if ranks_a else float(not ranks_b),
        rbo=rank_biased_overlap(list(ranks_a), list(ranks_b)),
        entered=len(ranks_b) - len(common),
        left=len(ranks_a) - len(common),
        moved=sum(ranks_a[doc_id] != ranks_b[doc_id] for doc_id in common),
    )


def rank_biased_overlap(a: Sequence[str], b: Sequence[str], persistence: float = PERSISTENCE) -> float:
    """Return the extrapolated rank-biased overlap of two rankings, 0..1.

    Webber, Moffat, Zobel: A similarity measure for indefinite rankings, 2010, eq. 32: the agreement at each depth d is
    weighted by persistence^d, and the ranks below the end of a ranking are assumed to agree as those above.

    Args:
        a: document ids, best first, each once.
        b: document ids, best first, each once.
        persistence: p, in (0, 1); the closer to 1, the more the lower ranks count.
    """
    short, long = sorted((list(a), list(b)), key=len)
    if short == long:
        return 1.0
    if not short:
        return 0.0
    s, p = len(short), persistence
    seen_short: set[str] = set()
    seen_long: set[str] = set()
    common, common_at_s, total = 0, 0, 0.0
    for depth, doc_id in enumerate(long, 1):
        seen_long.add(doc_id)
        common += doc_id in seen_short
        if depth <= s:
            seen_short.add(short[depth - 1])
            common += short[depth - 1] in seen_long
            common_at_s = common
        total += p**depth * common / depth
        if depth > s:
            total += p**depth * common_at_s * (depth - s) / (s * depth)
    extrapolated = (common - common_at_s) / len(long) + common_at_s / s
    return min(1.0, (1 - p) / p * total + extrapolated * p ** len(long))


def _ranked(hits: Ranking) -> list[dict[str, Any]]:
    return [{"doc_id": doc_id, "rank": rank, "score": score} for rank, (doc_id, score) in enumerate(hits, 1)]


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


def _common_terms(
    a: index_snapshot.Snapshot, b: index_snapshot.Snapshot
) -> tuple[Sequence[str], np.typing.NDArray[np.int64], np.typing.NDArray[np.int64]]:
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


def _mean_weights(snapshot: index_snapshot.Snapshot) -> np.typing.NDArray[np.float64]:
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
