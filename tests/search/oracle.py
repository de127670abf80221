"""Reference search in plain Python: float32 sums in the query's order over whole corpora."""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from tests.indexing.corpus import STEP, Doc

Found = tuple[str, float, int]  # id, score, shared terms


def in_order(vector: Mapping[int, float]) -> list[tuple[int, np.float32]]:
    """Return the query's terms by descending weight, ties by ascending id, without weights that are 0 in float32."""
    single = [(term, np.float32(weight)) for term, weight in vector.items() if np.float32(weight) > 0]
    return sorted(single, key=lambda item: (-item[1], item[0]))


def score(doc: Doc, terms: Collection[tuple[int, np.float32]], dk: int, step: float) -> tuple[float, int]:
    """Return the score and the number of shared terms of a document."""
    heaviest = dict(sorted(doc.terms.items(), key=lambda item: -item[1])[:dk])
    total, overlap = np.float32(0), 0
    for term, weight in terms:
        if term in heaviest:
            total += (weight * np.float32(step)) * np.float32(heaviest[term])
            overlap += 1
    return float(total), overlap


def by_rank(found: Collection[Found]) -> list[Found]:
    """Sort by descending score, ties by ascending id."""
    return sorted(found, key=lambda hit: (-hit[1], hit[0]))


def brute_force(
    corpus: Mapping[str, Doc],
    vector: Mapping[int, float],
    required: int,
    dk: int = 64,
    *,
    step: float = STEP,
    qk: int | None = None,
    allowed: Callable[[str], bool] = lambda _: True,
) -> list[Found]:
    """Return every match, by rank."""
    terms = in_order(vector)[:qk]
    scored = [(doc_id, *score(doc, terms, dk, step)) for doc_id, doc in corpus.items() if allowed(doc_id)]
    return by_rank([hit for hit in scored if hit[2] >= required])


def rescored(
    corpus: Mapping[str, Doc], vector: Mapping[int, float], found: Collection[Found], *, step: float = STEP
) -> list[Found]:
    """Rank the same documents by the whole query and all their terms."""
    terms = in_order(vector)
    return by_rank([(doc_id, score(corpus[doc_id], terms, 1 << 30, step)[0], n) for doc_id, _, n in found])


def at_least(found: Collection[Found], least: float) -> list[Found]:
    """Return the documents that have at least the given score."""
    return [hit for hit in found if hit[1] >= np.float32(least)]


def distinct(found: Collection[Found], value: Callable[[str], object]) -> list[Found]:
    """Keep the best document of every value, and all documents without a value."""
    seen: set[object] = set()
    kept = []
    for hit in found:
        mine = value(hit[0])
        if mine is None or mine not in seen:
            seen.add(mine)
            kept.append(hit)
    return kept
