"""The retriever of LlamaIndex and its filters."""

import asyncio

import pytest

from lsr_prod import Index
from lsr_prod.errors import QueryError
from lsr_prod.search import field
from tests.lazy import LazyModule

types, ours = LazyModule("llama_index.core.vector_stores.types"), LazyModule("lsr_prod.integrations.llama_index")
utils = LazyModule("llama_index.core.vector_stores.utils")


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


VALUES = {
    "number": [1, None, 3, 1],
    "word": ["x", "", None, "xyz"],
    "words": [["x", "y"], [], None, ["y"]],
}


@pytest.fixture(scope="module")
def sparse():
    """Return an index of documents without some values, and their metadata as LlamaIndex has them."""
    stored = {name: {key: values[i] for key, values in VALUES.items()} for i, name in enumerate("abcd")}
    with Index.from_texts(dict.fromkeys(stored, "a lock"), fields=VALUES) as index:
        yield index, stored


@pytest.mark.parametrize("condition", ["AND", "OR", "NOT"])
@pytest.mark.parametrize(
    "given",
    [
        [on("NE", 1, "number")],
        [on("NIN", [1, 4], "number")],
        [on("NE", "x", "word")],
        [on("IS_EMPTY", key="number")],
        [on("IS_EMPTY", key="word")],
        [on("IS_EMPTY", key="words")],
        [on("CONTAINS", "y", "words")],
        [on("ANY", ["x", "z"], "words")],
        [on("NE", 1, "number"), on("EQ", "x", "word")],
        [on("NIN", ["x"], "word"), on("GT", 1, "number"), on("IS_EMPTY", key="words")],
    ],
)
def test_documents_without_a_value_are_found_as_in_llama_index(sparse, given, condition):
    (index, stored), filters = sparse, where(*given, condition=condition)()
    expected = set(filter(utils.build_metadata_filter_fn(stored.__getitem__, filters), stored))
    assert {node.node_id for node in ours.SparseRetriever(index, filters=filters).retrieve("lock")} == expected


def test_no_document_is_without_an_id(sparse):
    filters = where(on("NE", "a", "doc_id"), on("NIN", ["b"], "doc_id"))()
    assert {node.node_id for node in ours.SparseRetriever(sparse[0], filters=filters).retrieve("lock")} == {"c", "d"}


@pytest.mark.parametrize("operator", ["CONTAINS", "ANY", "ALL"])
def test_operators_of_lists_are_refused_for_other_attributes(sparse, operator):
    for key in ("word", "number", "doc_id", "unknown"):
        with pytest.raises(QueryError, match=f"{operator.lower()}"):
            ours.SparseRetriever(sparse[0], filters=where(on(operator, ["x"], key))())
    with pytest.raises(QueryError, match="words"):
        ours.filter_of_llama_index(where(on("CONTAINS", "x", "words"))())


def test_what_cannot_be_filtered_is_refused(documents):
    for filters in (where()(), where(on("TEXT_MATCH", "x"))()):
        with pytest.raises(QueryError, match=r"leave them out|give one of"):
            ours.SparseRetriever(documents, filters=filters)
    with pytest.raises(QueryError, match="argument of its own"):
        ours.SparseRetriever(documents, filter=field("year") == 1)
