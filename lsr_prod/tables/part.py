"""Parquet parts named by their content: written once under a name that nothing else can have, then read back."""

import hashlib
import io
import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.errors import CommitError
from lsr_prod.storage import Entry, Store

__all__ = ["Part", "check_part", "write_part"]

# Columns whose least and greatest value help a reader to skip a file.
_BOUNDED = ("doc_id", "content_hash", "source_file")


@dataclass(frozen=True, slots=True)
class Part:
    """A finished file that no commit names yet.

    Attributes:
        path: inside the table.
        size: bytes.
        rows: rows in its footer.
        stats: statistics of its columns as Delta wants them, JSON.
    """

    path: str
    size: int
    rows: int
    stats: str


def write_part(store: Store, folder: str, table: pa.Table) -> Part:
    """Write ``table`` as ``<folder>/part-<sha256>.parquet`` and read its footer back.

    Equal tables give equal names, so a second attempt that made the same bytes finds them there. Where a
    damaged file has the name, the part gets a number too.
    """
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    data = buffer.getvalue()
    name = f"{folder}/part-{hashlib.sha256(data).hexdigest()}"
    stats = json.dumps(_statistics(table))
    number = 0
    while True:
        part = Part(f"{name}-{number}.parquet" if number else f"{name}.parquet", len(data), table.num_rows, stats)
        new = store.put_new(part.path, data)
        if not new:
            try:
                store.refresh(part.path)  # a vacuum must not take a part for old that is about to be committed
            except FileNotFoundError:
                continue  # it just did
        try:
            check_part(store, part)
        except CommitError:
            if new:
                raise
            # A damaged file has the name. It is not replaced: an attempt that comes late could take away what a
            # newer one made whole and committed.
            number += 1
        else:
            return part


def check_part(store: Store, part: Part) -> Entry:
    """Hold a part against the store: neither sink would notice that a file is not there.

    Returns:
        What the store knows of it.

    Raises:
        CommitError: it is missing or torn, or has another size or another number of rows.
    """
    entry = store.entry(part.path)
    if entry is None or entry.size != part.size:
        size = entry.size if entry else None
        raise CommitError(f"{store.uri}/{part.path} has {size} bytes instead of {part.size}; run the job again")
    try:
        with store.open_reader(part.path) as file:
            rows = pq.read_metadata(file).num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise CommitError(f"{store.uri}/{part.path} has no readable footer ({error}); run the job again") from error
    if rows != part.rows:
        raise CommitError(f"{store.uri}/{part.path} has {rows} rows instead of {part.rows}; run the job again")
    return entry


def _statistics(table: pa.Table) -> dict[str, object]:
    plain = [name for name in table.column_names if not pa.types.is_nested(table.schema.field(name).type)]
    bounds = {name: pc.min_max(table[name]).as_py() for name in _BOUNDED if name in plain}
    bounds = {name: bound for name, bound in bounds.items() if bound["min"] is not None}
    return {
        "numRecords": table.num_rows,
        "minValues": {name: bound["min"] for name, bound in bounds.items()},
        "maxValues": {name: bound["max"] for name, bound in bounds.items()},
        "nullCount": {name: table[name].null_count for name in plain},
    }
