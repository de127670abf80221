"""Searcher: hits for texts and vectors, from one version."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError, LineageError, PublicationError, QueryError
from lsr_prod.search import ParallelSearcher, Searcher
from tests.indexing.corpus import Doc, make_index

CORPUS = {
    "a": Doc({0: 10, 1: 5}, "the quick brown fox"),
    "b": Doc({1: 200, 2: 3, 3: 1}, "foxes run quickly over lazy dogs"),
    "c": Doc({}, ""),
    "d": Doc({3: 7}, "a dog sleeps"),
}


@pytest.fixture
def searcher(tmp_path):
    make_index(tmp_path / "index", CORPUS, vocabulary_size=6, shards=2)
    return Searcher.open(tmp_path / "index")


def answers(result):
    return [(hit.doc_id, hit.score, hit.overlap) for hit in result.hits], result.matched, result.required


def test_text_query_ranks_relevant_document_first(text_index):
    searcher = Searcher.open(text_index)
    result = searcher.search("how do threads wait for a lock", k=3, overlap_threshold=0.2, fields=["text"])
    assert result.hits[0].doc_id == "threading.Lock"
    assert "lock" in result.hits[0].fields["text"]
    assert result.required == -(-len(result.query) * 2 // 10)
    assert all(hit.overlap >= result.required for hit in result.hits)
    assert result.version == searcher.version.sha
    assert result.encode_ms > 0
    assert result.match_ms > 0


def test_batch_returns_results_of_single_queries(text_index):
    searcher, texts = Searcher.open(text_index), ["parse json", "", "square root of a number", "random numbers"]
    batch = searcher.search_batch(texts, k=4, overlap_threshold=0.1, qk=8)
    for text, result in zip(texts, batch, strict=True):
        single = searcher.search(text, k=4, overlap_threshold=0.1, qk=8)
        assert [hit.doc_id for hit in result.hits] == [hit.doc_id for hit in single.hits]
        assert [hit.score for hit in result.hits] == pytest.approx([hit.score for hit in single.hits], rel=1e-4)
        assert len(result.query) <= 8
    assert searcher.search_batch([]) == []


def test_explanation_score_equals_search_score_exactly(text_index):
    searcher, text = Searcher.open(text_index), "serialize an object to json"
    for hit in searcher.search(text, k=5).hits:
        explanation = searcher.explain(text, hit.doc_id)
        assert (explanation.score, explanation.overlap) == (hit.score, hit.overlap)
        assert sum(part.score for part in explanation.contributions) == pytest.approx(hit.score, rel=1e-5)
        assert len(explanation.contributions) + len(explanation.missing) == len(searcher.search(text).query)


def test_explain_omits_terms_pruned_by_dk(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=6, dk=1)
    searcher = Searcher.open(tmp_path)
    explanation = searcher.explain({"t1": 1.0, "t2": 1.0}, "b")
    assert [part.term for part in explanation.contributions] == ["t1"]
    assert explanation.missing == ("t2",)
    assert explanation.score == searcher.search_vector({"t1": 1.0, "t2": 1.0}).hits[0].score


def test_four_threads_return_results_of_one_thread(text_index):
    searcher = Searcher.open(text_index)
    queries = [
        (text, k, threshold)
        for text in ("lock", "json string", "open a file", "time")
        for k in (1, 5)
        for threshold in (0.0, 0.3)
    ]

    def ask(query):
        text, k, threshold = query
        return answers(searcher.search(text, k, overlap_threshold=threshold))

    expected = [ask(query) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, queries * 25)) == expected * 25


@pytest.mark.parametrize("text", [None, 7, b"lock", "a \ud800 b"])
def test_invalid_text_is_rejected(searcher, text):
    with pytest.raises(QueryError, match="the query"):
        searcher.search(text)


def test_empty_unknown_and_extreme_queries_return_expected_results(searcher):
    assert answers(searcher.search_vector({})) == ([], 0, 1)
    assert answers(searcher.search_vector({}, overlap_threshold=1.0, min_terms=3)) == ([], 0, 3)
    assert answers(searcher.search_vector({"unheard": 1.0})) == ([], 0, 1)
    assert answers(searcher.search_vector({5: 1.0})) == ([], 0, 1)  # in the vocabulary, in no document
    assert answers(searcher.search_vector({1: 1.0}, k=0)) == ([], 2, 1)
    assert len(searcher.search_vector({1: 1.0, 3: 1.0}, k=10_000).hits) == 3  # fewer match than k
    assert searcher.search_vector({1: 1e-45}).matched == 2  # a score of 0 is still a match


def test_terms_without_documents_count_towards_threshold(searcher):
    vector = {"t1": 2.0, "t0": 1.0, "unheard": 1.0, "t5": 1.0}
    assert searcher.search_vector(vector, overlap_threshold=0.5).matched == 1
    assert searcher.search_vector(vector, overlap_threshold=0.51).matched == 0
    assert searcher.search_vector(vector, overlap_threshold=0.5, qk=1).matched == 2


@pytest.mark.parametrize(
    "arguments", [{"k": -1}, {"k": 10_001}, {"overlap_threshold": 1.1}, {"qk": 0}, {"fields": ["x"]}]
)
def test_arguments_out_of_range_are_rejected(searcher, arguments):
    with pytest.raises(QueryError):
        searcher.search_vector({1: 1.0}, **arguments)
    assert issubclass(QueryError, ValueError)


def test_bm25_ranks_stemmed_text(searcher):
    result = searcher.bm25("FOX! (runs)", k=5, fields=["text"])
    assert [hit.doc_id for hit in result.hits] == ["b", "a"]
    assert result.matched == 2
    assert [term.term for term in result.query] == ["fox", "run"]
    assert result.hits[0].fields["text"].startswith("foxes")
    assert searcher.bm25("", k=5).hits == ()
    assert searcher.bm25("fox", k=0).hits == ()


def test_searcher_reports_document_and_posting_counts(searcher):
    assert (searcher.documents, searcher.postings) == (4, 6)
    assert searcher.document_frequencies([0, "t1", 3, 5, "unheard", 99, -1]) == [1, 2, 2, 0, 0, 0, 0]
    assert searcher.document_frequency("t1") == 2


def test_document_frequencies_count_words_by_stem_and_refuse_what_is_not_one_word(tmp_path):
    texts = {"a": "A fox runs.", "b": "Foxes, foxes.", "c": "usb-c"}
    make_index(
        tmp_path, {name: Doc({0: 1}, text) for name, text in texts.items()}, vocabulary_size=1, bm25=True, shards=2
    )
    with Searcher.open(tmp_path) as searcher:
        assert searcher.document_frequencies(["FOX", "run", "fox", "wolf"], words=True) == [2, 1, 2, 0]
        assert searcher.document_frequencies([], words=True) == searcher.document_frequencies([]) == []
        for odd, part in (
            (["usb-c"], "has 2 words"),
            (["!"], "has 0 words"),
            ([0], "give a string"),
            ("fox", "a list"),
        ):
            with pytest.raises(QueryError, match=part):
                searcher.document_frequencies(odd, words=True)


def test_document_frequencies_of_words_need_postings_of_words(searcher):
    with pytest.raises(QueryError, match=r"index\.bm25"):
        searcher.document_frequencies(["fox"], words=True)


def test_term_ids_above_16_bits_are_found(tmp_path):
    corpus = {f"d{i}": Doc({70_000 - i: 9, 3: 1}) for i in range(20)}
    make_index(tmp_path, corpus, vocabulary_size=70_001)
    searcher = Searcher.open(tmp_path)
    assert answers(searcher.search_vector({70_000 - 7: 1.0, 3: 1.0}, min_terms=2))[0][0][0] == "d7"
    assert searcher.match_terms([70_000 - 7, 3], 2) == {"d7"}
    assert searcher.document_frequency(3) == 20


def test_refresh_follows_current_publication(tmp_path):
    make_index(tmp_path, CORPUS, vocabulary_size=6)
    searcher = Searcher.open(tmp_path)
    before = searcher.snapshot
    assert not searcher.refresh()
    assert searcher.snapshot is before
    make_index(tmp_path, {**CORPUS, "e": Doc({0: 1})}, vocabulary_size=6)
    assert len(searcher.search_vector({0: 1.0}).hits) == 1
    assert searcher.refresh()
    assert (searcher.documents, before.version.documents) == (5, 4)
    assert len(searcher.search_vector({0: 1.0}).hits) == 2


def test_verify_finds_one_flipped_bit_in_each_file(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=6)
    folder = tmp_path / "shards" / version.shards[0].sha
    for file in version.shards[0].files:
        path, data = folder / file.path, (folder / file.path).read_bytes()
        if not data:
            continue
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 4]))
        with pytest.raises(DigestMismatchError, match=path.name):
            Searcher.open(tmp_path, verify=True)
        path.write_bytes(data)
    assert Searcher.open(tmp_path, verify=True).documents == 4


def test_invalid_arrow_file_of_stored_fields_is_rejected(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=6)
    path = tmp_path / "shards" / version.shards[0].sha / "docs.arrow"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(ArtifactError, match=r"docs\.arrow"):
        Searcher.open(tmp_path)


def test_open_rejects_missing_or_truncated_file(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=6)
    path = tmp_path / "shards" / version.shards[0].sha / "impacts" / "ids.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match=r"ids\.npy"):
        Searcher.open(tmp_path)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"ids\.npy"):
        Searcher.open(tmp_path)


def test_postings_pointing_outside_arrays_raise_artifact_error(tmp_path):
    version = make_index(tmp_path, CORPUS, vocabulary_size=6)
    for name, wrong in (("run_windows", 200), ("run_counts", 200), ("ids", 4)):
        path = tmp_path / "shards" / version.shards[0].sha / "impacts" / f"{name}.npy"
        right = np.load(path)
        np.save(path, np.full_like(right, wrong))
        for verify in ("lazy", False):
            with pytest.raises(ArtifactError, match="damaged"):
                Searcher.open(tmp_path, verify=verify).search_vector(dict.fromkeys(range(6), 1.0))
        np.save(path, right)


def test_bundle_of_another_index_is_rejected(tmp_path):
    version = make_index(tmp_path / "a", CORPUS, vocabulary_size=6)
    other = make_index(tmp_path / "b", CORPUS, vocabulary_size=7)
    assert replace(version, bundle_digest=other.bundle_digest).sha != version.sha
    mine = tmp_path / "a" / "bundles" / version.bundle_digest
    shutil.rmtree(mine)
    shutil.copytree(tmp_path / "b" / "bundles" / other.bundle_digest, mine)
    with pytest.raises(LineageError):
        Searcher.open(tmp_path / "a")


def test_empty_index_returns_no_hits_and_missing_index_raises(tmp_path):
    make_index(tmp_path / "empty", {}, vocabulary_size=6)
    searcher = Searcher.open(tmp_path / "empty")
    assert answers(searcher.search_vector({1: 1.0})) == ([], 0, 1)
    assert searcher.bm25("fox").hits == ()
    assert searcher.match_terms([1]) == set()
    with pytest.raises(PublicationError, match=r"lsr-prod index build"):
        Searcher.open(tmp_path / "nothing")
    with pytest.raises(QueryError, match="no document"):
        searcher.explain({1: 1.0}, "a")


@pytest.mark.parametrize("kind", [Searcher, ParallelSearcher])
def test_a_place_given_to_the_constructor_names_open(kind, tmp_path):
    for place in (str(tmp_path), tmp_path):
        with pytest.raises(ConfigError, match=rf"is no open version; open an index with {kind.__name__}\.open"):
            kind(place)
