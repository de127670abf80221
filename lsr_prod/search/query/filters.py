"""Filters: conditions on attributes or ids of the documents that a query may return.

::

    fresh = (field("year") >= 2020) & field("lang").is_in(["en", "de"])
    drafts = field("title").starts_with("Draft") | field("published").is_null()
    searcher.search("how do locks work", filter=fresh & ~drafts)

A server accepts the same filters as JSON: ``{"and": [...]}``, ``{"or": [...]}``, ``{"not": {...}}``, and conditions
such as ``{"field": "year", "op": "ge", "value": 2020}``. Operators: eq, in, gt, ge, lt, le, between (both ends
included), prefix, is_null. Dates and timestamps are ISO 8601 strings, in UTC without an offset; decimals are numbers or
strings. Strings are compared by code point; a list of strings fulfils a condition if one of them does. ``doc_id``
supports eq, in and prefix. ``{"text": "lock AND NOT thread"}`` is a Boolean query (``boolean_query``),
``{"words": "usb-c don't", "match": "any"}`` has words without syntax; without ``match`` all of them are required.

A missing value matches only is_null. As in SQL, logic has three values: a condition on a missing value is neither true
nor false, and neither is its negation; a document is returned if the whole filter is true. Neither
``field("year") > 2000`` nor ``~(field("year") > 2000)`` returns a document without a year.
"""

import base64
import binascii
import datetime as dt
import decimal
import difflib
import json
import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from lsr_prod.errors import QueryError
from lsr_prod.storage.formats.digests import canonical_json
from lsr_prod.storage.formats.stored_values import AttributeValue, value_to_json

Operator = Literal["eq", "in", "gt", "ge", "lt", "le", "prefix", "is_null"]
DOC_ID = "doc_id"
MAX_DEPTH = 16
_MAX_TEXT = 4096  # characters of one value
_MAX_BITS = 1 << 12  # largest integer printed in a message; Python does not print integers of more than 4,300 digits
_MAX_TOKEN = 1 << 16  # characters


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= _MAX_BITS else f"an integer of {x.bit_length()} bits"


_REPR = _Short()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 3, 80, 80
OPERATORS: tuple[Operator, ...] = get_args(Operator)


class Filter(ABC):
    """A condition or a combination of conditions; combine with ``&``, ``|`` and ``~``.

    Examples:
        >>> from lsr_prod.search import field
        >>> recent = (field("year") >= 2020) & ~field("lang").is_in(["xx"])
        >>> isinstance(recent, Filter)
        True
    """

    __slots__ = ()

    def __and__(self, other: "Filter") -> "Filter":
        return combine("and", self, other)

    def __or__(self, other: "Filter") -> "Filter":
        return combine("or", self, other)

    def __invert__(self) -> "Filter":
        return Negation(self)

    def __bool__(self) -> bool:
        raise QueryError("a filter has no truth value; combine filters with &, | and ~, and use between() for ranges")

    @property
    def key(self) -> str:
        """Canonical JSON: equal for filters that differ only in the order of their parts or in repetition."""
        return canonical_json(self.to_json()).decode()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that ``filter_from_json`` reads."""


@dataclass(frozen=True, slots=True)
class Condition(Filter):
    """Comparison of an attribute or ``doc_id`` with a value."""

    name: str  # the attribute
    operator: Operator  # the comparison
    value: AttributeValue | tuple[AttributeValue, ...] | None  # a tuple for "in", None for "is_null"

    def to_json(self) -> dict[str, Any]:
        """See ``Filter``."""
        condition: dict[str, Any] = {"field": self.name, "op": self.operator}
        if isinstance(self.value, tuple):
            values = {(type(value).__name__, value) for value in map(value_to_json, self.value)}
            condition["value"] = [value for _, value in sorted(values)]
        elif self.value is not None:
            condition["value"] = value_to_json(self.value)
        return condition


@dataclass(frozen=True, slots=True)
class Combination(Filter):
    """Conjunction or disjunction of filters."""

    operator: Literal["and", "or"]
    parts: tuple[Filter, ...]

    def to_json(self) -> dict[str, Any]:
        """See ``Filter``."""
        parts = {canonical_json(part): part for part in (part.to_json() for part in self.parts)}
        return {self.operator: [parts[key] for key in sorted(parts)]}  # sorted: the order of the parts does not matter


@dataclass(frozen=True, slots=True)
class Negation(Filter):
    """Negation of a filter: true where the filter is false, not where it is unknown."""

    part: Filter

    def to_json(self) -> dict[str, Any]:
        """See ``Filter``."""
        return {"not": self.part.to_json()}


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """An attribute from which conditions are built; see ``field``."""

    name: str

    def __eq__(self, value: AttributeValue) -> Filter:  # type: ignore[override]
        return Condition(self.name, "eq", literal(value, self.name))

    def __ne__(self, value: AttributeValue) -> Filter:  # type: ignore[override]
        return Negation(self == value)

    def __gt__(self, value: AttributeValue) -> Filter:
        return Condition(self.name, "gt", literal(value, self.name))

    def __ge__(self, value: AttributeValue) -> Filter:
        return Condition(self.name, "ge", literal(value, self.name))

    def __lt__(self, value: AttributeValue) -> Filter:
        return Condition(self.name, "lt", literal(value, self.name))

    def __le__(self, value: AttributeValue) -> Filter:
        return Condition(self.name, "le", literal(value, self.name))

    def between(self, low: AttributeValue, high: AttributeValue) -> Filter:
        """Match values from ``low`` to ``high``, both included."""
        return (self >= low) & (self <= high)

    def is_in(self, values: Iterable[AttributeValue]) -> Filter:
        """Match any of the values; an empty list matches nothing."""
        if isinstance(values, str):
            raise QueryError(f"is_in of {self.name!r} got one string; give a list")
        if not isinstance(values, Iterable):
            raise QueryError(f"is_in of {self.name!r} got {shorten(values)}; give a list")
        return Condition(self.name, "in", tuple(literal(value, self.name) for value in values))

    def starts_with(self, prefix: str) -> Filter:
        """Match strings with a prefix."""
        return Condition(self.name, "prefix", literal(prefix, self.name))

    def is_null(self) -> Filter:
        """Match documents without a value."""
        return Condition(self.name, "is_null", None)

    __hash__ = None  # type: ignore[assignment]


def field(name: str) -> Field:
    """Return an attribute of the index, or ``doc_id``, to build conditions from.

    Raises:
        QueryError: ``name`` is not a string.
    """
    if not isinstance(name, str):
        raise QueryError(f"field name {shorten(name)} is not a string; give the name of an attribute")
    return Field(name)


def combine(operator: Literal["and", "or"], *filters: Filter) -> Filter:
    """Return the conjunction or disjunction of filters; nested ones of the same kind become one."""
    parts: list[Filter] = []
    for part in filters:
        if not isinstance(part, Filter):
            raise QueryError(f"{shorten(part)} is not a filter; put comparisons into brackets before & and |")
        parts += part.parts if isinstance(part, Combination) and part.operator == operator else [part]
    return Combination(operator, tuple(parts))


def literal(value: Any, name: str) -> AttributeValue:
    """Return a value as a plain Python value that has a JSON form."""
    if isinstance(value, np.generic):
        value = value.item()
    match value:
        case bool():
            return value
        case int() if not -(1 << 63) <= value < 1 << 63:
            raise QueryError(f"the number given for {name!r} does not fit into 64 bits; give a smaller one")
        case float() if not math.isfinite(value):
            raise QueryError(f"{value} for {name!r} is not possible; give a finite number, or is_null")
        case str() if len(value) > _MAX_TEXT:
            raise QueryError(f"a value given for {name!r} has {len(value)} characters; give at most {_MAX_TEXT}")
        case str() if any("\ud800" <= character <= "\udfff" for character in value):
            raise QueryError(f"a value given for {name!r} is not valid Unicode; decode it with errors='replace'")
        case dt.datetime() if value.tzinfo is None:
            raise QueryError(f"{value} for {name!r} has no time zone; give one, for example tzinfo=datetime.UTC")
        case dt.datetime() if getattr(value, "nanosecond", 0):  # of pandas
            raise QueryError(f"{value} for {name!r} has nanoseconds; round it to microseconds, as the index has them")
        case dt.datetime():
            try:
                return value.astimezone(dt.UTC)
            except OverflowError as error:
                raise QueryError(
                    f"{value} for {name!r} is outside the years 1 to 9999 in UTC; give one inside"
                ) from error
        case decimal.Decimal() if not value.is_finite() or abs(value.adjusted()) > _MAX_TEXT:
            raise QueryError(f"{shorten(value)} for {name!r} is not possible; give a finite number")
        case int() | float() | str() | dt.date() | decimal.Decimal():
            return value
    raise QueryError(f"{shorten(value)} for {name!r} is not supported; give a string, number, bool, date or datetime")


def shorten(value: object) -> str:
    """Return a short form of any value for a message."""
    return _REPR.repr(value)


def check_options(call: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse options that a call does not have."""
    for name in given:
        if name not in known:
            raise QueryError(f"{call} has no option {shorten(name)}; {suggest(name, known)}")


def check_names(option: str, names: Any, what: str = "names") -> None:
    """Require a list of strings."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise QueryError(f"{option}={shorten(names)} is not possible; give a list of {what}")


def suggest(name: str, known: Collection[str]) -> str:
    """Return which of the known names was probably meant, or all of them."""
    close: Sequence[str] = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"it has: {', '.join(sorted(known))}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last hit of a page."""

    version: str  # sha256 of the index version of the page
    score: float  # score of the hit
    doc_id: str  # its id
    rank: int  # its place in the whole result, from 1: the number of hits of all pages so far

    @property
    def token(self) -> str:
        """The cursor as letters, digits, ``-`` and ``_``; callers treat it as opaque."""
        values = [self.version, self.score.hex(), self.doc_id, self.rank]
        return base64.urlsafe_b64encode(json.dumps(values, ensure_ascii=False).encode()).decode().rstrip("=")

    @classmethod
    def read(cls, token: Any) -> "Cursor":
        """Read a token."""
        if isinstance(token, str) and token.isascii() and len(token) <= _MAX_TOKEN:
            try:
                match json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)):
                    case [str(version), str(score), str(doc_id), int(rank)] if rank > 0 and not isinstance(rank, bool):
                        cursor = cls(version, float.fromhex(score), doc_id, rank)
                        if math.isfinite(cursor.score):
                            return cursor
            except (binascii.Error, ValueError, OverflowError, RecursionError):
                pass  # one message for everything that is not a token
        raise QueryError(f"search_after={shorten(token)} is not a token; give next_page of the page before")
