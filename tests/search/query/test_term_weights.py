"""Inference-free queries: weights by the formula, search without ONNX Runtime, versions with changed counts."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import Deployment, ExportSettings, IndexSettings
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError
from lsr_prod.indexing import build_index, delete_documents
from lsr_prod.indexing.text_index import Index
from lsr_prod.inference import BundleEncoder
from lsr_prod.model import SparseEncoder
from lsr_prod.model.export import export_bundle
from lsr_prod.search import Searcher
from lsr_prod.search.query.sparse_query import TermWeights
from lsr_prod.storage.formats.term_weights import TermCounts
from tests.indexing.corpus import encode_corpus, make_table
from tests.indexing.increments import Increment, change_table
from tests.search.conftest import TEXTS


def test_idf_weights_are_sorted_heaviest_first_ties_by_id():
    counts = TermCounts(4, np.array([4, 0, 2, 0, 1]))
    weights = TermWeights.of_counts(counts, list("abcde"))
    query = weights.weigh([0, 1, 2, 3, 4])
    assert query.ids.tolist() == [1, 3, 4, 2, 0]
    assert query.weights.tolist() == [counts.weights()[i] for i in query.ids]
    assert query.terms == ("b", "d", "e", "c", "a")
    assert weights.weigh([]).terms == ()
    unknown = weights.weigh([2, 1], ["z", "y"])
    assert unknown.ids.tolist() == [-1, -1, 1, 2]  # they count in the query size and match nothing
    assert unknown.terms == ("y", "z", "b", "c")
    assert unknown.weights.tolist() == sorted(unknown.weights.tolist(), reverse=True)


@pytest.mark.parametrize("unknown", [[], ["z"]])
def test_terms_with_a_learned_weight_of_zero_are_no_part_of_the_query(unknown: list[str]) -> None:
    query = TermWeights.learned(np.array([1, 0, 2], np.float32), list("abc")).weigh([0, 1, 2], unknown)
    assert query.terms == (*unknown, "c", "a")
    assert query.ids.tolist() == [-1] * len(unknown) + [2, 0]
    assert query.weights.tolist() == [2.0] * len(unknown) + [2.0, 1.0]


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 30), min_size=10, max_size=10))
def test_query_weights_are_idf_of_distinct_terms(ids, frequencies):
    weights = TermWeights.of_counts(TermCounts(30, np.array(frequencies)), [f"t{i}" for i in range(10)])
    query = weights.weigh(ids)
    found = dict(zip(query.ids.tolist(), query.weights.tolist(), strict=True))
    expected = {i: np.log(1 + (30 - frequencies[i] + 0.5) / (frequencies[i] + 0.5)) for i in ids}
    assert found.keys() == expected.keys()
    assert all(found[i] == pytest.approx(expected[i], rel=1e-6) for i in ids)
    order = [(-weight, i) for i, weight in zip(query.ids.tolist(), query.weights.tolist(), strict=True)]
    assert order == sorted(order)


@pytest.fixture(scope="module")
def world(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with inference-free queries, its bundle, a table of real texts, and an index of the table."""
    root = tmp_path_factory.mktemp("idf")
    SparseEncoder.load(tiny_model, query_encoder="idf").save(root / "model")
    export_bundle(ExportSettings(model=str(root / "model"), output=str(root / "bundle")))
    make_table(root / "table", encode_corpus(root / "bundle", TEXTS), root / "bundle")
    build_index(deployment(root))
    return root


def deployment(root: Path, output: str = "index", **changes: object) -> Deployment:
    given = {"table": str(root / "table"), "bundle": str(root / "bundle"), "output": str(root / output), "shards": 2}
    return Deployment(index=IndexSettings(**{**given, "text_fields": ["text"], "max_delta": 0.9, **changes}))


def expected_weights(model: Path, texts: list[str]) -> dict[str, float]:
    """Compute the weights directly by the formula."""
    tokenizer = SparseEncoder.load(model).tokenizer
    special = set(tokenizer.all_special_tokens)
    documents = [set(tokenizer.tokenize(text)) - special for text in texts]
    documents = [document for document in documents if document]
    n = len(documents)

    def idf(term: str) -> float:
        df = sum(term in document for document in documents)
        return float(np.log(1 + (n - df + 0.5) / (df + 0.5)))

    return {term: idf(term) for term in tokenizer.get_vocab() if term not in special}


@pytest.mark.long
def test_index_of_texts_in_memory_weights_queries_as_the_built_index(world: Path) -> None:
    with Index.from_texts(TEXTS, world / "bundle") as index, Searcher.open(world / "index") as built:
        (query,), (expected,) = index.encode(["a lock for threads"]), built.encode(["a lock for threads"])
        assert len(query.ids)
        assert (query.terms, query.weights.tolist()) == (expected.terms, expected.weights.tolist())


@pytest.mark.long
def test_text_query_uses_idf_of_indexed_texts(world):
    searcher = Searcher.open(world / "index", verify=True)
    weights = expected_weights(world / "model", list(TEXTS.values()))
    (query,) = searcher.encode(["how do threads wait for a lock?"])
    assert set(query.terms) == {"how", "do", "threads", "wait", "for", "a", "lock", "?"}
    assert [weights[term] for term in query.terms] == pytest.approx(query.weights.tolist(), rel=1e-6)
    result = searcher.search("how do threads wait for a lock?", 3)
    again = searcher.search_vector({term: weights[term] for term in query.terms}, 3)
    assert [hit.doc_id for hit in result.hits] == [hit.doc_id for hit in again.hits]
    assert result.hits[0].score == pytest.approx(again.hits[0].score, rel=1e-5)
    assert result.hits[0].doc_id.startswith("threading")
    assert searcher.search("", 3).hits == ()
    explained = searcher.explain("how do threads wait for a lock?", result.hits[0].doc_id)
    assert explained.score == pytest.approx(result.hits[0].score, rel=1e-5)
    assert len(searcher.search("thread lock", 3, qk=1).query) == 1


@pytest.mark.long
def test_inference_free_query_loads_no_model(world):
    code = (
        "import sys; from lsr_prod.search import Searcher; "
        f"assert Searcher.open({str(world / 'index')!r}).search('a lock', 1).hits; "
        "loaded = {'onnxruntime', 'torch', 'transformers', 'ray', 'lsr_prod.inference.encoder'} & set(sys.modules); "
        "assert not loaded, loaded"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_inference_free_model_encodes_documents_and_rejects_queries(world):
    encoder = BundleEncoder(world / "bundle")
    with pytest.raises(ConfigError, match="no model reads queries"):
        encoder.encode(["a lock"], kind="query")
    assert len(encoder.encode(["a lock"], kind="document").terms)
    with pytest.raises(ConfigError, match="no model reads queries"):
        SparseEncoder.load(world / "model").encode(["a lock"], "query")
    routes = json.loads((world / "model" / "router_config.json").read_text())["structure"]
    assert routes["query"] == ["query_0_SparseStaticEmbedding"]  # without a router, the model would encode queries


@pytest.mark.long
def test_increment_changes_idf_weights(world, tmp_path):
    for name in ("bundle", "model"):
        (tmp_path / name).symlink_to(world / name)
    corpus = encode_corpus(world / "bundle", TEXTS)
    make_table(tmp_path / "table", corpus, tmp_path / "bundle")
    build_index(deployment(tmp_path))
    searcher = Searcher.open(tmp_path / "index")
    new = {"zipfile.path": "A path inside of a zip archive.", "math.sqrt": "The positive root of a number."}
    change_table(tmp_path, Increment(encode_corpus(world / "bundle", new), ["gzip.open"]))
    before = searcher.encode(["zip root"])[0]
    assert build_index(deployment(tmp_path)).mode == "delta"
    assert searcher.encode(["zip root"])[0].weights.tolist() == before.weights.tolist()  # weights of the open version
    searcher.refresh()
    (query,) = searcher.encode(["zip root"])
    # Replaced and deleted texts count until their shard is merged.
    weights = expected_weights(world / "model", [*TEXTS.values(), *new.values()])
    assert query.weights.tolist() == pytest.approx([weights[term] for term in query.terms], rel=1e-6)
    hidden = delete_documents(tmp_path / "index", ["zipfile.path"])
    searcher.refresh()
    assert hidden.changed == 1
    assert searcher.encode(["zip root"])[0].weights.tolist() == query.weights.tolist()
    # An index built from scratch counts exactly the texts of the table.
    build_index(deployment(tmp_path, "again", shards=3))
    (query,) = Searcher.open(tmp_path / "again").encode(["zip root"])
    now = {**TEXTS, **new}
    del now["gzip.open"]
    weights = expected_weights(world / "model", list(now.values()))
    assert query.weights.tolist() == pytest.approx([weights[term] for term in query.terms], rel=1e-6)


@pytest.mark.long
def test_damaged_or_missing_term_counts_raise_artifact_error(world, tmp_path):
    make_table(tmp_path / "table", encode_corpus(world / "bundle", TEXTS), world / "bundle")
    build_index(deployment(tmp_path, bundle=str(world / "bundle")))
    (path, *_) = (tmp_path / "index" / "shards").glob("*/text_terms.npy")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DigestMismatchError, match="text_terms"):
        Searcher.open(tmp_path / "index").search("a lock")
    path.unlink()
    with pytest.raises(ArtifactError, match="text_terms"):
        Searcher.open(tmp_path / "index").search("a lock")


@pytest.mark.long
def test_inference_free_index_without_text_fields_is_rejected_before_build(world, tmp_path):
    with pytest.raises(ConfigError, match=r"index\.text_fields"):
        build_index(deployment(world, str(tmp_path / "index"), text_fields=[]))
    assert not (tmp_path / "index").exists()
