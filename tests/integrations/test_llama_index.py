"""The retriever of LlamaIndex and its filters."""

import asyncio

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search import field
from tests.lazy import LazyModule

types, ours = LazyModule("llama_index.core.vector_stores.types"), LazyModule("lsr_prod.integrations.llama_index")


def where(*filters, condition="AND"):
    return lambda: types.MetadataFilters(
        filters=[make() for make in filters], condition=types.FilterCondition[condition]
    )


def on(operator, value=None, key="year"):
    return lambda: types.MetadataFilter(key=key, value=value, operator=types.FilterOperator[operator])


@pytest.mark.long
def test_nodes_have_text_metadata_and_score(documents):
    (found,) = ours.SparseRetriever(documents, 1).retrieve("parse date")
    assert (found.node_id, found.text, found.metadata) == ("date", "parse a date", {"year": 2021, "day": "2021-08-22"})
    assert found.score > 0
    assert [node.node_id for node in asyncio.run(ours.SparseRetriever(documents, 1).aretrieve("lock"))] == ["lock"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (where(on("EQ", 2021)), {"date"}),
        (where(on("NE", 2021)), {"lock", "square"}),
        (where(on("NIN", [2021, 2024])), {"lock"}),
        (where(on("IS_EMPTY", key="day")), {"lock", "square"}),
        (where(on("GTE", 2020), on("LT", 2024)), {"date"}),
        (
            where(on("LTE", 2019), on("GT", 2021), condition="OR"),
            {"lock", "square"},
        ),
        (where(where(on("IN", [2019])), condition="NOT"), {"date", "square"}),
        (where(on("EQ", 2019), on("EQ", 2021), condition="NOT"), {"square"}),
        (where(on("EQ", "2021-08-22", key="day"), condition="NOT"), {"lock", "square"}),
        (field("year") == 2019, {"lock"}),
        ({"words": "lock"}, {"lock"}),
    ],
)
def test_filters_of_llama_index_are_passed_through(documents, filters, expected):
    filters = filters() if callable(filters) else filters
    assert {node.node_id for node in ours.SparseRetriever(documents, filters=filters).retrieve("a")} == expected


def test_what_cannot_be_filtered_is_refused(documents):
    for filters in (where()(), where(on("TEXT_MATCH", "x"))()):
        with pytest.raises(QueryError, match=r"leave them out|give one of"):
            ours.SparseRetriever(documents, filters=filters)
    with pytest.raises(QueryError, match="argument of its own"):
        ours.SparseRetriever(documents, filter=field("year") == 1)
