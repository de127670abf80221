"""Results of queries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from lsr_prod.search.query.filters import Cursor
from lsr_prod.storage.formats.stored_values import AttributeValue

Field = Literal["terms", "text"]


class QueryTerm(NamedTuple):
    """One matched term or word of the query.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["hold a lock", "parse a date"]) as searcher:
        ...     [term.term for term in searcher.search("a lock").query]
        ['lock', 'a']

    Attributes:
        term: a term of the vocabulary, or a word as the index stores it.
        weight: weight of a term from the encoder; inverse document frequency of a word.
        field: ``terms`` for terms, ``text`` for words.
    """

    term: str
    weight: float
    field: Field = "terms"


class Hit(NamedTuple):
    """One document of a result; a named tuple, which is made in half the time of a data class.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["parse a date"]) as searcher:
        ...     hit = searcher.search("date", fields=["text"], highlight=["text"]).hits[0]
        >>> hit.doc_id, hit.overlap, hit.fields["text"], hit.highlights
        ('0', 1, 'parse a date', {'text': ((8, 12),)})

    Attributes:
        doc_id: its id.
        score: sum over shared terms of query weight x document weight, float32; the BM25 score for ``bm25``; see
            ``Hybrid`` for a hybrid search.
        overlap: number of query terms in the postings of the document. In a hybrid search without a threshold words
            count too, and with ``rrf`` only those of the lists that contain the document. 0 if Tantivy searched.
        fields: the requested stored fields.
        highlights: start and end of the words of the query in the fields of ``highlight``, in characters; None: not
            requested.
    """

    doc_id: str
    score: float
    overlap: int
    fields: Mapping[str, Any]
    highlights: Mapping[str, tuple[tuple[int, int], ...]] | None = None


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of an attribute in all matches of a query.

    Examples:
        >>> from lsr_prod import Index
        >>> fields = {"lang": ["en", "en", None]}
        >>> with Index.from_texts(["a", "a b", "a c"], fields=fields, attributes={"lang": "string"}) as searcher:
        ...     searcher.search("a", facets=["lang"]).facets[0]
        Facet(name='lang', values=(('en', 2),), missing=1, distinct=1)

    Attributes:
        name: the attribute.
        values: the ``facet_size`` most frequent values with their numbers of documents, ties by rising value.
        missing: number of documents without a value.
        distinct: number of distinct values.
    """

    name: str
    values: tuple[tuple[AttributeValue, int], ...]
    missing: int
    distinct: int


class SearchResult(NamedTuple):
    """The result of one query; a named tuple, which is made in a quarter of the time of a data class.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["hold a lock", "parse a date"]) as searcher:
        ...     result = searcher.search("date zebra", count=True)
        >>> [hit.doc_id for hit in result.hits], result.matched, [term.term for term in result.query]
        (['1'], 1, ['date'])

    Attributes:
        hits: at most k documents by descending score, ties by ascending id.
        matched: number of documents in all shards that share at least ``required`` terms and pass the filter.
        matched_exact: True if ``matched`` counts all such documents. It does not if the deadline passed before all were
            counted, if a shard group did not answer, if lists are fused (``rrf``) without ``count=True``, or if
            ``scan_share`` is below 1, where it is a lower bound. With ``deduplicate`` a partial result may count all.
        required: number of query terms that a document must share.
        query: the query terms that ``qk`` kept, heaviest first, including terms that no document contains.
        version: sha256 of the index version that all hits come from.
        partial: True if the deadline passed or a shard group did not answer; better documents may exist.
        encode_ms: milliseconds from text to ``query``.
        match_ms: milliseconds of matching, ranking and merging shards.
        fetch_ms: milliseconds of reading stored fields.
        missing_groups: shard groups of a served index that did not answer, so ``hits`` lacks their documents.
        offset: number of hits of the pages before.
        facets: one per attribute of ``facets``, over all documents that match, pass the filter and have ``min_score``.
        full: whether the page has ``k`` hits, so that another page may follow; False if ``scan_share`` is below 1.
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
    missing_groups: tuple[int, ...] = ()
    offset: int = 0
    full: bool = False
    facets: tuple[Facet, ...] = ()

    @property
    def next_page(self) -> str | None:
        """Value of ``search_after`` for the next page; None after the last hit.

        A partial result has none, because better documents may be missing from it: repeat the page instead.
        """
        if not self.full or self.partial or not self.hits:
            return None
        last = self.hits[-1]
        return Cursor(self.version, last.score, last.doc_id, self.offset + len(self.hits)).token


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of one term to a score: ``weight`` (query) x ``document_weight``.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["hold a lock", "parse a date"]) as searcher:
        ...     [part.term for part in searcher.explain("a lock", "0").contributions]
        ['lock', 'a']

    Attributes:
        term: the term or word.
        weight: as in ``QueryTerm``.
        document_weight: weight of a term from the encoder; BM25 weight of a word.
        score: the product; in a hybrid search times the weight of terms or words.
        field: as in ``QueryTerm``.
    """

    term: str
    weight: float
    document_weight: float
    score: float
    field: Field = "terms"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The parts of a document's score.

    Examples:
        >>> from lsr_prod import Index
        >>> with Index.from_texts(["hold a lock", "parse a date"]) as searcher:
        ...     explanation = searcher.explain("parse the lock", "1")
        >>> [part.term for part in explanation.contributions], explanation.missing
        (['parse'], ('lock',))

    Attributes:
        doc_id: the document.
        score: the same float32 sum that a search returns.
        overlap: shared terms, words not counted.
        contributions: one per shared term, heaviest query weight first, then one per shared word.
        missing: terms and words of the query that are not in the document's postings.
        ranks: rank of the document if 1, 2, … ``overlap`` shared terms are required; None for a rank above 10,000. In a
            hybrid search the first is the rank without a threshold.
    """

    doc_id: str
    score: float
    overlap: int
    contributions: tuple[Contribution, ...]
    missing: tuple[str, ...]
    ranks: tuple[int | None, ...]
