"""Hybrid search compared with its formulas, with Tantivy, and on real judgments."""

import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lsr_prod.errors import QueryError
from lsr_prod.inference.terms.analysis import distinct_words, words_of
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.search.parallel_searcher import ParallelSearcher
from lsr_prod.search.query.filters import field
from lsr_prod.search.search_result import SearchResult
from tests.indexing.corpus import STEP, Doc, encode_corpus, make_index, mean_words
from tests.search.conftest import TEXTS

V = 8
WORDS = ["lock", "thread", "json", "file", "socket"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
documents = st.builds(Doc, st.dictionaries(st.integers(0, V - 1), st.integers(1, 255), max_size=4), texts)
corpora = st.dictionaries(st.text(alphabet="abcé0", min_size=1, max_size=4), documents, max_size=30)
vectors = st.dictionaries(st.integers(0, V - 1), st.floats(0.015625, 20, width=32), max_size=V)
weights = st.floats(0.01, 50)

Row = tuple[str, float, int]
UNIT = 2.2 / 255


def impacts_of(corpus: Mapping[str, Doc]) -> dict[str, dict[str, int]]:
    """Return the BM25 document weight, k1 = 1.2 and b = 0.75, in steps of 2.2 / 255."""
    average, found = mean_words(corpus), {}
    for doc_id, doc in corpus.items():
        counts = Counter(words_of(doc.text))
        norm = 1.2 * (0.25 + 0.75 * counts.total() / average)
        found[doc_id] = {word: max(1, round(tf * 2.2 / (tf + norm) / UNIT)) for word, tf in counts.items()}
    return found


def inverse_frequency(word: str, impacts: Mapping[str, Mapping[str, int]]) -> float:
    held = sum(word in document for document in impacts.values())
    return float(np.log1p((len(impacts) - held + 0.5) / (held + 0.5)))


def by_sum(
    corpus: Mapping[str, Doc], vector: Mapping[int, float], query: str, hybrid: Hybrid, required: int = 1
) -> list[Row]:
    """Return every match with its float32 score, summed in query order; words do not count if ``required`` > 1."""
    impacts, found = impacts_of(corpus), []
    inverse = {word: inverse_frequency(word, impacts) for word in distinct_words(query)}
    for doc_id, doc in corpus.items():
        score, overlap = np.float32(0), 0
        for term, weight in sorted(vector.items(), key=lambda item: (-item[1], item[0])):
            if term in doc.terms:
                unit = np.float32(float(np.float32(weight) * np.float32(STEP)) * hybrid.terms)
                score, overlap = score + unit * np.float32(doc.terms[term]), overlap + 1
        for word, weight in inverse.items():
            if word in impacts[doc_id]:
                unit = np.float32(weight * UNIT * hybrid.words)
                score, overlap = score + unit * np.float32(impacts[doc_id][word]), overlap + (required == 1)
        if overlap >= required:
            found.append((doc_id, float(score), overlap))
    return sorted(found, key=lambda row: (-row[1], row[0]))


def by_ranks(lists: list[list[Row]], hybrid: Hybrid, required: int) -> list[Row]:
    """Fuse lists, each cut to the depth, by reciprocal ranks."""
    scores: Counter[str] = Counter()
    overlaps: Counter[str] = Counter()
    for rows, weight in zip(lists, (hybrid.terms, hybrid.words), strict=True):
        for rank, (doc_id, _, overlap) in enumerate(rows[: hybrid.depth], 1):
            scores[doc_id] += weight / (hybrid.constant + rank)
            overlaps[doc_id] = overlaps[doc_id] + overlap if required == 1 else overlap
    return sorted(((i, score, overlaps[i]) for i, score in scores.items()), key=lambda row: (-row[1], row[0]))


def answer(result: SearchResult) -> list[Row]:
    return [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    corpus=corpora,
    queries=st.lists(st.tuples(vectors, texts, st.integers(1, 3), st.integers(0, 35)), min_size=1, max_size=4),
    sides=st.tuples(weights, weights),
    depth=st.integers(0, 12),
    shards=st.integers(1, 4),
    deleted=st.sets(st.integers(0, 30)),
)
def test_hybrid_scores_equal_formula(corpus, queries, sides, depth, shards, deleted):
    gone = {doc_id for i, doc_id in enumerate(corpus) if i in deleted}
    plain, summed = Hybrid(), Hybrid(terms=sides[0], words=sides[1])

    def alive(rows: list[Row]) -> list[Row]:
        # Frequencies and the average length are those of all documents, deleted ones included.
        return [row for row in rows if row[0] not in gone]

    with tempfile.TemporaryDirectory() as folder:
        layout = {"shards": shards, "bm25": True}
        make_index(Path(folder), corpus, vocabulary_size=V, deleted=gone, **layout)
        searcher = Searcher.open(folder)
        for vector, text, required, k in queries:
            asked = {"text": text, "min_terms": required}
            expected = alive(by_sum(corpus, vector, text, summed, required))
            assert answer(searcher.search_vector(vector, k, hybrid=summed, **asked)) == expected[:k]
            assert searcher.count(vector, hybrid=summed, **asked) == len(expected)

            words = alive(by_sum(corpus, {}, text, plain))
            assert answer(searcher.bm25(text, k)) == words[:k]
            assert searcher.bm25(text, k, count=True).matched == len(words)

            lists = [alive(by_sum(corpus, vector, "", plain, required)), words]
            if required > 1:
                held = {doc_id: overlap for doc_id, _, overlap in lists[0]}
                lists[1] = [(doc_id, score, held[doc_id]) for doc_id, score, _ in words if doc_id in held]
            k = min(k, depth)
            fused = Hybrid(fusion="rrf", terms=sides[0], words=sides[1], depth=depth, constant=7)
            result = searcher.search_vector(vector, k, hybrid=fused, count=True, **asked)
            assert answer(result) == by_ranks(lists, fused, required)[:k]
            assert (result.matched, result.matched_exact) == (len(expected), True)
            with ParallelSearcher.open(folder, threads=3) as parallel:
                asked_of_all = {**asked, "count": True}
                assert answer(parallel.search_vector(vector, k, hybrid=fused, **asked_of_all)) == answer(result)
                assert answer(parallel.search_vector(vector, 40, hybrid=summed, **asked_of_all)) == expected
            for doc_id, score, _ in expected[:3]:
                told = searcher.explain(vector, doc_id, text=text, hybrid=summed)
                assert told.score == score
                assert len(told.contributions) + len(told.missing) == len(vector) + len(distinct_words(text))


CORPUS = {
    "a": Doc({0: 10, 1: 5}, "the quick brown fox"),
    "b": Doc({1: 200, 2: 3}, "foxes run quickly over lazy dogs"),
    "c": Doc({}, ""),
    "d": Doc({3: 7}, "a dog sleeps"),
}


@pytest.fixture
def searcher(tmp_path):
    make_index(tmp_path / "index", CORPUS, vocabulary_size=6, shards=2, bm25=True)
    return Searcher.open(tmp_path / "index")


def test_words_match_documents_without_shared_terms(searcher):
    vector, dogs = {0: 1.0}, {"text": "DOGS!", "hybrid": Hybrid()}
    assert [hit.doc_id for hit in searcher.search_vector(vector).hits] == ["a"]
    result = searcher.search_vector(vector, **dogs)
    assert {hit.doc_id for hit in result.hits} == {"a", "b", "d"}
    assert [(term.term, term.field) for term in result.query] == [("t0", "terms"), ("dog", "text")]
    assert [hit.doc_id for hit in searcher.search_vector(vector, overlap_threshold=0.5, **dogs).hits] == ["a"]
    assert [hit.doc_id for hit in searcher.search_vector({}, **dogs).hits] == ["d", "b"]
    assert searcher.search_vector({}, text=" ?", hybrid=Hybrid()).hits == ()
    assert searcher.search_vector({}, text="dog", hybrid=Hybrid(), min_score=1e6).hits == ()


def test_explain_lists_words_and_terms(searcher):
    asked = {"text": "fox and dog", "hybrid": Hybrid(terms=0.5, words=3.0)}
    told = searcher.explain({1: 2.0, 5: 1.0}, "a", **asked)
    assert [(part.term, part.field) for part in told.contributions] == [("t1", "terms"), ("fox", "text")]
    assert told.missing == ("t5", "and", "dog")
    found = [hit.doc_id for hit in searcher.search_vector({1: 2.0, 5: 1.0}, **asked).hits]
    assert (told.overlap, told.ranks) == (1, (1 + found.index("a"),))
    term, word = told.contributions
    assert term.score == pytest.approx(0.5 * term.weight * term.document_weight)
    assert word.score == pytest.approx(3.0 * word.weight * word.document_weight)
    assert searcher.explain({5: 1.0}, "d", text="dog", hybrid=Hybrid()).ranks == (1,)
    with pytest.raises(QueryError, match="no parts"):
        searcher.explain({1: 1.0}, "a", text="fox", hybrid=Hybrid(fusion="rrf"))


def test_hybrid_text_query_uses_terms_and_words(tiny_bundle, tmp_path):
    make_index(tmp_path, encode_corpus(tiny_bundle, TEXTS), bundle=tiny_bundle, shards=2, bm25=True)
    searcher, text = Searcher.open(tmp_path), "how do threads wait for a zip archive"
    vector = {term.term: term.weight for term in searcher.search(text).query}
    for hybrid in (Hybrid(words=2.0), Hybrid(fusion="rrf", depth=20)):
        result = searcher.search(text, hybrid=hybrid)
        assert answer(result) == answer(searcher.search_vector(vector, text=text, hybrid=hybrid))
        assert searcher.search_batch([text], hybrid=hybrid)[0].hits[0].doc_id == result.hits[0].doc_id
        assert searcher.count(text, hybrid=hybrid) == result.matched or not result.matched_exact
    assert answer(searcher.search(text)) != answer(searcher.search(text, hybrid=Hybrid()))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"hybrid": Hybrid()}, "text="),
        ({"text": "fox"}, "hybrid="),
        ({"text": 7, "hybrid": Hybrid()}, "not a string"),
        ({"text": "fox", "hybrid": True}, "Hybrid()"),
        ({"text": "fox", "hybrid": Hybrid(), "rescore": 50}, "rescore"),
        ({"text": "fox", "hybrid": Hybrid(fusion="rrf", depth=9)}, "depth"),
        ({"text": "fox", "hybrid": Hybrid(terms=1e6)}, "float32"),
    ],
)
def test_invalid_hybrid_queries_are_rejected(searcher, options, what):
    with pytest.raises(QueryError, match=what.replace("(", r"\(").replace(")", r"\)")):
        searcher.search_vector({1: 1e35}, **options)


def test_text_with_too_many_words_is_rejected(searcher):
    wide = Searcher.open(searcher.snapshot.index, max_query_bytes=1 << 20)
    with pytest.raises(QueryError, match="70000 words"):
        wide.search_vector({1: 1.0}, text=" ".join(map(str, range(70_000))), hybrid=Hybrid())


@pytest.mark.parametrize(
    "given", [{"fusion": "max"}, {"terms": 0}, {"words": -1}, {"words": float("nan")}, {"constant": -1}, {"depth": 1.5}]
)
def test_hybrid_weights_out_of_range_are_rejected(given):
    with pytest.raises(QueryError, match=r"hybrid\."):
        Hybrid(**given)


def test_hybrid_search_without_word_index_raises_error_naming_setting(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=6)
    searcher = Searcher.open(tmp_path)
    with pytest.raises(QueryError, match=r"index\.bm25"):
        searcher.search_vector({1: 1.0}, text="fox", hybrid=Hybrid())
    assert [hit.doc_id for hit in searcher.bm25("fox").hits] == ["a", "b"]


@pytest.mark.parametrize("fusion", ["sum", "rrf"])
def test_selective_filter_matches_words(tmp_path, fusion):
    corpus = {f"d{i:03d}": Doc({1: 9}, "fox" if i % 2 else "dog") for i in range(500)}
    make_index(tmp_path, corpus, vocabulary_size=6, bm25=True)
    depth = {"depth": 500} if fusion == "rrf" else {}
    searcher, asked = Searcher.open(tmp_path), {"text": "fox", "hybrid": Hybrid(fusion=fusion, **depth)}
    best = {hit.doc_id: hit.score for hit in searcher.search_vector({1: 1.0}, 500, **asked).hits}
    found = searcher.search_vector({1: 1.0}, filter=field("doc_id").is_in(["d006", "d007"]), **asked).hits
    assert [hit.doc_id for hit in found] == ["d007", "d006"]
    assert [hit.overlap for hit in found] == [2, 1]
    if fusion == "sum":
        assert [hit.score for hit in found] == [best["d007"], best["d006"]]


@pytest.mark.long
def test_bm25_ranks_real_text_as_tantivy_does(tmp_path, shared_data):
    """Equal on one shard, except that Tantivy rounds lengths to one byte; more shards do not change our ranking."""
    with (shared_data / "scifact" / "corpus.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in itertools.islice(file, 800)]
    with (shared_data / "scifact" / "queries.jsonl").open(encoding="utf-8") as file:
        queries = [json.loads(line)["text"] for line in itertools.islice(file, 100)]
    corpus = {row["_id"]: Doc({}, f"{row['title']} {row['text']}") for row in rows}
    folders = [tmp_path / name for name in ("one", "three", "tantivy_one", "tantivy_three")]
    for folder, shards, bm25 in zip(folders, (1, 3, 1, 3), (True, True, False, False), strict=True):
        make_index(folder, corpus, vocabulary_size=1, shards=shards, bm25=bm25)
    oracle, ours, tantivy_one, tantivy_three = map(Searcher.open, folders)
    shared, errors, gaps = [], [], []
    for query in queries:
        found = answer(ours.bm25(query, 1000))
        assert found == answer(oracle.bm25(query, 1000))
        scores = {doc_id: score for doc_id, score, _ in found}
        theirs = {row[1]: -row[0] for row in tantivy_one.snapshot.bm25(distinct_words(query), 1000).ranked}
        assert scores.keys() == theirs.keys() or len(theirs) == 1000
        shared.append(len(set(list(scores)[:10]) & set(list(theirs)[:10])) / 10)
        errors += [scores[doc_id] / score - 1 for doc_id, score in theirs.items() if doc_id in scores]
        split = tantivy_three.snapshot.bm25(distinct_words(query), 10).ranked
        gaps.append(len({row[1] for row in split} & set(list(theirs)[:10])) / 10)
    error = np.abs(errors)
    print(
        f"top-10 shared with Tantivy {np.mean(shared):.3f} (Tantivy over 3 shards {np.mean(gaps):.3f}); "
        f"scores differ by {np.median(error):.4f} (median), {np.max(error):.4f} (most)"
    )
    assert np.mean(shared) > max(0.97, np.mean(gaps))
    assert np.max(error) < 0.08


def test_deduplication_fills_k_in_both_fusions(tmp_path):
    corpus = {f"d{i}": Doc({1: 9}, "fox" if i < 5 else f"fox {i}") for i in range(8)}
    make_index(tmp_path, corpus, vocabulary_size=6, bm25=True)
    for hybrid in (Hybrid(), Hybrid(fusion="rrf")):
        hits = Searcher.open(tmp_path).search_vector({1: 1.0}, 4, text="fox", hybrid=hybrid, deduplicate="text").hits
        assert [hit.doc_id for hit in hits] == ["d0", "d5", "d6", "d7"]
