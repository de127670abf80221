"""mteb measures what ``lsr-prod evaluate`` measures, with an index and with a model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lsr_prod import Index
from lsr_prod.errors import ConfigError
from lsr_prod.indexing.text_index import write_word_bundle
from lsr_prod.search import Hybrid
from tests.lazy import LazyModule

datasets, mteb, peers = map(LazyModule, ("datasets", "mteb", "sentence_transformers"))
harnesses = LazyModule("benchmarks.evaluation.harnesses")
indexes = LazyModule("lsr_prod.integrations.mteb")
models = LazyModule("lsr_prod.integrations.mteb_model")
Measures = dict[str, float]


@pytest.fixture(scope="module")
def task(inputs: Path) -> Any:
    return harnesses.local_task(inputs)


def indexed(system: Any, task: Any, rows: list[dict[str, str]]) -> None:
    options: Any = {"hf_split": "test", "hf_subset": "default", "encode_kwargs": {}, "num_proc": None}
    system.index(datasets.Dataset.from_list(rows), task_metadata=task.metadata, **options)


@pytest.mark.long
def test_systems_are_what_mteb_expects(index: Index, tiny_bundle: Path) -> None:
    assert isinstance(indexes.IndexSearch(index), mteb.SearchProtocol)
    assert isinstance(models.BundleModel(tiny_bundle), mteb.EncoderProtocol)
    assert not isinstance(models.BundleModel(tiny_bundle), mteb.SearchProtocol)


@pytest.mark.long
def test_open_index_has_our_measures(index: Index, task: Any, ours: Measures) -> None:
    assert 0.3 < ours["nDCG@10"] < 1
    assert harnesses.mteb_measures(indexes.IndexSearch(index), task) == pytest.approx(ours, abs=harnesses.SAME)


@pytest.mark.long
def test_corpus_of_a_task_is_indexed_with_our_measures(tiny_bundle: Path, task: Any, ours: Measures) -> None:
    assert harnesses.mteb_measures(indexes.IndexSearch(tiny_bundle), task) == pytest.approx(ours, abs=harnesses.SAME)


@pytest.mark.long
def test_options_of_a_search_are_applied(tiny_bundle: Path, index: Index, task: Any, ours: Measures) -> None:
    hybrid = harnesses.mteb_measures(indexes.IndexSearch(index, hybrid=Hybrid()), task)
    assert hybrid["nDCG@10"] > ours["nDCG@10"] + 0.01
    assert harnesses.mteb_measures(indexes.IndexSearch(tiny_bundle, bm25=True, hybrid=Hybrid()), task) == pytest.approx(
        hybrid, abs=harnesses.SAME
    )


def test_words_are_indexed_without_a_model(task: Any) -> None:
    assert harnesses.mteb_measures(indexes.IndexSearch(), task)["nDCG@10"] > 0.5


def test_results_are_cached_by_digest_and_options(tiny_bundle: Path, index: Index) -> None:
    systems = [
        indexes.IndexSearch(index),
        indexes.IndexSearch(index, min_terms=2),
        indexes.IndexSearch(tiny_bundle),
        indexes.IndexSearch(),
    ]
    assert len({(one.mteb_model_meta.revision, str(one.mteb_model_meta.experiment_kwargs)) for one in systems}) == 4
    assert indexes.IndexSearch(index).mteb_model_meta == indexes.IndexSearch(index).mteb_model_meta


def test_index_of_another_corpus_is_refused(index: Index, task: Any) -> None:
    rows = [{"id": "4983", "text": "in the index"}, {"id": "other", "text": "not in it"}]
    with pytest.raises(ConfigError, match=r"120 documents are open, without 1 of the 2 of SciFact"):
        indexed(indexes.IndexSearch(index), task, rows)
    with pytest.raises(ConfigError, match=r"without 0 of the 1"):  # the index has more
        indexed(indexes.IndexSearch(index), task, rows[:1])
    same = [{"id": doc_id, "text": ""} for doc_id in task.dataset["default"]["test"]["corpus"]["id"]]
    indexed(indexes.IndexSearch(index), task, same)
    with pytest.raises(ConfigError, match=r"without 1 of the 120"):
        indexed(indexes.IndexSearch(index), task, [*same[1:], rows[1]])


def test_corpus_with_a_repeated_id_is_refused(task: Any) -> None:
    with pytest.raises(ConfigError, match="SciFact repeats an id"):
        indexed(indexes.IndexSearch(), task, [{"id": "1", "text": "a"}, {"id": "1", "text": "b"}])


def test_given_rankings_are_refused(index: Index, task: Any) -> None:
    options: Any = {"hf_split": "test", "hf_subset": "default", "encode_kwargs": {}, "num_proc": None}
    queries = datasets.Dataset.from_list([{"id": "1", "text": "a"}])
    with pytest.raises(ConfigError, match="BundleModel"):
        indexes.IndexSearch(index).search(
            queries, task_metadata=task.metadata, top_k=10, top_ranked={"1": ["4983"]}, **options
        )


@pytest.mark.long
def test_bundle_equals_the_wrapper_of_sentence_transformers(
    tiny_bundle: Path, tiny_model: Path, task: Any, ours: Measures
) -> None:
    found = harnesses.mteb_measures(models.BundleModel(tiny_bundle), task)
    assert found == pytest.approx(
        harnesses.mteb_measures(peers.SparseEncoder(str(tiny_model), device="cpu"), task), abs=harnesses.SAME
    )
    assert found == pytest.approx(ours, abs=0.02)  # the index has impacts of 8 bits


def test_bundle_encodes_dense_vectors_for_other_tasks(tiny_bundle: Path) -> None:
    model, batches = models.BundleModel(tiny_bundle), [{"text": ["a lock", "locks"]}, {"text": [" "]}]
    sparse = model.encode(batches, task_metadata=mteb.get_task("SciFact").metadata)
    dense = model.encode(batches, task_metadata=mteb.get_task("STS12").metadata)
    assert sparse.is_sparse
    assert not dense.is_sparse
    assert torch.equal(sparse.to_dense(), dense)
    assert dense.shape == (3, 30_522)
    assert not dense[2].any()
    scores = model.similarity(sparse, sparse)
    assert scores == pytest.approx((dense @ dense.T).numpy(), rel=1e-5)
    assert model.similarity_pairwise(dense, dense).numpy() == pytest.approx(scores.diagonal().numpy(), rel=1e-5)


def test_idf_queries_need_an_index(tmp_path: Path) -> None:
    write_word_bundle(tmp_path / "bundle", ["a lock"])
    with pytest.raises(ConfigError, match="IDF weights"):
        models.BundleModel(tmp_path / "bundle")
