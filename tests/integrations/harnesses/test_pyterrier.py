"""Pipelines of PyTerrier find what an index finds, with our measures, and do not start Java."""

from pathlib import Path

import pandas as pd
import pytest

from lsr_prod import Index
from lsr_prod.errors import ConfigError
from lsr_prod.search import Hybrid
from tests.lazy import LazyModule

pt = LazyModule("pyterrier")
harnesses = LazyModule("benchmarks.evaluation.harnesses")
pipelines = LazyModule("lsr_prod.integrations.pyterrier")
Measures = dict[str, float]


def topics(*texts: str) -> pd.DataFrame:
    return pd.DataFrame({"qid": [f"q{number}" for number in range(len(texts))], "query": texts})


def test_retriever_has_our_measures(index: Index, inputs: Path, ours: Measures) -> None:
    assert harnesses.terrier_measures(pipelines.SparseRetriever(index), inputs) == pytest.approx(
        ours, abs=harnesses.SAME
    )
    assert harnesses.terrier_measures(pipelines.SparseRetriever(index.snapshot.index), inputs) == pytest.approx(
        ours, abs=harnesses.SAME
    )


@pytest.mark.long
def test_indexer_has_our_measures(tiny_bundle: Path, inputs: Path, ours: Measures) -> None:
    assert harnesses.terrier_measures(harnesses.terrier_index(tiny_bundle, inputs), inputs) == pytest.approx(
        ours, abs=harnesses.SAME
    )


def test_results_have_hits_in_order_with_fields_and_columns_of_the_queries(index: Index) -> None:
    asked = topics("cell growth", " ", "white matter").assign(topic="t")
    found = pipelines.SparseRetriever(index, num_results=3, fields=["text"])(asked)
    assert list(found.columns) == ["qid", "query", "topic", "docno", "score", "text", "rank"]
    hits = index.search("cell growth", k=3).hits
    assert found[found.qid == "q0"].docno.tolist() == [hit.doc_id for hit in hits]
    assert found[found.qid == "q0"].score.tolist() == pytest.approx([hit.score for hit in hits])
    assert found["rank"].tolist() == [0, 1, 2, 0, 1, 2]
    assert set(found.qid) == {"q0", "q2"}
    assert found.text.map(len).min() > 100


def test_no_hit_makes_an_empty_frame_with_all_columns(index: Index) -> None:
    for asked in (topics(" "), topics()):
        found = pipelines.SparseRetriever(index)(asked)
        assert len(found) == 0
        assert {"qid", "query", "docno", "score", "rank"} <= set(found.columns)


def test_vectors_are_searched_instead_of_texts(index: Index) -> None:
    vector = {"cell": 2.0, "growth": 1.5}
    found = pipelines.SparseRetriever(index, num_results=5)(
        pd.DataFrame([{"qid": "1", "query": "-", "query_toks": vector}])
    )
    assert found.docno.tolist() == [hit.doc_id for hit in index.search_vector(vector, 5).hits]


def test_options_and_operators_of_pipelines(index: Index) -> None:
    plain = pipelines.SparseRetriever(index)
    hybrid = pipelines.SparseRetriever(index, hybrid=Hybrid())
    assert len((plain % 2).transform(topics("cell growth"))) == 2
    best = index.search("cell growth", k=1, hybrid=Hybrid()).hits[0]
    assert (hybrid % 1).search("cell growth").docno.tolist() == [best.doc_id]
    assert not pt.java.started()


def test_frame_without_queries_is_refused(index: Index) -> None:
    with pytest.raises(pt.validate.InputValidationError, match="query_toks"):
        pipelines.SparseRetriever(index)(pd.DataFrame({"qid": ["1"]}))


def test_words_are_indexed_without_a_model() -> None:
    documents = [{"docno": "lock", "body": "hold a lock"}, {"docno": "date", "body": "parse a date"}]
    retriever = pipelines.SparseIndexer(text="body").index(documents, num_results=1)
    assert retriever.search("date").docno.tolist() == ["date"]


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([{"docno": "1", "title": "a"}], "give docno and text"),
        ([{"text": "a"}], "give docno and text"),
        ([{"docno": "1", "text": "a"}, {"docno": "1", "text": "b"}], "'1' is repeated"),
        ([{"docno": 1, "text": "a"}], "is no id"),
        ([{"docno": "1", "text": None}], "has None"),
    ],
)
def test_documents_that_cannot_be_indexed_are_refused(documents: list[dict[str, object]], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        pipelines.SparseIndexer().index(documents)
