import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.data import Collection, Spec, draw, make, recall
from benchmarks.search.topics import CHUNK, Mixture, draw_chunks, topic_sources

TOPICS = Spec("topics", 3_000, 20, 7, queries=40)


@pytest.fixture
def splade(tmp_path: Path) -> Path:
    generator = np.random.default_rng(3)
    path = tmp_path / "queries.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for i in range(60):
            terms = generator.choice(400, 30, replace=False)
            file.write(json.dumps({"id": str(i), "vector": {f"t{t}": int(generator.integers(1, 300)) for t in terms}}))
            file.write("\n")
    return path


def brute_force(collection: Collection, terms: np.ndarray, weights: np.ndarray) -> np.ndarray:
    dense = np.zeros(collection.vocabulary)
    dense[terms] = weights
    return (dense[collection.terms] * collection.impacts).sum(axis=1)


def test_make_with_same_seed_returns_same_collection(tmp_path: Path) -> None:
    one, two = make(TOPICS, tmp_path / "a"), make(TOPICS, tmp_path / "b")
    other = make(replace(TOPICS, seed=2), tmp_path / "a")
    assert one.digest == two.digest != other.digest
    for name in ("terms", "impacts", "labels"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
    assert np.array_equal(one.queries(7).weights, two.queries(7).weights)


def test_chunk_is_independent_of_preceding_chunks() -> None:
    sources = topic_sources(30_000, 1)
    whole = list(draw_chunks(sources, Mixture(0.5, 0.25), documents=CHUNK + 10, terms=5, seed=1))
    tail = list(draw_chunks(sources, Mixture(0.5, 0.25), documents=CHUNK + 10, terms=5, seed=1, first=1))
    assert [len(chunk.labels) for chunk in whole] == [CHUNK, 10]
    assert np.array_equal(whole[1].terms, tail[0].terms)
    assert np.array_equal(whole[1].impacts, tail[0].impacts)


@pytest.mark.parametrize("terms", [20, 120])
def test_documents_have_distinct_ascending_terms_and_random_topic_order(terms: int) -> None:
    (chunk,) = draw(replace(TOPICS, terms=terms))
    assert chunk.terms.shape == chunk.impacts.shape == (3_000, terms)
    assert np.all(np.diff(chunk.terms.astype(np.int64), axis=1) > 0)
    assert chunk.impacts.min() >= 1
    assert np.count_nonzero(np.diff(chunk.labels) == 0) < 300
    # Documents of a topic share terms, which content order relies on.
    same, other = [], []
    for label in np.unique(chunk.labels)[:50]:
        mine = np.flatnonzero(chunk.labels == label)
        same += [len(np.intersect1d(chunk.terms[mine[0]], chunk.terms[i])) for i in mine[1:]]
        other += [len(np.intersect1d(chunk.terms[mine[0]], chunk.terms[i])) for i in mine[1:] - 1]
    assert np.mean(same) > 1.5 * np.mean(other)


def test_real_queries_that_seed_documents_are_not_used_as_queries(tmp_path: Path, splade: Path) -> None:
    spec = Spec("splade", 2_000, 20, 7, splade, queries=25)
    collection = make(spec, tmp_path)
    longer = make(replace(spec, query_terms=25), tmp_path)
    assert longer.digest == collection.digest
    short, long = collection.queries(7), longer.queries(25)
    assert len(short) == len(long) == 25
    for i in range(25):
        assert len(short[i][0]) == 7
        assert np.array_equal(short[i][0], long[i][0][:7])
        assert np.all(np.diff(long[i][1]) <= 0)
    with gzip.open(splade, "rt", encoding="utf-8") as file:
        vectors = [json.loads(line)["vector"] for line in file]
    ids = {term: i for i, term in enumerate(sorted({term for vector in vectors for term in vector}))}
    asked = {frozenset(long[i][0].tolist()) for i in range(25)}
    heaviest = [sorted(vector, key=lambda t, v=vector: (-v[t], ids[t]))[:25] for vector in vectors]
    seeds = {frozenset(ids[term] for term in terms) for terms in heaviest[::2]}
    assert not asked & seeds
    assert asked <= {frozenset(ids[term] for term in terms) for terms in heaviest[1::2]}


def test_truth_equals_brute_force(tmp_path: Path) -> None:
    collection = make(TOPICS, tmp_path)
    queries, truth = collection.queries(7), collection.truth(7, (10, 100))
    for i in range(len(queries)):
        scores = brute_force(collection, *queries[i])
        shared = np.isin(collection.terms, queries[i][0]).sum(axis=1)
        best = np.sort(scores)[::-1]
        assert truth[i].tolist() == pytest.approx([best[9], best[99], (shared > 0).sum(), (shared > 1).sum()])


def test_recall_counts_tied_scores_as_relevant(tmp_path: Path) -> None:
    collection = make(TOPICS, tmp_path)
    query = collection.queries(7)[0]
    scores = brute_force(collection, *query)
    order = np.argsort(-scores, kind="stable")
    matching, floor = int(np.count_nonzero(scores)), float(scores[order[9]])

    def measured_recall(found: np.ndarray, k: int = 10, floor: float = floor) -> float:
        return recall(collection, found, query, k=k, floor=floor, matching=matching)

    assert measured_recall(order[:10]) == 1
    assert measured_recall(order[:7]) == pytest.approx(0.7)
    assert measured_recall(np.append(order[:9], order[-1])) == pytest.approx(0.9)
    assert measured_recall(np.repeat(order[:1], 10)) == pytest.approx(0.1)
    assert measured_recall(np.empty(0, np.int64)) == 0
    equal = np.flatnonzero(np.isclose(scores, floor, rtol=1e-9))
    assert measured_recall(np.append(order[:9], equal[-1])) == 1
    # With fewer matches than k, all matches give full recall, and documents that do not match are ignored.
    assert measured_recall(order[: matching + 5], k=matching + 50, floor=0.0) == 1
