"""The operations of a router by name: each turns a request into a response, both JSON values."""

from typing import Any

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import shorten
from lsr_prod.search.searcher import Searcher
from lsr_prod.serving.wire import WireRequest, result_to_json
from lsr_prod.serving.wire_operations import (
    Bm25Request,
    EncodeRequest,
    ExplainRequest,
    explanation_to_json,
    query_to_json,
)

OPERATIONS = ("search", "bm25", "explain", "encode")


def run_operation(searcher: Searcher, operation: str, value: Any, waited_ms: float) -> dict[str, Any]:
    """Return the response to a request."""
    match operation:
        case "search":
            return _search(searcher, WireRequest.read(value), waited_ms)
        case "bm25":
            words = Bm25Request.read(value)
            result = searcher.bm25(words.text, words.k, count=words.count, fields=words.fields)
            return {"results": [result_to_json(result)]}
        case "explain":
            asked = ExplainRequest.read(value)
            query, text = (asked.text, None) if asked.vector is None else (asked.vector, asked.text)
            if asked.vector is None and not isinstance(query, str):
                raise QueryError(f"text={shorten(query)} is not a string; give a string")
            found = searcher.explain(query, asked.doc_id, qk=asked.qk, hybrid=asked.hybrid, text=text)
            return {"explanation": explanation_to_json(found)}
        case "encode":
            return {"queries": [query_to_json(query) for query in searcher.encode(EncodeRequest.read(value).texts)]}
        case _:
            raise QueryError(f"the operation {shorten(operation)} is unknown; use one of: {', '.join(OPERATIONS)}")


def _search(searcher: Searcher, request: WireRequest, waited_ms: float) -> dict[str, Any]:
    options = request.options
    deadline_ms = options.get("deadline_ms")
    if isinstance(deadline_ms, int | float) and deadline_ms > 0:  # the search validates the value
        options["deadline_ms"] = max(0.0, deadline_ms - waited_ms)
    if request.queries is None:
        results = [searcher.search_vector(request.vector, request.k, text=request.text, **options)]
    else:
        results = searcher.search_batch(request.queries, request.k, **options)
    return {"results": [result_to_json(result) for result in results]}
