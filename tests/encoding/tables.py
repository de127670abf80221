"""A sparse table, a quarantine table and waves for them, without Ray and without a model."""

from pathlib import Path

from lsr_prod.encoding.commit import BucketResult, WaveResult
from lsr_prod.encoding.parts import write_part
from lsr_prod.encoding.quarantine import PARTITION, QUARANTINE_SCHEMA, write_quarantine
from lsr_prod.encoding.rows import row_schema
from lsr_prod.encoding.table import create_sparse_table, create_table
from lsr_prod.formats.table import TableProperties, sparse_schema
from lsr_prod.storage import Store

PROPERTIES = TableProperties("b" * 64, "v" * 64, 0.01, 8, 16, 2, (), 8)


def make_tables(folder: Path) -> tuple[Store, Store]:
    """The two tables of plan ``p``, empty."""
    table, quarantine = Store(str(folder / "table")), Store(str(folder / "quarantine"))
    create_sparse_table(table, PROPERTIES, "p")
    create_table(quarantine, QUARANTINE_SCHEMA, list(PARTITION), {})
    return table, quarantine


def make_bucket(
    table: Store, quarantine: Store, wave: int, ids: str = "", bad: str = "", *, bucket: int = 0, impact: int = 2
) -> BucketResult:
    """A bucket with a document for every character of ``ids`` and a bad row for every one of ``bad``."""
    schema = sparse_schema(())
    schema = schema.remove(schema.get_field_index("bucket"))
    good = [
        {"doc_id": doc_id, "terms": [1, 5], "impacts": [impact, 1], "content_hash": "h", "source_file": 0}
        for doc_id in ids
    ]
    part = write_part(table, f"bucket={bucket}", schema.empty_table().from_pylist(good, schema=schema)) if ids else None
    rows = [
        {"bucket": bucket, "file": 0, "position": i, "reason": "broken_json", "detail": detail}
        for i, detail in enumerate(bad)
    ]
    refused = row_schema(()).empty_table().from_pylist(rows, schema=row_schema(()))
    bad_part = write_quarantine(quarantine, "p", wave, refused, ["c.jsonl"]) if bad else None
    reasons = {"broken_json": len(bad)} if bad else {}
    return BucketResult(bucket, len(ids) + len(bad), part, bad_part, reasons, 0)


def make_wave(table: Store, quarantine: Store, wave: int, ids: str, bad: str = "") -> WaveResult:
    """A wave of one bucket."""
    return WaveResult(wave, (make_bucket(table, quarantine, wave, ids, bad),))
