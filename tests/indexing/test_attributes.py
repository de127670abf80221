"""Stored strings become typed columns; unreadable values become null and are counted."""

import datetime as dt

import pyarrow as pa
import pytest

from lsr_prod.config import IndexSettings
from lsr_prod.errors import ConfigError
from lsr_prod.indexing.plan import check_attributes, parse_attributes

ROWS = pa.table(
    {
        "doc_id": ["a", "b", "c", "d"],
        "year": ["1999", " ", None, "MCMXCIX"],
        "grade": ["1.5", "nan", "", "-0.0"],
        "lang": ["en", "", None, "de"],
        "open": ["true", "maybe", "0", "perhaps"],
        "published": ["2020-01-01T01:00+01:00", "soon", None, "2020-01-01"],
    }
)
TYPES = {"year": "int64", "lang": "string", "grade": "float64", "open": "bool", "published": "timestamp"}


def test_parse_attributes_types_values_and_counts_unreadable_ones():
    columns, unreadable = parse_attributes(ROWS, TYPES)
    midnight = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert [column.to_pylist() for column in columns] == [
        [1999, None, None, None],
        ["en", "", None, "de"],
        [1.5, None, None, 0.0],
        [True, None, False, None],
        [midnight, None, None, midnight],
    ]
    assert [str(column.type) for column in columns] == [
        "int64",
        "large_string",
        "double",
        "bool",
        "timestamp[us, tz=UTC]",
    ]
    assert unreadable == {"year": 1, "grade": 1, "open": 2, "published": 1}


def test_parse_attributes_without_rows_or_attributes():
    columns, unreadable = parse_attributes(ROWS.slice(0, 0), TYPES)
    assert ([len(column) for column in columns], unreadable) == ([0] * 5, {})
    assert parse_attributes(ROWS, {}) == ([], {})


def test_check_attributes_rejects_a_field_that_is_not_stored():
    check_attributes({"year": "int64"}, ["title", "year"])
    with pytest.raises(ConfigError, match=r"index\.attributes: the table does not store 'yaer'.*title, year"):
        check_attributes({"yaer": "int64"}, ["title", "year"])


def test_settings_accept_only_known_attribute_types():
    paths = {"table": "t", "bundle": "b", "output": "o"}
    assert IndexSettings(**paths, attributes={"year": "int64"}).attributes == {"year": "int64"}
    with pytest.raises(ValueError, match="'string', 'int64', 'float64', 'bool' or 'timestamp'"):
        IndexSettings(**paths, attributes={"year": "integer"})
