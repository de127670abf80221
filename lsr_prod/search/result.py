"""What a query gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Contribution", "Explanation", "Hit", "QueryTerm", "SearchResult"]


Field = Literal["terms", "text"]


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """One term of the query as it was matched.

    Attributes:
        term: a term of the vocabulary, or a word as the index holds it.
        weight: of a term, the encoder's; of a word, its inverse document frequency.
        field: ``terms`` for the encoder's, ``text`` for words.
    """

    term: str
    weight: float
    field: Field = "terms"


@dataclass(frozen=True, slots=True)
class Hit:
    """One document.

    Attributes:
        doc_id: its id.
        score: sum over shared terms of query weight x document weight, float32; BM25's score for ``bm25``; for a hybrid
            search see ``Hybrid``.
        overlap: terms of the query that its postings hold. In a hybrid search without a threshold words count too, and
            with ``rrf`` only what the lists saw in which the document stands. 0 where Tantivy answered.
        fields: the stored fields that were asked for.
    """

    doc_id: str
    score: float
    overlap: int
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one query.

    Attributes:
        hits: at most k documents by falling score, ties by rising id.
        matched: documents seen that share at least ``required`` terms and pass the filter, over all shards.
        matched_exact: whether these are all that do. Blocks of documents that cannot change the hits are not read;
            ``count=True`` reads them.
        required: terms of the query that a document must share.
        query: what was matched, heaviest first; after ``qk``, terms that no document has included.
        version: sha256 of the index version that answered, wholly.
        partial: the deadline passed: there may be better documents.
        encode_ms: milliseconds from text to ``query``.
        match_ms: milliseconds of matching, ranking and merging shards.
        fetch_ms: milliseconds of reading stored fields.
    """

    hits: tuple[Hit, ...]
    matched: int
    matched_exact: bool
    required: int
    query: tuple[QueryTerm, ...]
    version: str
    partial: bool
    encode_ms: float
    match_ms: float
    fetch_ms: float


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one term adds to a score: ``weight`` (query) x ``document_weight``.

    Attributes:
        term: the term or word.
        weight: as in ``QueryTerm``.
        document_weight: of a term, the encoder's; of a word, what BM25 makes of its count and the document's length.
        score: in a hybrid search times the weight of its side.
        field: as in ``QueryTerm``.
    """

    term: str
    weight: float
    document_weight: float
    score: float
    field: Field = "terms"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document has its score.

    Attributes:
        doc_id: the document.
        score: the same float32 sum that a search returns.
        overlap: shared terms, words not counted.
        contributions: one a shared term, in the query's order (heaviest query weight first), then one a shared word.
        missing: terms and words of the query that the document's postings lack.
        ranks: its rank if 1, 2, … ``overlap`` shared terms are required; None past the 10,000th. In a hybrid search the
            first is that without a threshold.
    """

    doc_id: str
    score: float
    overlap: int
    contributions: tuple[Contribution, ...]
    missing: tuple[str, ...]
    ranks: tuple[int | None, ...]
