"""Queries and answers as plain JSON values: what clients and the router say to each other.

A question is an object with exactly one of ``text``, ``texts`` (a list) and ``vector`` (an object, or a list of pairs
of term and weight, where a term may be an id), with ``k`` and with the keywords of ``Request``; ``filter`` has the form
that ``filter_from_json`` reads, and ``hybrid`` is an object with attributes of ``Hybrid``: with it a ``vector`` comes
with a ``text``, whose words it reads. An answer is ``{"results": [...]}``, one for each text or vector, or
``{"error": name, "message": text}``.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

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

__all__ = ["Question", "error_from_json", "error_to_json", "question_to_json", "result_from_json", "result_to_json"]

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
_ASKED = ("text", "texts", "vector")


class Question:
    """A question as it came in, its form checked; values are checked by the search.

    Attributes:
        texts: to search for, if there are any.
        vector: to search for otherwise.
        words: text whose words count beside a vector; None: none do.
        k: hits at most.
        options: keywords of the search.
    """

    def __init__(self, value: Any) -> None:
        """Read a question.

        Args:
            value: from a client.

        Raises:
            QueryError: it has not the form that the module describes.
        """
        if not isinstance(value, Mapping):
            raise QueryError(f"the question is {shorten(value)}; give an object with text or vector")
        known = (*_ASKED, "k", *Options.__annotations__)
        unknown = [name for name in value if name not in known]
        if unknown:
            raise QueryError(
                f"the question has {shorten(unknown[0])}, which is unknown; give some of: {', '.join(known)}"
            )
        self.words: Any = None
        if value.get("hybrid") is not None and "vector" in value and "text" in value:
            self.words = value["text"]
            value = {name: each for name, each in value.items() if name != "text"}
        asked = [name for name in _ASKED if name in value]
        if len(asked) != 1:
            raise QueryError(f"the question has {asked or 'neither'}; give exactly one of text, texts and vector")
        self.texts: list[Any] | None = None
        self.vector: dict[Any, Any] = {}
        match asked[0]:
            case "text":
                self.texts = [value["text"]]
            case "texts":
                self.texts = _list("texts", value["texts"])
            case _:
                self.vector = _vector(value["vector"])
        self.k: int = value.get("k", 10)
        self.options = _options(value)


def question_to_json(k: int, options: Options, **asked: Any) -> dict[str, Any]:
    """A question.

    Args:
        k: hits at most.
        options: keywords of the search.
        **asked: text, texts or vector.

    Raises:
        QueryError: the vector is none, or the filter is none.
    """
    value: dict[str, Any] = {**asked, "k": _plain(k), **{name: _plain(option) for name, option in options.items()}}
    if "vector" in asked:
        vector = asked["vector"]
        if not isinstance(vector, Mapping):
            raise QueryError(f"the query {type(vector).__name__} is no vector; give a mapping from terms to weights")
        value["vector"] = [[_plain(term), _plain(weight)] for term, weight in vector.items()]
    if "fields" in options and not isinstance(options["fields"], str):
        value["fields"] = list(options["fields"])
    expression = options.get("filter")
    if expression is not None:
        if not isinstance(expression, Filter):
            raise QueryError(f"the filter {shorten(expression)} is none; build it with field() or filter_from_json()")
        value["filter"] = expression.to_json()
    hybrid = options.get("hybrid")
    if hybrid is not None:
        if not isinstance(hybrid, Hybrid):
            raise QueryError(f"hybrid={shorten(hybrid)} is not possible; give Hybrid(), with weights if you have some")
        value["hybrid"] = asdict(hybrid)
    return value


def result_to_json(result: SearchResult) -> dict[str, Any]:
    """A result; times become ISO 8601 strings, and ``timestamps`` names the fields that hold them."""
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
    """Read what ``result_to_json`` wrote."""
    timestamps = set(value["timestamps"])
    hits = tuple(
        Hit(hit["doc_id"], hit["score"], hit["overlap"], _fields(hit["fields"], timestamps)) for hit in value["hits"]
    )
    query = tuple(QueryTerm(*term) for term in value["query"])
    rest = {name: each for name, each in value.items() if name not in ("hits", "query", "timestamps")}
    return SearchResult(hits=hits, query=query, **rest)


def error_to_json(error: LsrError) -> dict[str, Any]:
    """An error of ours as an answer."""
    return {"error": type(error).__name__, "message": str(error)}


def error_from_json(value: Mapping[str, Any]) -> LsrError:
    """The error that an answer holds; of a kind that clients do not know, it is an ``LsrError``."""
    kind = _ERRORS.get(value["error"])
    return kind(value["message"]) if kind else LsrError(f"{value['error']}: {value['message']}")


def _options(value: Mapping[str, Any]) -> Options:
    options: Options = {name: value[name] for name in Options.__annotations__ if name in value}  # type: ignore[assignment]
    if value.get("filter") is not None:
        options["filter"] = filter_from_json(value["filter"])
    if value.get("hybrid") is not None:
        options["hybrid"] = _hybrid(value["hybrid"])
    if not isinstance(value.get("count", False), bool):
        raise QueryError(f"count={shorten(value['count'])} is not possible; give true or false")
    if not isinstance(value.get("deduplicate"), str | None):
        raise QueryError(f"deduplicate={shorten(value['deduplicate'])} is not possible; give the name of a field")
    if "fields" in value:
        options["fields"] = _list("fields", value["fields"])
    return options


def _hybrid(value: Any) -> Hybrid:
    known = [field.name for field in fields(Hybrid)]
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        raise QueryError(f"hybrid={shorten(value)} is not possible; give an object with some of: {', '.join(known)}")
    return Hybrid(**value)


def _vector(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    pairs = _list("vector", value)
    if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str | int) for pair in pairs):
        raise QueryError("the vector has an entry that is no pair of term and weight; give [term, weight]")
    _refuse_repeats(term for term, _ in pairs)
    return dict(pairs)


def _refuse_repeats(terms: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for term in terms:
        if term in seen:
            raise QueryError(f"term {shorten(term)} is given twice; give it once")
        seen.add(term)


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise QueryError(f"{name} is {shorten(value)}; give a list")
    return list(value)


def _fields(fields: Mapping[str, Any], timestamps: set[str]) -> dict[str, Any]:
    return {
        name: dt.datetime.fromisoformat(value) if name in timestamps and value is not None else value
        for name, value in fields.items()
    }


def _plain(value: Any) -> Any:
    """numpy's scalars as Python's; what is no JSON value is refused by the router, as the embedded search does."""
    return value.item() if isinstance(value, np.generic) else value
