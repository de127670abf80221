"""A small published index of random vectors, and the same vectors as a dense matrix."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lsr_prod.search import Searcher
from lsr_prod.search.query.sparse_query import SparseQuery
from tests.indexing.corpus import STEP, Doc, make_index

TERMS = 30
DELETED = ("d7", "d40")


@dataclass(frozen=True)
class Dense:
    """The documents that can be found: ids, and impacts [N, V] of the postings."""

    ids: list[str]
    impacts: np.ndarray


def build(folder: Path, *, dk: int = 8) -> tuple[Searcher, Dense]:
    """Publish 60 documents in three shards, two of them deleted, with ``dk`` of up to 12 terms in the postings."""
    dice = np.random.default_rng(7)
    corpus = {}
    for number in range(60):
        terms = dice.choice(TERMS - 2, dice.integers(0, 13), replace=False)  # the last two terms stay empty
        impacts = np.sort(dice.choice(np.arange(1, 256), len(terms), replace=False))[::-1]
        corpus[f"d{number}"] = Doc(dict(zip(terms.tolist(), impacts.tolist(), strict=True)))
    make_index(folder, corpus, vocabulary_size=TERMS, shards=3, dk=dk, deleted=DELETED)
    ids = [doc_id for doc_id in corpus if doc_id not in DELETED]
    matrix = np.zeros((len(ids), TERMS), np.int64)
    for row, doc_id in enumerate(ids):
        for term, impact in list(corpus[doc_id].terms.items())[:dk]:
            matrix[row, term] = impact
    return Searcher.open(folder), Dense(ids, matrix)


def queries(count: int = 12) -> list[SparseQuery]:
    """Return queries of 0 to 9 terms, heaviest first; the first has no term, the second one outside the vocabulary."""
    dice = np.random.default_rng(8)
    found = [SparseQuery.empty()]
    for _ in range(count - 1):
        ids = dice.choice(TERMS, dice.integers(1, 10), replace=False).astype(np.int32)
        weights = np.sort(dice.uniform(0.1, 2, len(ids)).astype(np.float32))[::-1].copy()
        found.append(SparseQuery(ids, weights, tuple(f"t{i}" for i in ids)))
    found[1].ids[0] = -1
    return found


def scores(dense: Dense, query: SparseQuery) -> np.ndarray:
    """Return the score of every document."""
    known = query.ids >= 0
    return dense.impacts[:, query.ids[known]] @ (query.weights[known].astype(np.float64) * STEP)
