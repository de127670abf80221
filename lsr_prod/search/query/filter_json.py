"""Read filters from their JSON form."""

from typing import Any

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filters import (
    MAX_DEPTH,
    OPERATORS,
    Condition,
    Filter,
    Negation,
    combine,
    field,
    literal,
    shorten,
)
from lsr_prod.search.query.text_filters import text_query


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
        raise QueryError(f"{where} is {shorten(value)}; give an object with and, or, not, text, or field and op")
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
