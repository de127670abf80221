"""The retriever of LangChain: its standard tests, filters, and refusals."""

import asyncio

import pytest
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.integrations.langchain import SparseRetriever
from lsr_prod.search import Hybrid, field


@pytest.mark.anyio
class TestStandard(RetrieversIntegrationTests):
    """The tests that LangChain has for each retriever."""

    @pytest.fixture(autouse=True)
    def _index(self, documents):
        self.documents = documents

    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    @property
    def retriever_constructor(self):
        return SparseRetriever

    @property
    def retriever_constructor_params(self):
        return {"index": self.documents}

    @property
    def retriever_query_example(self):
        return "hold a lock"


def test_document_has_text_id_metadata_and_score(documents):
    (found,) = SparseRetriever(index=documents, k=1).invoke("parse date")
    assert isinstance(found, Document)
    assert (found.id, found.page_content) == ("date", "parse a date")
    assert found.metadata.pop("relevance_score") > 0
    assert found.metadata == {"year": 2021, "day": "2021-08-22"}


def test_filter_of_a_call_replaces_that_of_the_retriever(documents):
    old = {"field": "year", "op": "lt", "value": 2020}
    retriever = SparseRetriever(index=documents, filter=old, options={"hybrid": Hybrid(words=2.0)})
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
            SparseRetriever(index=documents, **given)


def test_fields_without_a_text_are_refused(documents):
    with pytest.raises(ConfigError, match=r"none of \['year'\] is a text"):
        SparseRetriever(index=documents, options={"fields": ["year"]}).invoke("a")
    with pytest.raises(QueryError, match="no attribute"):
        SparseRetriever(index=documents).invoke("a", filter=field("size") == 1)
