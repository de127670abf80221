"""Quarantine: bad rows with their reason, their place in the source and their first bytes; one schema for every job.

Parts lie in ``plan=<digest>/wave=<number>``, so that a repeated attempt replaces what an earlier one wrote. The
quarantine of an encode run is a table with a log; an import, a training set, mined negatives and scored rows leave the
parts alone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lsr_prod.corpus.source_rows import RAW_LIMIT, BadRow
from lsr_prod.encoding.tables.live_rows import partition_column
from lsr_prod.encoding.tables.part import Part, large_strings, read_all_rows, write_part
from lsr_prod.encoding.tables.table import Table, create_table, open_table
from lsr_prod.errors import ArtifactError
from lsr_prod.storage import Store

PARTITION = ("plan", "wave")
_PLAN, _WAVE = map(partition_column, PARTITION)
PART_SCHEMA = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        pa.field("detail", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("doc_id", pa.string()),
        pa.field("source_file", pa.int64(), nullable=False),
        pa.field("raw", pa.string()),
        pa.field("unread_bytes", pa.int64()),
    ]
)
"""Columns of a stored part; the partition columns are in the path."""
QUARANTINE_SCHEMA = pa.schema(
    [pa.field("plan", pa.string(), nullable=False), pa.field("wave", pa.int32(), nullable=False), *PART_SCHEMA],
    metadata={"raw": f"the first {RAW_LIMIT} bytes of the row; bytes that are no UTF-8 are U+FFFD"},
)
PLACE_SCHEMA = pa.schema([PART_SCHEMA.field("source_file"), PART_SCHEMA.field("position")])
DUPLICATE = "duplicate_id"
_HELD_BYTES = 32_000_000  # of bad rows in memory before they become a part
_ROW_OVERHEAD = 500  # bytes of the Python objects of a row
COMMITTED = "committed"
NOT_COMMITTED = "not committed"
WITHOUT_LOG = "no log"
"""State of the parts of an import, a training set or mined negatives, whose quarantine is no table."""
_PART = re.compile(r"plan=([^/]+)/wave=(\d+)/[^/]+\.parquet")
_BATCH_ROWS = 1024


def quarantine_folder(plan: str, wave: int) -> str:
    """Path of the parts of a wave inside the quarantine."""
    return f"plan={plan}/wave={wave}"


def create_quarantine(store: Store) -> Table:
    """Open the quarantine table; create it if it is absent."""
    return create_table(store, QUARANTINE_SCHEMA, PARTITION, {})


def write_quarantine(store: Store, plan: str, wave: int, rows: pa.Table) -> Part:
    """Write bad rows as one part, ordered by source file and position."""
    rows = rows.sort_by([("file", "ascending"), ("position", "ascending")])
    rows = rows.rename_columns({"source_key": "source_file"})
    table = pa.table([rows[name] for name in PART_SCHEMA.names], schema=large_strings(PART_SCHEMA))
    return write_part(store, quarantine_folder(plan, wave), table, f"{plan}/{wave}")


class BadRowWriter:
    """Writes bad rows of one plan and wave in bounded memory, and counts them by reason.

    Attributes:
        reasons: number of rows by reason, with the column where it is known: ``missing_field: query``.
        parts: finished parts.
    """

    _COLUMNS = pa.schema([("file", pa.int32()), ("source_key", pa.int64()), *PART_SCHEMA.remove(5)])

    def __init__(self, store: Store, plan: str, wave: int) -> None:
        self._target = (store, plan, wave)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self.reasons: Counter[str] = Counter()
        self.parts: list[Part] = []

    def add(self, row: BadRow, *, ordinal: int, key: int, source: str, position: int) -> None:
        """Add a bad row."""
        self.reasons[row.counted_as] += 1
        place = {"file": ordinal, "source_key": key, "source": source, "position": position}
        values = {"reason": row.reason, "detail": row.detail, "doc_id": row.doc_id, "raw": row.raw}
        self._rows.append(place | values | {"unread_bytes": row.unread or None})
        self._bytes += len(row.raw) + len(row.detail) + len(source) + _ROW_OVERHEAD
        if self._bytes >= _HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows held in memory as a part; without rows, do nothing."""
        if self._rows:
            self.parts.append(write_quarantine(*self._target, pa.Table.from_pylist(self._rows, schema=self._COLUMNS)))
            self._rows, self._bytes = [], 0


def committed_files(table: Table, plan: str, waves: Iterable[int]) -> list[str]:
    """Return the paths of the committed parts of some waves of a plan."""
    files = table.file_table()
    of_waves = pc.is_in(files[_WAVE], value_set=pa.array(map(str, waves), pa.large_string()))
    paths: list[str] = files.filter(pc.and_(pc.equal(files[_PLAN], plan), of_waves))["path"].to_pylist()
    return paths


def quarantined_by_reason(store: Store, plan: str, waves: int) -> tuple[Counter[str], int]:
    """Count the rows of the first ``waves`` waves of a plan by reason, and their unread bytes of the source.

    One part is in memory at a time.
    """
    counts: Counter[str] = Counter()
    unread, table = 0, open_table(store)
    counted = pa.schema([PART_SCHEMA.field(name) for name in ("reason", "unread_bytes")])
    for path in committed_files(table, plan, range(waves)) if table else []:
        rows = read_all_rows(store, path, counted)
        counts.update(rows["reason"].to_pylist())
        unread += pc.sum(rows["unread_bytes"], min_count=0).as_py()
    return counts, unread


def places_of_files(store: Store, path: str, keys: pa.Array) -> pa.Table:
    """Return file and position of the rows of a part whose source files have these keys."""
    rows = read_all_rows(store, path, PLACE_SCHEMA)
    return rows.filter(pc.is_in(rows["source_file"], value_set=keys))


@dataclass(frozen=True, slots=True)
class QuarantinePart:
    """A part of a quarantine."""

    path: str  # inside the quarantine
    plan: str  # digest of the plan
    wave: int  # number of the wave
    # ``COMMITTED``, ``NOT_COMMITTED`` (the job stopped before the commit, or still encodes the wave) or
    # ``WITHOUT_LOG``
    state: str


def quarantine_parts(store: Store) -> list[QuarantinePart]:
    """Return the parts of a quarantine, without those that a later attempt at their wave replaced."""
    listed = {name: match for name in store.names() if (match := _PART.fullmatch(name))}
    table = open_table(store)  # after the listing: a part that is committed in between is not shown as not committed
    if table is None:
        if not listed:
            raise ArtifactError(f"{store.uri} is no quarantine; give the folder or URI of encode.quarantine")
        return [QuarantinePart(path, match[1], int(match[2]), WITHOUT_LOG) for path, match in listed.items()]
    if "plan" not in table.partition_by:
        raise ArtifactError(
            f"{store.uri} is a table of documents; give the folder of its quarantine, by default {store.uri}_quarantine"
        )
    parts = [
        QuarantinePart(file.path, file.partition["plan"] or "", int(file.partition["wave"] or 0), COMMITTED)
        for file in table.files()
    ]
    committed = {part.path for part in parts}
    for path, match in listed.items():
        done = table.transaction_version(match[1])
        if path not in committed and (done is None or done < int(match[2])):
            parts.append(QuarantinePart(path, match[1], int(match[2]), NOT_COMMITTED))
    return sorted(parts, key=lambda part: (part.plan, part.wave, part.path))


def quarantined_rows(store: Store, part: QuarantinePart) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part by column name; a batch of them is in memory at a time.

    A part that was deleted meanwhile has no rows.
    """
    try:
        with store.open_reader(part.path) as data:
            for batch in pq.ParquetFile(data).iter_batches(_BATCH_ROWS):
                yield from batch.select(PART_SCHEMA.names).to_pylist()
    except FileNotFoundError:
        return
    except pa.ArrowInvalid as error:
        raise ArtifactError(f"{store.uri}/{part.path} is damaged ({error}); restore or delete it") from error
