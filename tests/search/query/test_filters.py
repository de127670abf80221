"""Filters as expressions and as JSON."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filter_types import filter_from_json
from lsr_prod.search.query.filters import Condition, Negation, field
from tests.search.filtering import filters

year = field("year")


def test_filter_serializes_to_documented_json():
    fresh = (year >= 2020) & field("lang").is_in(["en", "de", "en"])
    assert (fresh & ~field("title").starts_with("Draft")).to_json() == {
        "and": [
            {"field": "lang", "op": "in", "value": ["de", "en"]},
            {"field": "year", "op": "ge", "value": 2020},
            {"not": {"field": "title", "op": "prefix", "value": "Draft"}},
        ]
    }
    assert field("published").is_null().to_json() == {"field": "published", "op": "is_null"}
    moment = dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert (field("published") < moment).to_json()["value"] == "2020-01-01T00:00:00Z"


@given(filters(ranges_of_strings=True))
def test_filter_key_survives_json_round_trip(expression):
    assert filter_from_json(json.loads(json.dumps(expression.to_json()))).key == expression.key


def test_key_ignores_order_and_repetition():
    a, b, c = year == 1, year == 2, year == 3
    assert ((a | b) | c).key == (c | (b | a) | a).key
    assert (a & b).key != (a | b).key
    assert hash((a & b).key) == hash((b & a).key)
    assert field("lang").is_in(["x", "y"]).key == field("lang").is_in(["y", "x", "x"]).key


def test_equal_values_of_different_types_have_different_keys():
    assert len({(year == value).key for value in (1, 1.0, True, "1")}) == 4


def test_between_and_not_equal_expand_to_basic_conditions():
    between = filter_from_json({"field": "year", "op": "between", "value": [1, 2]})
    assert between == year.between(1, 2) == ((year >= 1) & (year <= 2))
    assert (year != 3) == Negation(Condition("year", "eq", 3))


def test_chained_alternatives_build_one_flat_combination():
    expression = year == 0
    for some in range(1, 2000):
        expression |= year == some
    assert len(expression.parts) == 2000


def test_numpy_scalar_becomes_python_value():
    assert (year == np.int64(3)).to_json()["value"] == 3
    assert (year == np.float32(0.5)).to_json()["value"] == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: field(3), "3 is not a string"),
        (lambda: year == float("nan"), "nan for 'year'.*finite"),
        (lambda: year == float("inf"), "inf for 'year'"),
        (lambda: year == 1 << 63, "64 bits"),
        (lambda: year == 10**5000, "64 bits"),
        (lambda: year == None, "None for 'year' is not supported"),  # noqa: E711
        (lambda: year == "x" * 5000, "5000 characters"),
        (lambda: year == "\ud800", "not valid Unicode"),
        (lambda: year == dt.datetime(2020, 1, 1), "no time zone"),
        (lambda: year <= dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=5))), "years 1 to 9999"),
        (lambda: year == pd.Timestamp("2020-01-01T00:00:00.000000001Z"), "has nanoseconds"),
        (lambda: year.is_in("en"), "one string; give a list"),
        (lambda: year.is_in([[1]]), r"\[1\] for 'year'"),
        (lambda: (year > 1) & 5, "5 is not a filter"),
        (lambda: (year > 1) and (year < 5), "&, | and ~"),
        (lambda: 1 < year < 5, "between"),
    ],
)
def test_invalid_filter_values_are_rejected(make, message):
    with pytest.raises(QueryError, match=message):
        make()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "filter is None"),
        ([], r"filter is \[\]"),
        ({}, r"filter has \[\]; give field"),
        ({"and": []}, r"filter\.and is \[\]"),
        ({"or": {"field": "a"}}, r"filter\.or is"),
        ({"and": [{"field": "a", "op": "is_null"}], "or": []}, r"filter has \['and', 'or'\]"),
        ({"not": {"field": "a", "op": "like", "value": "x"}}, r"filter\.not\.op is 'like'.*between, eq, in"),
        (
            {"and": [{"field": "a", "op": "is_null"}, {"op": "eq", "value": 1}]},
            r"filter\.and\[1\] has \['op', 'value'\]",
        ),
        ({"field": 3, "op": "eq", "value": 1}, r"filter\.field is 3"),
        ({"field": "a", "op": "eq"}, r"filter has \['field', 'op'\]; give field, op, value"),
        ({"field": "a", "op": "is_null", "value": 1}, "give field, op, or"),
        ({"field": "a", "op": "eq", "value": 1, "boost": 2}, "'boost'"),
        ({"field": "a", "op": "eq", "value": None}, "None for 'a'"),
        ({"field": "a", "op": "eq", "value": {"x": 1}}, "for 'a' is not supported"),
        ({"field": "a", "op": "in", "value": "en"}, r"filter\.value is 'en'; give a list"),
        ({"field": "a", "op": "between", "value": [1]}, "a list of two"),
        ({"field": "a", "op": ["eq"], "value": 1}, r"filter\.op is \['eq'\]"),
        ({"field": "a", "op": "eq", "value": float("nan")}, "nan"),
    ],
)
def test_invalid_json_filter_is_rejected(value, message):
    with pytest.raises(QueryError, match=message):
        filter_from_json(value)


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: {"and": v}, lambda v: {"field": "a", "op": "eq", "value": v}])
def test_deeply_nested_json_is_rejected(wrap):
    value = {"field": "a", "op": "is_null"}
    for _ in range(50_000):
        value = {"not": value}
    with pytest.raises(QueryError, match=r"more than 16 deep|give") as caught:
        filter_from_json(wrap(value))
    assert len(str(caught.value)) < 300


def test_error_messages_for_large_values_are_short():
    value = {f"key {i}": "x" * 10_000 for i in range(10_000)}
    for wrong in (value, {"or": value}, {"field": "a", "op": value, "value": 1}, "x" * 10_000):
        with pytest.raises(QueryError) as caught:
            filter_from_json(wrong)
        assert len(str(caught.value)) < 600


def test_key_of_mixed_type_values_ignores_their_order():
    assert (field("a").is_in([2, "x", 1.0, True, 1])).key == (field("a").is_in([1, True, 1.0, "x", 2])).key
