"""Explain the score of a document."""

from dataclasses import replace

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Shards
from lsr_prod.search.hybrid import WeighedWords, with_words
from lsr_prod.search.query.request import Hybrid
from lsr_prod.search.query.sparse_query import MAX_K, SparseQuery
from lsr_prod.search.result import Contribution, Explanation
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.search.shard.shard_reader import ShardReader
from lsr_prod.search.snapshot import Snapshot
from lsr_prod.storage.formats.term_weights import IMPACT_STEP


def explain_parts(
    snapshot: Snapshot, query: SparseQuery, doc_id: str, hybrid: Hybrid | None, words: WeighedWords | None
) -> Explanation | None:
    """Score one document in float32 and the kernel's order: terms from the forward copy, words from the postings.

    Returns:
        The explanation without ranks; None if no open shard has the document.
    """
    step = snapshot.version.impact_step
    shard_query = _shard_query(query, step, hybrid, words)
    place = snapshot.place(doc_id)
    if place is None:
        return None
    reader, ordinal = snapshot.readers[place[0]], place[1]
    contributions, missing = _terms(query, shard_query, reader, ordinal, step)
    overlap = len(contributions)
    if words is not None:
        found, absent = _words(words, shard_query, reader, ordinal)
        contributions, missing = contributions + found, missing + absent
    score = np.float32(0)
    for contribution in contributions:
        score += np.float32(contribution.score)
    return Explanation(doc_id, float(score), overlap, tuple(contributions), tuple(missing), ())


def rank_explanation(
    parts: Explanation,
    query: SparseQuery,
    shards: Shards,
    step: float,
    hybrid: Hybrid | None,
    words: WeighedWords | None,
) -> Explanation:
    """Return an explanation with the ranks of the document in all shards."""
    shard_query = _shard_query(query, step, hybrid, words)
    most = max(parts.overlap, min(1, len(parts.contributions)))
    ranks = (_rank(shard_query, shards, parts.doc_id, parts.score, required) for required in range(1, most + 1))
    return replace(parts, ranks=tuple(ranks))


def _shard_query(query: SparseQuery, step: float, hybrid: Hybrid | None, words: WeighedWords | None) -> ShardQuery:
    known = query.ids >= 0
    counted = np.ones(int(known.sum()), np.uint8)
    shard_query = ShardQuery(query.ids[known], query.scaled(step)[known], counted, 1, MAX_K)
    if hybrid is None or words is None:
        return shard_query
    if hybrid.fusion == "rrf":
        raise QueryError("a score of fused ranks has no parts; explain fusion='sum', or the search without words")
    return with_words(shard_query, words, hybrid, counted=True)


def _terms(
    query: SparseQuery, shard_query: ShardQuery, reader: ShardReader, ordinal: int, step: float
) -> tuple[list[Contribution], list[str]]:
    """Return the contributions of the encoder's terms, and the terms that the document lacks."""
    impacts = reader.shard.forward.vector(ordinal, reader.dk)
    units = dict(zip(shard_query.ids.tolist(), shard_query.weights, strict=True))
    found, missing = [], []
    for term, term_id, weight in zip(query.terms, query.ids.tolist(), query.weights.tolist(), strict=True):
        if term_id in impacts:
            added = units[term_id] * np.float32(impacts[term_id])
            found.append(Contribution(term, weight, impacts[term_id] * step, float(added)))
        else:
            missing.append(term)
    return found, missing


def _words(
    words: WeighedWords, shard_query: ShardQuery, reader: ShardReader, ordinal: int
) -> tuple[list[Contribution], list[str]]:
    """Return the contributions of words, and the words that the document lacks."""
    assert shard_query.words is not None
    found, missing = [], []
    ids = reader.word_ids(words.names).tolist()
    for name, word, weight, unit in zip(
        words.names, ids, words.weights.tolist(), shard_query.words.weights, strict=True
    ):
        impact = int(reader.shard.postings.impacts(word, np.array([ordinal]))[0]) if word >= 0 else 0
        if impact:
            found.append(Contribution(name, weight, impact * IMPACT_STEP, float(unit * np.float32(impact)), "text"))
        else:
            missing.append(name)
    return found, missing


def _rank(shard_query: ShardQuery, shards: Shards, doc_id: str, score: float, required: int) -> int | None:
    """Return the rank of a document among those that share ``required`` terms; None after the 10,000th."""
    words = shard_query.words
    if words is not None and required > 1:
        words = replace(words, counted=False)  # with a threshold, words do not count
    # The kernel's float32 sum of the document equals ``score`` to the bit, so the document itself is found.
    ranked = sorted(shards.match(replace(shard_query, required=required, floor=score, words=words)).ranked)[:MAX_K]
    return next((place for place, row in enumerate(ranked, 1) if row[1] == doc_id), None)
