"""Requests and responses of a served index as plain JSON values.

A request is an object with exactly one of ``text``, ``texts`` (a list) and ``vector`` (an object, or a list of pairs of
term and weight, where a term may be an id), with ``k`` and the options of ``Searcher.search``. ``filter`` has the form
of ``filter_from_json``. ``hybrid`` is an object with attributes of ``Hybrid``; a ``vector`` with ``hybrid`` needs a
``text`` for its words. A response is ``{"results": [...]}``, one per text or vector, or
``{"error": name, "message": text}``.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, Self

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    InstanceOf,
    StrictBool,
    StrictStr,
    ValidationError,
    model_validator,
)

from lsr_prod.errors import (
    ArtifactError,
    DigestMismatchError,
    FormatVersionError,
    LineageError,
    LsrError,
    PublicationError,
    QueryError,
)
from lsr_prod.search.query.filters import Filter, filter_from_json, shorten
from lsr_prod.search.query.request import Hybrid, Options
from lsr_prod.search.result import Hit, QueryTerm, SearchResult
from lsr_prod.serving.calls import UnavailableError

__all__ = ["WireRequest", "error_from_json", "error_to_json", "request_to_json", "result_from_json", "result_to_json"]

_ERRORS = {
    kind.__name__: kind
    for kind in (
        ArtifactError,
        DigestMismatchError,
        FormatVersionError,
        LineageError,
        PublicationError,
        QueryError,
        UnavailableError,
    )
}
_QUERIES = ("text", "texts", "vector")


def _read_filter(value: Any) -> Filter | None:
    return None if value is None else filter_from_json(value)


def _read_hybrid(value: Any) -> Hybrid | None:
    if value is None:
        return None
    known = [field.name for field in fields(Hybrid)]
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        raise QueryError(f"hybrid={shorten(value)} is not possible; give an object with some of: {', '.join(known)}")
    return Hybrid(**value)


def _read_vector(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise QueryError(f"vector is {shorten(value)}; give a list of pairs, or an object")
    vector: dict[Any, Any] = {}
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int):
            raise QueryError("the vector has an entry that is no pair of term and weight; give [term, weight]")
        if pair[0] in vector:
            raise QueryError(f"term {shorten(pair[0])} is given twice; give it once")
        vector[pair[0]] = pair[1]
    return vector


class WireRequest(BaseModel):
    """A search request of a client. Only its form is validated here; the search validates the values.

    Attributes:
        text: text to search for, or the text whose words a hybrid search with a ``vector`` matches.
        texts: texts to search for.
        vector: weights by term or term id to search for.
        k: maximum number of hits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    text: Any = None
    texts: list[Any] = []
    vector: Annotated[dict[Any, Any], BeforeValidator(_read_vector)] = {}
    k: Any = 10
    overlap_threshold: Any = None
    min_terms: Any = None
    qk: Any = None
    filter: Annotated[InstanceOf[Filter] | None, BeforeValidator(_read_filter)] = None
    min_score: Any = None
    rescore: Any = None
    deduplicate: StrictStr | None = None
    deadline_ms: Any = None
    count: StrictBool = False
    fields: list[Any] = []
    hybrid: Annotated[InstanceOf[Hybrid] | None, BeforeValidator(_read_hybrid)] = None

    @classmethod
    def read(cls, value: Any) -> "WireRequest":
        """Validate the form of a request.

        Args:
            value: from a client.

        Raises:
            QueryError: the value does not have the form that the module describes.
        """
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise QueryError(f"the request is {shorten(value)}; give an object with text or vector")
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise QueryError(_sentence(error)) from None

    @model_validator(mode="after")
    def _has_one_query(self) -> Self:
        given = [name for name in _QUERIES if name in self.model_fields_set]
        if len(given) != 1 and not (self.hybrid is not None and given == ["text", "vector"]):
            raise QueryError(f"the request has {given or 'neither'}; give exactly one of text, texts and vector")
        return self

    @property
    def queries(self) -> list[Any] | None:
        """Texts to search for, or None if the request has a vector."""
        if "vector" in self.model_fields_set:
            return None
        return [self.text] if "text" in self.model_fields_set else self.texts

    @property
    def options(self) -> Options:
        """Options of the search: those that the client gave."""
        names = self.model_fields_set & set(Options.__annotations__)
        return {name: getattr(self, name) for name in Options.__annotations__ if name in names}  # type: ignore[return-value]


def _sentence(error: ValidationError) -> str:
    """Return the first problem as one sentence with field, value and remedy."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, QueryError):
        return str(cause)
    name, value = ".".join(map(str, first["loc"])), shorten(first["input"])
    match first["type"]:
        case "extra_forbidden":
            known = ", ".join(WireRequest.model_fields)
            return f"the request has {shorten(name)}, which is unknown; give some of: {known}"
        case "list_type":
            return f"{name} is {value}; give a list"
        case "bool_type":
            return f"{name}={value} is not possible; give true or false"
        case _:
            return f"{name}={value} is not possible; give the name of a field"


def request_to_json(k: int, options: Options, **query: Any) -> dict[str, Any]:
    """Return a request as a JSON value.

    Args:
        k: maximum number of hits.
        options: options of the search.
        **query: text, texts or vector.

    Raises:
        QueryError: the vector is not a mapping, or the filter or ``hybrid`` has the wrong type.
    """
    value: dict[str, Any] = {**query, "k": _plain(k), **{name: _plain(option) for name, option in options.items()}}
    if "vector" in query:
        vector = query["vector"]
        if not isinstance(vector, Mapping):
            raise QueryError(f"the query {type(vector).__name__} is no vector; give a mapping from terms to weights")
        value["vector"] = [[_plain(term), _plain(weight)] for term, weight in vector.items()]
    if "fields" in options and not isinstance(options["fields"], str):
        value["fields"] = list(options["fields"])
    expression = options.get("filter")
    if expression is not None:
        if not isinstance(expression, Filter):
            raise QueryError(
                f"the filter {shorten(expression)} is not a filter; build it with field() or filter_from_json()"
            )
        value["filter"] = expression.to_json()
    hybrid = options.get("hybrid")
    if hybrid is not None:
        if not isinstance(hybrid, Hybrid):
            raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")
        value["hybrid"] = asdict(hybrid)
    return value


def result_to_json(result: SearchResult) -> dict[str, Any]:
    """Return a result as a JSON value; times become ISO 8601 strings, and ``timestamps`` lists their fields."""
    timestamps = {name for hit in result.hits for name, value in hit.fields.items() if isinstance(value, dt.datetime)}
    value = asdict(result)
    value["query"] = [[term.term, term.weight, term.field] for term in result.query]
    value["hits"] = [
        {
            "doc_id": hit.doc_id,
            "score": hit.score,
            "overlap": hit.overlap,
            "fields": {
                name: each.isoformat() if isinstance(each, dt.datetime) else each for name, each in hit.fields.items()
            },
        }
        for hit in result.hits
    ]
    value["timestamps"] = sorted(timestamps)
    return value


def result_from_json(value: Mapping[str, Any]) -> SearchResult:
    """Read a result that ``result_to_json`` wrote."""
    timestamps = set(value["timestamps"])
    hits = tuple(
        Hit(hit["doc_id"], hit["score"], hit["overlap"], _fields(hit["fields"], timestamps)) for hit in value["hits"]
    )
    query = tuple(QueryTerm(*term) for term in value["query"])
    rest = {name: each for name, each in value.items() if name not in ("hits", "query", "timestamps")}
    return SearchResult(hits=hits, query=query, **rest)


def error_to_json(error: LsrError) -> dict[str, Any]:
    """Return an error as a response."""
    return {"error": type(error).__name__, "message": str(error)}


def error_from_json(value: Mapping[str, Any]) -> LsrError:
    """Read the error of a response; a class that clients do not know becomes ``LsrError``."""
    kind = _ERRORS.get(value["error"])
    return kind(value["message"]) if kind else LsrError(f"{value['error']}: {value['message']}")


def _fields(fields: Mapping[str, Any], timestamps: set[str]) -> dict[str, Any]:
    return {
        name: dt.datetime.fromisoformat(value) if name in timestamps and value is not None else value
        for name, value in fields.items()
    }


def _plain(value: Any) -> Any:
    """Return numpy scalars as Python numbers. The router refuses values that JSON does not have."""
    return value.item() if isinstance(value, np.generic) else value
