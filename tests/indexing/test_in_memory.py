from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod import Index
from lsr_prod.errors import ArtifactError, QueryError
from lsr_prod.indexing.in_memory import InMemoryResult, build_in_memory
from lsr_prod.inference import BundleEncoder
from lsr_prod.search import Hybrid, Searcher
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.table_format import quantize
from tests.indexing.corpus import Doc, make_index
from tests.search.oracle import brute_force

V = 12
TEXTS = [
    "A lock is released by the thread that holds it.",
    "Locks and threads, threads and locks.",
    "Square root of a number.",
    "An event lets one thread signal others.",
    "",
]


def batch(rows: Sequence[Sequence[float]]) -> SparseBatch:
    """Convert dense rows to sparse vectors."""
    weights = np.array(rows, np.float32)
    return SparseBatch.from_topk(np.broadcast_to(np.arange(weights.shape[1]), weights.shape), weights)


def random_rows(rng: np.random.Generator, count: int, *, width: int = V, share: float = 0.4) -> list[list[float]]:
    weights = rng.gamma(1.0, 1.0, (count, width)) * (rng.random((count, width)) < share)
    return [[round(weight, 1) for weight in row] for row in weights.tolist()]  # rounded: ties occur


def names(count: int) -> list[str]:
    """Return ids that are neither in numeric order nor in the order of insertion."""
    return [f"d{7919 * i % 1009}é" if i % 3 else f"D{i}" for i in range(count)]


def quantized(ids: Sequence[str], vectors: SparseBatch, step: float) -> dict[str, Doc]:
    corpus = {}
    for i, doc_id in enumerate(ids):
        terms, weights = vectors.row(i)
        corpus[doc_id] = Doc(dict(zip(terms.tolist(), quantize(weights, step)[0].tolist(), strict=True)))
    return corpus


def by_term(terms: npt.NDArray[np.int32], weights: npt.NDArray[np.float32]) -> dict[int, float]:
    return dict(zip(terms.tolist(), weights.tolist(), strict=True))


def required(size: int, percent: int) -> int:
    return max(1, -(-percent * size // 100))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    dk=st.sampled_from([0, 1, 3, 20]),
    percent=st.sampled_from([0, 40, 60, 100]),
    k=st.sampled_from([1, 5, 100]),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_search_ranks_by_dot_product_of_quantized_vectors(
    seed: int,
    count: int,
    dk: int,
    percent: int,
    k: int,
    share: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rng = np.random.default_rng(seed)
    ids, documents = names(count), batch(random_rows(rng, count, share=share))
    index = build_in_memory(tmp_path_factory.mktemp("index"), ids, documents, vocabulary_size=V, dk=dk)
    pruned = documents.top(dk or V)
    corpus = quantized(ids, pruned, index.impact_step)
    queries = batch(random_rows(rng, 4))
    for i in range(4):
        terms, weights = queries.row(i)
        found = index.search(terms, weights, threshold=percent / 100, k=k)
        expected = brute_force(
            corpus, by_term(terms, weights), required(len(terms), percent), dk or V, step=index.impact_step
        )
        assert found == InMemoryResult(
            [hit[0] for hit in expected[:k]], [hit[1] for hit in expected[:k]], len(expected)
        )
    held = np.zeros(V, np.int64)
    np.add.at(held, pruned.terms, 1)
    assert index.document_frequencies.tolist() == held.tolist()
    order = sorted(range(count), key=lambda i: ids[i].encode())
    assert index.lengths.tolist() == np.diff(pruned.offsets)[order].tolist()


def test_scores_equal_dot_products_within_half_a_step_per_term(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows, queries = random_rows(rng, 30), random_rows(rng, 5)
    index = build_in_memory(tmp_path, names(30), batch(rows), vocabulary_size=V, dk=0)
    dense = dict(zip(names(30), np.array(rows), strict=True))
    for i, query in enumerate(np.array(queries)):
        found = index.search(*batch(queries).row(i), threshold=0, k=30)
        assert found.ids
        for doc_id, score in zip(found.ids, found.scores, strict=True):
            assert score == pytest.approx(query @ dense[doc_id], abs=query.sum() * index.impact_step / 2 + 1e-4)


def test_results_equal_those_of_a_published_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    ids, documents = names(300), batch(random_rows(rng, 300))
    (tmp_path / "scratch").mkdir()
    index = build_in_memory(tmp_path / "scratch", ids, documents, vocabulary_size=V, dk=5)
    corpus = quantized(ids, documents, index.impact_step)
    make_index(tmp_path / "index", corpus, vocabulary_size=V, dk=5, shards=2, step=index.impact_step)
    searcher = Searcher.open(tmp_path / "index")
    queries = batch(random_rows(rng, 20))
    for i in range(20):
        terms, weights = queries.row(i)
        found = index.search(terms, weights, threshold=0.4, k=50)
        result = searcher.search_vector(dict(by_term(terms, weights)), 50, overlap_threshold=0.4, count=True)
        assert found.ids == [hit.doc_id for hit in result.hits]
        assert found.scores == [hit.score for hit in result.hits]
        assert found.matched == result.matched


def test_impact_step_does_not_depend_on_pruning(tmp_path: Path) -> None:
    documents = batch(random_rows(np.random.default_rng(5), 20, share=0.9))
    steps = set()
    for dk in (0, 1, 10):
        (tmp_path / str(dk)).mkdir()
        index = build_in_memory(tmp_path / str(dk), names(20), documents, vocabulary_size=V, dk=dk)
        steps.add(index.impact_step)
        assert index.impact_step * 255 >= documents.weights.max()
    assert len(steps) == 1


def test_query_with_too_many_terms_keeps_the_heaviest(tmp_path: Path) -> None:
    size = 70_000
    heavy = np.zeros((1, size), np.float32)
    heavy[0, -1] = 1.0
    index = build_in_memory(tmp_path, ["a"], batch(heavy.tolist()), vocabulary_size=size, dk=0)
    terms, weights = np.arange(size, dtype=np.int32)[::-1], np.full(size, 1.0, np.float32)
    assert index.search(terms, weights, threshold=0, k=1).ids == ["a"]
    assert index.search(terms[::-1], weights, threshold=0, k=1).ids == []


def test_search_rejects_weights_beyond_float32(tmp_path: Path) -> None:
    index = build_in_memory(tmp_path, ["a"], batch([[1e38]]), vocabulary_size=1, dk=0)
    with pytest.raises(QueryError, match="would not fit into float32"):
        index.search(np.zeros(1, np.int32), np.array([1e38], np.float32), threshold=0, k=1)


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_hybrid_search_equals_the_searcher(threshold: float, tiny_bundle: Path, tmp_path: Path) -> None:
    texts = dict(zip(names(len(TEXTS)), TEXTS, strict=True))
    with Index.from_texts(texts, tiny_bundle, bm25=True) as searcher:
        vectors = BundleEncoder(tiny_bundle).encode(TEXTS, kind="document", top_k=256)
        size = len(searcher.snapshot.vocabulary.names)
        index = build_in_memory(tmp_path, list(texts), vectors, vocabulary_size=size, dk=0, texts=TEXTS)
        for text in ("locks of threads", "the square root", "absent", ""):
            (query,) = searcher.encode([text])
            words = index.weigh_words(text)
            for weight in (0.25, 1.0, 8.0):
                hybrid = Hybrid(words=weight)
                expected = searcher.search(text, 10, hybrid=hybrid, overlap_threshold=threshold, count=True)
                found = index.search(query.ids, query.weights, threshold=threshold, k=10, words=words, hybrid=hybrid)
                assert list(zip(found.ids, found.scores, strict=True)) == [
                    (hit.doc_id, hit.score) for hit in expected.hits
                ]
                assert (
                    index.search(query.ids, query.weights, threshold=threshold, k=0, words=words, hybrid=hybrid).matched
                    == expected.matched
                )


def test_postings_of_words_count_as_touched_and_as_bytes(tmp_path: Path) -> None:
    vectors = batch([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0]])
    folders = [tmp_path / name for name in ("plain", "words")]
    for folder in folders:
        folder.mkdir()
    plain = build_in_memory(folders[0], ["a", "b", "c"], vectors, vocabulary_size=2, dk=0)
    both = build_in_memory(
        folders[1], ["a", "b", "c"], vectors, vocabulary_size=2, dk=0, texts=["red", "red blue", "blue red"]
    )
    terms = np.array([0], np.int32)
    assert (plain.touched_postings(terms), both.touched_postings(terms)) == (2, 2)
    assert both.touched_postings(terms, both.weigh_words("blue green")) == 2 + 2
    assert both.posting_bytes > plain.posting_bytes > 0
    with pytest.raises(ArtifactError, match="has no words"):
        plain.weigh_words("red")
