"""Validation of one record of the corpus: the result is a document, or a bad row with its reason and first bytes.

Both have one Arrow schema (``row_schema``), so that rows in == rows out + quarantined is checked at the end.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.storage.formats.stored_values import (
    EPOCHS,
    AttributeType,
    AttributeValue,
    arrow_type,
    parse_epoch,
    parse_value,
    read_zone,
    value_text,
)
from lsr_prod.storage.formats.table_format import cell_of

if TYPE_CHECKING:
    from lsr_prod.config import SourceSettings

RAW_LIMIT = 4096
"""Bytes of a bad row that are kept; bytes that are not UTF-8 become U+FFFD."""

DAMAGED_FILE = "damaged_file"
"""Reason of the row that stands for the unread rest of a slice."""

DAMAGED_ROW = "damaged_row"
"""Reason of a row whose end cannot be found; the bytes up to the next row that is found are not read."""


# What may solve the problem of a row, by its reason.
_SETTINGS = {
    "missing_id": "source.id_field (now {id})",
    "control_characters": "source.id_field (now {id})",
    "duplicate_id": "source.id_field (now {id}) or encode.on_duplicate",
    "id_too_long": "source.max_id_bytes",
    "empty_text": "source.text_fields (now {texts})",
    "text_too_long": "source.max_text_bytes",
    "row_too_long": "source.max_text_bytes",
    "wrong_type": "source.columns, source.types or source.stored_fields",
    "invalid_utf8": "source.csv.encoding",
    "wrong_field_count": "source.csv.delimiter or source.csv.escape",
    "damaged_row": "source.csv.escape, source.csv.quotes or source.on_damage",
    "damaged_file": "source.on_damage",
    "broken_json": "source.format (json: values of several lines)",
    "not_an_object": "source.format (json: an array of objects)",
}


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value of a typed column that is not a string: name of its type, and its text for people."""

    kind: str
    shown: str
    text: str | None = None  # of a number, a boolean, a date or a time, as a stored field has it


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is not a document, and why."""

    # one of ``broken_json``, ``not_an_object``, ``row_too_long``, ``wrong_field_count``, ``invalid_utf8``,
    # ``missing_id``, ``id_too_long``, ``wrong_type``, ``control_characters``, ``empty_text``, ``text_too_long``,
    # ``damaged_row``, ``damaged_file`` (and from the encoder ``duplicate_id`` and the reasons of documents that
    # it cannot encode)
    reason: str
    detail: str  # a sentence for people
    doc_id: str | None  # the id if it could be read
    raw: str  # the first ``RAW_LIMIT`` bytes of the row
    field: str = ""  # column with the problem, for counts; empty: not counted by column
    unread: int = 0  # bytes of the source that were not read because of the row

    @property
    def is_damage(self) -> bool:
        """True if rows may be lost with this one."""
        return self.reason in (DAMAGED_FILE, DAMAGED_ROW)

    @property
    def counted_as(self) -> str:
        """Reason in counts, with the column: ``missing_field: query``."""
        return f"{self.reason}: {self.field}" if self.field else self.reason


@dataclass(frozen=True, slots=True)
class Document:
    """A good row: its id, the text to encode, and the stored fields in the order of the settings."""

    doc_id: str
    text: str
    stored: tuple[AttributeValue | list[str] | None, ...]


def row_schema(stored_fields: Sequence[str], types: Mapping[str, str] = MappingProxyType({})) -> pa.Schema:
    """Arrow schema between reading and encoding; ``reason`` is null for a document.

    Strings are ``large_string``: the rows of a cell may have more text than the 2 GiB that ``string`` addresses.
    Stored fields are named ``stored.<field>``, so that they never have the name of another column.
    """
    return pa.schema(
        [
            ("cell", pa.int32()),
            ("file", pa.int32()),
            ("source_key", pa.int64()),
            ("source", pa.large_string()),
            ("position", pa.int64()),
            ("doc_id", pa.large_string()),
            ("text", pa.large_string()),
            ("reason", pa.large_string()),
            ("detail", pa.large_string()),
            ("raw", pa.large_string()),
            ("unread_bytes", pa.int64()),
            *((f"stored.{name}", arrow_type(table_type(types.get(name)))) for name in stored_fields),
        ]
    )


def validate(record: Mapping[str, Any], source: "SourceSettings", *, line: bytes | None = None) -> Document | BadRow:
    """Validate one record against the settings."""
    fields: dict[str, Any] = {}
    problem: tuple[str, str] | None = None
    for name in source.fields:
        column = source.columns.get(name, name)
        if column in record:
            fields[name], found = _read_value(source, name, column, record[column])
            problem = problem or found
    doc_id = fields.get(source.id_field)
    problem = problem or _id_problem(source, doc_id)
    text = _join(source, fields) if problem is None else ""
    problem = problem or _text_problem(source, text)
    if problem is None:
        assert doc_id
        return Document(doc_id, text, tuple(fields.get(name) for name in source.stored_fields))
    shown = {name: record.get(source.column(name)) for name in sorted(source.fields)}
    known = None if problem[0] == "id_too_long" else doc_id or None  # the rows of the quarantine are bounded
    return BadRow(*problem, known, show(shown) if line is None else shorten(line))


def _read_value(
    source: "SourceSettings", name: str, column: str, value: object
) -> tuple[AttributeValue | list[str] | None, tuple[str, str] | None]:
    """Read a field: an id may be an integer, and a field that is only stored has any type."""
    if name == source.id_field and isinstance(value, int) and not isinstance(value, bool):
        return str(value), None
    if name == source.id_field or name in source.text_fields:
        return as_string(column, value)
    kind = source.types.get(name, "string")
    if kind == "strings":
        return _as_strings(column, value)
    text, problem = as_stored(column, value)
    if kind == "string" or problem is not None or text is None or not text.strip():
        return text if kind == "string" else None, problem
    try:
        if kind in EPOCHS:
            return parse_epoch(text, EPOCHS[kind]), None
        return parse_value(text, kind, read_zone(source.timezone)), None
    except ValueError as error:
        return None, ("wrong_type", f"field {column}: {error}; source.types decides what it is")


def _as_strings(column: str, value: object) -> tuple[list[str] | None, tuple[str, str] | None]:
    """Return a list of strings, without nulls; a string is a list of one."""
    if value is None:
        return None, None
    read = [as_string(column, one) for one in (value if isinstance(value, list) else [value])]
    problem = next((found for _, found in read if found is not None), None)
    return (None, problem) if problem else ([text for text, _ in read if text is not None], None)


def table_type(kind: str | None) -> AttributeType:
    """Return the type of a column of the table for a value of ``source.types``; None is a string."""
    return "timestamp" if kind in EPOCHS else kind or "string"


def as_stored(name: str, value: object) -> tuple[str | None, tuple[str, str] | None]:
    """Return what ``as_string`` does, and the text of a number, a boolean, a date or a time; NaN is null."""
    if isinstance(value, TypedValue) and value.text is not None:
        return value.text, None
    return as_string(name, value_text(value))


def _id_problem(source: "SourceSettings", doc_id: str | None) -> tuple[str, str] | None:
    if not doc_id:
        return "missing_id", f"field {source.column(source.id_field)} is absent or empty"
    if (control := control_character(doc_id)) is not None:
        return "control_characters", f"field {source.column(source.id_field)} holds {control}"
    if len(doc_id) > source.max_id_bytes or len(doc_id.encode()) > source.max_id_bytes:
        return "id_too_long", f"{len(doc_id.encode())} bytes, source.max_id_bytes is {source.max_id_bytes}"
    return None


def control_character(doc_id: str) -> str | None:
    """Return the code point of the first control character of an id, ``U+000A``, or None.

    Run files, logs and paths hold ids in lines and columns: a line end or a NUL in an id would break them.
    """
    found = next((character for character in doc_id if character < " " or character == "\x7f"), None)
    return None if found is None else f"U+{ord(found):04X}"


def _join(source: "SourceSettings", fields: Mapping[str, str | None]) -> str:
    """Join the text fields that are present, each after the separator of the gap before it."""
    text = ""
    for place, name in enumerate(source.text_fields):
        if value := fields.get(name):
            between = source.separators[place - 1] if source.separators and place else source.separator
            text = f"{text}{between}{value}" if text else value
    return text


def _text_problem(source: "SourceSettings", text: str) -> tuple[str, str] | None:
    if not is_visible(text):
        names = ", ".join(source.column(name) for name in source.text_fields)
        return "empty_text", f"fields {names} hold no visible character"
    if (size := len(text.encode())) > source.max_text_bytes:
        return "text_too_long", f"{size} bytes, source.max_text_bytes is {source.max_text_bytes}"
    return None


def is_visible(text: str) -> bool:
    """Return whether ``text`` has a visible character: not a space, control character or unassigned code point."""
    return any(character.isprintable() and not character.isspace() for character in text)


def shorten(raw: bytes | str) -> str:
    """Return the first ``RAW_LIMIT`` bytes as text."""
    # A character has at least one byte, so the sliced str is long enough, and cheap to encode if ``raw`` is huge.
    data = raw[:RAW_LIMIT].encode("utf-8", "replace") if isinstance(raw, str) else raw
    return data[:RAW_LIMIT].decode("utf-8", "replace")


def as_string(name: str, value: object) -> tuple[str | None, tuple[str, str] | None]:
    """Return (text, None) of a valid string, (None, (reason, detail)) of another value, (None, None) of null."""
    if value is None:
        return None, None
    if isinstance(value, bytes):
        try:
            return value.decode(), None
        except UnicodeDecodeError as error:
            return None, ("invalid_utf8", f"field {name}: {error.reason} at byte {error.start}")
    if isinstance(value, TypedValue):
        return None, ("wrong_type", f"field {name} is {value.kind}, not a string")
    if not isinstance(value, str):
        return None, ("wrong_type", f"field {name} is {type(value).__name__}, not a string")
    try:
        value.encode()  # JSON's \ud800 escapes make strings that UTF-8 cannot represent
    except UnicodeEncodeError as error:
        return None, ("invalid_utf8", f"field {name}: {error.reason} at character {error.start}")
    return value, None


def parse_line(line: bytes, parse: Callable[[str], Any] = json.loads) -> Any | BadRow:
    """Return the value of a line of JSON, or the bad row for a line that has none."""
    try:
        return parse(line.decode())
    except UnicodeDecodeError as error:
        return BadRow("invalid_utf8", f"{error.reason} at byte {error.start} of the line", None, shorten(line))
    except (ValueError, RecursionError) as error:
        return BadRow("broken_json", str(error), None, shorten(line))


def parse_object(line: bytes, parse: Callable[[str], Any] = json.loads) -> dict[str, Any] | BadRow:
    """Return the object of a line of JSON, or the bad row for a line that has none."""
    value = parse_line(line, parse)
    if isinstance(value, dict | BadRow):
        return value
    return BadRow("not_an_object", f"the line holds a {type(value).__name__}", None, shorten(line))


def show(record: Mapping[str, Any]) -> str:
    """Return the first ``RAW_LIMIT`` bytes of the JSON of a record."""
    shown = {name: shorten(value) if isinstance(value, bytes | str) else value for name, value in record.items()}
    return shorten(json.dumps(shown, ensure_ascii=False, default=_show_value))


def _show_value(value: object) -> str:
    if isinstance(value, bytes):
        return shorten(value)
    return value.shown if isinstance(value, TypedValue) else str(value)


def remedy(reason: str, source: "SourceSettings") -> str | None:
    """Return the settings that decide whether a row is bad for a reason; None: no setting does."""
    found = _SETTINGS.get(reason)
    texts = ", ".join(map(source.column, source.text_fields))
    return found and found.format(id=source.column(source.id_field), texts=texts)


def column_of(row: BadRow, source: "SourceSettings") -> str:
    """Return the column with the problem; empty: it is a problem of the whole row."""
    if row.reason in ("missing_id", "control_characters", "id_too_long", "duplicate_id"):
        return source.column(source.id_field)
    if row.reason in ("empty_text", "text_too_long"):
        return ", ".join(map(source.column, source.text_fields))
    columns = sorted(map(source.column, source.fields), key=len, reverse=True)
    return next((name for name in columns if row.detail.startswith((f"field {name} ", f"field {name}:"))), "")


class RowBatch:
    """Collects rows of a file into Arrow tables of bounded size."""

    MAX_ROWS = 2048
    MAX_BYTES = 8_000_000

    def __init__(
        self, source: "SourceSettings", file: SourceFile, ordinal: int, cells: int, keep: frozenset[int] | None = None
    ) -> None:
        self._place = (ordinal, file.key, file.location)
        self._cells, self._keep = cells, keep
        self._schema = row_schema(source.stored_fields, source.types)
        self._nothing = (None,) * len(source.stored_fields)
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    @property
    def full(self) -> bool:
        """True when the table has reached its maximum size; then call ``take``."""
        return len(self._rows) >= self.MAX_ROWS or self._bytes >= self.MAX_BYTES

    def __len__(self) -> int:
        """Return the number of rows in the batch."""
        return len(self._rows)

    def wants(self, doc_id: str) -> bool:
        """Return whether the cell of a document is one of those to read."""
        return self._keep is None or cell_of(doc_id, self._cells) in self._keep

    def add(self, position: int, row: Document | BadRow) -> None:
        """Append the row at ``position`` of the file (byte of a text format, row number of other formats)."""
        if isinstance(row, BadRow) and row.is_damage:
            cell = 0  # of the first wave, which is not committed if too much is unread
        else:
            # The position assigns rows without an id evenly and deterministically.
            cell = cell_of(row.doc_id, self._cells) if row.doc_id else (self._place[0] + position) % self._cells
        if self._keep is not None and cell not in self._keep:
            return
        if isinstance(row, Document):
            self._rows.append((cell, position, row.doc_id, row.text, None, None, None, None, *row.stored))
            self._bytes += len(row.text) + sum(len(value) for value in row.stored if isinstance(value, str | list))
        else:
            values = (row.reason, row.detail, row.raw, row.unread or None)
            self._rows.append((cell, position, row.doc_id, None, *values, *self._nothing))
            self._bytes += len(row.raw)

    def take(self) -> pa.Table:
        """Return the rows as a table and empty the batch."""
        columns = list(zip(*self._rows, strict=True)) or [()] * (len(self._schema) - len(self._place))
        values = [columns[0], *[[value] * len(self._rows) for value in self._place], *columns[1:]]
        arrays = [pa.array(column, field.type) for column, field in zip(values, self._schema, strict=True)]
        self._rows, self._bytes = [], 0
        return pa.Table.from_arrays(arrays, schema=self._schema)
