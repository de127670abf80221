"""The retriever of LangChain: its standard tests, filters, and refusals."""

import asyncio
import inspect

import pytest

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.search import Hybrid, field
from tests.lazy import LazyModule

ours = LazyModule("lsr_prod.integrations.langchain")


def test_retriever_passes_all_standard_tests_of_langchain(documents):
    from langchain_tests.integration_tests import RetrieversIntegrationTests

    class Standard(RetrieversIntegrationTests):
        retriever_constructor = ours.SparseRetriever
        retriever_constructor_params = {"index": documents}  # noqa: RUF012 - a property of the base class
        retriever_query_example = "hold a lock"

    tests = {name for name in dir(Standard) if name.startswith("test_")}
    assert len(tests) >= 5
    for name in sorted(tests):
        needs_retriever = "retriever" in inspect.signature(getattr(Standard, name)).parameters
        result = getattr(Standard(), name)(*[ours.SparseRetriever(index=documents)] * needs_retriever)
        if inspect.iscoroutine(result):
            asyncio.run(result)


def test_document_has_text_id_metadata_and_score(documents):
    from langchain_core.documents import Document

    (found,) = ours.SparseRetriever(index=documents, k=1).invoke("parse date")
    assert isinstance(found, Document)
    assert (found.id, found.page_content) == ("date", "parse a date")
    assert found.metadata.pop("relevance_score") > 0
    assert found.metadata == {"year": 2021, "day": "2021-08-22"}


def test_filter_of_a_call_replaces_that_of_the_retriever(documents):
    old = {"field": "year", "op": "lt", "value": 2020}
    retriever = ours.SparseRetriever(index=documents, filter=old, options={"hybrid": Hybrid(words=2.0)})
    assert [each.id for each in retriever.invoke("a")] == ["lock"]
    assert {each.id for each in retriever.invoke("a", filter=field("year") >= 2020)} == {"date", "square"}
    found = asyncio.run(retriever.ainvoke("a", k=1, filter={"field": "year", "op": "ge", "value": 2022}))
    assert [each.id for each in found] == ["square"]


def test_wrong_settings_are_refused_when_the_retriever_is_made(documents):
    for given, part in (
        ({"k": -1}, "k=-1"),
        ({"options": {"treshold": 1}}, "treshold"),
        ({"options": {"filter": field("year") == 1}}, "argument of its own"),
        ({"filter": {"field": "year", "op": "near", "value": 1}}, "near"),
        ({"hybrid": 1}, "hybrid"),
    ):
        with pytest.raises(ValueError, match=part):
            ours.SparseRetriever(index=documents, **given)


def test_fields_without_a_text_are_refused(documents):
    with pytest.raises(ConfigError, match=r"none of \['year'\] is a text"):
        ours.SparseRetriever(index=documents, options={"fields": ["year"]}).invoke("a")
    with pytest.raises(QueryError, match="no attribute"):
        ours.SparseRetriever(index=documents).invoke("a", filter=field("size") == 1)
