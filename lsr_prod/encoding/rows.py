"""One record of the corpus, judged: a document, or a bad row with its reason and what it looked like.

Both travel in one Arrow schema (``row_schema``), so that rows in == rows out + quarantined can be counted at the end.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lsr_prod.config import SourceSettings
from lsr_prod.formats.table import bucket_of

__all__ = ["RAW_LIMIT", "BadRow", "RowBatch", "judge", "row_schema", "shorten"]

RAW_LIMIT = 4096
"""Bytes of a bad row that are kept; bytes that are no UTF-8 become U+FFFD."""

Value = str | bytes | None


@dataclass(frozen=True, slots=True)
class BadRow:
    """Why a row is no document.

    Attributes:
        reason: one of ``broken_json``, ``not_an_object``, ``row_too_long``, ``invalid_utf8``, ``missing_id``,
            ``wrong_type``, ``empty_text``, ``text_too_long`` (and from the encoder ``duplicate_id``,
            ``encode_failed``).
        detail: a sentence for people.
        doc_id: the id, where one could be read.
        raw: the first ``RAW_LIMIT`` bytes of the row.
    """

    reason: str
    detail: str
    doc_id: str | None
    raw: str


@dataclass(frozen=True, slots=True)
class Document:
    """A good row: its id, the text to encode, and the stored fields in the order of the settings."""

    doc_id: str
    text: str
    stored: tuple[str | None, ...]


def row_schema(stored_fields: Sequence[str]) -> pa.Schema:
    """Arrow schema between reading and encoding; ``reason`` is null for a document.

    Stored fields are named ``stored.<field>``, so that no name of a corpus meets a name of ours.
    """
    return pa.schema(
        [
            ("bucket", pa.int32()),
            ("file", pa.int32()),
            ("position", pa.int64()),
            ("doc_id", pa.string()),
            ("text", pa.string()),
            ("reason", pa.string()),
            ("detail", pa.string()),
            ("raw", pa.string()),
            *((f"stored.{name}", pa.string()) for name in stored_fields),
        ]
    )


def judge(record: Mapping[str, Any], source: SourceSettings) -> Document | BadRow:
    """Hold one record against the settings.

    Args:
        record: field -> value. A string may come as bytes that were never checked to be UTF-8.
        source: names the fields and the longest text.
    """
    names = {source.id_field, *source.text_fields, *source.stored_fields}
    fields: dict[str, str | None] = {}
    problem: tuple[str, str] | None = None
    for name in sorted(names & record.keys()):
        value, found = _as_string(name, record[name])
        problem = problem or found
        fields[name] = value
    doc_id = fields.get(source.id_field)
    if problem is None and not doc_id:
        problem = ("missing_id", f"field {source.id_field} is absent or empty")
    text = source.separator.join(value for name in source.text_fields if (value := fields.get(name)))
    if problem is None and not text.strip():
        problem = ("empty_text", f"fields {', '.join(source.text_fields)} hold no visible character")
    if problem is None and (size := len(text.encode())) > source.max_text_bytes:
        problem = ("text_too_long", f"{size} bytes, source.max_text_bytes is {source.max_text_bytes}")
    if problem is None:
        assert doc_id
        return Document(doc_id, text, tuple(fields.get(name) for name in source.stored_fields))
    return BadRow(*problem, doc_id or None, shorten(_show({name: record.get(name) for name in sorted(names)})))


def shorten(raw: bytes | str) -> str:
    """The first ``RAW_LIMIT`` bytes as text."""
    # A character has 4 bytes at most, so the slice of a str holds enough and is cheap for a huge one.
    data = raw[:RAW_LIMIT].encode("utf-8", "replace") if isinstance(raw, str) else raw
    return data[:RAW_LIMIT].decode("utf-8", "replace")


def _as_string(name: str, value: object) -> tuple[str | None, tuple[str, str] | None]:
    if value is None:
        return None, None
    if isinstance(value, bytes):
        try:
            return value.decode(), None
        except UnicodeDecodeError as error:
            return None, ("invalid_utf8", f"field {name}: {error.reason} at byte {error.start}")
    if not isinstance(value, str):
        return None, ("wrong_type", f"field {name} is {type(value).__name__}, not a string")
    try:
        value.encode()  # JSON's \ud800 escapes make strings that no UTF-8 file can hold
    except UnicodeEncodeError as error:
        return None, ("invalid_utf8", f"field {name}: {error.reason} at character {error.start}")
    return value, None


def _show(record: Mapping[str, Any]) -> str:
    shown = {name: shorten(value) if isinstance(value, bytes | str) else value for name, value in record.items()}
    return json.dumps(shown, ensure_ascii=False, default=str)


class RowBatch:
    """Collects rows into Arrow tables of bounded size.

    Args:
        source: the section ``source``.
        file: ordinal of the file in the plan.
        buckets: hash buckets of the table.
    """

    MAX_ROWS = 2048
    MAX_BYTES = 8_000_000

    def __init__(self, source: SourceSettings, file: int, buckets: int) -> None:
        self._source, self._file, self._buckets = source, file, buckets
        self._schema = row_schema(source.stored_fields)
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time to ``take`` the table."""
        return len(self._rows) >= self.MAX_ROWS or self._bytes >= self.MAX_BYTES

    def __len__(self) -> int:
        """Rows held."""
        return len(self._rows)

    def add(self, position: int, row: Document | BadRow) -> None:
        """Append a row that stands at ``position`` (byte of JSONL, row number of Parquet) of the file."""
        if isinstance(row, Document):
            bucket = bucket_of(row.doc_id, self._buckets)
            self._rows.append((bucket, self._file, position, row.doc_id, row.text, None, None, None, *row.stored))
            self._bytes += len(row.text) + sum(len(value) for value in row.stored if value)
            return
        bucket = (self._file + position) % self._buckets
        nothing = (None,) * len(self._source.stored_fields)
        self._rows.append((bucket, self._file, position, row.doc_id, None, row.reason, row.detail, row.raw, *nothing))
        self._bytes += len(row.raw)

    def take(self) -> pa.Table:
        """The rows so far as a table; the batch is empty afterwards."""
        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)]
        self._rows, self._bytes = [], 0
        return pa.Table.from_arrays(arrays, schema=self._schema)
