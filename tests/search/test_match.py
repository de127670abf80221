"""The scan compared with a brute force, on random and adversarial corpora."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.search import Searcher
from lsr_prod.search.query.filters import Filter, field
from lsr_prod.storage.formats.shard_format import WINDOW
from tests.indexing.corpus import STEP, Doc, make_index
from tests.quick import first_quick
from tests.search.filtering import TYPES, VALUES, filters, truth
from tests.search.oracle import at_least, brute_force, distinct, in_order, rescored

V = 12
NO_ROW: dict[str, Any] = dict.fromkeys(TYPES)


def as_text(value: Any) -> str | None:
    """Return an attribute value as the table stores it."""
    if value is None or isinstance(value, str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value).lower()


@st.composite
def _documents(draw: st.DrawFn, largest: int) -> tuple[Doc, Mapping[str, Any]]:
    terms = draw(st.dictionaries(st.integers(0, V - 1), st.integers(1, largest), max_size=6))
    row = draw(st.just(NO_ROW) | st.fixed_dictionaries({name: st.none() | some for name, some in VALUES.items()}))
    return Doc(terms, stored={name: as_text(value) for name, value in row.items()}), row


_names = st.text(alphabet="abcé0", min_size=1, max_size=4)
_corpora = st.sampled_from([1, 15, 255]).flatmap(lambda top: st.dictionaries(_names, _documents(top), max_size=40))
_weights = st.floats(0.015625, 20, width=32) | st.sampled_from([1e-45, 1e-41, 1e-38, 1.0, 1e30])
_vectors = st.dictionaries(st.integers(0, V - 1), _weights, max_size=V)


@st.composite
def _queries(draw: st.DrawFn) -> dict[str, Any]:
    k = draw(st.integers(0, 45))
    return {
        "vector": draw(_vectors),
        "required": draw(st.integers(1, 4) | st.integers(1, V)),
        "k": k,
        "qk": draw(st.none() | st.integers(1, V)),
        "filter": draw(st.none() | filters(ranges_of_strings=True)),
        "min_score": draw(st.just(0.0) | st.floats(0, 500, width=32)),
        "rescore": draw(st.none() | st.integers(k, 60)),
        "deduplicate": draw(st.sampled_from([None, None, "lang", "year", "open"])),
        "count": draw(st.booleans()),
    }


def check(
    searcher: Searcher, corpus: Mapping[str, tuple[Doc, Mapping[str, Any]]], dk: int, step: float, q: Any
) -> None:
    """Compare one query with the oracle."""
    docs = {doc_id: doc for doc_id, (doc, _) in corpus.items()}
    expression: Filter | None = q["filter"]

    def allowed(doc_id: str) -> bool:
        return expression is None or truth(expression, corpus[doc_id][1]) is True

    matching = brute_force(docs, q["vector"], q["required"], dk, step=step, qk=q["qk"], allowed=allowed)
    best = matching
    if q["rescore"] is not None:
        best = rescored(docs, q["vector"], matching[: q["rescore"]], step=step)
    best = at_least(best, q["min_score"])
    if q["deduplicate"] is not None:
        best = distinct(best, lambda doc_id: corpus[doc_id][1][q["deduplicate"]])
    options = {name: q[name] for name in ("k", "qk", "filter", "min_score", "rescore", "deduplicate", "count")}
    result = searcher.search_vector(q["vector"], min_terms=q["required"], fields=["lang", "year"], **options)
    assert [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits] == best[: q["k"]]
    for hit in result.hits:
        assert dict(hit.fields) == {name: corpus[hit.doc_id][1][name] for name in ("lang", "year")}
    assert (result.matched, result.matched_exact, result.partial) == (len(matching), True, False)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    corpus=_corpora,
    queries=st.lists(_queries(), min_size=6, max_size=16),
    shards=st.integers(1, 7),
    dk=st.sampled_from([2, 64]),
    deleted=st.sets(st.integers(0, 40)),
    step=st.sampled_from([STEP, 1.0, 0.3, 1e-3]),
)
def test_scan_equals_brute_force(corpus, queries, shards, dk, deleted, step):
    gone = {doc_id for i, doc_id in enumerate(corpus) if i in deleted}
    alive = {doc_id: doc for doc_id, doc in corpus.items() if doc_id not in gone}
    docs = {doc_id: doc for doc_id, (doc, _) in corpus.items()}
    with tempfile.TemporaryDirectory() as folder:
        layout = {"shards": shards, "dk": dk, "step": step}
        make_index(Path(folder), docs, vocabulary_size=V, deleted=gone, attributes=TYPES, **layout)
        searcher = Searcher.open(folder)
        assert searcher.documents == len(alive)
        for query in queries:
            check(searcher, alive, dk, step, query)
        for query in queries[:4]:
            terms, required = [term for term, _ in in_order(query["vector"])], query["required"]
            expected = brute_force({i: docs[i] for i in alive}, query["vector"], required, dk, step=step)
            assert searcher.match_terms(terms, required) == {doc_id for doc_id, _, _ in expected}


def topics(n: int, seed: int, vocabulary: int = 300) -> dict[str, Doc]:
    """Return documents of 20 topics; each topic has its own words and shares some with all."""
    rng = np.random.default_rng(seed)
    corpus = {}
    for i in range(n):
        topic = rng.integers(0, 20)
        mine = 20 + topic * 14 + rng.choice(14, 5, replace=False)
        terms = np.concatenate([mine, rng.choice(20, 3, replace=False)])
        corpus[f"d{rng.integers(0, 1 << 40):012x}"] = Doc(
            {int(t): int(x) for t, x in zip(terms, np.sort(rng.integers(1, 60, 8))[::-1], strict=True)},
            stored={"year": str(i % 997)},
        )
    return corpus


class Matrix:
    """Corpus as a dense matrix: the same sums as the oracle, but faster."""

    def __init__(self, corpus: Mapping[str, Doc], vocabulary: int) -> None:
        self.ids = sorted(corpus)
        self.impacts = np.zeros((len(corpus), vocabulary), np.float32)
        for row, doc_id in enumerate(self.ids):
            for term, impact in corpus[doc_id].terms.items():
                self.impacts[row, term] = impact

    def best(self, vector: Mapping[int, float], required: int, k: int) -> tuple[list[tuple[str, float, int]], int]:
        scores, counts = np.zeros(len(self.ids), np.float32), np.zeros(len(self.ids), int)
        for term, weight in in_order(vector):
            scores += (weight * np.float32(STEP)) * self.impacts[:, term]
            counts += self.impacts[:, term] > 0
        rows = np.flatnonzero(counts >= required)
        order = rows[np.lexsort((rows, -scores[rows]))][:k]
        return [(self.ids[row], float(scores[row]), int(counts[row])) for row in order], len(rows)


@pytest.mark.parametrize("shards", first_quick([2, 1, 3]))
def test_queries_about_topics_equal_brute_force(tmp_path, shards):
    corpus = topics(6000, shards)
    make_index(tmp_path, corpus, vocabulary_size=300, shards=shards)
    searcher, matrix = Searcher.open(tmp_path), Matrix(corpus, 300)
    rng = np.random.default_rng(7)
    for number in range(120):
        topic = int(rng.integers(0, 20))
        own = rng.choice(14, 14 if number % 3 == 0 else 4, replace=False)
        terms = {int(20 + topic * 14 + t): float(rng.exponential()) for t in own}
        vector = terms | {int(t): float(rng.exponential()) for t in rng.choice(20, number % 12, replace=False)}
        k, required = int(rng.choice([1, 3, 10, 100, 1000, 10_000])), int(rng.integers(1, 4))
        expected, matched = matrix.best(vector, required, k)
        result = searcher.search_vector(vector, k=k, min_terms=required)
        assert [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits] == expected
        assert (result.matched, result.matched_exact) == (matched, True)
        assert searcher.count(vector, min_terms=required) == matched


def test_selective_filter_returns_hits_of_scan(tmp_path):
    corpus = topics(3000, 1)
    make_index(tmp_path, corpus, vocabulary_size=300, attributes={"year": "int64"})
    searcher, ids = Searcher.open(tmp_path), sorted(corpus)
    vector = {t: 1.0 + t % 3 for t in range(0, 300, 2)}
    for expression, few in [
        (field("doc_id").is_in(ids[5:19]), set(ids[5:19])),
        (field("year") == 5, {i for i in ids if corpus[i].stored["year"] == "5"}),
        (field("year") < 40, {i for i in ids if int(corpus[i].stored["year"]) < 40}),
    ]:
        for required, k, least in [(1, 10_000, 0.0), (3, 5, 0.0), (5, 10, 3.0)]:
            matching = brute_force({i: corpus[i] for i in few}, vector, required)
            result = searcher.search_vector(vector, k=k, min_terms=required, filter=expression, min_score=least)
            expected = at_least(matching, least)[:k]
            assert [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits] == expected
            assert (result.matched, result.matched_exact) == (len(matching), True)


def test_equal_scores_rank_by_id_for_any_number_of_shards(tmp_path):
    corpus = {f"d{i:03d}": Doc({1: 7}) for i in range(200)}
    for shards in (1, 3):
        make_index(tmp_path / str(shards), corpus, vocabulary_size=V, shards=shards)
        hits = Searcher.open(tmp_path / str(shards)).search_vector({1: 2.0}, k=25).hits
        assert [hit.doc_id for hit in hits] == [f"d{i:03d}" for i in range(25)]
        assert {hit.score for hit in hits} == {float(np.float32(2.0) * np.float32(STEP) * np.float32(7))}


def test_two_levels_of_scores_with_ties_equal_brute_force(tmp_path):
    rng = np.random.default_rng(3)
    corpus = {f"d{x:06d}": Doc({1: 9, 2: 9 if i % 3 else 8}) for i, x in enumerate(rng.permutation(2000))}
    make_index(tmp_path, corpus, vocabulary_size=V)
    searcher = Searcher.open(tmp_path)
    for k in (1, 7, 8, 100, 1400, 5000):
        hits = searcher.search_vector({1: 1.0, 2: 0.5}, k=k).hits
        assert [(hit.doc_id, hit.score, hit.overlap) for hit in hits] == brute_force(corpus, {1: 1.0, 2: 0.5}, 1)[:k]


def test_almost_equal_scores_rank_by_their_float32_sums(tmp_path):
    # Sums of integers cannot tell the scores apart, and float32 sums in another order round differently.
    rng = np.random.default_rng(5)
    impacts = np.arange(1, 65)
    corpus = {f"d{i:04d}": Doc(dict(enumerate(rng.permutation(impacts).tolist()))) for i in range(1500)}
    make_index(tmp_path, corpus, vocabulary_size=64)
    searcher, matrix = Searcher.open(tmp_path), Matrix(corpus, 64)
    for number in range(40):
        vector = {t: 1.0 + float(rng.random()) * 10.0**-number for t in range(64)}
        for k in (1, 3, 50):
            found = [(hit.doc_id, hit.score, hit.overlap) for hit in searcher.search_vector(vector, k=k).hits]
            assert found == matrix.best(vector, 1, k)[0]


@pytest.mark.long
def test_documents_are_found_in_windows_far_apart(tmp_path):
    last = 3 * WINDOW + 1
    gaps = [1, 63, 64, WINDOW - 4, WINDOW - 3, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW - 3, 3 * WINDOW - 4, last - 4]
    terms: dict[int, dict[int, int]] = {i: {} for i in range(last + 1)}
    for term, gap in enumerate(gaps):
        terms[gap][term] = 5  # the first posting of the term
        terms[3][100 + term] = 5
        terms[3 + gap][100 + term] = 7
        terms[last][100 + term] = 9
    make_index(tmp_path, {f"d{i:05d}": Doc(t) for i, t in terms.items()}, vocabulary_size=200)
    searcher = Searcher.open(tmp_path)
    for term, gap in enumerate(gaps):
        assert [hit.doc_id for hit in searcher.search_vector({term: 1.0}).hits] == [f"d{gap:05d}"]
        hits = searcher.search_vector({100 + term: 1.0}).hits
        assert [hit.doc_id for hit in hits] == [f"d{last:05d}", f"d{3 + gap:05d}", "d00003"]


@pytest.mark.parametrize("weight", [1e-45, 1e-42, 1e-38, 1e-36, 1e30])
def test_tiny_and_huge_weights_rank_as_brute_force(tmp_path, weight):
    corpus = {f"d{i:03d}": Doc({1: 1 + i % 9, 2: 1 + i % 5, 3: 200}) for i in range(400)}
    make_index(tmp_path, corpus, vocabulary_size=V)
    vector = {1: weight, 2: weight / 4, 3: weight / 1e4}
    for k in (1, 10, 500):
        hits = Searcher.open(tmp_path).search_vector(vector, k=k).hits
        assert [(hit.doc_id, hit.score, hit.overlap) for hit in hits] == brute_force(corpus, vector, 1)[:k]


def test_scan_with_pauses_returns_same_hits(tmp_path, monkeypatch):
    corpus = topics(2000, 4)
    make_index(tmp_path, corpus, vocabulary_size=300)
    searcher, matrix = Searcher.open(tmp_path), Matrix(corpus, 300)
    vector = {t: 1.0 + t % 3 for t in (*range(0, 20, 3), *range(20, 60, 2))}
    for k in (0, 5, 300):
        whole, sliced = searcher.search_vector(vector, k=k), searcher.search_vector(vector, k=k, deadline_ms=1e6)
        assert sliced.hits == whole.hits
        assert (sliced.matched, sliced.matched_exact, sliced.partial) == (whole.matched, whole.matched_exact, False)
    late = [searcher.search_vector(vector, k=10, deadline_ms=ms) for ms in np.linspace(0, 3, 40).tolist()]
    assert any(result.partial for result in late)
    scores = {doc_id: score for doc_id, score, _ in matrix.best(vector, 1, 2000)[0]}
    for result in late:
        assert result.partial or result.hits == searcher.search_vector(vector, k=10).hits
        found = [(hit.doc_id, hit.score) for hit in result.hits]
        assert found == sorted(((i, scores[i]) for i, _ in found), key=lambda row: (-row[1], row[0]))


@pytest.mark.parametrize("k", [1, 2, 7, 100, 1000])
def test_top_k_of_many_ties_equals_brute_force(tmp_path, k):
    rng = np.random.default_rng(k)
    corpus = {
        f"d{i:04d}": Doc({int(t): int(rng.integers(1, 6)) for t in rng.choice(V, 5, replace=False)}) for i in range(700)
    }
    make_index(tmp_path, corpus, vocabulary_size=V)
    searcher, vector = Searcher.open(tmp_path), {t: 1.0 + t % 3 for t in range(6)}
    expected = brute_force(corpus, vector, 3, 64)
    hits = searcher.search_vector(vector, k=k, min_terms=3).hits
    assert [(hit.doc_id, hit.score, hit.overlap) for hit in hits] == expected[:k]
