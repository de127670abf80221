import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config.section import TrainingDataSettings
from lsr_prod.corpus.source_rows import RAW_LIMIT, BadRow, TypedValue
from lsr_prod.training.data.training_rows import TrainingRow, validate


def data(kind: str, **settings: Any) -> TrainingDataSettings:
    return TrainingDataSettings(paths=["d"], kind=kind, **settings)


def reason(record: dict[str, Any], kind: str, *, needs_negative: bool = False, **settings: Any) -> tuple[str, str]:
    row = validate(record, data(kind, **settings), needs_negative=needs_negative)
    assert isinstance(row, BadRow)
    return row.reason, row.detail


PAIR = {"query": "q", "positive": "p"}
SCORES = {"query": "q", "documents": ["p", "n"], "scores": [2, 0.5]}


@pytest.mark.parametrize(
    ("kind", "record", "row"),
    [
        ("pairs", PAIR | {"more": 7}, TrainingRow("q", ("p",))),
        ("triples", PAIR | {"negative": "n"}, TrainingRow("q", ("p", "n"))),
        ("negatives", PAIR | {"negatives": ["n", "m"]}, TrainingRow("q", ("p", "n", "m"))),
        ("negatives", PAIR | {"negatives": []}, TrainingRow("q", ("p",))),
        ("negatives", PAIR | {"negatives": None}, TrainingRow("q", ("p",))),
        ("triples", PAIR | {"negative": None}, TrainingRow("q", ("p",))),
        ("scores", SCORES, TrainingRow("q", ("p", "n"), (2.0, 0.5))),
        ("texts", {"text": "t"}, TrainingRow(None, ("t",))),
        ("pairs", {"query": b"q", "positive": "é".encode()}, TrainingRow("q", ("é",))),
    ],
)
def test_good_rows_of_every_kind_are_accepted(kind: str, record: dict[str, Any], row: TrainingRow):
    assert validate(record, data(kind), needs_negative=False) == row


@pytest.mark.parametrize(
    ("kind", "record", "found"),
    [
        ("pairs", {"query": "q"}, ("missing_field", "field positive is absent or null")),
        ("pairs", {"query": None, "positive": "p"}, ("missing_field", "field query is absent or null")),
        ("pairs", {"query": "q", "positive": 7}, ("wrong_type", "field positive is int, not a string")),
        (
            "pairs",
            {"query": "q", "positive": TypedValue("timestamp[ns]", "?")},
            ("wrong_type", "field positive is timestamp[ns], not a string"),
        ),
        (
            "pairs",
            {"query": " \n\x00\u200b", "positive": "p"},
            ("empty_query", "field query holds no visible character"),
        ),
        ("pairs", {"query": "q", "positive": ""}, ("empty_text", "text 0 of the row")),
        ("pairs", {"query": "\ud800", "positive": "p"}, ("invalid_utf8", "surrogates")),
        ("pairs", {"query": "q", "positive": b"\xff"}, ("invalid_utf8", "byte 0")),
        ("pairs", {"query": "q", "positive": "é" * 51}, ("text_too_long", "102 bytes, data.max_text_bytes is 100")),
        ("pairs", {"query": "é" * 51, "positive": "p"}, ("text_too_long", "102 bytes")),
        ("triples", PAIR | {"negative": "p"}, ("positive_equals_negative", "among the negatives")),
        ("triples", PAIR | {"negative": " p\n"}, ("positive_equals_negative", "among the negatives")),
        ("negatives", PAIR | {"negatives": "n"}, ("wrong_type", "field negatives is str, not a list")),
        ("negatives", PAIR | {"negatives": ["n", 3]}, ("wrong_type", "field negatives[1] is int")),
        ("negatives", PAIR | {"negatives": ["n", None]}, ("missing_field", "negatives[1] is null")),
        ("negatives", PAIR | {"negatives": ["n", " "]}, ("empty_text", "text 2 of the row")),
        ("negatives", PAIR | {"negatives": ["n", "p"]}, ("positive_equals_negative", "among the negatives")),
        ("scores", SCORES | {"scores": [1.0]}, ("wrong_score_count", "1 scores for 2 documents")),
        ("scores", SCORES | {"scores": [1.0, float("nan")]}, ("nan_score", "scores[1]")),
        ("scores", SCORES | {"scores": [float("inf"), 1.0]}, ("nan_score", "scores[0]")),
        ("scores", SCORES | {"scores": [1e39, 1.0]}, ("nan_score", "32 bits")),
        ("scores", SCORES | {"scores": [10**400, 1.0]}, ("nan_score", "32 bits")),
        ("scores", SCORES | {"scores": [None, 1.0]}, ("nan_score", "scores[0] is null")),
        ("scores", SCORES | {"scores": [True, 1.0]}, ("wrong_type", "scores[0] is bool, not a number")),
        ("scores", SCORES | {"scores": ["2", 1.0]}, ("wrong_type", "scores[0] is str, not a number")),
        ("scores", {"query": "q", "documents": [], "scores": []}, ("missing_field", "documents is an empty list")),
        ("scores", SCORES | {"documents": ["p", "p"]}, ("positive_equals_negative", "among the negatives")),
        ("texts", {"text": "\t"}, ("empty_text", "text 0 of the row")),
    ],
)
def test_bad_records_have_their_reason(kind: str, record: dict[str, Any], found: tuple[str, str]):
    why, detail = reason(record, kind, max_text_bytes=100)
    assert why == found[0]
    assert found[1] in detail


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        ("negatives", PAIR | {"negatives": []}),
        ("triples", PAIR | {"negative": None}),
        ("scores", {"query": "q", "documents": ["p"], "scores": [1]}),
    ],
)
def test_row_without_a_negative_is_bad_if_one_is_needed(kind: str, record: dict[str, Any]):
    why, detail = reason(record, kind, needs_negative=True)
    assert why == "no_negative"
    assert "margin_mse, kl and info_nce without in_batch need one or more" in detail
    assert isinstance(validate(record, data(kind), needs_negative=False), TrainingRow)


def test_columns_can_be_renamed():
    named = data("pairs", columns={"positive": "pos"})
    assert validate({"query": "q", "pos": "p", "positive": 7}, named, needs_negative=False) == TrainingRow("q", ("p",))
    bad = validate({"query": "q", "positive": "p"}, named, needs_negative=False)
    assert isinstance(bad, BadRow)
    assert "field pos is absent" in bad.detail


@pytest.mark.parametrize(
    ("kind", "record", "counted"),
    [
        ("pairs", {"positive": "p"}, "missing_field: query"),
        ("negatives", PAIR | {"negatives": ["n", None]}, "missing_field: negatives"),
        ("negatives", PAIR | {"negatives": "n"}, "wrong_type: negatives"),
        ("pairs", {"query": b"\xff", "positive": "p"}, "invalid_utf8: query"),
        ("scores", {"query": "q", "documents": ["p"], "scores": ["1"]}, "wrong_type: scores"),
        ("pairs", {"query": " ", "positive": "p"}, "empty_query"),
    ],
)
def test_counts_name_the_column_with_the_problem(kind: str, record: dict[str, Any], counted: str):
    bad = validate(record, data(kind), needs_negative=False)
    assert isinstance(bad, BadRow)
    assert bad.counted_as == counted
    assert bad.reason == counted.partition(":")[0]


def test_counts_name_the_column_of_the_data():
    bad = validate({"query": "q"}, data("pairs", columns={"positive": "pos"}), needs_negative=False)
    assert isinstance(bad, BadRow)
    assert bad.counted_as == "missing_field: pos"


def test_bad_row_has_its_shortened_line_or_record():
    line = b'{"query": "' + b"\xc3\xa9" * 9000
    bad = validate({"query": ""}, data("pairs"), needs_negative=False, line=line)
    assert isinstance(bad, BadRow)
    assert bad.raw.startswith('{"query": "é')
    assert RAW_LIMIT - 3 <= len(bad.raw.encode()) <= RAW_LIMIT + 3
    bad = validate({"query": b"q\xff", "positive": None, "other": "o"}, data("pairs"), needs_negative=False)
    assert isinstance(bad, BadRow)
    assert json.loads(bad.raw) == {"query": "q\ufffd", "positive": None}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)


@given(
    st.sampled_from(["pairs", "triples", "negatives", "scores", "texts"]),
    st.dictionaries(
        st.sampled_from(["query", "positive", "negative", "negatives", "documents", "scores", "text"]), values
    ),
    st.booleans(),
)
def test_arbitrary_record_is_validated_without_exception(kind: str, record: dict[str, Any], needs_negative: bool):
    row = validate(record, data(kind), needs_negative=needs_negative)
    if isinstance(row, TrainingRow):
        assert all(text.strip() for text in row.documents)
        assert len(row.documents) > needs_negative
        assert row.scores is None or len(row.scores) == len(row.documents)
    else:
        row.raw.encode()
