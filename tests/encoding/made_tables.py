"""Sparse and quarantine tables and waves for tests, without Ray and without a model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.results import CellResult, Counts, WaveResult
from lsr_prod.encoding.tables import Table, open_table, read_part, write_part
from lsr_prod.encoding.tables.deletions import Deletion
from lsr_prod.encoding.tables.quarantine_rows import create_quarantine, quarantined_by_reason, write_quarantine
from lsr_prod.encoding.tables.sparse_table import create_sparse_table
from lsr_prod.storage import Store
from lsr_prod.storage.formats.table_format import TableProperties, sparse_schema

PROPERTIES = TableProperties("b" * 64, "v" * 64, 0.01, 8, 16, 2, (), 30522)


def make_tables(folder: Path) -> tuple[Store, Store]:
    """Create the two empty tables of plan ``p``."""
    table, quarantine = Store(str(folder / "table")), Store(str(folder / "quarantine"))
    create_sparse_table(table, PROPERTIES, "p")
    create_quarantine(quarantine)
    return table, quarantine


def make_cell(
    table: Store,
    quarantine: Store,
    wave: int,
    ids: str = "",
    bad: str = "",
    *,
    cell: int = 0,
    impact: int = 2,
    plan: str = "p",
) -> CellResult:
    """Write a cell with a document per character of ``ids`` and a bad row per character of ``bad``."""
    schema = sparse_schema(())
    schema = schema.remove(schema.get_field_index("bucket"))
    vector = {"terms": [1, 5], "impacts": [impact, 1], "content_hash": "0" * 32, "content_key": 0, "source_file": 7}
    good = pa.Table.from_pylist([{"doc_id": doc_id, **vector} for doc_id in ids], schema=schema)
    bucket = cell % PROPERTIES.buckets
    parts = (write_part(table, f"bucket={bucket}", good, f"{plan}/{wave}"),) if ids else ()
    rows = [
        {
            "cell": cell,
            "file": 0,
            "source": "c.jsonl",
            "source_key": 0,
            "position": i,
            "reason": "broken_json",
            "detail": detail,
        }
        for i, detail in enumerate(bad)
    ]
    refused = pa.Table.from_pylist(rows, schema=row_schema(()))
    bad_part = write_quarantine(quarantine, plan, wave, refused) if bad else None
    reasons = {"broken_json": len(bad)} if bad else {}
    counts = Counts(rows_in=len(ids) + len(bad), rows_out=len(ids), quarantined_by_reason=reasons)
    return CellResult(cell, bucket, counts, parts, bad_part)


def recount(cell: CellResult, deletions: tuple[Deletion, ...] | None = None, **counts: Any) -> CellResult:
    """Return a cell with other counts, and other deletions if they are given."""
    given = cell.deletions if deletions is None else deletions
    return replace(cell, deletions=given, counts=replace(cell.counts, **counts))


def make_wave(table: Store, quarantine: Store, wave: int, ids: str, bad: str = "") -> WaveResult:
    """Write a wave of one cell."""
    return as_wave(wave, make_cell(table, quarantine, wave, ids, bad))


def as_wave(wave: int, *cells: CellResult) -> WaveResult:
    """Return a wave of these cells."""
    return WaveResult(wave, cells)


def newest(store: Store) -> Table:
    """Open the newest snapshot."""
    table = open_table(store)
    assert table is not None
    return table


def read(store: Store) -> list[dict]:
    """Return every row of the newest snapshot as a dict."""
    return [row for file in newest(store).files() for row in read_part(store, file).to_pylist()]


def ids_of(store: Store) -> list[str]:
    """Return the sorted ids of the documents, duplicates included."""
    return sorted(row["doc_id"] for row in read(store))


def bad_rows(quarantine: Store, plan: str = "p") -> int:
    """Return the number of rows of a plan in the quarantine table."""
    return quarantined_by_reason(quarantine, plan, 1000)[0].total()
