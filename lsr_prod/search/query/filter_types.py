"""Validate filters against the attributes of an index: names, operators and types."""

import contextlib
import datetime as dt
import decimal
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import (
    DOC_ID,
    MAX_DEPTH,
    OPERATORS,
    Combination,
    Condition,
    Filter,
    Negation,
    Operator,
    combine,
    field,
    literal,
    shorten,
)
from lsr_prod.search.query.query_text import TextQuery, text_query, words_query
from lsr_prod.storage.formats.stored_values import AttributeType, AttributeValue, parse_value

MAX_VALUES = 10_000  # over the whole filter
_TEXT_QUERY = 1_000  # values that a text query counts as
_EXACT = 1 << 53  # float64 holds every integer up to here
_TEXTS = ("string", "strings")
_RANGES = ("gt", "ge", "lt", "le")
_OF_ONE = ("eq", "prefix", *_RANGES)


@dataclass(frozen=True, slots=True)
class CheckedFilter(Filter):
    """A filter that fits the attributes of an index, with its key, which is computed once for all shards."""

    expression: Filter  # the filter; its values have the types of the attributes
    digest: str  # sha256 of its canonical JSON, so that keys of large filters take no memory
    size: int  # bytes of the JSON

    @classmethod
    def of(cls, expression: Filter) -> "CheckedFilter":
        """Return a filter with its key."""
        content = expression.key.encode()
        return cls(expression, hashlib.sha256(content).hexdigest(), len(content))

    @property
    def key(self) -> str:
        """Equal for equal filters; see ``Filter``."""
        return self.digest

    def to_json(self) -> dict[str, Any]:
        """See ``Filter``."""
        return self.expression.to_json()


def check_filter(expression: Filter, attributes: Mapping[str, AttributeType]) -> Filter:
    """Return the filter with values of the types of their attributes, so that equal filters have equal keys."""
    if not isinstance(expression, Filter):
        raise QueryError(f"filter={shorten(expression)} is not a filter; build it with field() or filter_from_json()")
    if _count(expression, 1) > MAX_VALUES:
        raise QueryError(
            f"the filter holds more than {MAX_VALUES} values; give fewer (a text query counts as {_TEXT_QUERY})"
        )
    return _check(expression, attributes)


def _count(expression: Filter, depth: int) -> int:
    # A filter that was not built by ``field`` can contain anything.
    if depth > MAX_DEPTH:
        raise QueryError(f"the filter is nested more than {MAX_DEPTH} deep; give a flatter one")
    match expression:
        case Combination("and" | "or", tuple() as parts):
            return sum(_count(part, depth + 1) for part in parts)
        case Negation(part):
            return _count(part, depth + 1)
        case TextQuery():
            return _TEXT_QUERY
        case Condition(str(), "in", tuple() as values):
            return max(1, len(values))
        case Condition(str(), "is_null", None):
            return 1
        case Condition(str(), operator, value) if operator in _OF_ONE and not isinstance(value, tuple | None):
            return 1
    raise QueryError(f"the filter holds {shorten(expression)}; build it with field() or filter_from_json()")


def _check(expression: Filter, attributes: Mapping[str, AttributeType]) -> Filter:
    match expression:
        case Combination(operator, parts) if parts:
            return Combination(operator, tuple(_check(part, attributes) for part in parts))
        case Negation(part):
            return Negation(_check(part, attributes))
        case TextQuery():
            return expression
        case Condition(name, operator, value):
            kind = _kind(name, operator, attributes)
            if isinstance(value, tuple):
                return Condition(name, operator, tuple(_convert(each, kind, name) for each in value))
            return Condition(name, operator, None if value is None else _convert(value, kind, name))
    raise QueryError(f"the filter holds {shorten(expression)}; build it with field() or filter_from_json()")


def _kind(name: str, operator: Operator, attributes: Mapping[str, AttributeType]) -> AttributeType:
    """Return the type of an attribute that supports the operator."""
    if name == DOC_ID:
        if operator not in ("eq", "in", "prefix"):
            raise QueryError(f"doc_id does not support {operator}; use eq, in or prefix")
        return "string"
    if name not in attributes:
        known = ", ".join(f"{each} ({kind})" for each, kind in attributes.items()) or "none"
        raise QueryError(f"the index has no attribute {shorten(name)}; it has doc_id and: {known}")
    kind = attributes[name]
    if (operator == "prefix" and kind not in _TEXTS) or (operator in _RANGES and kind in ("bool", "strings")):
        raise QueryError(f"attribute {name!r} is {kind}, which does not support {operator}")
    return kind


def _convert(value: AttributeValue, kind: AttributeType, name: str) -> AttributeValue:
    value = literal(value, name)
    match kind, value:
        case ("string" | "strings", str()) | ("bool", bool()) | ("timestamp", dt.datetime()):
            return value
        case "date", dt.date() if not isinstance(value, dt.datetime):
            return value
        case "int64", int() if not isinstance(value, bool):
            return value
        case "float64", float():
            return value + 0.0  # -0.0 becomes 0.0
        case "float64", int() if not isinstance(value, bool) and -_EXACT <= value <= _EXACT:
            return float(value)
        case ("timestamp" | "date", str()):
            try:
                return parse_value(value, kind)
            except ValueError as error:
                raise QueryError(f"{shorten(value)} for {name!r} is not a {kind}; give ISO 8601") from error
        case _, int() | float() | str() | decimal.Decimal() if kind[:7] == "decimal" and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                return parse_value(str(value), kind)
    raise QueryError(f"{shorten(value)} does not fit attribute {name!r}; give a {kind}")


def filter_from_json(value: Any) -> Filter:
    """Read a filter from the JSON form that ``filters`` describes.

    Raises:
        QueryError: the value is not a filter, or is nested more than 16 deep; the message says where.
    """
    return _read(value, "filter", 1)


def _read(value: Any, where: str, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise QueryError(f"{where} is nested more than {MAX_DEPTH} deep; give a flatter filter")
    if not isinstance(value, dict):
        raise QueryError(f"{where} is {shorten(value)}; give an object with and, or, not, text, words, or field and op")
    match list(value):
        case ["and" | "or" as operator]:
            parts = value[operator]
            if not isinstance(parts, list) or not parts:
                raise QueryError(f"{where}.{operator} is {shorten(parts)}; give a list of one filter or more")
            return combine(
                operator, *(_read(part, f"{where}.{operator}[{i}]", depth + 1) for i, part in enumerate(parts))
            )
        case ["not"]:
            return Negation(_read(value["not"], f"{where}.not", depth + 1))
        case ["text"]:
            if not isinstance(value["text"], str):
                raise QueryError(f"{where}.text is {shorten(value['text'])}; give a Boolean query as a string")
            return text_query(value["text"])
        case ["words"] | ["words", "match"] | ["match", "words"]:
            try:
                return words_query(value["words"], value.get("match", "all"))
            except QueryError as error:
                raise QueryError(f"{where}: {error}") from error
    return _read_condition(value, where)


def _read_condition(value: dict[Any, Any], where: str) -> Filter:
    name, operator = value.get("field"), value.get("op")
    if operator is not None and not isinstance(operator, str):
        raise _unknown_operator(operator, where)
    allowed = {"field", "op"} if operator == "is_null" else {"field", "op", "value"}
    if value.keys() != allowed and operator in (None, "between", *OPERATORS):
        raise QueryError(
            f"{where} has {shorten(list(value))}; give {', '.join(sorted(allowed))}, or one of and, or, not"
        )
    if not isinstance(name, str):
        raise QueryError(f"{where}.field is {shorten(name)}; give the name of an attribute")
    given = value.get("value")
    if operator in ("in", "between") and (not isinstance(given, list) or (operator == "between" and len(given) != 2)):
        raise QueryError(f"{where}.value is {shorten(given)}; give a list{' of two' * (operator == 'between')}")
    match operator:
        case "is_null":
            return field(name).is_null()
        case "in":
            return field(name).is_in(given)  # type: ignore[arg-type]
        case "between":
            return field(name).between(*given)  # type: ignore[misc]
        case "eq" | "gt" | "ge" | "lt" | "le" | "prefix":
            return Condition(name, operator, literal(given, name))
    raise _unknown_operator(operator, where)


def _unknown_operator(operator: Any, where: str) -> QueryError:
    return QueryError(f"{where}.op is {shorten(operator)}; give one of: between, {', '.join(OPERATORS)}")
