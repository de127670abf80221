"""Requests and responses of a served index as plain JSON values.

A request is an object with exactly one of ``text``, ``texts`` (a list) and ``vector`` (an object, or a list of pairs of
term and weight, where a term may be an id), with ``k`` and the options of ``Searcher.search``. ``filter`` has the form
of ``filter_from_json``. ``hybrid`` is an object with attributes of ``Hybrid``; a ``vector`` with ``hybrid`` needs a
``text`` for its words. A response is ``{"results": [...]}``, one per text or vector, or
``{"error": name, "message": text}``.

A ``Form`` says how a client writes a value and how the router reads it; that of an option of a search follows from its
type in ``Options``. Only forms are validated here; the search validates the values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

import numpy as np

from lsr_prod import errors
from lsr_prod.errors import LsrError, QueryError
from lsr_prod.search.query.filter_types import filter_from_json
from lsr_prod.search.query.filters import Filter, shorten
from lsr_prod.search.query.search_request import Hybrid, Options
from lsr_prod.search.search_result import Facet, Hit, QueryTerm, SearchResult
from lsr_prod.serving.groups import OverloadedError, UnavailableError
from lsr_prod.storage.formats.stored_values import json_type, value_from_json, value_to_json

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
_OF_HYBRID = {each.name: each for each in fields(Hybrid)}


def plain(value: Any) -> Any:
    """Return numpy scalars as Python numbers. The router refuses values that JSON does not have."""
    return value.item() if isinstance(value, np.generic) else value


@dataclass(frozen=True, slots=True)
class Form:
    """Form of a value."""

    # returns a value of JSON as the search takes it, given the name of the option
    read: Callable[[str, Any], Any] = lambda _, value: value
    write: Callable[[Any], Any] = plain  # returns a value as JSON


def read_object(value: Any, forms: Mapping[str, Form], required: Collection[str] = ()) -> dict[str, Any]:
    """Read an object whose entries have these forms."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise QueryError(f"the request is {shorten(value)}; give an object with text or vector")
    for name in value:
        if name not in forms:
            raise QueryError(f"the request has {shorten(name)}, which is unknown; give some of: {', '.join(forms)}")
    for name in required:
        if name not in value:
            raise QueryError(f"the request has no {name}; give it")
    return {name: forms[name].read(name, each) for name, each in value.items()}


def hybrid_to_json(hybrid: Any) -> dict[str, Any] | None:
    """Return ``Hybrid`` as an object; None: none."""
    if hybrid is not None and not isinstance(hybrid, Hybrid):
        raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")
    return None if hybrid is None else asdict(hybrid)


def vector_to_json(vector: Any) -> list[list[Any]]:
    """Return a vector as pairs of term and weight."""
    if not isinstance(vector, Mapping):
        raise QueryError(f"the query {type(vector).__name__} is no vector; give a mapping from terms to weights")
    return [[plain(term), plain(weight)] for term, weight in vector.items()]


def _of_type(kind: type, wanted: str, *, optional: bool = False) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        if not isinstance(value, kind) and not (optional and value is None):
            raise QueryError(f"{name} is {shorten(value)}; give {wanted}")
        return value

    return read


def _filter_to_json(expression: Any) -> Any:
    if expression is not None and not isinstance(expression, Filter):
        raise QueryError(
            f"the filter {shorten(expression)} is not a filter; build it with field() or filter_from_json()"
        )
    return None if expression is None else expression.to_json()


def _read_hybrid(_: str, value: Any) -> Hybrid | None:
    """Read ``Hybrid`` from an object with some of its attributes."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value.keys() <= _OF_HYBRID.keys():
        known = ", ".join(_OF_HYBRID)
        raise QueryError(f"hybrid={shorten(value)} is not possible; give an object with some of: {known}")
    return Hybrid(**value)


def _read_vector(_: str, value: Any) -> dict[Any, Any]:
    """Read a vector from an object, or from a list of pairs, where a term may be an id."""
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


VALUE = Form()
STRING = Form(_of_type(str, "a string"))
LIST = Form(_of_type(list, "a list"), lambda value: list(value) if isinstance(value, tuple) else value)
VECTOR = Form(_read_vector, vector_to_json)
_OF_TYPES = {
    bool: Form(_of_type(bool, "true or false")),
    str | None: Form(_of_type(str, "a string", optional=True)),
    Sequence[str]: LIST,
    Filter | None: Form(lambda _, value: None if value is None else filter_from_json(value), _filter_to_json),
    Hybrid | None: Form(_read_hybrid, hybrid_to_json),
}
OPTION_FORMS = {name: _OF_TYPES.get(kind, VALUE) for name, kind in get_type_hints(Options).items()}
"""Form of every option of a search."""

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
    hits = tuple(
        Hit(
            hit["doc_id"],
            hit["score"],
            hit["overlap"],
            {name: value_from_json(each, value["types"].get(name)) for name, each in hit["fields"].items()},
            _highlights_from_json(hit.get("highlights")),
        )
        for hit in value["hits"]
    )
    query = tuple(QueryTerm(*term) for term in value["query"])
    rest = {name: each for name, each in value.items() if name not in _OTHER_FORM}
    rest["missing_groups"] = tuple(rest.get("missing_groups", ()))
    return SearchResult(hits=hits, query=query, facets=tuple(map(_facet_from_json, value.get("facets", ()))), **rest)


def error_to_json(error: LsrError) -> dict[str, Any]:
    """Return an error as a response; clients do not know all kinds of ``UnavailableError``."""
    unknown = isinstance(error, UnavailableError) and type(error).__name__ not in _ERRORS
    return {"error": (UnavailableError if unknown else type(error)).__name__, "message": str(error)}


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
