"""The retriever of LlamaIndex and its filters."""

import asyncio

import pytest
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from lsr_prod.errors import QueryError
from lsr_prod.integrations.llama_index import SparseRetriever
from lsr_prod.search import field


def where(*filters, condition=FilterCondition.AND):
    return MetadataFilters(filters=list(filters), condition=condition)


def on(operator, value=None, key="year"):
    return MetadataFilter(key=key, value=value, operator=operator)


def test_nodes_have_text_metadata_and_score(documents):
    (found,) = SparseRetriever(documents, 1).retrieve("parse date")
    assert (found.node_id, found.text, found.metadata) == ("date", "parse a date", {"year": 2021, "day": "2021-08-22"})
    assert found.score > 0
    assert [node.node_id for node in asyncio.run(SparseRetriever(documents, 1).aretrieve("lock"))] == ["lock"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (where(on(FilterOperator.EQ, 2021)), {"date"}),
        (where(on(FilterOperator.NE, 2021)), {"lock", "square"}),
        (where(on(FilterOperator.NIN, [2021, 2024])), {"lock"}),
        (where(on(FilterOperator.IS_EMPTY, key="day")), {"lock", "square"}),
        (where(on(FilterOperator.GTE, 2020), on(FilterOperator.LT, 2024)), {"date"}),
        (
            where(on(FilterOperator.LTE, 2019), on(FilterOperator.GT, 2021), condition=FilterCondition.OR),
            {"lock", "square"},
        ),
        (where(where(on(FilterOperator.IN, [2019])), condition=FilterCondition.NOT), {"date", "square"}),
        (field("year") == 2019, {"lock"}),
        ({"words": "lock"}, {"lock"}),
    ],
)
def test_filters_of_llama_index_are_passed_through(documents, filters, expected):
    assert {node.node_id for node in SparseRetriever(documents, filters=filters).retrieve("a")} == expected


def test_what_cannot_be_filtered_is_refused(documents):
    for filters in (where(), where(on(FilterOperator.TEXT_MATCH, "x"))):
        with pytest.raises(QueryError, match=r"leave them out|give one of"):
            SparseRetriever(documents, filters=filters)
    with pytest.raises(QueryError, match="argument of its own"):
        SparseRetriever(documents, filter=field("year") == 1)
