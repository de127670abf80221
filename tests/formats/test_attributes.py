"""Parsing of typed attribute values, and their columns."""

import contextlib
import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.index import MAX_STRING_BYTES, attribute_types, parse_value


def utc(*moment: int) -> dt.datetime:
    return dt.datetime(*moment, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (" as it is ", "string", " as it is "),
        ("", "string", ""),
        (" 42\n", "int64", 42),
        ("+7", "int64", 7),
        ("-9223372036854775808", "int64", -(1 << 63)),
        ("1e3", "float64", 1000.0),
        (".5", "float64", 0.5),
        ("5.", "float64", 5.0),
        ("TRUE", "bool", True),
        ("0", "bool", False),
        ("2020-02-29", "timestamp", utc(2020, 2, 29)),
        ("2020-01-01T12:30+02:00", "timestamp", utc(2020, 1, 1, 10, 30)),
        ("2020-01-01 00:00:00.1234567Z", "timestamp", utc(2020, 1, 1, 0, 0, 0, 123456)),
    ],
)
def test_parse_value_accepts_the_grammar(text, kind, value):
    parsed = parse_value(text, kind)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "int64"),
        ("1.0", "int64"),
        ("1_000", "int64"),
        ("0x1f", "int64"),
        ("٣", "int64"),
        ("9223372036854775808", "int64"),
        ("1" * 5000, "int64"),
        ("nan", "float64"),
        ("inf", "float64"),
        ("1e999", "float64"),
        ("1,5", "float64"),
        (".", "float64"),
        ("yes", "bool"),
        ("2020-13-01", "timestamp"),
        ("2020", "timestamp"),
        ("0001-01-01T00:00+05:00", "timestamp"),
        ("é" * (MAX_STRING_BYTES // 2 + 1), "string"),
    ],
)
def test_parse_value_refuses_other_texts(text, kind):
    with pytest.raises(ValueError, match=r"\w"):
        parse_value(text, kind)


def test_negative_zero_becomes_zero():
    assert str(parse_value("-0.0", "float64")) == "0.0"


@given(st.text(), st.sampled_from(["int64", "float64", "bool", "timestamp"]))
def test_any_text_parses_or_raises_value_error(text, kind):
    with contextlib.suppress(ValueError):
        parse_value(text, kind)


def test_attribute_types_are_read_from_the_schema():
    schema = pa.schema([("doc_id", pa.large_string()), ("year", pa.large_string()), ("attribute.year", pa.int64())])
    assert attribute_types(schema) == {"year": "int64"}
    with pytest.raises(ArtifactError, match=r"attribute\.year.*int32"):
        attribute_types(pa.schema([("attribute.year", pa.int32())]))
