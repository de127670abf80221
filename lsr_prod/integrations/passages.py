"""Hits as frameworks of applications want them: id, text, metadata and score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsr_prod.errors import ConfigError, QueryError
from lsr_prod.search import Filter, Options, Searcher, field, filter_from_json
from lsr_prod.search.query.filters import DOC_ID, Combination, Condition, Field, Negation, combine, shorten
from lsr_prod.search.query.search_request import make_request
from lsr_prod.storage.formats.stored_values import value_to_json


@dataclass(frozen=True, slots=True)
class Passage:
    """A hit with its stored fields."""

    doc_id: str  # its id
    text: str  # the text fields of the index, one per line
    metadata: dict[str, Any]  # the other stored fields that have a value, as JSON has them
    score: float  # its score


def open_index(index: str | Path | Searcher) -> Searcher:
    """Return the searcher of an index."""
    return index if isinstance(index, Searcher) else Searcher.open(index)


def checked_options(k: int, options: Mapping[str, Any], chosen: Filter | None) -> Options:
    """Return the options of a search with its filter."""
    if "filter" in options:
        raise QueryError("the options have a filter, which is an argument of its own; give it there")
    whole: Any = {**options, "filter": chosen}
    make_request(k, whole)
    return whole  # type: ignore[no-any-return]


def find_passages(searcher: Searcher, query: str, k: int, options: Options) -> list[Passage]:
    """Return the hits of a text; the option ``fields`` chooses fields, by default all that the index stores."""
    version = searcher.version
    names = options.get("fields") or list(dict.fromkeys((*version.stored_fields, *version.attributes)))
    texts = [name for name in version.text_fields if name in names]
    if not texts:
        raise ConfigError(
            "fields", f"none of {shorten(list(names))} is a text of the index", "store the text: source.stored_fields"
        )
    chosen: Options = {**options, "fields": names}
    found = []
    for hit in searcher.search(query, k, **chosen).hits:
        values = {name: value_to_json(value) for name, value in hit.fields.items() if value is not None}
        text = "\n".join(str(values.pop(name)) for name in texts if name in values)
        found.append(Passage(hit.doc_id, text, values, hit.score))
    return found


def read_filter(value: Filter | Mapping[str, Any] | None) -> Filter | None:
    """Return a filter that is given as an object or in the JSON form of ``filter_from_json``."""
    return value if value is None or isinstance(value, Filter) else filter_from_json(value)


_OPERATORS: Mapping[str, Callable[[Field, Any], Filter]] = {
    "==": lambda attribute, value: attribute.is_null() if value is None else attribute == value,
    "!=": lambda attribute, value: unless(attribute.is_null() if value is None else attribute == value),
    ">": lambda attribute, value: attribute > value,
    ">=": lambda attribute, value: attribute >= value,
    "<": lambda attribute, value: attribute < value,
    "<=": lambda attribute, value: attribute <= value,
    "in": lambda attribute, value: attribute.is_in(value),
    "not in": lambda attribute, value: unless(attribute.is_in(value)),
}


def condition(name: Any, operator: Any, value: Any) -> Filter:
    """Return the filter for an operator of a framework; in frameworks a missing value differs from each value."""
    if not isinstance(operator, str) or operator not in _OPERATORS:
        raise QueryError(f"operator {shorten(operator)} is not possible; give one of: {', '.join(_OPERATORS)}")
    return _OPERATORS[operator](field(name), value)


def unless(part: Filter) -> Filter:
    """Return the filter for documents of which another filter is not true.

    Unlike those of its negation, they include documents without a value.
    """
    match part:
        case Combination(operator, parts):
            return combine("or" if operator == "and" else "and", *map(unless, parts))
        case Negation(Combination(operator, parts)):
            return unless(combine("or" if operator == "and" else "and", *(~one for one in parts)))
        case Negation(Negation(inner)):
            return unless(inner)
        case Condition(name, operator) | Negation(Condition(name, operator)) if (
            name != DOC_ID and operator != "is_null"
        ):
            return ~part | field(name).is_null()
    return ~part
