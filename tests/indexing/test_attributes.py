"""Typed columns and texts become attributes; unreadable texts become null and are counted."""

import datetime as dt
import re
from dataclasses import replace

import pyarrow as pa
import pytest

from lsr_prod.config import IndexSettings
from lsr_prod.errors import ConfigError
from lsr_prod.indexing.index_plan import _check_fit, attributes_of, parse_attributes
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.storage.formats.stored_values import arrow_type
from lsr_prod.storage.formats.table_format import TableProperties

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


def test_typed_columns_are_taken_as_they_are():
    rows = pa.table({"tags": [["a"], None], "day": [None, dt.date(2020, 1, 1)], "price": [1, 2]})
    rows = rows.set_column(2, "price", rows["price"].cast(pa.decimal128(38, 2)))
    columns, unreadable = parse_attributes(rows, {"tags": "strings", "day": "date", "price": "decimal(2)"})
    assert [column.to_pylist() for column in columns] == [column.to_pylist() for column in rows.columns]
    assert [column.type for column in columns] == [arrow_type(kind) for kind in ("strings", "date", "decimal(2)")]
    assert unreadable == {}


PATHS = {"table": "t", "bundle": "b", "output": "o"}
PROPERTIES = TableProperties(
    "b" * 64, "v" * 64, 0.01, 8, 16, 2, ("title", "year", "lang"), 9, stored_types={"year": "int64"}
)


def test_attributes_are_all_stored_fields_but_the_texts():
    assert attributes_of(IndexSettings(**PATHS), PROPERTIES) == {"year": "int64", "lang": "string"}
    given = {"lang": "timestamp", "year": "int64"}
    assert attributes_of(IndexSettings(**PATHS, attributes=given), PROPERTIES) == given


def test_lists_are_attributes_that_no_setting_leaves_out():
    properties = replace(PROPERTIES, stored_types={"year": "int64", "lang": "strings"})
    found = attributes_of(IndexSettings(**PATHS, attributes={"year": "int64"}), properties)
    assert found == {"year": "int64", "lang": "strings"}


@pytest.mark.parametrize("name", ["year", "lang", "yaer"])
def test_text_fields_have_to_be_texts(name: str):
    properties = replace(PROPERTIES, stored_types={"year": "int64", "lang": "strings"})
    card = EncoderCard("x", 9, "v" * 64)
    _check_fit(IndexSettings(**PATHS, text_fields=["title"], shards=2), properties, card)
    with pytest.raises(ConfigError, match=f"does not store '{name}' as text; choose from its stored texts: title$"):
        _check_fit(IndexSettings(**PATHS, text_fields=[name], shards=2), properties, card)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"yaer": "int64"}, r"index\.attributes: the table does not store 'yaer'.*title, year"),
        ({"year": "string"}, r"index\.attributes\.year: the table has it as int64, not string"),
    ],
)
def test_attributes_that_the_table_does_not_have_are_refused(attributes: dict[str, str], message: str):
    with pytest.raises(ConfigError, match=message):
        attributes_of(IndexSettings(**PATHS, attributes=attributes), PROPERTIES)


@pytest.mark.parametrize("kind", ["integer", "decimal", "decimal(39)", "decimal(-1)", "list"])
def test_settings_accept_only_known_attribute_types(kind: str):
    with pytest.raises(ValueError, match=f"{re.escape(kind)} is no type; give string, strings, int64"):
        IndexSettings(**PATHS, attributes={"year": kind})
