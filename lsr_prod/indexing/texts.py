"""The text of a document: its text fields, one after the other."""

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["joined_texts"]


def joined_texts(rows: pa.Table | pa.RecordBatch, fields: Sequence[str]) -> list[str]:
    """One text a row, with a space between fields; empty where all fields are empty or null."""
    columns = [rows[name].to_pylist() for name in fields]
    if not columns:
        return [""] * rows.num_rows
    return [" ".join(part for part in parts if part) for parts in zip(*columns, strict=True)]
