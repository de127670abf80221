"""Conversion of filter values to the attribute types of an index."""

import datetime as dt

import pytest

from lsr_prod.errors import QueryError
from lsr_prod.search.query.filter_types import check_filter
from lsr_prod.search.query.filters import Combination, Condition, field
from tests.search.filtering import TYPES

year, grade, lang, open_, published = map(field, ("year", "grade", "lang", "open", "published"))


def test_values_are_converted_to_attribute_type():
    assert repr(check_filter(grade == 1, TYPES).value) == "1.0"
    assert repr(check_filter(grade == -0.0, TYPES).value) == "0.0"
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    assert check_filter(published.is_in(["2020-01-01", "2020-01-01T01:00+01:00"]), TYPES).value == (moment, moment)


def test_equal_filters_get_equal_keys():
    keys = {check_filter(grade == value, TYPES).key for value in (0, 0.0, -0.0)}
    keys |= {check_filter(published == value, TYPES).key for value in ("2020-01-01", "2020-01-01T00:00:00Z")}
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (field("yaer") == 1, r"no attribute 'yaer'.*lang \(string\), year \(int64\)"),
        (year == 1.0, "1.0 does not fit attribute 'year'; give a int64"),
        (year == True, "True does not fit"),  # noqa: E712
        (year == "1", "'1' does not fit"),
        (grade == True, "True does not fit"),  # noqa: E712
        (grade == (1 << 53) + 1, "does not fit attribute 'grade'"),
        (lang == 1, "does not fit attribute 'lang'"),
        (lang == dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "does not fit attribute 'lang'"),
        (open_ == 1, "does not fit attribute 'open'"),
        (open_ > False, "'open' is bool, which does not support gt"),
        (year.starts_with("1"), "'year' is int64, which does not support prefix"),
        (lang.starts_with(1), "does not fit"),
        (published > "yesterday", "'yesterday' for 'published' is not a timestamp"),
        (published > 5, "does not fit"),
        (field("doc_id") > "a", "doc_id does not support gt"),
        (field("doc_id").is_null(), "doc_id does not support is_null"),
        (field("doc_id") == 1, "does not fit attribute 'doc_id'"),
        (lang.is_in(["en", 1]), "1 does not fit"),
        ((year == 1) & ~(lang == 2), "2 does not fit"),
        (year.is_in(range(10_001)), "more than 10000 values"),
        (Combination("or", tuple([year == 1] * 10_001)), "more than 10000 values"),
        (Combination("or", ()), "build it with"),
        ({"field": "year", "op": "is_null"}, "build it with"),
    ],
)
def test_filters_that_do_not_fit_attributes_are_rejected(expression, message):
    with pytest.raises(QueryError, match=message):
        check_filter(expression, TYPES)


def test_deeply_nested_filter_is_rejected():
    expression = year == 1
    for _ in range(5000):
        expression = ~expression
    with pytest.raises(QueryError, match="more than 16 deep"):
        check_filter(expression, TYPES)


def test_index_without_attributes_accepts_only_doc_id_filters():
    assert check_filter(field("doc_id") == "a", {}) == Condition("doc_id", "eq", "a")
    with pytest.raises(QueryError, match="it has doc_id and: none"):
        check_filter(year == 1, {})
