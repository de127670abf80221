"""Parsing of typed attribute values, and their columns."""

import contextlib
import datetime as dt
import decimal
import json
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lsr_prod.errors import ArtifactError
from lsr_prod.storage.formats.index_format import attribute_types
from lsr_prod.storage.formats.stored_values import (
    json_type,
    kind_of,
    parse_epoch,
    parse_value,
    value_from_json,
    value_to_json,
)


def utc(*moment: int) -> dt.datetime:
    return dt.datetime(*moment, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        (" as it is ", "string", " as it is "),
        ("", "string", ""),
        (" 42\n", "int64", 42),
        ("+7", "int64", 7),
        ("7.0", "int64", 7),
        ("-9223372036854775808", "int64", -(1 << 63)),
        ("1e3", "float64", 1000.0),
        (".5", "float64", 0.5),
        ("5.", "float64", 5.0),
        ("TRUE", "bool", True),
        ("0", "bool", False),
        ("2020-02-29", "timestamp", utc(2020, 2, 29)),
        ("2020-01-01T12:30+02:00", "timestamp", utc(2020, 1, 1, 10, 30)),
        ("2020-01-01 00:00:00.1234567Z", "timestamp", utc(2020, 1, 1, 0, 0, 0, 123456)),
        ("2024-01", "timestamp", utc(2024, 1, 1)),
        ("2024-01-02 03:04:05 UTC", "timestamp", utc(2024, 1, 2, 3, 4, 5)),
        ("Tue, 02 Jan 2024 03:04:05 +0100", "timestamp", utc(2024, 1, 2, 2, 4, 5)),
        ("2021-02-28", "date", dt.date(2021, 2, 28)),
        ("1.50", "decimal(1)", decimal.Decimal("1.5")),
        ("-1E+3", "decimal(0)", decimal.Decimal("-1000")),
        ("9" * 36 + ".99", "decimal(2)", decimal.Decimal("9" * 36 + ".99")),
    ],
)
def test_parse_value_accepts_the_grammar(text, kind, value):
    parsed = parse_value(text, kind)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "int64"),
        ("1.5", "int64"),
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
        ("1612111000000", "timestamp"),
        ("16121110", "timestamp"),
        ("20210131T120000Z", "timestamp"),
        ("2021-02-30", "date"),
        ("2021-02-03T00:00", "date"),
        ("1.005", "decimal(2)"),
        ("1e40", "decimal(2)"),
        ("1" * 37, "decimal(2)"),
        ("nan", "decimal(2)"),
        ("1", "decimal(99)"),
    ],
)
def test_parse_value_refuses_other_texts(text, kind):
    with pytest.raises(ValueError, match=r"\w"):
        parse_value(text, kind)


def test_negative_zero_becomes_zero():
    assert str(parse_value("-0.0", "float64")) == "0.0"


@given(st.text(), st.sampled_from(["int64", "float64", "bool", "timestamp", "date", "decimal(3)"]))
def test_any_text_parses_or_raises_value_error(text, kind):
    with contextlib.suppress(ValueError):
        parse_value(text, kind)


def test_times_without_an_offset_are_in_the_given_zone():
    assert parse_value("2024-07-01T12:00", "timestamp", ZoneInfo("Europe/Berlin")) == utc(2024, 7, 1, 10)
    assert parse_value("2024-07-01T12:00Z", "timestamp", ZoneInfo("Europe/Berlin")) == utc(2024, 7, 1, 12)


NUMBERS = st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,25})?", fullmatch=True)
MOMENTS = st.from_regex(
    r"([A-Z][a-z]{2}, )?[0-9]{1,11}[- ]([A-Z][a-z]{2}|[0-9]{2})[- ][0-9]{1,20}( [0-9:]{1,8})?", fullmatch=True
)


@given(NUMBERS | MOMENTS, st.sampled_from(["int64", "float64", "date", "timestamp", "decimal(0)", "decimal(38)"]))
@example("1e99999999999999999999", "decimal(2)")
@example("0e99999999999999999999", "decimal(0)")
@example("a, 1 Jan 99999999999 1:1:1", "timestamp")
def test_any_number_or_time_parses_or_raises_value_error(text, kind):
    with contextlib.suppress(ValueError):
        parse_value(text, kind)
    for units in (1, 1000):
        with contextlib.suppress(ValueError):
            parse_epoch(text, units)


def test_numbers_since_1970_are_read_by_declaration():
    assert parse_epoch("1612111000", 1) == parse_epoch("1612111000000", 1000) == utc(2021, 1, 31, 16, 36, 40)
    assert parse_epoch(" 1612111000.25 ", 1) == utc(2021, 1, 31, 16, 36, 40, 250_000)
    for text in ("soon", "1e300", "1" * 400, "2021-01-31"):
        with pytest.raises(ValueError, match=r"no number|outside"):
            parse_epoch(text, 1)


@given(
    st.dates()
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**30), max_value=10**30)
    | st.integers()
    | st.booleans()
    | st.text()
    | st.none()
)
def test_values_survive_json(value):
    sent = json.loads(json.dumps(value_to_json(value)))
    assert value_from_json(sent, json_type([None, value])) == value


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.uint64(), "int64"),
        (pa.float16(), "float64"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
        (pa.date64(), "date"),
        (pa.decimal256(50, 2), "decimal(2)"),
        (pa.decimal128(5, -3), "decimal(0)"),
        (pa.dictionary(pa.int8(), pa.string_view()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int8()), "int64"),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), "strings"),
        (pa.list_view(pa.string()), "strings"),
        (pa.uuid(), "string"),
        (pa.binary(), "string"),
        (pa.time64("us"), "string"),
        (pa.null(), "string"),
        (pa.list_(pa.int64()), None),
        (pa.struct([("a", pa.int64())]), None),
        (pa.map_(pa.string(), pa.string()), None),
        (pa.duration("s"), None),
    ],
)
def test_every_type_of_arrow_has_a_type_or_none(column, kind):
    assert kind_of(column) == kind


def test_attribute_types_are_read_from_the_schema():
    schema = pa.schema([("doc_id", pa.large_string()), ("year", pa.large_string()), ("attribute.year", pa.int64())])
    assert attribute_types(schema) == {"year": "int64"}
    with pytest.raises(ArtifactError, match=r"attribute\.year.*int32"):
        attribute_types(pa.schema([("attribute.year", pa.int32())]))
