"""Write docs/openapi.json, the HTTP interface of ``lsr-prod serve``: ``python -m infra.site.openapi``."""

import json
from pathlib import Path
from typing import Any, get_type_hints

from lsr_prod import __version__
from lsr_prod.search.query.filters import Filter
from lsr_prod.search.search_result import Contribution, Explanation, Facet, Hit, QueryTerm, SearchResult
from lsr_prod.serving.client import FORMS, REQUIRED
from lsr_prod.serving.http import STATUS
from lsr_prod.serving.wire import MAX_TEXTS
from lsr_prod_contrib.agents.schemas import VECTOR, Schema, filter_schema, object_schema, option_schemas, schema_of

FILE = Path(__file__).parents[2] / "docs/openapi.json"
_PLACE = "#/components/schemas/"
_PLACES = {kind: f"{_PLACE}{kind.__name__}" for kind in (Contribution, Explanation, Facet, Filter, Hit, QueryTerm)}
_STRING = {"type": "string"}
_SUMMARIES = {
    "search": "Search for a text, several texts, or a vector. With texts, the answer has a list of results.",
    "bm25": "Rank documents by BM25 over the text fields.",
    "explain": "Explain the score of a document for a query.",
    "encode": "Encode queries as a search does.",
}
_ERRORS = {
    400: "the request is not possible; the message says why",
    408: "the body did not arrive in time",
    413: "the body is too large",
    500: "the index is damaged",
    503: "no answer; with Retry-After if the queue is full",
}


def document() -> dict[str, Any]:
    """Return the description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lsr-prod serve",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Search a published index. There is no authentication: keep it behind a proxy of your own.",
        },
        "servers": [{"url": "http://127.0.0.1:8000"}],
        "paths": {**{f"/{name}": {"post": _operation(name)} for name in FORMS}, "/health": {"get": _health()}},
        "components": {"schemas": _schemas()},
    }


def _operation(name: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": _SUMMARIES[name],
        "requestBody": {"required": True, "content": _content(_request(name))},
        "responses": {"200": _response("the answer", _answer(name)), **_errors({500, *STATUS.values()})},
    }


def _request(name: str) -> Schema:
    """Return the schema of a request: the entries that the router reads."""
    texts = {"type": "array", "items": _STRING, "maxItems": MAX_TEXTS}
    known = {**option_schemas(_PLACES[Filter]), "doc_id": _STRING, "text": _STRING, "texts": texts, "vector": VECTOR}
    required = [REQUIRED[name]] if name in REQUIRED else []
    schema = object_schema({entry: known[entry] for entry in FORMS[name]}, required)
    queries = [each for each in ("text", "texts", "vector") if each in FORMS[name] and each not in required]
    return {**schema, "anyOf": [{"required": [each]} for each in queries]} if queries else schema


def _answer(name: str) -> Schema:
    result = {"$ref": f"{_PLACE}SearchResult"}
    several = object_schema({"results": {"type": "array", "items": result}}, ["results"])
    query = {"terms": list[str], "ids": list[int], "weights": list[float]}
    encoded = object_schema({entry: schema_of(kind) for entry, kind in query.items()}, [*query])
    return {
        "search": {"anyOf": [result, several]},
        "bm25": result,
        "explain": object_schema({"explanation": {"$ref": _PLACES[Explanation]}}, ["explanation"]),
        "encode": object_schema({"queries": {"type": "array", "items": encoded}}, ["queries"]),
    }[name]


def _health() -> dict[str, Any]:
    kinds = {"missing_groups": list[int], "publication": int, "version": str, "requests": int, "problem": str | None}
    state = {
        "status": {"enum": ["ok", "degraded", "unavailable"]},
        **{name: schema_of(kind) for name, kind in kinds.items()},
    }
    answer = object_schema(state, [*state])
    return {
        "operationId": "health",
        "summary": "Say whether queries are answered, by which version, and the load.",
        "responses": {
            "200": _response("queries are answered", answer),
            "503": _response("no query is answered", answer),
        },
    }


def _schemas() -> dict[str, Schema]:
    """Return the schemas of results, and what their JSON has in addition to their attributes or in another form."""
    kinds = get_type_hints(QueryTerm)
    result, facet = schema_of(SearchResult, _PLACES), schema_of(Facet)
    result["properties"] |= {
        "types": {"type": "object", "additionalProperties": _STRING},
        "next_page": schema_of(str | None),
    }
    facet["properties"]["type"] = schema_of(str | None)
    for schema in (result, facet):
        schema["required"] = [*schema["properties"]]
    return {
        "Contribution": schema_of(Contribution),
        "Explanation": schema_of(Explanation, {Contribution: _PLACES[Contribution]}),
        "Hit": schema_of(Hit),
        "Error": object_schema({"error": _STRING, "message": _STRING}, ["error", "message"]),
        "Facet": facet,
        "Filter": filter_schema(_PLACES[Filter]),
        "QueryTerm": schema_of(tuple[tuple(kinds.values())]),
        "SearchResult": result,
    }


def _errors(statuses: set[int]) -> dict[str, Any]:
    return {str(status): _response(_ERRORS[status], {"$ref": f"{_PLACE}Error"}) for status in sorted(statuses)}


def _response(description: str, schema: Schema) -> dict[str, Any]:
    return {"description": description, "content": _content(schema)}


def _content(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def text() -> str:
    """Return the file."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
