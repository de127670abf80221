"""Typed Arrow columns become records, and Arrow streams, which are the files of saved datasets."""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.corpus.formats.interface import Decoded, ReadRequest, Record, SourceFormat
from lsr_prod.corpus.pinned_file import DamagedFileError, Slice
from lsr_prod.corpus.source_rows import TypedValue

_BATCH_ROWS = 256
_BATCH_BYTES = 1 << 28

_ZEROS = re.compile(r"\.?0*(?=Z?$)")  # at the end of a fraction of a second
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def rows_at_once(row_bytes: int) -> int:
    """Return the number of rows that are converted to Python values at once: at most 256, and 256 MiB of them."""
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))


def typed_records(
    batches: Iterator[pa.RecordBatch], first_row: int, constants: Mapping[str, str | None], request: ReadRequest
) -> Iterator[Decoded]:
    """Yield (row number, record) of every row; None in place of a document that is not wanted."""
    shared = {name: value for name, value in constants.items() if name in request.columns}
    source, position = request.source, first_row
    column = source.column(source.id_field)
    lists = {source.column(name) for name, kind in source.types.items() if kind == "strings"}
    for batch in (piece for whole in batches for piece in _small(whole)):
        count, unwanted = batch.num_rows, set[int]()
        if request.wants is not None and column in batch.schema.names:
            ids = _values(batch.column(column), is_id=True, lists=False)
            unwanted = {i for i in range(count) if not _may_be_wanted(ids[i], request.wants)}
            batch = batch.take(pa.array([i for i in range(count) if i not in unwanted], pa.int64()))
        values = {
            name: _values(batch.column(name), is_id=name in request.ids, lists=request.lists or name in lists)
            for name in batch.schema.names
        }
        place = 0
        for i in range(count):
            if i in unwanted:
                yield position + i, None
                continue
            yield position + i, Record(shared | {name: value[place] for name, value in values.items()})
            place += 1
        position += count


def select_columns(schema: pa.Schema, columns: frozenset[str]) -> list[str]:
    """Return the names in ``columns``, in file order, and the dotted paths in it that lead to a field of a struct."""
    found = [name for name in schema.names if name in columns]
    if len(set(found)) < len(found):
        raise DamagedFileError(f"a column of {', '.join(found)} is there twice")
    return found + sorted(path for path in columns.difference(found) if field_at(schema, path) is not None)


def field_at(schema: pa.Schema, path: str) -> pa.Field | None:
    """Return the column with a name, or the field of a struct column at a dotted path."""
    first, *rest = [path] if path in schema.names else path.split(".")
    field = schema.field(first) if schema.names.count(first) == 1 else None
    for name in rest:
        if field is None or not pa.types.is_struct(field.type) or field.type.get_field_index(name) < 0:
            return None
        field = field.type.field(name)
    return field


def flatten(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    """Return the columns with the given names or dotted paths."""
    columns = [
        batch.column(name) if name in batch.schema.names else pc.struct_field(batch.column(first), rest)
        for name, (first, *rest) in ((name, name.split(".")) for name in names)
    ]
    return pa.RecordBatch.from_arrays(columns, names) if names else batch.select([])  # which keeps the number of rows


def stream_batches(handle: BinaryIO, columns: frozenset[str]) -> Iterator[pa.RecordBatch]:
    """Yield an Arrow IPC stream as small batches of the given columns."""
    decoded = 0
    try:
        with pa.ipc.open_stream(handle) as stream:
            names = select_columns(stream.schema, columns)
            decoded = handle.tell()
            while True:
                try:
                    batch = stream.read_next_batch()
                except StopIteration:
                    break
                selected = flatten(batch, names)
                _check_offsets(selected)
                yield from _small(selected)
                decoded = handle.tell()
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(str(error), decoded) from error
    end = handle.seek(-len(_END_OF_STREAM), io.SEEK_END)
    if handle.read() != _END_OF_STREAM:
        raise DamagedFileError("the stream ends without its end mark", decoded)
    if decoded < end:
        raise DamagedFileError("something follows the end mark of the stream", decoded)


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch, so that no piece becomes large: a dictionary or a run holds a value once that many rows have."""
    rows = rows_at_once(sum(map(_value_bytes, batch.columns)))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def _value_bytes(column: pa.Array) -> int:
    if pa.types.is_dictionary(column.type):
        return int(column.dictionary.nbytes)
    if pa.types.is_run_end_encoded(column.type):
        return int(column.values.nbytes)
    return int(column.nbytes) // max(len(column), 1)


def _check_offsets(batch: pa.RecordBatch) -> None:
    """Validate offsets: streams have no checksums, and a flipped offset would read arbitrary memory.

    Strings are viewed as binary, because invalid UTF-8 makes a bad row, not a damaged file.
    """
    views = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    for column in batch.columns:
        (column.view(views[column.type]) if column.type in views else column).validate(full=True)


def _may_be_wanted(doc_id: object, wants: Callable[[str], bool]) -> bool:
    """Return True for rows without a readable id too: their position assigns them to a cell later."""
    if isinstance(doc_id, bytes):
        try:
            doc_id = doc_id.decode()
        except UnicodeDecodeError:
            return True
    return not isinstance(doc_id, str) or not doc_id or wants(doc_id)


def _values(column: pa.Array, *, is_id: bool, lists: bool) -> list[Any]:
    """Convert a column to Python values: strings as bytes, because Arrow does not check that they are UTF-8."""
    if lists and is_list(column.type):
        return _lists(column)
    if column.type == pa.uuid():
        return [None if value is None else str(value) for value in column.to_pylist()]
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    kind = column.type
    values: list[Any]
    if pa.types.is_null(kind):
        values = [None] * len(column)
    elif is_text(kind):
        values = column.cast(pa.large_binary()).to_pylist()
    elif is_id and (pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)):
        values = column.cast(pa.string()).to_pylist()
    elif is_scalar(kind):
        values = [None if text is None else TypedValue(str(kind), text, text) for text in scalar_texts(column)]
    else:
        values = [TypedValue(str(kind), str(kind)) if there else None for there in column.is_valid().to_pylist()]
    return values


def is_scalar(kind: pa.DataType) -> bool:
    """Return whether a stored field may have values of a type that is not a string."""
    return _is_any(kind, "integer", "floating", "decimal", "date", "time", "timestamp", "boolean")


def scalar_texts(column: pa.Array) -> list[str | None]:
    """Return values as text that attributes parse: times in ISO 8601, in UTC if they have a zone; NaN is null."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = column.cast(pa.timestamp(kind.unit, kind.tz and "UTC")).cast(pa.string()).to_pylist()
        return [text and _iso(text) for text in texts]
    if pa.types.is_date(kind):
        column = column.cast(pa.date32())
    texts = column.cast(pa.string()).to_pylist()
    return [None if text == "nan" else text for text in texts] if pa.types.is_floating(kind) else texts


def _iso(moment: str) -> str:
    """Return a time that Arrow wrote in ISO 8601, without zeros at the end of the fraction of a second."""
    text = moment.replace(" ", "T") if moment[:1] != "<" else moment  # Arrow writes <value out of range: ...>
    return _ZEROS.sub("", text, count=1) if "." in text else text


def _lists(column: pa.Array) -> list[Any]:
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.large_list(column.type.value_type))
    inner = column.flatten()  # without values behind null lists
    if pa.types.is_floating(inner.type):
        items = inner.cast(pa.float64()).to_pylist()
    else:
        items = inner.to_pylist() if pa.types.is_integer(inner.type) else _values(inner, is_id=False, lists=False)
    values: list[Any] = []
    start = 0
    for length in pc.list_value_length(column).to_pylist():
        values.append(None if length is None else items[start : start + length])
        start += length or 0
    return values


def is_list(kind: pa.DataType) -> bool:
    """Return whether values of a type are lists."""
    return _is_any(kind, "list", "large_list", "list_view", "large_list_view", "fixed_size_list")


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are texts, as strings or as bytes."""
    texts = ("string", "large_string", "string_view")
    return _is_any(kind, *texts, "binary", "large_binary", "binary_view", "fixed_size_binary")


def _is_any(kind: pa.DataType, *names: str) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _stream_records(handle: BinaryIO, piece: Slice, request: ReadRequest) -> Iterator[Decoded]:
    return typed_records(stream_batches(handle, request.columns), piece.first_row, dict(piece.file.constants), request)


ARROW_STREAM = SourceFormat("arrow", (), _stream_records, compressible=False, training_data=False)
