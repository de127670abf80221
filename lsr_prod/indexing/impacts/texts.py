"""Join the text fields of a document into one text."""

from collections.abc import Sequence

import pyarrow as pa


def joined_texts(rows: pa.Table | pa.RecordBatch, fields: Sequence[str]) -> list[str]:
    """Return one text per row: its fields separated by spaces, or "" if all of them are empty or null."""
    columns = [rows[name].to_pylist() for name in fields]
    if not columns:
        return [""] * rows.num_rows
    return [" ".join(part for part in parts if part) for parts in zip(*columns, strict=True)]
