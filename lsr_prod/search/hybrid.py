"""Hybrid queries: words in addition to the encoder's terms, in one sum or as a second list with fused ranks."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Candidates, CollectPlan, Ranked, Shards
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.search_request import Hybrid, Request
from lsr_prod.search.query.sparse_query import MAX_SCORE, MAX_TERMS, check_text
from lsr_prod.search.search_result import Facet, QueryTerm
from lsr_prod.search.shard.postings import ShardQuery, WordQuery
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.formats.term_weights import IMPACT_STEP, inverse_frequencies


@dataclass(frozen=True, slots=True)
class WeighedWords:
    """Weighted words of a query's text."""

    names: tuple[str, ...]  # t distinct words, as the index stores them, in the order of the text
    weights: np.typing.NDArray[np.float64]  # float64 [t], inverse document frequencies over the whole version

    @property
    def query_terms(self) -> tuple[QueryTerm, ...]:
        """The words in the form of a result."""
        weighed = zip(self.names, self.weights.tolist(), strict=True)
        return tuple(QueryTerm(name, weight, "text") for name, weight in weighed)


def check_words(text: str | None, hybrid: Hybrid | None) -> None:
    """Require that the text of a vector query and ``hybrid`` are given together or not at all."""
    if (text is None) != (hybrid is None):
        raise QueryError(
            "only one of text= and hybrid= is given; give both for a hybrid search of a vector, else neither"
        )
    if text is not None:
        check_text(text)


def refuse_text(text: str | None) -> None:
    """Require that the query, a text, has no text of its own."""
    if text is not None:
        raise QueryError("text= belongs to a vector, but the query is a text, whose words are matched; leave text= out")


def weigh_words(shards: Shards, version: IndexVersion, text: str, deadline: float | None = None) -> WeighedWords:
    """Weight the words of a text by their inverse document frequency in all shards.

    Deleted documents count until their shard is merged.
    """
    names = _words(version, "" if deadline is not None and time.monotonic() >= deadline else text)
    documents = sum(shard.documents for shard in version.shards)
    return WeighedWords(tuple(names), inverse_frequencies(documents, shards.word_frequencies(names, deadline)))


def count_words(shards: Shards, version: IndexVersion, texts: Sequence[str]) -> list[int]:
    """Return the number of documents that contain each text, which is one word; deleted documents count."""
    for text in texts:
        check_text(text)
    found = [_words(version, text) for text in texts]
    for text, words in zip(texts, found, strict=True):
        if len(words) != 1:
            raise QueryError(f"{shorten(text)} has {len(words)} words ({shorten(words)}); give one word at a time")
    names = list(dict.fromkeys(words[0] for words in found))
    counts = dict(zip(names, shards.word_frequencies(names).tolist(), strict=True))
    return [counts[words[0]] for words in found]


def _words(version: IndexVersion, text: str) -> list[str]:
    """Return the distinct words of a text, as the index stores them."""
    from lsr_prod.inference.terms.analysis import distinct_words  # Tantivy is imported by the first query that needs it

    if version.average_length is None:
        raise QueryError("this index has no postings of words; build it with index.bm25: true")
    return distinct_words(text, version.analyzer)


def with_words(query: ShardQuery, words: WeighedWords, hybrid: Hybrid | None = None, *, counted: bool) -> ShardQuery:
    """Return a query that matches words in addition to its terms."""
    if len(query.ids) + len(words.names) > MAX_TERMS:
        raise QueryError(f"the query has {len(words.names)} words; give at most {MAX_TERMS} terms and words")
    term_weights, word_weights = query.weights.astype(np.float64), words.weights * IMPACT_STEP
    if hybrid is not None:
        term_weights, word_weights = term_weights * hybrid.terms, word_weights * hybrid.words
    if (term_weights.sum() + word_weights.sum()) * 255 > MAX_SCORE:
        raise QueryError("the query's weights are so large that a score would not fit into float32; scale them down")
    return replace(
        query,
        weights=term_weights.astype(np.float32),
        words=WordQuery(words.names, word_weights.astype(np.float32), counted),
    )


def fuse_ranks(
    by_terms: Sequence[Ranked], by_words: Sequence[Ranked], hybrid: Hybrid, *, same_counts: bool
) -> list[Ranked]:
    """Fuse two sorted lists by reciprocal ranks.

    Returns:
        All documents of both lists, sorted.
    """
    scores: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    overlaps: defaultdict[tuple[str, int, int], int] = defaultdict(int)
    for ranked, weight in ((by_terms, hybrid.terms), (by_words, hybrid.words)):
        for rank, (_, doc_id, number, ordinal, overlap) in enumerate(ranked, 1):
            scores[doc_id, number, ordinal] += weight / (hybrid.constant + rank)
            before = overlaps[doc_id, number, ordinal]
            overlaps[doc_id, number, ordinal] = max(before, overlap) if same_counts else before + overlap
    return sorted((-score, *key, overlaps[key]) for key, score in scores.items())


def collect_matches(
    shards: Shards, query: ShardQuery, request: Request, words: WeighedWords | None
) -> tuple[Candidates, tuple[Facet, ...]]:
    """Enumerate all matches of a request that has ``sort`` or ``facets``.

    Returns:
        The first ``request.reach`` documents in the order of ``sort``, none without it; and the facets.
    """
    if request.hybrid is not None and words is not None:
        fused = request.hybrid.fusion == "rrf"  # min_score is then one of fused ranks, which only the best have
        query = replace(query, floor=0.0) if fused else query
        query = with_words(query, words, None if fused else request.hybrid, counted=not request.has_threshold)
    name = None if request.sort is None else request.sort.removeprefix("-")
    plan = CollectPlan(request.reach, name, name != request.sort, tuple(request.facets))
    found = shards.collect(query, plan)
    facets = []
    for name, counts in zip(plan.facets, found.counts, strict=True):
        known = sorted((value, count) for value, count in counts.items() if value is not None)
        known.sort(key=lambda item: -item[1])
        facets.append(Facet(name, tuple(known[: request.facet_size]), counts.get(None, 0), len(known)))
    return Candidates([row for _, row in found.ranked], found.matched, not found.partial, found.partial), tuple(facets)
