"""Cost of an index and of queries without a clock, as one report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lsr_prod.evaluation.blocks import BlockCounts, count_blocks
from lsr_prod.evaluation.efficiency import (
    PostingsCurve,
    TermCounts,
    bytes_by_part,
    document_term_counts,
    multiplications,
    postings_curve,
)
from lsr_prod.evaluation.matched import THRESHOLDS, count_matches
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.snapshot import Snapshot

_DOCUMENTS = 1_000_000  # documents that are read for counts by threshold; larger indexes get estimates


@dataclass(frozen=True, slots=True)
class MatchedDocuments:
    """Documents that pass a threshold; estimated from a sample in an index of more than a million documents.

    Attributes:
        kind: ``count``, ``ratio`` or ``weight``; see ``matched.Threshold``.
        threshold: smallest number or share.
        documents: mean number of documents per query.
    """

    kind: str
    threshold: float
    documents: float


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """Cost of every query, and what each system gains by it.

    Attributes:
        terms: number of terms after pruning.
        multiplications: number of postings of these terms; their mean per document is FLOPS.
        measure: the measure of ``gains``.
        gains: name of the system -> value of the measure minus that of the baseline, per query.
    """

    terms: list[int]
    multiplications: list[int]
    measure: str = ""
    gains: dict[str, list[float]] = field(default_factory=dict)

    def with_gains(self, values: Mapping[str, Sequence[float]], measure: str, baseline: str) -> "QueryCosts":
        """Add the gains of all systems but the baseline."""
        gains = {
            name: [value - before for value, before in zip(column, values[baseline], strict=True)]
            for name, column in values.items()
            if name != baseline
        }
        return replace(self, measure=measure, gains=gains)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Cost of an index and of its queries.

    Attributes:
        bytes: bytes of the shards by part.
        postings: lengths of the postings lists.
        l0_query: number of terms per query after pruning.
        l0_document: number of terms per document.
        matched: documents that pass each threshold, over the sampled queries.
        blocks: document blocks and postings for the best 10 documents, over the sampled queries.
        blocks_read: ``blocks.read``.
        sampled: number of sampled queries.
        by_query: cost of every query.
    """

    bytes: dict[str, int]
    postings: PostingsCurve
    l0_query: TermCounts
    l0_document: TermCounts
    matched: list[MatchedDocuments]
    blocks: BlockCounts
    blocks_read: float
    sampled: int
    by_query: QueryCosts


def measure_cost(snapshot: Snapshot, queries: Sequence[SparseQuery], *, sampled: int) -> Efficiency:
    """Measure an open version."""
    count = min(sampled, len(queries))
    some = [queries[i * len(queries) // count] for i in range(count)]
    matched = count_matches(snapshot, some, sampled=_DOCUMENTS).mean(axis=1).tolist() if some else []
    blocks = count_blocks(snapshot, some)
    lengths = [len(query.ids) for query in queries]
    frequencies = snapshot.document_frequencies
    return Efficiency(
        bytes=bytes_by_part(snapshot.version),
        postings=postings_curve(frequencies),
        l0_query=TermCounts.of(lengths),
        l0_document=document_term_counts(snapshot),
        matched=[
            MatchedDocuments(one.kind, one.value, mean)
            for one, mean in zip(THRESHOLDS[: len(matched)], matched, strict=True)
        ],
        blocks=blocks,
        blocks_read=blocks.read,
        sampled=count,
        by_query=QueryCosts(lengths, multiplications([query.ids for query in queries], frequencies).tolist()),
    )
