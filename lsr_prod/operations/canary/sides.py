"""One side of a canary: an index at a publication, opened for queries, and the figures of its answers."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import ir_measures

from lsr_prod.evaluation import cost, measures
from lsr_prod.operations.canary.changes import QueryChange
from lsr_prod.search import Searcher, SearchResult, open_index


def open_side(place: str, options: Mapping[str, str] | None = None) -> Searcher:
    """Open ``INDEX`` at its current publication, or ``INDEX@NUMBER`` at an earlier one.

    Args:
        place: folder or URI of an index; what follows the last ``@``, if it is a number, names a publication.
        options: options of the object store.

    Raises:
        PublicationError: nothing is published there, or there is no such publication.
        ArtifactError: the version is incomplete, damaged or of another format.
        StorageError: the object store cannot be reached.
    """
    index, publication = open_index.split_publication(place)
    return Searcher.open(index, publication=publication, storage_options=options)


@dataclass(frozen=True, slots=True)
class SideReport:
    """Facts and cost of one side."""

    publication: int  # number of its publication; 0: the version is not published
    version: str  # sha256 of the index version
    bundle: str  # digest of the bundle that encodes its queries
    documents: int  # number of documents
    l0_query: float  # mean number of terms per query
    weight_query: float  # mean sum of the weights of a query
    answered: int  # number of queries that found a document
    matched: float | None  # mean number of matching documents per query; None: they were not counted
    encode_ms: float  # mean milliseconds of encoding a query, in batches
    match_p50_ms: float  # milliseconds of matching and ranking, median
    match_p95_ms: float  # milliseconds of matching and ranking, 95th percentile


@dataclass(slots=True)
class SideTotals:
    """Running totals of the answers of one side; 8 bytes per query."""

    searcher: Searcher
    count: bool
    queries: int = 0
    terms: int = 0
    weight: float = 0.0
    answered: int = 0
    matched: int = 0
    encode_ms: float = 0.0
    match_ms: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, results: Sequence[SearchResult]) -> None:
        """Add the answers of a batch; documents are counted outside the measured time."""
        for result in results:
            self.queries += 1
            self.terms += len(result.query)
            self.weight += sum(term.weight for term in result.query)
            self.answered += bool(result.hits)
            self.encode_ms += result.encode_ms
            self.match_ms.append(result.match_ms)
            if self.count:
                self.matched += _matched(self.searcher, result)

    def report(self) -> SideReport:
        """Return means and percentiles."""
        searcher, queries = self.searcher, max(1, self.queries)
        times = self.match_ms.tolist()
        return SideReport(
            publication=searcher.publication.number,
            version=searcher.publication.version,
            bundle=searcher.version.bundle_digest,
            documents=searcher.documents,
            l0_query=self.terms / queries,
            weight_query=self.weight / queries,
            answered=self.answered,
            matched=self.matched / queries if self.count else None,
            encode_ms=self.encode_ms / queries,
            match_p50_ms=cost.percentile(times, 50),
            match_p95_ms=cost.percentile(times, 95),
        )


def _matched(searcher: Searcher, result: SearchResult) -> int:
    """Return the number of matching documents; if the search did not count all, count them by another search."""
    if result.matched_exact:
        return result.matched
    return searcher.count({term.term: term.weight for term in result.query}, min_terms=result.required)


class Judge:
    """Computes a measure per query and side.

    Args:
        measure: as named by ir_measures.
        qrels: all judgments.
        field: setting that named the measure, for the error.

    Attributes:
        depth: hits that the measure looks at; 1 for one that takes all there are.

    Raises:
        ConfigError: the measure is unknown.
    """

    def __init__(self, measure: str, qrels: Iterable[ir_measures.Qrel], *, field: str = "--measure") -> None:
        self._measures = measures.parse_measures(field, [measure])
        self.depth = self._measures[measure].params.get("cutoff", 1)
        self.measure = measure
        self._qrels: defaultdict[str, list[ir_measures.Qrel]] = defaultdict(list)
        for judgment in qrels:
            self._qrels[judgment.query_id].append(judgment)

    def judge(self, changes: Sequence[QueryChange]) -> list[QueryChange]:
        """Return the changes with the values of both sides; those of queries without a judgment as they are."""
        ids = [change.query_id for change in changes if change.query_id in self._qrels]
        if not ids:
            return list(changes)
        qrels = [judgment for query_id in ids for judgment in self._qrels[query_id]]
        sides = ({change.query_id: getattr(change, side) for change in changes} for side in ("a", "b"))
        values = (measures.measure_by_query(self._measures, qrels, side, ids)[self.measure].tolist() for side in sides)
        a, b = (dict(zip(ids, column, strict=True)) for column in values)
        return [
            replace(change, value_a=a[change.query_id], value_b=b[change.query_id]) if change.query_id in a else change
            for change in changes
        ]
