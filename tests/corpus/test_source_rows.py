import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.corpus.source_rows import (
    RAW_LIMIT,
    BadRow,
    Document,
    RowBatch,
    TypedValue,
    row_schema,
    shorten,
    validate,
)
from lsr_prod.storage.formats.table_format import cell_of

FILE = SourceFile("/corpus", "a.jsonl", "jsonl", 9, "tag")
SOURCE = SourceSettings(paths=["c"], separator=" | ", stored_fields=["title", "url"], max_text_bytes=12)


def test_present_text_fields_are_joined_in_the_order_of_the_settings():
    assert validate({"text": "x", "title": "T", "_id": "a", "more": 7}, SOURCE) == Document("a", "T | x", ("T", None))
    assert validate({"_id": "a", "title": "", "text": "x", "url": "u"}, SOURCE) == Document("a", "x", ("", "u"))
    assert validate({"_id": b"a", "title": None, "text": "é".encode()}, SOURCE) == Document("a", "é", (None, None))


def test_separators_per_gap_and_renamed_columns():
    source = SourceSettings(
        paths=["c"], text_fields=["title", "by", "text"], separators=["\n", ": "], stored_fields=["by"],
        columns={"_id": "docno", "by": "author"},
    )  # fmt: skip
    record = {"docno": "a", "title": "T", "author": "B", "text": "x", "_id": "not me", "by": 7}
    assert validate(record, source) == Document("a", "T\nB: x", ("B",))
    assert validate(record | {"author": None}, source) == Document("a", "T: x", (None,))
    assert validate(record | {"title": ""}, source) == Document("a", "B: x", ("B",))
    refused = validate(record | {"docno": None}, source)
    assert isinstance(refused, BadRow)
    assert "docno" in refused.detail


def test_control_characters_are_kept_in_texts_and_rejected_in_ids():
    assert validate({"_id": "a", "text": "x\0y\x07"}, SOURCE) == Document("a", "x\0y\x07", (None, None))
    assert isinstance(validate({"_id": "a b é", "text": "x"}, SOURCE), Document)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"), (-(2**70), str(-(2**70))), (1.5, "1.5"), (True, "true"), (False, "false"), (float("nan"), None),
        (TypedValue("timestamp[s]", "2024-01-01T00:00:00", "2024-01-01T00:00:00"), "2024-01-01T00:00:00"),
    ],
)  # fmt: skip
def test_numbers_and_times_of_stored_fields_become_text(value: object, text: str | None):
    found = validate({"_id": 7, "text": "x", "url": value}, SOURCE)
    assert isinstance(found, Document)
    assert (found.doc_id, found.stored[SOURCE.stored_fields.index("url")]) == ("7", text)


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        ({}, "missing_id", "field _id is absent"),
        ({"_id": None, "text": "x"}, "missing_id", "absent or empty"),
        ({"_id": "\xe9" * 513, "text": "x"}, "id_too_long", "1026 bytes, source.max_id_bytes is 1024"),
        ({"_id": float("nan"), "text": "x"}, "wrong_type", "field _id is float"),
        ({"_id": "a", "text": ["x"]}, "wrong_type", "field text is list"),
        ({"_id": "a", "text": "x", "url": [1]}, "wrong_type", "field url is list"),
        ({"_id": True, "text": "x"}, "wrong_type", "field _id is bool"),
        ({"_id": "a", "text": 1}, "wrong_type", "field text is int"),
        ({"_id": "a", "text": "x", "url": TypedValue("binary", "binary")}, "wrong_type", "field url is binary"),
        ({"_id": "a", "text": b"x\xff"}, "invalid_utf8", "at byte 1"),
        ({"_id": "a", "text": "x\ud800"}, "invalid_utf8", "at character 1"),
        ({"_id": TypedValue("double", "1.5"), "text": "x"}, "wrong_type", "field _id is double"),
        ({"_id": "a\nb", "text": "x"}, "control_characters", "field _id holds U+000A"),
        ({"_id": "\0", "text": "x"}, "control_characters", "field _id holds U+0000"),
        ({"_id": "a\x7f", "text": "x"}, "control_characters", "field _id holds U+007F"),
        ({"_id": "a", "text": "\u3000\n"}, "empty_text", "no visible character"),
        ({"_id": "a", "text": "\0\0 \u200b\x1f"}, "empty_text", "no visible character"),
        ({"_id": "a", "text": "éééééé1"}, "text_too_long", "13 bytes, source.max_text_bytes is 12"),
    ],
)
def test_bad_record_has_reason_and_detail(record: dict, reason: str, detail: str):
    row = validate(record, SOURCE)
    assert isinstance(row, BadRow)
    assert row.reason == reason
    assert detail in row.detail


def test_text_of_maximum_length_is_a_document():
    assert isinstance(validate({"_id": "a", "text": "é" * 6}, SOURCE), Document)


TEXT = st.text(st.sampled_from(" aé😀\n\0\u3000\ud800\udc00"), max_size=20)
SCALAR = st.none() | st.booleans() | st.floats() | st.integers() | TEXT
JSON = SCALAR | st.lists(SCALAR, max_size=3) | st.dictionaries(TEXT, SCALAR, max_size=3)


@settings(deadline=None)
@given(record=st.dictionaries(st.sampled_from(["_id", "title", "text", "url", "other"]), JSON | st.binary(max_size=9)))
def test_arbitrary_record_becomes_exactly_one_arrow_row(record: dict):
    row = validate(record, SOURCE)
    batch = RowBatch(SOURCE, FILE, 3, 8)
    batch.add(41, row)
    table = batch.take()
    table.validate(full=True)
    (found,) = table.to_pylist()
    assert (found["file"], found["position"], found["doc_id"]) == (3, 41, row.doc_id)
    assert (found["source"], found["source_key"]) == (FILE.location, FILE.key)
    assert 0 <= found["cell"] < 8
    if isinstance(row, Document):
        assert (found["reason"], found["text"]) == (None, row.text)
        assert found["cell"] == cell_of(row.doc_id, 8)
        assert (found["stored.title"], found["stored.url"]) == row.stored
    else:
        assert (found["reason"], found["text"], found["raw"]) == (row.reason, None, row.raw)


@given(
    st.text(st.characters(), max_size=30).map(lambda text: text * 300) | st.binary(max_size=20).map(lambda b: b * 400)
)
def test_kept_bytes_of_a_bad_row_are_short_valid_utf8(raw: str | bytes):
    kept = shorten(raw)
    assert len(kept) <= RAW_LIMIT
    kept.encode()
    data = raw.encode("utf-8", "replace") if isinstance(raw, str) else raw
    if len(data) <= RAW_LIMIT:
        assert kept == data.decode("utf-8", "replace")


def test_bad_row_has_its_shortened_record():
    row = validate({"_id": "a", "text": "y" * 9999, "url": b"\xff"}, SOURCE)
    assert isinstance(row, BadRow)
    assert row.raw.startswith('{"_id": "a", "text": "yyy')
    assert len(row.raw) == RAW_LIMIT
    short = validate({"_id": "a", "url": b"\xff"}, SOURCE)
    assert isinstance(short, BadRow)
    assert json.loads(short.raw) == {"_id": "a", "text": None, "title": None, "url": "\ufffd"}


def test_batch_is_full_by_rows_or_bytes_and_empty_after_take():
    batch = RowBatch(SOURCE, FILE, 0, 4)
    assert batch.take().schema == row_schema(["title", "url"])
    for i in range(RowBatch.MAX_ROWS):
        assert not batch.full
        batch.add(i, Document(f"d{i}", "x", (None, None)))
    assert batch.full
    assert batch.take().num_rows == RowBatch.MAX_ROWS
    assert (len(batch), batch.full) == (0, False)
    batch.add(0, Document("d", "x", ("y" * RowBatch.MAX_BYTES, None)))
    assert batch.full


def test_bad_rows_are_spread_over_cells():
    batch = RowBatch(SOURCE, FILE, 1, 4)
    for i in range(8):
        batch.add(i, BadRow("broken_json", "", None, ""))
    assert sorted(batch.take()["cell"].to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_batches_of_disjoint_cells_have_every_row_once():
    rows: list[Document | BadRow] = [Document(f"d{i}", "x", (None, None)) for i in range(50)]
    rows += [BadRow("broken_json", "", None, "")] * 5 + [BadRow("empty_text", "", f"b{i}", "") for i in range(5)]
    found: list[dict] = []
    for keep in (frozenset({0, 2}), frozenset({1}), frozenset({3, 4})):
        batch = RowBatch(SOURCE, FILE, 3, 5, keep)
        for position, row in enumerate(rows):
            batch.add(position, row)
        some = batch.take().to_pylist()
        assert {row["cell"] for row in some} == keep
        assert all(batch.wants(row["doc_id"]) for row in some if row["doc_id"])
        found += some
    assert sorted(row["position"] for row in found) == list(range(60))


def test_strings_of_rows_address_any_amount_of_text():
    schema = row_schema(["title"])
    assert not [field.name for field in schema if pa.types.is_string(field.type)]
    assert schema.field("text").type == schema.field("stored.title").type == pa.large_string()
