"""Requests and responses of a served index as plain JSON values.

A request is an object with exactly one of ``text``, ``texts`` (a list) and ``vector`` (an object, or a list of pairs of
term and weight, where a term may be an id), with ``k`` and the options of ``Searcher.search``. ``filter`` has the form
of ``filter_from_json``. ``hybrid`` is an object with attributes of ``Hybrid``; a ``vector`` with ``hybrid`` needs a
``text`` for its words. A response is ``{"results": [...]}``, one per text or vector, or
``{"error": name, "message": text}``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lsr_prod import errors
from lsr_prod.errors import LsrError, QueryError
from lsr_prod.search.query.request import Options
from lsr_prod.search.result import Facet, Hit, QueryTerm, SearchResult
from lsr_prod.serving.groups import OverloadedError, UnavailableError
from lsr_prod.serving.wire_values import LIST, OPTION_FORMS, VALUE, VECTOR, plain, read_object, vector_to_json
from lsr_prod.storage.formats.values import json_type, value_from_json, value_to_json

_ERRORS = {
    kind.__name__: kind
    for kind in (
        errors.ArtifactError,
        errors.DigestMismatchError,
        errors.FormatVersionError,
        errors.LineageError,
        OverloadedError,
        errors.PublicationError,
        QueryError,
        UnavailableError,
    )
}
_QUERIES = ("text", "texts", "vector")
_OTHER_FORM = ("hits", "query", "types", "next_page", "facets")  # keys of a result that are not its attributes
MAX_TEXTS = 1_000
_MAX_HITS = 100_000  # of all texts of a request: a response of about 10 MB without fields

SEARCH_FORMS = {"text": VALUE, "texts": LIST, "vector": VECTOR, "k": VALUE, **OPTION_FORMS}


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A search request of a client."""

    k: Any  # maximum number of hits
    options: Options  # options of the search that the client gave
    queries: list[Any] | None  # texts to search for; None: the request has a vector
    vector: dict[Any, Any]  # weights by term or term id to search for
    text: Any  # the only text to search for, or the text whose words a hybrid search with a vector matches

    @classmethod
    def read(cls, value: Any) -> "WireRequest":
        """Read a request; only its form is validated here, the search validates the values."""
        options: Any = read_object(value, SEARCH_FORMS)
        queries = {name: options.pop(name) for name in _QUERIES if name in options}
        given, k, texts = [*queries], options.pop("k", 10), queries.get("texts", [])
        if len(given) != 1 and not (options.get("hybrid") is not None and given == ["text", "vector"]):
            raise QueryError(f"the request has {given or 'neither'}; give exactly one of text, texts and vector")
        if len(texts) > MAX_TEXTS:
            raise QueryError(f"the request has {len(texts)} texts; send at most {MAX_TEXTS} at a time")
        if isinstance(k, int) and len(texts) * k > _MAX_HITS:
            raise QueryError(
                f"{len(texts)} texts with k={k} are more than {_MAX_HITS} hits; send fewer texts at a time"
            )
        vector, text = queries.get("vector"), queries.get("text")
        if vector is not None:
            return cls(k, options, None, vector, text)
        return cls(k, options, [text] if "text" in queries else texts, {}, text)


def request_to_json(k: int, options: Options, **query: Any) -> dict[str, Any]:
    """Return a request as a JSON value."""
    written = {name: OPTION_FORMS.get(name, VALUE).write(option) for name, option in options.items()}
    value: dict[str, Any] = {**query, "k": plain(k), **written}
    if "vector" in query:
        value["vector"] = vector_to_json(query["vector"])
    return value


def result_to_json(result: SearchResult) -> dict[str, Any]:
    """Return a result as a JSON value; dates, times and decimals become strings, and ``types`` has their types.

    ``next_page`` is the value of ``search_after`` for the next page, or null. A facet has the ``type`` of its values,
    too, or null.
    """
    names = dict.fromkeys(name for hit in result.hits for name in hit.fields)
    types = {name: json_type(hit.fields.get(name) for hit in result.hits) for name in names}
    value = result._asdict()
    value["query"] = [[term.term, term.weight, term.field] for term in result.query]
    value["hits"] = [
        {
            **hit._asdict(),
            "fields": {name: value_to_json(each) for name, each in hit.fields.items()},
            "highlights": _highlights_to_json(hit.highlights),
        }
        for hit in result.hits
    ]
    value["types"] = {name: kind for name, kind in types.items() if kind is not None}
    value["next_page"] = result.next_page
    value["facets"] = [_facet_to_json(facet) for facet in result.facets]
    return value


def result_from_json(value: Mapping[str, Any]) -> SearchResult:
    """Read a result that ``result_to_json`` wrote."""
    types = value["types"]
    hits = tuple(
        Hit(
            hit["doc_id"],
            hit["score"],
            hit["overlap"],
            {name: value_from_json(each, types.get(name)) for name, each in hit["fields"].items()},
            _highlights_from_json(hit.get("highlights")),
        )
        for hit in value["hits"]
    )
    query = tuple(QueryTerm(*term) for term in value["query"])
    rest = {name: each for name, each in value.items() if name not in _OTHER_FORM}
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
    values = [[value_to_json(each), count] for each, count in facet.values]
    return {**asdict(facet), "values": values, "type": json_type(each for each, _ in facet.values)}


def _facet_from_json(value: Mapping[str, Any]) -> Facet:
    values = tuple((value_from_json(each, value["type"]), count) for each, count in value["values"])
    return Facet(value["name"], values, value["missing"], value["distinct"])


def _highlights_to_json(value: Mapping[str, tuple[tuple[int, int], ...]] | None) -> dict[str, list[list[int]]] | None:
    # An empty mapping of any kind is a JSON object, too: it says that no word matched, null that nobody asked.
    return None if value is None else {name: list(map(list, places)) for name, places in value.items()}


def _highlights_from_json(value: Mapping[str, Any] | None) -> dict[str, tuple[tuple[int, int], ...]] | None:
    if value is None:
        return None
    return {name: tuple((start, end) for start, end in places) for name, places in value.items()}
