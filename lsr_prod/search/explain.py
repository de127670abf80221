"""Explain the score of a document."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.candidates import Shards
from lsr_prod.search.hybrid import WeighedWords, with_words
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.search.query.sparse_query import MAX_K, SparseQuery
from lsr_prod.search.search_result import Contribution, Explanation, Field
from lsr_prod.search.shard.postings import ShardQuery
from lsr_prod.search.shard.shard_reader import ShardReader
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
    found, missing = [], []
    for name, weight, unit, impact, size, field in _impacts(query, step, words, shard_query, reader, ordinal):
        if impact:
            found.append(Contribution(name, weight, impact * size, float(unit * np.float32(impact)), field))
        else:
            missing.append(name)
    score = np.float32(0)
    for contribution in found:
        score += np.float32(contribution.score)
    overlap = sum(contribution.field == "terms" for contribution in found)
    return Explanation(doc_id, float(score), overlap, tuple(found), tuple(missing), ())


def _impacts(
    query: SparseQuery,
    step: float,
    words: WeighedWords | None,
    shard_query: ShardQuery,
    reader: ShardReader,
    ordinal: int,
) -> Iterator[tuple[str, float, np.float32, int, float, Field]]:
    """Yield name, weight, score per impact unit, impact in the document, and weight of a unit: of terms, then words."""
    impacts = reader.shard.forward.vector(ordinal, reader.dk)
    units = dict(zip(shard_query.ids.tolist(), shard_query.weights, strict=True))
    for term, number, weight in zip(query.terms, query.ids.tolist(), query.weights.tolist(), strict=True):
        yield term, weight, units.get(number, np.float32(0)), impacts.get(number, 0), step, "terms"
    if words is None or shard_query.words is None:
        return
    ids, weights = reader.word_ids(words.names).tolist(), words.weights.tolist()
    for name, word, weight, unit in zip(words.names, ids, weights, shard_query.words.weights, strict=True):
        impact = int(reader.shard.postings.impacts(word, np.array([ordinal]))[0]) if word >= 0 else 0
        yield name, weight, unit, impact, IMPACT_STEP, "text"


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
    shard_query = ShardQuery(query.ids[known], query.scaled(step)[known], np.ones(int(known.sum()), np.uint8), 1, MAX_K)
    if hybrid is None or words is None:
        return shard_query
    if hybrid.fusion == "rrf":
        raise QueryError("a score of fused ranks has no parts; explain fusion='sum', or the search without words")
    return with_words(shard_query, words, hybrid, counted=True)


def _rank(shard_query: ShardQuery, shards: Shards, doc_id: str, score: float, required: int) -> int | None:
    """Return the rank of a document among those that share ``required`` terms; None after the 10,000th."""
    words = shard_query.words
    if words is not None and required > 1:
        words = replace(words, counted=False)  # with a threshold, words do not count
    # The kernel's float32 sum of the document equals ``score`` to the bit, so the document itself is found.
    ranked = sorted(shards.match(replace(shard_query, required=required, floor=score, words=words)).ranked)[:MAX_K]
    return next((place for place, row in enumerate(ranked, 1) if row[1] == doc_id), None)
