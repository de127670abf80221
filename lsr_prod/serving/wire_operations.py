"""Requests and responses of the operations other than search, as plain JSON values.

``bm25``: an object with ``text``, ``k``, ``count``, ``fields``; the response is that of a search. ``explain``: ``text``
or ``vector``, or both with ``hybrid``, and ``doc_id``, ``qk``; the response is ``{"explanation": {...}}``. ``encode``:
``texts``; the response is ``{"queries": [...]}``, each with ``terms``, ``ids`` and ``weights``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.query.sparse_query import SparseQuery
from lsr_prod.search.result import Contribution, Explanation
from lsr_prod.serving.wire import MAX_TEXTS
from lsr_prod.serving.wire_values import LIST, OPTION_FORMS, STRING, VALUE, VECTOR, read_object

_BM25 = {"text": VALUE, "k": VALUE, **{name: OPTION_FORMS[name] for name in ("count", "fields")}}
_EXPLAIN = {
    "doc_id": STRING,
    "text": VALUE,
    "vector": VECTOR,
    **{name: OPTION_FORMS[name] for name in ("qk", "hybrid")},
}


def read_bm25(value: Any) -> dict[str, Any]:
    """Return the arguments of ``Searcher.bm25``."""
    return read_object(value, _BM25, required=["text"])


def read_encode(value: Any) -> dict[str, Any]:
    """Return the arguments of ``Searcher.encode``."""
    arguments = read_object(value, {"texts": LIST}, required=["texts"])
    if len(arguments["texts"]) > MAX_TEXTS:
        raise QueryError(f"the request has {len(arguments['texts'])} texts; send at most {MAX_TEXTS} at a time")
    return arguments


def read_explain(value: Any) -> dict[str, Any]:
    """Return the arguments of ``Searcher.explain``."""
    arguments = read_object(value, _EXPLAIN, required=["doc_id"])
    text, vector = arguments.pop("text", None), arguments.pop("vector", None)
    if vector is None:
        if text is None:
            raise QueryError("give a text or a vector to explain, or both with hybrid")
        if not isinstance(text, str):
            raise QueryError(f"text={shorten(text)} is not a string; give a string")
        return {"query": text, **arguments}
    if (text is not None) != (arguments.get("hybrid") is not None):
        raise QueryError("give a text or a vector to explain, or both with hybrid")
    return {"query": vector, "text": text, **arguments}


def query_to_json(query: SparseQuery) -> dict[str, Any]:
    """Return an encoded query as a JSON value."""
    return {"terms": list(query.terms), "ids": query.ids.tolist(), "weights": query.weights.tolist()}


def query_from_json(value: Mapping[str, Any]) -> SparseQuery:
    """Read a query that ``query_to_json`` wrote."""
    return SparseQuery(np.array(value["ids"], np.int32), np.array(value["weights"], np.float32), tuple(value["terms"]))


def explanation_from_json(value: Mapping[str, Any]) -> Explanation:
    """Read an explanation that ``asdict`` made."""
    contributions = tuple(Contribution(**each) for each in value["contributions"])
    rest = {name: tuple(value[name]) for name in ("missing", "ranks")}
    return Explanation(**{**value, **rest, "contributions": contributions})
