"""Attributes as columns, filters by hypothesis, and what a filter means, in plain Python."""

import datetime as dt
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lsr_prod.formats.attributes import ATTRIBUTE_TYPES, AttributeType, attribute_column
from lsr_prod.search.query.filters import Combination, Condition, Filter, Negation, field

TYPES: dict[str, AttributeType] = {
    "lang": "string",
    "year": "int64",
    "grade": "float64",
    "open": "bool",
    "published": "timestamp",
}
Row = Mapping[str, Any]

# Few values, so that filters hit; with those that a codec could trip over.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "lang": st.sampled_from(["", "e", "en", "en\nx", "EN", "é", "éa", "\U0001f600", "a.b*", "a\0b", "x" * 300]),
    "year": st.sampled_from([-(1 << 63), -1, 0, 1, 1999, 2000, (1 << 53) + 1, (1 << 63) - 1]),
    "grade": st.sampled_from([-1e300, -2.5, 0.0, 5e-324, 0.1, 1.0, 2.0, 1e300]),
    "open": st.booleans(),
    "published": st.sampled_from(
        [dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)]
        + [dt.datetime(2020, 1, 1, 0, 0, 0, us, tzinfo=dt.UTC) for us in (0, 1, 999_999)]
    ),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=12)

_COMPARE = {"eq": operator.eq, "gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}


def batches(rows: Sequence[Row], size: int = 5) -> list[pa.RecordBatch]:
    """The rows as ``docs.arrow`` holds them; ids are d0, d1 and so on."""
    columns = {attribute_column(n): pa.array([row[n] for row in rows], ATTRIBUTE_TYPES[t]) for n, t in TYPES.items()}
    ids = pa.array([f"d{i}" for i in range(len(rows))], pa.large_string())
    return pa.table({"doc_id": ids, **columns}).to_batches(max_chunksize=size)


@st.composite
def _conditions(draw: st.DrawFn, *, ranges_of_strings: bool) -> Filter:
    name = draw(st.sampled_from(sorted(TYPES)))
    one = draw(VALUES[name])
    kinds = ["eq", "ne", "in", "null"]
    if name != "open" and (name != "lang" or ranges_of_strings):
        kinds += ["gt", "ge", "lt", "le", "between"]
    if name == "lang":
        kinds += ["prefix"]
    match draw(st.sampled_from(kinds)):
        case "eq":
            return field(name) == one
        case "ne":
            return field(name) != one
        case "in":
            return field(name).is_in(draw(st.lists(VALUES[name], max_size=3)))
        case "null":
            return field(name).is_null()
        case "between":
            return field(name).between(one, draw(VALUES[name]))
        case "prefix":
            return field(name).starts_with(one[:1] if draw(st.booleans()) else one)
        case compared:
            return getattr(field(name), f"__{compared}__")(one)


def filters(*, ranges_of_strings: bool) -> st.SearchStrategy[Filter]:
    """Filters of every shape over ``TYPES``."""
    return st.recursive(
        _conditions(ranges_of_strings=ranges_of_strings),
        lambda some: st.one_of(
            st.builds(lambda a, b: a & b, some, some),
            st.builds(lambda a, b: a | b, some, some),
            st.builds(lambda a: ~a, some),
        ),
        max_leaves=6,
    )


def truth(expression: Filter, row: Row) -> bool | None:
    """True, False, or None for unknown, by SQL's rules."""
    match expression:
        case Negation(part):
            found = truth(part, row)
            return None if found is None else not found
        case Combination(how, parts):
            all_found = [truth(part, row) for part in parts]
            decides = how == "or"
            return decides if decides in all_found else None if None in all_found else not decides
        case Condition(name, "is_null", _):
            return row[name] is None
        case Condition(name, how, value):
            if row[name] is None:
                return None
            if how == "in":
                return row[name] in value
            return row[name].startswith(value) if how == "prefix" else _COMPARE[how](row[name], value)
    raise AssertionError(expression)


def brute_force(expression: Filter, rows: Sequence[Row]) -> list[int]:
    """Ordinals for which the filter is true."""
    return [i for i, row in enumerate(rows) if truth(expression, row) is True]
