"""Types of stored fields, and their values: from the text that sources have, in Arrow, and in JSON."""

import datetime as dt
import decimal
import math
import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

AttributeType = str
"""``string``, ``strings`` (a list), ``int64``, ``float64``, ``bool``, ``date``, ``timestamp``, or ``decimal(S)`` with S
digits after the point."""
AttributeValue = str | int | float | bool | dt.date | dt.datetime | decimal.Decimal
"""A value that is no list."""
TYPE_NAMES = "string, strings, int64, float64, bool, date, timestamp or decimal(S)"
EPOCHS = {"epoch_s": 1, "epoch_ms": 1000}
"""Numbers since 1970 that are read as timestamps, and their units per second."""
_TYPES: dict[str, pa.DataType] = {
    "string": pa.large_string(),
    "strings": pa.list_(pa.field("element", pa.large_string())),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d{1,2})\)")
_DIGITS = 38  # of the largest decimal of Delta
_EXACT = decimal.Context(prec=2 * _DIGITS, traps=[decimal.InvalidOperation])
_INTEGER = re.compile(r"([+-]?[0-9]{1,19})(\.0*)?")  # tools that know no missing integers write 7.0
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MONTH = re.compile(r"\d{4}-\d{2}")
_BOOL = {"true": True, "1": True, "false": False, "0": False}


def is_type(kind: object) -> bool:
    """Return whether there is a type with a name."""
    if not isinstance(kind, str):
        return False
    scale = _DECIMAL.fullmatch(kind)
    return kind in _TYPES if scale is None else int(scale[1]) <= _DIGITS


def arrow_type(kind: AttributeType) -> pa.DataType:
    """Return the type of a column in memory and in ``docs.arrow``."""
    scale = _DECIMAL.fullmatch(kind)
    return pa.decimal128(_DIGITS, int(scale[1])) if scale else _TYPES[kind]


def kind_of(column: pa.DataType) -> AttributeType | None:
    """Return the type that a stored field gets from the type of its column; None: it cannot be stored."""
    types = pa.types
    if isinstance(column, pa.BaseExtensionType):
        return "string" if column == pa.uuid() else kind_of(column.storage_type)
    if types.is_dictionary(column) or types.is_run_end_encoded(column):
        return kind_of(column.value_type)
    if types.is_decimal(column):
        return f"decimal({min(max(column.scale, 0), _DIGITS)})"
    lists = (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view, types.is_fixed_size_list)
    if any(check(column) for check in lists):
        return "strings" if kind_of(column.value_type) == "string" else None
    checks = {
        "int64": types.is_integer,
        "float64": types.is_floating,
        "bool": types.is_boolean,
        "date": types.is_date,
        "timestamp": types.is_timestamp,
    }
    found = next((kind for kind, check in checks.items() if check(column)), None)
    if found is None and (types.is_nested(column) or types.is_duration(column) or types.is_interval(column)):
        return None
    return found or "string"


def parse_value(text: str, kind: AttributeType, zone: dt.tzinfo = dt.UTC) -> AttributeValue:
    """Parse a value; spaces around it are part of strings only.

    int64: decimal digits with an optional sign, and zeros after a point. float64: decimal or scientific, finite; -0
    becomes 0. bool: true, false, 1 or 0. date: ISO 8601. timestamp: ISO 8601 from the month on, with an optional
    ``UTC`` at its end, or RFC 2822; in ``zone`` if it has no offset; digits below a microsecond are dropped.
    decimal(S): as float64, with at most S digits after the point that are not 0, and 38 in all. string, strings: any
    text.

    Returns:
        str, int, float, bool, date, Decimal, or a datetime in UTC.
    """
    if kind in ("string", "strings"):
        return text
    text = text.strip()
    match kind:
        case "int64" if (digits := _INTEGER.fullmatch(text)) and -(1 << 63) <= (number := int(digits[1])) < 1 << 63:
            return number
        case "float64" if _FLOAT.fullmatch(text) and math.isfinite(real := float(text)):
            return real + 0.0
        case "bool" if text.lower() in _BOOL:
            return _BOOL[text.lower()]
        case "date" if _DATE.fullmatch(text):
            return dt.date.fromisoformat(text)
        case "timestamp":
            return _parse_timestamp(text, zone)
        case _ if (scale := _DECIMAL.fullmatch(kind)) and _FLOAT.fullmatch(text):
            return _parse_decimal(text, int(scale[1]))
    raise ValueError(f"{text[:80]!r} is no {kind}")


def _parse_decimal(text: str, scale: int) -> decimal.Decimal:
    try:
        exact = decimal.Decimal(text)
        found = exact.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT)
    except ArithmeticError as error:  # too many digits, or an exponent of too many
        raise ValueError(f"{text[:80]!r} is no decimal({scale})") from error
    if found != exact or found.adjusted() >= _DIGITS - scale:
        raise ValueError(f"{text[:80]!r} is no decimal({scale})")
    return found


def _parse_timestamp(text: str, zone: dt.tzinfo) -> dt.datetime:
    plain = text.removesuffix("UTC").rstrip() + "Z" if text.endswith("UTC") else text
    if _MONTH.fullmatch(text):
        plain = f"{text}-01"
    try:
        # The basic form 16121110 would read a count of seconds as a date.
        moment = dt.datetime.fromisoformat(plain) if _DATE.match(plain) else parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{text[:80]!r} is no timestamp") from error
    try:
        return moment.replace(tzinfo=zone).astimezone(dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)
    except OverflowError as error:
        raise ValueError(f"{text[:80]!r} is outside the years 1 to 9999") from error


def parse_epoch(text: str, units_per_second: int) -> dt.datetime:
    """Parse a time as a number of units since 1970."""
    text = text.strip()
    if not _FLOAT.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no number of seconds or milliseconds")
    try:
        units = decimal.Decimal(text)
        if units.adjusted() > _DIGITS:
            raise OverflowError  # before its digits are written out
        microseconds = int(units * (1_000_000 // units_per_second))
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
    except ArithmeticError as error:
        raise ValueError(f"{text[:80]!r} is outside the years 1 to 9999") from error


def value_text(value: Any) -> Any:
    """Return a number, a boolean or a time as the text that ``parse_value`` reads, NaN as None; other values as is."""
    match value:
        case bool() | np.bool_():
            return str(value).lower()
        case float() | np.floating() if math.isnan(value):
            return None
        case int() | float() | decimal.Decimal() | np.integer() | np.floating():
            return str(value)
        case dt.datetime() | dt.date():
            return value.isoformat()
    return value


def value_to_json(value: Any) -> Any:
    """Return a value of a field as JSON has it: dates and times in ISO 8601, decimals as text."""
    match value:
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return f"{value:f}"
    return value


def json_type(values: Iterable[Any]) -> AttributeType | None:
    """Return the type of values that ``value_to_json`` makes strings of; None: they are as JSON has them."""
    for value in values:
        if isinstance(value, dt.date | decimal.Decimal):
            moment = "timestamp" if isinstance(value, dt.datetime) else "date"
            return moment if isinstance(value, dt.date) else f"decimal({-int(value.as_tuple().exponent)})"
    return None


def value_from_json(value: Any, kind: AttributeType | None) -> Any:
    """Return the value that ``value_to_json`` wrote; ``kind`` is that of ``json_type``."""
    return value if kind is None or value is None else parse_value(value, kind)


def read_zone(name: str) -> dt.tzinfo:
    """Return the time zone with an IANA name."""
    try:
        return dt.UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone; give a name such as Europe/Berlin") from error
