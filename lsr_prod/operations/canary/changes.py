"""Change of a ranking between two sides: overlap, rank-biased overlap, documents that entered, left or moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsr_prod.evaluation.runs import Ranking

PERSISTENCE = 0.9  # of rank-biased overlap: the first 10 ranks have 86 % of the weight


@dataclass(frozen=True, slots=True)
class QueryChange:
    """The hits of one query on both sides.

    Attributes:
        query_id: its id.
        text: the query.
        a: hits of side A, best first.
        b: hits of side B, best first.
        overlap: share of the hits of A that B found too, 0..1; 1 if neither side found anything, 0 if only B did.
        rbo: rank-biased overlap of the two rankings, 0..1.
        entered: number of documents that only B found.
        left: number of documents that only A found.
        moved: number of documents that both found, on different ranks.
        value_a: measure of A; None: the query is not judged.
        value_b: measure of B; None: the query is not judged.
    """

    query_id: str
    text: str
    a: Ranking
    b: Ranking
    overlap: float
    rbo: float
    entered: int
    left: int
    moved: int
    value_a: float | None = None
    value_b: float | None = None

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
        return {
            "query_id": self.query_id,
            "text": self.text,
            "overlap": self.overlap,
            "rbo": self.rbo,
            "change": self.change,
            "entered": self.entered,
            "left": self.left,
            "moved": self.moved,
            "value_a": self.value_a,
            "value_b": self.value_b,
            "a": _ranked(self.a),
            "b": _ranked(self.b),
        }


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
