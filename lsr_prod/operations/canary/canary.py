"""Compare two indexes, or two versions of one, on the same queries.

Side A is the one in use, side B the one that may replace it. Queries are read and answered in batches; the memory
depends on the number of rows that are kept and on the vocabularies, not on the number of queries (8 bytes each).
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from lsr_prod.errors import SourceError
from lsr_prod.evaluation import collection
from lsr_prod.operations.canary.changes import (
    DocumentTermDrift,
    QueryChange,
    QueryTermDrift,
    QueryTermTotals,
    compare_rankings,
    document_drift,
)
from lsr_prod.operations.canary.sides import Judge, SideReport, SideTotals
from lsr_prod.search import Searcher

_BATCH = 64  # queries that are encoded together
_EQUAL = 1e-9  # differences of a measure up to this are ties
_TEXT_FIELDS = ("title", "text")
_TEXT = 300  # characters of a document in a report
_LOOKUP = 1_000  # documents read at once


@dataclass(frozen=True, slots=True)
class CanaryQuery:
    """A query that both sides answer."""

    query_id: str  # its id
    text: str  # the query


def read_queries(place: str, options: Mapping[str, str] | None = None) -> Iterator[CanaryQuery]:
    """Read queries one after another; see ``evaluation.collection.read_queries`` for the formats.

    Args:
        place: path or URI of the file.
        options: options of the object store.

    Raises:
        SourceError: a line is invalid, or there is none.
        StorageError: the file cannot be read.
    """
    found = False
    for query_id, text in collection.read_queries(place, options):
        found = True
        yield CanaryQuery(query_id, text)
    if not found:
        raise SourceError(f"{place} has no query; give at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySettings:
    """Settings of a comparison."""

    k: int = 10  # hits per query that are compared
    threshold: float = 0.0  # overlap threshold of all queries, share of the query terms
    count: bool = False  # count the matching documents of every query, which reads all of them
    rows: int = 1_000  # number of queries to keep, those that changed most
    terms: int = 100  # number of drifted terms to keep, of queries and of documents


@dataclass(frozen=True, slots=True)
class Canary:
    """Changes between two sides."""

    a: str  # name of side A
    b: str  # name of side B
    k: int  # hits per query that were compared
    threshold: float  # overlap threshold of the queries
    queries: int  # number of queries
    compared: int  # number of queries that found a document on side A; ``overlap`` is a mean over them
    overlap: float | None  # mean share of the hits of A that B found too; None: A found nothing
    rbo: float  # mean rank-biased overlap over all queries
    unchanged: int  # number of queries with the same documents in the same order
    measure: str  # name of the measure; "": there are no judgments
    judged: int  # number of judged queries
    wins: int  # number of judged queries whose measure is higher on side B; 0 without judgments
    losses: int  # number of judged queries whose measure is lower on side B; 0 without judgments
    ties: int  # number of judged queries whose measure is equal; 0 without judgments
    mean_a: float | None  # mean of the measure on side A; None: no query is judged
    mean_b: float | None  # mean of the measure on side B; None: no query is judged
    sides: tuple[SideReport, SideReport]  # facts and cost of A and B
    rows: tuple[QueryChange, ...]  # the queries that changed most, by falling change
    terms: tuple[QueryTermDrift, ...]  # the query terms that drifted most
    document_terms: tuple[DocumentTermDrift, ...]  # the common terms whose share of the documents drifted most
    # start of the text of the documents in ``rows``, by id; ids without a stored text are left out
    documents: dict[str, str]

    def result(self) -> dict[str, Any]:
        """Return the content of ``canary.json``."""
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "sides": {name: asdict(side) for name, side in zip("ab", self.sides, strict=True)},
            "rows": [row.to_json() for row in self.rows],
            "terms": [asdict(term) for term in self.terms],
            "document_terms": [asdict(term) for term in self.document_terms],
        }


def run_canary(
    a: Searcher,
    b: Searcher,
    queries: Iterable[CanaryQuery],
    settings: CanarySettings,
    *,
    names: tuple[str, str] = ("a", "b"),
    judge: Judge | None = None,
) -> Canary:
    """Answer the queries on both sides and compare the answers.

    Args:
        a: the index in use.
        b: the index that may replace it.
        queries: read once, in batches.
        settings: what to compare and to keep.
        names: names of the sides in the report.
        judge: measures the rankings of judged queries; None: there are no judgments.

    Raises:
        QueryError: a setting is outside its range.
        ArtifactError: an index is damaged.
    """
    sides = SideTotals(a, settings.count), SideTotals(b, settings.count)
    totals, terms = _Totals(settings.rows), QueryTermTotals()
    for batch in _batches(queries):
        changes = _answer(sides, terms, batch, settings)
        for change in judge.judge(changes) if judge is not None else changes:
            totals.add(change)
    rows = totals.rows()
    return Canary(
        a=names[0],
        b=names[1],
        k=settings.k,
        threshold=settings.threshold,
        queries=totals.queries,
        compared=totals.compared,
        overlap=totals.overlap / totals.compared if totals.compared else None,
        rbo=totals.rbo / max(1, totals.queries),
        unchanged=totals.unchanged,
        measure=judge.measure if judge is not None else "",
        judged=totals.judged,
        wins=totals.wins,
        losses=totals.losses,
        ties=totals.judged - totals.wins - totals.losses,
        mean_a=totals.value_a / totals.judged if totals.judged else None,
        mean_b=totals.value_b / totals.judged if totals.judged else None,
        sides=(sides[0].report(), sides[1].report()),
        rows=rows,
        terms=tuple(terms.largest(settings.terms)),
        document_terms=tuple(document_drift(a, b, settings.terms)) if settings.terms else (),
        documents=_texts((b, a), rows),
    )


class _Totals:
    """Running totals over the queries, and the rows that changed most."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._rows: list[tuple[float, float, int, QueryChange]] = []
        self.queries = self.compared = self.unchanged = self.judged = self.wins = self.losses = 0
        self.overlap = self.rbo = self.value_a = self.value_b = 0.0

    def add(self, change: QueryChange) -> None:
        """Add one query."""
        self.queries += 1
        if change.a:
            self.compared += 1
            self.overlap += change.overlap
        self.rbo += change.rbo
        self.unchanged += not (change.entered or change.left or change.moved)
        difference = change.difference
        if change.value_a is not None and change.value_b is not None and difference is not None:
            self.judged += 1
            self.value_a += change.value_a
            self.value_b += change.value_b
            self.wins += difference > _EQUAL
            self.losses += difference < -_EQUAL
        row = (change.change, abs(difference or 0.0), -self.queries, change)
        if len(self._rows) < self._kept:
            heapq.heappush(self._rows, row)
        elif self._rows:
            heapq.heappushpop(self._rows, row)

    def rows(self) -> tuple[QueryChange, ...]:
        """Return the kept rows, by falling change; equal ones in the order of the queries."""
        return tuple(row[-1] for row in sorted(self._rows, reverse=True))


def _batches(queries: Iterable[CanaryQuery]) -> Iterator[list[CanaryQuery]]:
    left = iter(queries)
    while batch := list(islice(left, _BATCH)):
        yield batch


def _answer(
    sides: tuple[SideTotals, SideTotals], terms: QueryTermTotals, batch: list[CanaryQuery], settings: CanarySettings
) -> list[QueryChange]:
    """Answer a batch on both sides, add its figures to the totals, and compare the rankings."""
    texts = [query.text for query in batch]
    answers = [side.searcher.search_batch(texts, settings.k, overlap_threshold=settings.threshold) for side in sides]
    for side, results in zip(sides, answers, strict=True):
        side.add(results)
    changes = []
    for query, result_a, result_b in zip(batch, *answers, strict=True):
        terms.add(result_a, result_b)
        hits = ([(hit.doc_id, hit.score) for hit in each.hits] for each in (result_a, result_b))
        changes.append(compare_rankings(query.query_id, query.text, *hits))
    return changes


def _texts(searchers: tuple[Searcher, ...], rows: Iterable[QueryChange]) -> dict[str, str]:
    """Return the start of the text of the documents of some rows, from the first index that has each."""
    wanted = dict.fromkeys(doc_id for row in rows for hits in (row.b, row.a) for doc_id, _ in hits)
    texts: dict[str, str] = {}
    for searcher in searchers:
        stored_fields = searcher.version.stored_fields
        fields = [name for name in stored_fields if name in _TEXT_FIELDS] or list(stored_fields)
        missing = [doc_id for doc_id in wanted if doc_id not in texts] if fields else []
        for start in range(0, len(missing), _LOOKUP):
            chunk = missing[start : start + _LOOKUP]
            for doc_id, stored in zip(chunk, searcher.get(chunk, fields), strict=True):
                parts = (" ".join(str(value).split()) for value in (stored or {}).values() if value)
                if text := " · ".join(parts):
                    texts[doc_id] = text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
    return texts
