"""Parquet parts: named by their content and origin, written once, and read back after writing.

Convert an Arrow schema between the string types of stored rows and of rows in memory.

Tables store columns of the type ``string``, whose offsets address 2 GiB of text per Arrow array. Rows in memory have
``large_string`` instead, so that arrays can be joined and rows taken however much text there is.

The digest of rows of the sparse table: a sum over rows, so that those of files and snapshots are sums too.

The digest of a row is the sha256 of its doc_id, terms, impacts and content_hash; the digest of several rows is the sum
of theirs modulo 2**256. So it is independent of the order of rows and of files, and a duplicated row changes it. A part
has the digest of its rows in its name (``part``): the digest of a snapshot follows from its list of files.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.errors import CommitError
from lsr_prod.storage import Entry, Store
from lsr_prod.storage.formats import digests

DIGESTED = ("doc_id", "terms", "impacts", "content_hash")
"""Columns that the digest covers."""
MODULUS = 1 << 256
"""Digests are below this number."""
_BATCH = 4096
_NAME = re.compile(r"(?:^|/)part-[0-9a-f]{64}-([0-9a-f]{64})(?:-\d+)?\.parquet$")
_PIECE_BYTES = 1 << 30  # of text in a column of a row group
# An increment reads these columns of all rows of the sparse table. Sorted ids share prefixes, and keys are random.
_ENCODINGS = {"doc_id": "DELTA_BYTE_ARRAY", "content_key": "PLAIN"}
# Columns whose smallest and largest values let a reader skip a file.
_BOUNDED = ("doc_id", "content_hash", "source_file")
_BOUND_CHARACTERS = 256  # every reader of a table loads the bounds of all of its files


def row_digest(rows: pa.Table) -> int:
    """Return the digest of rows, below 2**256."""
    return digest_batches(rows.select(list(DIGESTED)).to_batches(max_chunksize=_BATCH))


def digest_batches(batches: Iterable[pa.RecordBatch]) -> int:
    """Return the digest of the rows of small batches, below 2**256."""
    rows = (row for batch in batches for row in _rows(batch))
    return sum(int.from_bytes(hashlib.sha256(row).digest(), "big") for row in rows) % MODULUS


def digest_in_name(path: str) -> int | None:
    """Return the digest of the rows of a part from its name; None: its name has none."""
    found = _NAME.search(path)
    return int(found[1], 16) if found else None


def combine_digests(digests: Iterable[int]) -> str:
    """Return the digest of a table, 64 hex digits, from the digests of its files."""
    return f"{sum(digests) % MODULUS:064x}"


def _rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    (first, terms), (second, impacts) = _lists(batch["terms"]), _lists(batch["impacts"])
    ids, hashes = batch["doc_id"].to_pylist(), batch["content_hash"].to_pylist()
    for i, (doc_id, content) in enumerate(zip(ids, hashes, strict=True)):
        fields = (doc_id.encode(), terms[first[i] : first[i + 1]], impacts[second[i] : second[i + 1]], content.encode())
        # Lengths first, so that no two different rows have the same bytes.
        yield b"".join(part for field in fields for part in (len(field).to_bytes(8, "big"), field))


def _lists(column: pa.ListArray) -> tuple[list[int], memoryview]:
    """Return the bounds of the lists in bytes [n + 1], and their values as 32-bit integers."""
    offsets: np.typing.NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    values = np.ascontiguousarray(column.flatten().to_numpy(), "<i4")  # of this slice only
    return ((offsets - offsets[0]) * 4).tolist(), memoryview(values.tobytes())


def large_strings(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``large_string`` in place of ``string``: that of rows in memory."""
    return _with_strings(schema, pa.large_string())


def stored_strings(schema: pa.Schema) -> pa.Schema:
    """Return the schema with ``string`` in place of ``large_string``: that of stored rows."""
    return _with_strings(schema, pa.string())


def _with_strings(schema: pa.Schema, kind: pa.DataType) -> pa.Schema:
    for place, field in enumerate(schema):
        if _is_string(field.type):
            schema = schema.set(place, field.with_type(kind))
        elif pa.types.is_list(field.type) and _is_string(field.type.value_type):
            schema = schema.set(place, field.with_type(pa.list_(field.type.value_field.with_type(kind))))
    return schema


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file of a table, complete, but not yet named by a commit."""

    path: str  # inside the table
    size: int  # bytes
    rows: int  # number of rows according to its footer
    stats: str  # column statistics in the format of Delta, JSON


def write_part(store: Store, folder: str, table: pa.Table, origin: str) -> Part:
    """Write ``table`` as ``<folder>/part-<sha256 of content and origin>.parquet`` and read its footer back.

    The name of a part of the sparse table also has the digest of its rows (``row_digest``), after another hyphen.

    Columns of the type ``large_string`` are stored as ``string``, with as much text per row group as that type holds.
    Equal tables of one origin get equal names, so a second attempt that makes the same bytes reuses the file. If a
    damaged file has that name, a number is appended to the name of the part.

    Args:
        store: the table's folder.
        folder: of the partition, inside the table.
        table: rows of the part.
        origin: identifies the only commit that may add the part, for example plan and wave. A table knows its files by
            path, so a path that was removed must never be added again: neither by the commit that removes it, which
            Delta forbids, nor by a later one, whose file a vacuum may be about to delete.
    """
    data = parquet_bytes(table)
    identity = hashlib.sha256(hashlib.sha256(data).digest() + origin.encode())
    name = f"{folder}/part-{identity.hexdigest()}"
    if set(DIGESTED) <= set(table.column_names):
        name += f"-{row_digest(table):064x}"
    stats = json.dumps(_statistics(table))
    number = 0
    while True:
        part = Part(f"{name}-{number}.parquet" if number else f"{name}.parquet", len(data), table.num_rows, stats)
        new = store.put_new(part.path, data)
        if not new:
            try:
                store.touch(part.path)  # a vacuum must not delete a part that is about to be committed
            except FileNotFoundError:
                continue  # the vacuum was faster
        try:
            check_part(store, part)
        except CommitError:
            if new:
                raise
            # A damaged file has this name. It is not replaced: a delayed attempt could overwrite a part that a newer
            # attempt has repaired and committed.
            number += 1
        else:
            return part


def check_part(store: Store, part: Part) -> Entry:
    """Verify that a part is in the store; a commit does not notice a missing file.

    Returns:
        The entry of the file in the store.

    Raises:
        CommitError: the file is missing or damaged, or its size or number of rows differs.
    """
    entry = store.entry(part.path)
    if entry is None or entry.size != part.size:
        size = entry.size if entry else None
        raise CommitError(f"{store.uri}/{part.path} has {size} bytes instead of {part.size}; run the job again")
    if (rows := count_rows(store, part.path)) != part.rows:
        raise CommitError(f"{store.uri}/{part.path} has {rows} rows instead of {part.rows}; run the job again")
    return entry


def count_rows(store: Store, path: str) -> int:
    """Return the number of rows according to the footer of a part.

    Raises:
        CommitError: the footer is not readable.
    """
    damaged = digests.parsing(f"{store.uri}/{path} has no readable footer", "run the job again", CommitError)
    with damaged, store.open_reader(path) as file:
        return int(pq.read_metadata(file).num_rows)


def read_all_rows(store: Store, path: str, schema: pa.Schema | None = None) -> pa.Table:
    """Read all rows of a part, also those that the table has deleted; see ``live_rows.read_part``.

    Args:
        store: the table's folder.
        path: of the part inside it.
        schema: columns to read and their types; None reads the part as it is.

    Raises:
        ArtifactError: the part is missing or damaged.
    """
    damaged = digests.parsing(f"{store.uri}/{path} cannot be read", "encode the table again")
    with damaged, store.open_reader(path) as data:
        # Not pq.read_table: it would add the partition column that is in the path.
        part = pq.ParquetFile(data)
        return part.read() if schema is None else part.read(schema.names).select(schema.names).cast(schema)


def parquet_bytes(table: pa.Table) -> bytes:
    """Return the rows as a Parquet file, with the encodings of a part."""
    schema = stored_strings(table.schema)
    buffer = io.BytesIO()
    options: dict[str, Any] = {}
    if set(_ENCODINGS) <= set(schema.names):
        # A list has one column of values in the file.
        leaves = {field.name: ".list.element" if pa.types.is_list(field.type) else "" for field in schema}
        others = [name + leaf for name, leaf in leaves.items() if name not in _ENCODINGS]
        options = {"column_encoding": _ENCODINGS, "use_dictionary": others}
    with pq.ParquetWriter(buffer, schema, compression="zstd", **options) as writer:
        for piece in _pieces(table):
            writer.write_table(piece.cast(schema))
    return buffer.getvalue()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in tables with less text per column than the type ``string`` addresses."""
    strings = [column for column in table.columns if pa.types.is_large_string(column.type)]
    if table.num_rows < 2 or max((column.nbytes for column in strings), default=0) <= _PIECE_BYTES:
        yield table
        return
    middle = table.num_rows // 2
    for rows in (range(middle), range(middle, table.num_rows)):
        yield from _pieces(table.take(pa.array(rows)))  # a slice would keep offsets that ``string`` does not hold


def _statistics(table: pa.Table) -> dict[str, object]:
    plain = [name for name in table.column_names if not pa.types.is_nested(table.schema.field(name).type)]
    bounds = {name: pc.min_max(table[name]).as_py() for name in _BOUNDED if name in plain}
    bounds = {name: bound for name, bound in bounds.items() if bound["min"] is not None}
    largest = {name: _upper_bound(bound["max"]) for name, bound in bounds.items()}
    return {
        "numRecords": table.num_rows,
        "minValues": {name: _lower_bound(bound["min"]) for name, bound in bounds.items()},
        "maxValues": {name: value for name, value in largest.items() if value is not None},
        "nullCount": {name: table[name].null_count for name in plain},
    }


def _lower_bound(value: object) -> object:
    """Return a short value that is not above ``value``: texts are ordered by code points, and so is their UTF-8."""
    return value[:_BOUND_CHARACTERS] if isinstance(value, str) else value


def _upper_bound(value: object) -> object:
    """Return a short value that is not below ``value``; None: there is none."""
    if not isinstance(value, str) or len(value) <= _BOUND_CHARACTERS:
        return value
    start = value[:_BOUND_CHARACTERS].rstrip("\U0010ffff")
    if not start:
        return None
    after = ord(start[-1]) + 1
    return start[:-1] + chr(0xE000 if 0xD800 <= after < 0xE000 else after)  # surrogates are no characters
