"""Random indexes of several windows against a dense brute force, with every instruction set of the CPU.

``EXACT_INDEXES`` is the number of indexes, ``EXACT_QUERIES`` that of the queries to each (100 in a campaign).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lsr_prod.indexing.in_memory import build_in_memory
from lsr_prod.search import Searcher, field
from lsr_prod.search.kernels import native
from lsr_prod.search.query.sparse_query import required_terms
from lsr_prod.storage.formats.shard_format import WINDOW
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import quantize
from tests.indexing.corpus import STEP, Doc, make_index
from tests.quick import first_quick

INDEXES = int(os.environ.get("EXACT_INDEXES", "3"))
QUERIES = int(os.environ.get("EXACT_QUERIES", "60" if INDEXES <= 3 else "100"))
SETS = [name for name in ("plain", "avx2", "avx512") if native.choose_instructions(name)]
native.choose_instructions()
Matrix = npt.NDArray[np.uint8]


@pytest.fixture(autouse=True)
def _best_instructions() -> Iterator[None]:
    """Other tests use the best instruction set."""
    yield
    native.choose_instructions()


def random_matrix(rng: np.random.Generator, documents: int, terms: int) -> Matrix:
    """Return impacts uint8 [documents, terms]: dense and rare terms, terms of one window, and many ties."""
    shares = np.concatenate([[1, 0.6, 0.065, 0.06], 10.0 ** rng.uniform(-4, -0.8, terms - 4)])
    rng.shuffle(shares)
    largest = rng.choice([1, 3, 15, 255], terms)
    impacts = np.zeros((documents, terms), np.uint8)
    for term, share in enumerate(shares.tolist()):
        held = np.flatnonzero(rng.random(documents) < share)
        if share < 0.1 and rng.random() < 0.3:  # in one window only
            held = held[held // WINDOW == rng.integers(0, documents // WINDOW + 1)]
        impacts[held, term] = rng.integers(1, largest[term] + 1, len(held))
    if rng.random() < 0.5:  # copies: documents with equal scores in all windows
        impacts[rng.permutation(documents)[: documents // 2]] = impacts[rng.integers(0, documents)]
    return impacts


def heaviest(impacts: Matrix, dk: int) -> Matrix:
    """Return the impacts with the ``dk`` heaviest terms of each document, ties by rising term."""
    order = np.argsort(-impacts.astype(np.int16), axis=1, kind="stable")[:, :dk]
    kept = np.zeros_like(impacts)
    np.put_along_axis(kept, order, np.take_along_axis(impacts, order, 1), 1)
    return kept


def random_query(rng: np.random.Generator, terms: int) -> dict[int, float]:
    """Return a vector: weights may be equal, tiny or huge."""
    count = int(rng.choice([1, 1, 2, 3, 5, 12, terms]))
    ids = rng.choice(terms, min(count, terms), replace=False)
    kind = rng.integers(0, 5)
    if kind == 0:
        weights = np.ones(len(ids))
    elif kind == 1:
        weights = rng.integers(0, 4, len(ids)) / 2
    else:
        weights = rng.exponential(size=len(ids)) * 10.0 ** rng.choice([0, 0, 0, -44, -38, -6, 25])
    return {int(term): float(weight) for term, weight in zip(ids, weights, strict=True)}


def in_order(vector: dict[int, float], qk: int | None) -> list[tuple[int, np.float32]]:
    """Return the terms, heaviest first, ties by rising id."""
    single = [(term, np.float32(weight)) for term, weight in vector.items() if np.float32(weight) > 0]
    return sorted(single, key=lambda item: (-item[1], item[0]))[:qk]


@dataclass(frozen=True, slots=True)
class Expected:
    """All documents of a query that share enough terms and score enough."""

    matched: int
    rows: npt.NDArray[np.int64]  # the best first
    scores: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int64]


def brute_force(
    impacts: Matrix, vector: dict[int, float], allowed: npt.NDArray[np.bool_], step: float, options: dict[str, Any]
) -> Expected:
    """Score all documents by float32 sums in the query's order."""
    terms = in_order(vector, options.get("qk"))
    scores, counts = np.zeros(len(impacts), np.float32), np.zeros(len(impacts), np.int64)
    for term, weight in terms:
        scores += (weight * np.float32(step)) * impacts[:, term].astype(np.float32)
        counts += impacts[:, term] > 0
    required = required_terms(
        len(terms), overlap_threshold=options.get("overlap_threshold", 0.0), min_terms=options.get("min_terms", 1)
    )
    found = (counts >= required) & allowed
    rows = np.flatnonzero(found & (scores >= np.float32(options.get("min_score", 0.0))))
    rows = rows[np.argsort(-scores[rows], kind="stable")]
    return Expected(int(found.sum()), rows, scores[rows], counts[rows])


def random_options(rng: np.random.Generator, scores: npt.NDArray[np.float32]) -> dict[str, Any]:
    """Return options; ``min_score`` is near one of the scores."""
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["min_terms"] = int(rng.integers(1, 5))
    if rng.random() < 0.2:
        options["overlap_threshold"] = float(rng.choice([0.1, 0.4, 0.8, 1.0]))
    if rng.random() < 0.2:
        options["qk"] = int(rng.integers(1, 6))
    if rng.random() < 0.3 and len(scores):
        options["min_score"] = float(rng.choice(scores[:400])) * float(rng.choice([1, 1, 0.99, 1.01]))
    if rng.random() < 0.25:
        options["offset"] = int(rng.choice([0, 1, 10, 150]))
    return options


class World:
    """One index and its documents as a matrix."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        documents = int(rng.choice([WINDOW - 1, WINDOW + 1, WINDOW + 70, 2 * WINDOW + 500]))
        self.terms, self.shards, self.dk = int(rng.integers(6, 30)), int(rng.integers(1, 4)), int(rng.choice([3, 64]))
        self.step = float(rng.choice([STEP, 1.0, 0.3, 1e-3]))
        matrix = random_matrix(rng, documents, self.terms)
        self.impacts = heaviest(matrix, self.dk)
        names = sorted(
            f"{'é' if i % 5 else 'd'}{x:x}" for i, x in enumerate(rng.permutation(10 * documents)[:documents])
        )
        self.numbers = {name: row for row, name in enumerate(names)}
        self.groups = rng.integers(0, 300, documents)
        self.alive = rng.random(documents) < rng.choice([1.0, 0.9, 0.2])
        corpus = {}
        for row, name in enumerate(names):
            held = np.flatnonzero(matrix[row])
            held = held[np.argsort(-matrix[row, held].astype(np.int16), kind="stable")]
            vector = dict(zip(held.tolist(), matrix[row, held].tolist(), strict=True))
            corpus[name] = Doc(vector, stored={"group": str(self.groups[row])})
        gone = {name for name, row in self.numbers.items() if not self.alive[row]}
        make_index(
            folder,
            corpus,
            vocabulary_size=self.terms,
            shards=self.shards,
            dk=self.dk,
            deleted=gone,
            attributes={"group": "int64"},
            step=self.step,
        )
        self.searcher = Searcher.open(folder)
        self.names = names

    def check(self) -> None:
        """Compare one query with the brute force."""
        rng, vector, allowed = self.rng, random_query(self.rng, self.terms), self.alive
        filters: dict[str, Any] = {}
        if rng.random() < 0.3:
            limit = int(rng.choice([1, 30, 150, 299]))
            allowed, filters = allowed & (self.groups < limit), {"filter": field("group") < limit}
        options = random_options(rng, brute_force(self.impacts, vector, allowed, self.step, {}).scores)
        expected = brute_force(self.impacts, vector, allowed, self.step, options)
        k = int(rng.choice([0, 1, 3, 10, 11, 100, 101, 200, rng.integers(0, 200)]))
        page = slice(options.get("offset", 0), options.get("offset", 0) + k)
        hits = [
            (self.names[row], score, count)
            for row, score, count in zip(
                expected.rows[page].tolist(),
                expected.scores[page].tolist(),
                expected.counts[page].tolist(),
                strict=True,
            )
        ]
        ids, weights = np.array(list(vector), np.int32), np.array(list(vector.values()), np.float32)
        for name in SETS:
            native.choose_instructions(name)
            result = self.searcher.search_vector(vector, k, **options, **filters)
            what = (name, vector, k, options, filters)
            assert [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits] == hits, what
            assert (result.matched, result.matched_exact, result.partial) == (expected.matched, True, False), what
            found = self.searcher.search_arrays(np.array([0, len(ids)]), ids, weights, k, **options, **filters)
            number = int(found.numbers[0])
            assert found.doc_ids()[0] == [doc_id for doc_id, _, _ in hits], what
            assert found.scores[0, :number].tolist() == [score for _, score, _ in hits], what
            assert found.overlaps[0, :number].tolist() == [count for _, _, count in hits], what

    def check_terms(self) -> None:
        """Compare the documents with enough of some terms with the brute force."""
        terms = self.rng.choice(self.terms, int(self.rng.integers(1, 5)), replace=False)
        required = int(self.rng.integers(1, 5))
        counts = (self.impacts[:, terms] > 0).sum(1)
        expected = {self.names[row] for row in np.flatnonzero((counts >= required) & self.alive).tolist()}
        for name in SETS:
            native.choose_instructions(name)
            assert self.searcher.match_terms(terms.tolist(), required) == expected


@pytest.mark.parametrize("seed", first_quick(range(INDEXES)))
def test_searches_equal_brute_force(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for number in range(QUERIES):
        world.check()
        if number % 10 == 0:
            world.check_terms()


@pytest.mark.parametrize("seed", first_quick(range(INDEXES)))
def test_batches_equal_brute_force(tmp_path: Path, seed: int) -> None:
    """All queries in one call, which keeps no state from one to the next."""
    world = World(tmp_path, 1_000 + seed)
    vectors = [random_query(world.rng, world.terms) for _ in range(QUERIES)]
    offsets = np.cumsum([0, *map(len, vectors)]).astype(np.int64)
    ids = np.array([term for vector in vectors for term in vector], np.int32)
    weights = np.array([weight for vector in vectors for weight in vector.values()], np.float32)
    answers = []
    for name in SETS:
        native.choose_instructions(name)
        found = world.searcher.search_arrays(offsets, ids, weights, 20, min_terms=1 + seed % 2)
        answers.append((found.doc_ids(), found.scores.tobytes(), found.overlaps.tobytes(), found.numbers.tobytes()))
    assert all(answer == answers[0] for answer in answers)
    for at, vector in enumerate(vectors):
        expected = brute_force(world.impacts, vector, world.alive, world.step, {"min_terms": 1 + seed % 2})
        number = int(found.numbers[at])
        assert answers[0][0][at] == [world.names[row] for row in expected.rows[:20].tolist()], vector
        assert found.scores[at, :number].tolist() == expected.scores[:20].tolist(), vector
        assert found.overlaps[at, :number].tolist() == expected.counts[:20].tolist(), vector


@pytest.mark.parametrize("seed", range(INDEXES))
def test_one_shard_of_four_windows_equals_brute_force(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(2_000 + seed)
    documents, terms = 3 * WINDOW + int(rng.integers(1, 200)), 12
    impacts = random_matrix(rng, documents, terms)
    rows, columns = np.nonzero(impacts)
    order = np.lexsort((columns, -impacts[rows, columns].astype(np.int16), rows))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=documents))])
    weights = impacts[rows, columns][order].astype(np.float32)
    vectors = SparseBatch(offsets.astype(np.int64), columns[order].astype(np.int32), weights)
    names = [f"d{row:06d}" for row in range(documents)]
    index = build_in_memory(tmp_path, names, vectors, vocabulary_size=terms, dk=0)
    everything = np.ones(documents, bool)
    impacts[rows, columns] = quantize(impacts[rows, columns].astype(np.float32), index.impact_step)[0]
    for _ in range(QUERIES):
        vector = {term: float(weight) for term, weight in in_order(random_query(rng, terms), None)}
        k, threshold = int(rng.choice([0, 1, 10, 100, 200, 5_000])), float(rng.choice([0.0, 0.3, 1.0]))
        options = {"overlap_threshold": threshold}
        expected = brute_force(impacts, vector, everything, index.impact_step, options)
        ids, single = np.array(list(vector), np.int32), np.array(list(vector.values()), np.float32)
        for name in SETS:
            native.choose_instructions(name)
            found = index.search(ids, single, threshold=threshold, k=k)
            assert found.ids == [names[row] for row in expected.rows[:k].tolist()], (name, vector, k)
            assert found.scores == expected.scores[:k].tolist(), (name, vector, k)
            assert found.matched == expected.matched, (name, vector, k)
