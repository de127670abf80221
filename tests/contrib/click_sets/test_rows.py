import pytest

from lsr_prod.corpus.formats.interface import Record
from lsr_prod.corpus.source_rows import BadRow, TypedValue
from lsr_prod_contrib.click_sets.rows import ClickRow, normalized, validate_click
from tests.contrib.click_sets.logs import make_settings

COLUMNS = {"clicks": "clicks", "impressions": "shown", "position": "position", "cluster": "cluster", "text": "text"}
GOOD = {
    "query": " Red  Shoes ",
    "doc_id": "d1",
    "title": "Shoes",
    "text": "in red",
    "clicks": 3,
    "shown": b"7",
    "position": TypedValue("double", "2.0"),
    "cluster": 9,
}


def validate(**changes):
    settings = make_settings(columns=COLUMNS, max_text_bytes=50)
    return validate_click(Record({**GOOD, **changes}, b"the line"), settings)


def test_row_has_normalized_query_and_numbers_of_any_form():
    assert validate() == ClickRow("red shoes", "Red  Shoes", "d1", "Shoes", "in red", 3, 7, 2, "9")


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"query": None}, "missing_field", "query"),
        ({"query": "?!"}, "no_words", "query"),
        ({"query": 5}, "wrong_type", "query"),
        ({"query": b"\xff"}, "invalid_utf8", "query"),
        ({"query": "a" * 51}, "text_too_long", "query"),
        ({"doc_id": ""}, "missing_id", "doc_id"),
        ({"doc_id": "a\tb"}, "control_characters", "doc_id"),
        ({"title": " ", "text": None}, "empty_text", "title"),
        ({"title": "a" * 51}, "text_too_long", "title"),
        ({"clicks": None}, "bad_number", "clicks"),
        ({"clicks": -1}, "bad_number", "clicks"),
        ({"clicks": True}, "bad_number", "clicks"),
        ({"clicks": 1.5}, "bad_number", "clicks"),
        ({"clicks": 10**9}, "bad_number", "clicks"),
        ({"shown": b"1000000000"}, "bad_number", "shown"),
        ({"shown": b"many"}, "bad_number", "shown"),
        ({"position": float("nan")}, "bad_number", "position"),
    ],
)
def test_bad_row_has_reason_and_column(changes, reason, field):
    row = validate(**changes)
    assert isinstance(row, BadRow)
    assert (row.reason, row.field, row.raw) == (reason, field, "the line")


def test_largest_numbers_are_read():
    row = validate(clicks=10**9 - 1, shown=b"+0000000000999999999.0", doc_id=10**12)
    assert (row.clicks, row.impressions, row.document) == (10**9 - 1, 10**9 - 1, str(10**12))


def test_log_without_columns_of_numbers_counts_every_row_as_one_click():
    row = validate_click(Record({"query": "q", "doc_id": "d", "title": "t"}), make_settings())
    assert (row.clicks, row.impressions, row.position, row.cluster) == (1, 0, 0, "")


def test_integer_ids_become_decimal_text():
    assert validate(doc_id=12).document == "12"


@pytest.mark.parametrize(("one", "other"), [("ﬁsh  Tank", "FISH\ttank"), ("Straße", "STRASSE"), ("é", "e\u0301")])
def test_duplicates_have_equal_normal_forms(one, other):
    assert normalized(one) == normalized(other)
