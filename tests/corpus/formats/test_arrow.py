import datetime as dt
import decimal
import io
import itertools
import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.formats.arrow import stream_batches, typed_records
from lsr_prod.corpus.formats.interface import ReadRequest
from lsr_prod.corpus.formats.parquet import parquet_batches
from lsr_prod.corpus.pinned_file import DamagedFileError
from lsr_prod.corpus.source_rows import BadRow, Document, validate
from lsr_prod.storage.formats.stored_values import AttributeType, parse_value

SOURCE = SourceSettings(paths=["c"], text_fields=["text"], stored_fields=[])
COLUMNS = frozenset({"_id", "text"})


def arrow_rows(batches, first_row, constants, source, wants):
    request = ReadRequest(source, COLUMNS | {*source.stored_fields}, 0, ids=frozenset({"_id"}), wants=wants)
    for position, record in typed_records(batches, first_row, constants, request):
        yield position, None if record is None else validate(record.values, source)


def as_parquet(table: pa.Table) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=300)
    return io.BytesIO(sink.getvalue())


def as_stream(table: pa.Table) -> io.BytesIO:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=300)
    return io.BytesIO(sink.getvalue())


def rows_of(table: pa.Table, source: SourceSettings = SOURCE) -> list[Document | BadRow | None]:
    """Return the rows after checking that Parquet and a stream give the same."""
    columns = COLUMNS | {*source.stored_fields}
    found = list(arrow_rows(parquet_batches(as_parquet(table), 0, -1, columns), 0, {}, source, None))
    assert list(arrow_rows(stream_batches(as_stream(table), columns), 0, {}, source, None)) == found
    assert [position for position, _ in found] == list(range(table.num_rows))
    return [row for _, row in found]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)  # fmt: skip
def test_all_string_types_are_read_as_strings(kind: pa.DataType):
    values = ["a", "é", None, "a"]
    if pa.types.is_dictionary(kind):
        column = pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    else:
        column = pa.array([value.encode() if value and "binary" in str(kind) else value for value in values], kind)
    rows = rows_of(pa.table({"_id": column, "text": column, "more": [[1]] * 4}))
    assert [row.doc_id if isinstance(row, Document) else row.reason for row in rows if row] == [
        "a", "é", "missing_id", "a",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()], ids=str)
def test_integers_are_accepted_as_ids_but_not_as_texts(kind: pa.DataType):
    top = 2**64 - 1 if kind == pa.uint64() else 7
    ids = pa.array([0, top, None], kind)
    rows = rows_of(pa.table({"_id": ids, "text": ["x", "y", "z"]}))
    assert [row.doc_id for row in rows if row] == ["0", str(top), None]
    (row, *_) = rows_of(pa.table({"_id": ["a"], "text": pa.array([7], kind)}))
    assert isinstance(row, BadRow)
    assert (row.reason, row.detail) == ("wrong_type", f"field text is {kind}, not a string")
    assert row.raw == '{"_id": "a", "text": "7"}'


MOMENT = dt.datetime(2024, 1, 2, 3, 4, 5, 600_000, dt.UTC)
SCALARS = [
    (pa.array([2**64 - 1, None], pa.uint64()), "int64", None),
    (pa.array([-5, None], pa.int16()), "int64", -5),
    (pa.array([0.1, float("nan")], pa.float32()), "float64", 0.1),
    (pa.array([1e300, None], pa.float64()), "float64", 1e300),
    (pa.array([True, None]), "bool", True),
    (pa.array([MOMENT.date(), None]), "timestamp", dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
    (pa.array([MOMENT.date(), None], pa.date64()), "timestamp", dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
    (pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("ms")), "timestamp", MOMENT),
    (pa.array([MOMENT, None], pa.timestamp("ns", "Asia/Seoul")), "timestamp", MOMENT),
    (
        pa.array([MOMENT.replace(microsecond=0), None], pa.timestamp("s", "UTC")),
        "timestamp",
        MOMENT.replace(microsecond=0),
    ),
    (pa.array([decimal.Decimal("12.50"), None], pa.decimal128(9, 2)), "float64", 12.5),
    (pa.array([True, None]).dictionary_encode(), "bool", True),
]


@pytest.mark.parametrize(("column", "kind", "value"), SCALARS, ids=[str(column.type) for column, _, _ in SCALARS])
def test_scalars_of_stored_fields_become_text_that_attributes_read(
    column: pa.Array, kind: AttributeType, value: object
):
    table = pa.table({"_id": ["a", "b"], "text": ["x", "y"], "more": column})
    first, second = rows_of(table, SOURCE.model_copy(update={"stored_fields": ["more"]}))
    assert isinstance(first, Document)
    assert isinstance(second, Document)
    (text,) = first.stored
    assert second.stored == (None,)
    assert text is not None
    if value is not None:  # else it is larger than an attribute can be
        assert parse_value(text, kind) == value


def test_decimals_of_scale_0_and_uuids_are_accepted_as_ids():
    number = uuid.UUID(int=2**100)
    for ids in (pa.array([decimal.Decimal(7), None], pa.decimal128(20, 0)), pa.array([number.bytes, None], pa.uuid())):
        rows = rows_of(pa.table({"_id": ids, "text": ["x", "y"]}))
        assert [row.doc_id for row in rows if row] == ["7" if pa.types.is_decimal(ids.type) else str(number), None]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([1.5]), pa.array([True]), pa.array([["x"]], pa.list_(pa.field("element", pa.string()))),
        pa.array([{"x": 1}]), pa.array([2**62], pa.timestamp("us")),
    ],
    ids=lambda array: str(array.type),
)  # fmt: skip
def test_other_types_are_rejected_as_ids(ids: pa.Array):
    (row,) = rows_of(pa.table({"_id": ids, "text": ["x"]}))
    assert isinstance(row, BadRow)
    assert (row.reason, row.doc_id) == ("wrong_type", None)


@pytest.mark.parametrize("make", [pa.large_list, pa.list_view, pa.large_list_view], ids=lambda make: make.__name__)
def test_lists_of_every_layout_are_read_alike(make: Callable[[pa.DataType], pa.DataType]):
    lists = [["a", "b"], ["c"], None, [], ["d", None]] * 200
    source = SOURCE.model_copy(update={"stored_fields": ["tags"], "types": {"tags": "strings"}})
    ids = [f"d{i}" for i in range(len(lists))]
    tables = [
        pa.table({"_id": ids, "text": ids, "tags": pa.array(lists, kind(pa.string()))}) for kind in (pa.list_, make)
    ]
    expected, found = (rows_of(table.slice(3), source) for table in tables)
    assert found == expected


def test_null_and_missing_columns_count_as_absent():
    rows = rows_of(pa.table({"_id": ["a", None], "text": pa.nulls(2)}))
    assert [row.reason for row in rows if isinstance(row, BadRow)] == ["empty_text", "missing_id"]


def test_every_row_of_a_file_without_any_wanted_column_is_a_bad_row():
    found = rows_of(pa.table({"docno": [str(i) for i in range(700)], "body": ["x"] * 700}))
    assert len(found) == 700
    assert {row.reason for row in found if isinstance(row, BadRow)} == {"missing_id"}


def test_rows_of_a_stream_without_any_wanted_column_have_the_constants_of_their_folder():
    batches = stream_batches(as_stream(pa.table({"body": ["x"] * 3})), COLUMNS)
    rows = list(arrow_rows(batches, 5, {"_id": "a", "text": "b"}, SOURCE, None))
    assert [(position, row.doc_id) for position, row in rows] == [(5, "a"), (6, "a"), (7, "a")]


def test_bad_row_of_a_time_out_of_range_says_so_in_words():
    source = SOURCE.model_copy(update={"stored_fields": ["at"], "types": {"at": "timestamp"}})
    (row,) = rows_of(pa.table({"_id": ["a"], "text": ["x"], "at": pa.array([1 << 62], pa.timestamp("us"))}), source)
    assert isinstance(row, BadRow)
    assert "<value out of range: " in row.detail


def test_texts_of_unwanted_documents_are_not_read():
    table = pa.table({"_id": [f"d{i}" for i in range(700)] + [None], "text": ["x"] * 701})
    asked: list[str] = []

    def wants(doc_id: str) -> bool:
        asked.append(doc_id)
        return doc_id in ("d0", "d255", "d256", "d699")

    found = list(arrow_rows(parquet_batches(as_parquet(table), 0, -1, COLUMNS), 100, {}, SOURCE, wants))
    kept = [(position, row.doc_id) for position, row in found if row is not None]
    assert kept == [(100, "d0"), (355, "d255"), (356, "d256"), (799, "d699"), (800, None)]
    assert len(found) == 701
    assert len(asked) == 700


def test_range_of_row_groups_with_constants():
    table = pa.table({"_id": [f"d{i}" for i in range(900)]})
    batches = parquet_batches(as_parquet(table), 1, 2, COLUMNS)
    found = list(arrow_rows(batches, 300, {"text": "of the partition"}, SOURCE, None))
    assert found[0] == (300, Document("d300", "of the partition", ()))
    assert [position for position, _ in found] == list(range(300, 600))


def test_repeated_column_is_damage():
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["x"]), pa.array(["y"])], ["_id", "text", "text"])
    for batches in (parquet_batches(as_parquet(table), 0, -1, COLUMNS), stream_batches(as_stream(table), COLUMNS)):
        with pytest.raises(DamagedFileError, match="there twice"):
            list(batches)


def test_stream_with_flipped_offsets_is_rejected_before_it_is_read():
    table = pa.table({"_id": ["a" * 40] * 100, "text": ["x"] * 100})
    data = bytearray(as_stream(table).getvalue())
    offsets = (40).to_bytes(4, "little") + (80).to_bytes(4, "little")
    at = data.index(offsets)
    data[at : at + 4] = (2**31 - 1).to_bytes(4, "little")
    with pytest.raises(DamagedFileError):
        list(stream_batches(io.BytesIO(bytes(data)), COLUMNS))


def test_stream_without_end_mark_yields_its_rows_and_then_raises():
    table = pa.table({"_id": [f"d{i}" for i in range(600)], "text": ["x"] * 600})
    batches = stream_batches(io.BytesIO(as_stream(table).getvalue()[:-8]), COLUMNS)
    assert sum(batch.num_rows for batch in itertools.islice(batches, 4)) == 600
    with pytest.raises(DamagedFileError, match="without its end mark"):
        next(batches)


def repeated(size: int, rows: int) -> pa.Table:
    """A text of ``size`` bytes in ``rows`` rows, held once."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    return pa.table({"id": [str(i) for i in range(rows)], "text": text})


@pytest.mark.long
def test_small_file_of_large_values_is_read_in_small_batches():
    file = io.BytesIO()
    pq.write_table(repeated(16 << 20, 40), file, compression="zstd", store_schema=False)
    assert file.tell() < 10_000
    batches = [batch.num_rows for batch in parquet_batches(file, 0, -1, frozenset({"id", "text"}))]
    assert (sum(batches), max(batches)) == (40, 15)


def test_dictionary_of_a_stream_is_decoded_in_small_batches():
    batches = stream_batches(as_stream(repeated(64 << 20, 10)), frozenset({"id", "text"}))
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 1]


@pytest.mark.long
def test_dictionary_that_declares_too_many_bytes_is_damage():
    file = io.BytesIO()
    pq.write_table(repeated((1 << 28) + 1, 2), file, compression="zstd", store_schema=False)
    with pytest.raises(DamagedFileError, match=r"the dictionary of column text declares 2684\d+ bytes"):
        next(parquet_batches(file, 0, -1, frozenset({"id", "text"})))


def test_dotted_path_reads_a_field_of_a_struct_unless_a_column_has_that_name():
    inner = pa.StructArray.from_arrays([pa.array(["é", None, "c"]), pa.array([1, 2, 3])], ["text", "n"])
    inner = pa.StructArray.from_arrays([inner], ["body"], mask=pa.array([False, False, True]))
    table = pa.table({"_id": ["a", "b", "c"], "doc": inner})
    source = SOURCE.model_copy(update={"text_fields": ["doc.body.text"], "stored_fields": ["doc.body.n"]})
    for batches in (parquet_batches, lambda data, _start, _stop, columns: stream_batches(data, columns)):
        columns = frozenset({"_id", "doc.body.text", "doc.body.n", "doc.absent", "_id.x"})
        data = as_parquet(table) if batches is parquet_batches else as_stream(table)
        (batch,) = batches(data, 0, -1, columns)
        request = ReadRequest(source, columns, 0)
        rows = [validate(record.values, source) for _, record in typed_records(iter([batch]), 0, {}, request)]
        assert rows[0] == Document("a", "é", ("1",))
        assert [row.reason for row in rows[1:]] == ["empty_text", "empty_text"]
    named = table.append_column("doc.body.text", pa.array(["x", "y", "z"]))
    for read in (
        parquet_batches(as_parquet(named), 0, -1, frozenset({"doc.body.text"})),
        stream_batches(as_stream(named), frozenset({"doc.body.text"})),
    ):
        assert pa.Table.from_batches(read).to_pydict() == {"doc.body.text": ["x", "y", "z"]}
