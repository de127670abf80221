"""Words beside the encoder's terms: in one sum, or as a second list whose ranks are fused with the first."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import QueryError
from lsr_prod.formats.bm25 import IMPACT_STEP, inverse_frequencies
from lsr_prod.formats.index import IndexVersion
from lsr_prod.search.candidates import Ranked, Shards
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import MAX_SCORE, MAX_TERMS, check_text
from lsr_prod.search.result import QueryTerm
from lsr_prod.search.shard.shard_query import ShardQuery, WordQuery

__all__ = ["WeighedWords", "check_words", "fuse_ranks", "weigh_words", "with_words"]


@dataclass(frozen=True, slots=True)
class WeighedWords:
    """The words of a query's text.

    Attributes:
        names: t distinct words, as the index holds them, in the order of the text.
        weights: float64 [t], inverse document frequencies over the whole version.
    """

    names: tuple[str, ...]
    weights: npt.NDArray[np.float64]

    @property
    def query_terms(self) -> tuple[QueryTerm, ...]:
        """The words as a result shows them."""
        weighed = zip(self.names, self.weights.tolist(), strict=True)
        return tuple(QueryTerm(name, weight, "text") for name, weight in weighed)


def check_words(text: str | None, hybrid: Hybrid | None) -> None:
    """Refuse a vector's text without ``hybrid``, and the other way round.

    Raises:
        QueryError: one of them is missing, or ``text`` is no text.
    """
    if (text is None) != (hybrid is None):
        raise QueryError("a hybrid search of a vector needs both text= and hybrid=, any other search none of them")
    if text is not None:
        check_text(text)


def weigh_words(shards: Shards, version: IndexVersion, text: str) -> WeighedWords:
    """The words of a text, weighed by how rare they are in all shards.

    Deleted documents count until their shard is built anew.

    Args:
        shards: of the version, all of them.
        version: what is searched.
        text: the query.

    Raises:
        QueryError: words have no postings in this index.
    """
    from lsr_prod.terms.analysis import distinct_words  # Tantivy is imported by the first query that needs it

    if version.average_length is None:
        raise QueryError("the words of this index have no postings; build it with index.bm25: true")
    names = distinct_words(text)
    documents = sum(shard.documents for shard in version.shards)
    return WeighedWords(tuple(names), inverse_frequencies(documents, shards.word_frequencies(names)))


def with_words(query: ShardQuery, words: WeighedWords, hybrid: Hybrid | None = None, *, counted: bool) -> ShardQuery:
    """A query that matches words beside its terms.

    Args:
        query: the query.
        words: of its text.
        hybrid: weights of both sides; None: 1.
        counted: whether words count towards ``required``.

    Raises:
        QueryError: there are too many words, or a score could leave the range of float32.
    """
    if len(query.ids) + len(words.names) > MAX_TERMS:
        raise QueryError(f"the query has {len(words.names)} words; give at most {MAX_TERMS} terms and words")
    of_terms, of_words = query.weights.astype(np.float64), words.weights * IMPACT_STEP
    if hybrid is not None:
        of_terms, of_words = of_terms * hybrid.terms, of_words * hybrid.words
    if (of_terms.sum() + of_words.sum()) * 255 > MAX_SCORE:
        raise QueryError("the query's weights are so large that a score would not fit into float32; scale them down")
    return replace(
        query,
        weights=of_terms.astype(np.float32),
        words=WordQuery(words.names, of_words.astype(np.float32), counted),
    )


def fuse_ranks(
    by_terms: Sequence[Ranked], by_words: Sequence[Ranked], hybrid: Hybrid, *, same_counts: bool
) -> list[Ranked]:
    """Two sorted lists as one, by reciprocal ranks.

    Args:
        by_terms: the best documents by the encoder's score.
        by_words: the best documents by BM25.
        hybrid: weights and constant.
        same_counts: both lists counted the shared terms; else one counted terms and the other words, and counts add up.

    Returns:
        Every document of both, sorted.
    """
    scores: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    overlaps: defaultdict[tuple[str, int, int], int] = defaultdict(int)
    for ranked, weight in ((by_terms, hybrid.terms), (by_words, hybrid.words)):
        for rank, (_, doc_id, number, ordinal, overlap) in enumerate(ranked, 1):
            scores[doc_id, number, ordinal] += weight / (hybrid.constant + rank)
            before = overlaps[doc_id, number, ordinal]
            overlaps[doc_id, number, ordinal] = max(before, overlap) if same_counts else before + overlap
    return sorted((-score, *key, overlaps[key]) for key, score in scores.items())
