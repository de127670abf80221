"""Requests and responses of a served index as plain JSON values.

A request is an object with exactly one of ``text``, ``texts`` (a list) and ``vector`` (an object, or a list of pairs of
term and weight, where a term may be an id), with ``k`` and the options of ``Searcher.search``. ``filter`` has the form
of ``filter_from_json``. ``hybrid`` is an object with attributes of ``Hybrid``; a ``vector`` with ``hybrid`` needs a
``text`` for its words. A response is ``{"results": [...]}``, one per text or vector, or
``{"error": name, "message": text}``.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, StrictBool, StrictStr, model_validator

from lsr_prod.errors import (
    ArtifactError,
    DigestMismatchError,
    FormatVersionError,
    LineageError,
    LsrError,
    PublicationError,
    QueryError,
)
from lsr_prod.search.query.filters import Filter, shorten
from lsr_prod.search.query.request import Hybrid, Options
from lsr_prod.search.result import Facet, Hit, QueryTerm, SearchResult
from lsr_prod.serving.calls import OverloadedError, UnavailableError
from lsr_prod.serving.wire_values import WireValue, read_filter, read_hybrid, read_vector

_ERRORS = {
    kind.__name__: kind
    for kind in (
        ArtifactError,
        DigestMismatchError,
        FormatVersionError,
        LineageError,
        OverloadedError,
        PublicationError,
        QueryError,
        UnavailableError,
    )
}
_QUERIES = ("text", "texts", "vector")
_OTHER_FORM = ("hits", "query", "timestamps", "next_page", "facets")  # keys of a result that are not its attributes
MAX_TEXTS = 1_000
_MAX_HITS = 100_000  # of all texts of a request: a response of about 10 MB without fields


class WireRequest(WireValue):
    """A search request of a client. Only its form is validated here; the search validates the values.

    Attributes:
        text: text to search for, or the text whose words a hybrid search with a ``vector`` matches.
        texts: texts to search for.
        vector: weights by term or term id to search for.
        k: maximum number of hits.
    """

    text: Any = None
    texts: list[Any] = Field(default_factory=list)
    vector: Annotated[dict[Any, Any], BeforeValidator(read_vector)] = Field(default_factory=dict)
    k: Any = 10
    overlap_threshold: Any = None
    min_terms: Any = None
    qk: Any = None
    filter: Annotated[InstanceOf[Filter] | None, BeforeValidator(read_filter)] = None
    min_score: Any = None
    rescore: Any = None
    deduplicate: StrictStr | None = None
    deadline_ms: Any = None
    count: StrictBool = False
    fields: list[Any] = Field(default_factory=list)
    hybrid: Annotated[InstanceOf[Hybrid] | None, BeforeValidator(read_hybrid)] = None
    offset: Any = 0
    search_after: StrictStr | None = None
    sort: StrictStr | None = None
    facets: list[Any] = Field(default_factory=list)
    facet_size: Any = 10
    highlight: list[Any] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_one_query(self) -> Self:
        given = [name for name in _QUERIES if name in self.model_fields_set]
        if len(given) != 1 and not (self.hybrid is not None and given == ["text", "vector"]):
            raise QueryError(f"the request has {given or 'neither'}; give exactly one of text, texts and vector")
        if len(self.texts) > MAX_TEXTS:
            raise QueryError(f"the request has {len(self.texts)} texts; send at most {MAX_TEXTS} at a time")
        if isinstance(self.k, int) and len(self.texts) * self.k > _MAX_HITS:
            raise QueryError(
                f"{len(self.texts)} texts with k={self.k} are more than {_MAX_HITS} hits; send fewer texts at a time"
            )
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


def request_to_json(k: int, options: Options, **query: Any) -> dict[str, Any]:
    """Return a request as a JSON value."""
    value: dict[str, Any] = {**query, "k": _plain(k), **{name: _plain(option) for name, option in options.items()}}
    if "vector" in query:
        value["vector"] = vector_to_json(query["vector"])
    names = ("fields", "facets", "highlight")
    value |= {name: list(value[name]) for name in names if isinstance(value.get(name), tuple)}
    expression = options.get("filter")
    if expression is not None:
        if not isinstance(expression, Filter):
            raise QueryError(
                f"the filter {shorten(expression)} is not a filter; build it with field() or filter_from_json()"
            )
        value["filter"] = expression.to_json()
    if options.get("hybrid") is not None:
        value["hybrid"] = hybrid_to_json(options["hybrid"])
    return value


def vector_to_json(vector: Any) -> list[list[Any]]:
    """Return a vector as pairs of term and weight."""
    if not isinstance(vector, Mapping):
        raise QueryError(f"the query {type(vector).__name__} is no vector; give a mapping from terms to weights")
    return [[_plain(term), _plain(weight)] for term, weight in vector.items()]


def hybrid_to_json(hybrid: Any) -> dict[str, Any]:
    """Return ``Hybrid`` as an object."""
    if not isinstance(hybrid, Hybrid):
        raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")
    return asdict(hybrid)


def result_to_json(result: SearchResult) -> dict[str, Any]:
    """Return a result as a JSON value; times become ISO 8601 strings, and ``timestamps`` lists their fields.

    ``next_page`` is the value of ``search_after`` for the next page, or null. A facet with ``times`` has times, too.
    """
    timestamps = {name for hit in result.hits for name, value in hit.fields.items() if isinstance(value, dt.datetime)}
    value = {each.name: getattr(result, each.name) for each in dataclass_fields(result)}
    value["query"] = [[term.term, term.weight, term.field] for term in result.query]
    value["hits"] = [
        {
            "doc_id": hit.doc_id,
            "score": hit.score,
            "overlap": hit.overlap,
            "fields": {
                name: each.isoformat() if isinstance(each, dt.datetime) else each for name, each in hit.fields.items()
            },
            "highlights": _highlights_to_json(hit.highlights),
        }
        for hit in result.hits
    ]
    value["timestamps"] = sorted(timestamps)
    value["next_page"] = result.next_page
    value["facets"] = [_facet_to_json(facet) for facet in result.facets]
    return value


def result_from_json(value: Mapping[str, Any]) -> SearchResult:
    """Read a result that ``result_to_json`` wrote."""
    timestamps = set(value["timestamps"])
    hits = tuple(
        Hit(
            hit["doc_id"],
            hit["score"],
            hit["overlap"],
            _fields(hit["fields"], timestamps),
            _highlights_from_json(hit.get("highlights")),
        )
        for hit in value["hits"]
    )
    query = tuple(QueryTerm(*term) for term in value["query"])
    rest = {
        name: each for name, each in value.items() if name not in ("hits", "query", "timestamps", "next_page", "facets")
    }
    rest["missing_groups"] = tuple(rest.get("missing_groups", ()))
    facets = tuple(map(_facet_from_json, value.get("facets", ())))
    return SearchResult(hits=hits, query=query, facets=facets, **rest)


def error_to_json(error: LsrError) -> dict[str, Any]:
    """Return an error as a response; clients do not know all kinds of ``UnavailableError``."""
    unknown = isinstance(error, UnavailableError) and type(error).__name__ not in _ERRORS
    kind = UnavailableError if unknown else type(error)
    return {"error": kind.__name__, "message": str(error)}


def error_from_json(value: Mapping[str, Any]) -> LsrError:
    """Read the error of a response; a class that clients do not know becomes ``LsrError``."""
    kind = _ERRORS.get(value["error"])
    return kind(value["message"]) if kind else LsrError(f"{value['error']}: {value['message']}")


def _facet_to_json(facet: Facet) -> dict[str, Any]:
    times = bool(facet.values) and isinstance(facet.values[0][0], dt.datetime)
    values = [[each.isoformat() if isinstance(each, dt.datetime) else each, count] for each, count in facet.values]
    return {**asdict(facet), "values": values, "times": times}


def _facet_from_json(value: Mapping[str, Any]) -> Facet:
    read = dt.datetime.fromisoformat if value["times"] else lambda each: each
    values = tuple((read(each), count) for each, count in value["values"])
    return Facet(value["name"], values, value["missing"], value["distinct"])


def _highlights_to_json(value: Mapping[str, tuple[tuple[int, int], ...]] | None) -> dict[str, list[list[int]]] | None:
    # An empty mapping of any kind is a JSON object, too: it says that no word matched, null that nobody asked.
    return None if value is None else {name: list(map(list, places)) for name, places in value.items()}


def _highlights_from_json(value: Mapping[str, Any] | None) -> dict[str, tuple[tuple[int, int], ...]] | None:
    if value is None:
        return None
    return {name: tuple((start, end) for start, end in places) for name, places in value.items()}


def _fields(fields: Mapping[str, Any], timestamps: set[str]) -> dict[str, Any]:
    return {
        name: dt.datetime.fromisoformat(value) if name in timestamps and value is not None else value
        for name, value in fields.items()
    }


def _plain(value: Any) -> Any:
    """Return numpy scalars as Python numbers. The router refuses values that JSON does not have."""
    return value.item() if isinstance(value, np.generic) else value
