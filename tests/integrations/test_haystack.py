"""The retriever of Haystack in a pipeline, its filters, and its form as a dictionary."""

import asyncio
import json

import pytest

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.search import Hybrid, field
from tests.indexing.corpus import Doc, make_index
from tests.lazy import LazyModule

haystack, ours = LazyModule("haystack"), LazyModule("lsr_prod.integrations.haystack")


def ids(answer):
    return [document.id for document in answer["documents"]]


def comparison(operator, value, name="meta.year"):
    return {"field": name, "operator": operator, "value": value}


def test_documents_have_content_meta_and_score(documents):
    (found,) = ours.SparseRetriever(documents, top_k=1).run("parse date")["documents"]
    assert (found.id, found.content, found.meta) == ("date", "parse a date", {"year": 2021, "day": "2021-08-22"})
    assert found.score > 0


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (comparison("==", 2021), {"date"}),
        (comparison("!=", 2021), {"lock", "square"}),
        (comparison("!=", "2021-08-22", "day"), {"lock", "square"}),
        (comparison("==", None, "meta.day"), {"lock", "square"}),
        (comparison("!=", None, "meta.day"), {"date"}),
        (comparison("not in", [2021, 2024]), {"lock"}),
        (comparison("!=", "lock", "doc_id"), {"date", "square"}),
        (comparison("not in", ["lock", "date"], "doc_id"), {"square"}),
        ({"operator": "AND", "conditions": [comparison(">=", 2020), comparison("<", 2024)]}, {"date"}),
        ({"operator": "OR", "conditions": [comparison("<=", 2019), comparison(">", 2021)]}, {"lock", "square"}),
        ({"operator": "NOT", "conditions": [comparison("in", [2019])]}, {"date", "square"}),
        ({"operator": "NOT", "conditions": [comparison("==", "2021-08-22", "meta.day")]}, {"lock", "square"}),
        ({"operator": "NOT", "conditions": [comparison("!=", "2021-08-22", "meta.day")]}, {"date"}),
        (
            {"operator": "NOT", "conditions": [comparison(">", 2020), comparison("==", None, "meta.day")]},
            {"lock", "date"},
        ),
        ({"field": "year", "op": "eq", "value": 2019}, {"lock"}),
        (field("year") == 2019, {"lock"}),
        ({}, {"lock", "date", "square"}),
    ],
)
def test_filters_of_haystack_are_passed_through(documents, filters, expected):
    retriever = ours.SparseRetriever(documents)
    assert {*ids(retriever.run("a", filters=filters))} == expected
    assert {*ids(ours.SparseRetriever(documents, filters=filters).run("a"))} == expected


@pytest.mark.parametrize(
    "odd",
    [
        comparison("~", 1),
        {"operator": "XOR", "conditions": [comparison("==", 1)]},
        {"operator": "AND", "conditions": []},
        {"operator": "AND", "conditions": None},
        {"operator": "AND", "conditions": [3]},
        {"operator": "AND", "conditions": [comparison("==", 1), {}]},
        {"operator": ["=="], "field": "year", "value": 1},
        {"operator": "==", "field": "year"},
        3,
    ],
)
def test_filter_of_no_kind_is_refused(odd):
    with pytest.raises(QueryError, match="give"):
        ours.filter_of_haystack(odd)


def test_pipeline_is_saved_and_loaded(tmp_path):
    texts = {"a": "a fox", "b": "a wolf"}
    make_index(tmp_path, {name: Doc({0: 1}, text) for name, text in texts.items()}, vocabulary_size=1, bm25=True)
    retriever = ours.SparseRetriever(tmp_path, 1, {"words": "wolf"}, hybrid=Hybrid(words=2.0), fields=["text"])
    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", retriever)
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=[ours.SparseRetriever.__module__]).get_component(
        "retriever"
    )
    assert again.to_dict() == retriever.to_dict()
    assert again.to_dict()["init_parameters"]["hybrid"]["words"] == 2.0


def test_filter_object_is_saved_and_loaded(tmp_path):
    make_index(tmp_path, {"a": Doc({0: 1}, "a fox")}, vocabulary_size=1)
    given = ours.SparseRetriever(tmp_path, filters=field("doc_id") == "a").to_dict()
    assert json.loads(json.dumps(given)) == given
    assert ours.SparseRetriever.from_dict(given).to_dict() == given


def test_component_runs_in_a_pipeline_and_in_an_event_loop(documents):
    pipeline = haystack.Pipeline()
    pipeline.add_component("retriever", ours.SparseRetriever(documents))
    assert ids(pipeline.run({"retriever": {"query": "lock", "top_k": 1}})["retriever"]) == ["lock"]
    assert ids(asyncio.run(ours.SparseRetriever(documents).run_async("lock", top_k=1))) == ["lock"]


def test_wrong_settings_are_refused(documents):
    with pytest.raises(ConfigError, match="give the folder or URI"):
        ours.SparseRetriever(documents).to_dict()
    with pytest.raises(QueryError, match="argument of its own"):
        ours.SparseRetriever(documents, filter=field("year") == 1)
    with pytest.raises(QueryError, match="qk=0"):
        ours.SparseRetriever(documents, qk=0)
