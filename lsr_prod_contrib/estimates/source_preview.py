"""A look at a source before it is encoded: files, columns, the first documents, and problems of the first rows."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.config import SourceSettings
from lsr_prod.corpus.filelist import READ, has_column, iterate_files, read_footer
from lsr_prod.corpus.formats.arrow import is_scalar
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.listing import source_schema
from lsr_prod.corpus.pinned_file import WHOLE, Slice, SourceFile
from lsr_prod.corpus.read import read_records, read_request
from lsr_prod.corpus.source_rows import BadRow, Document, TypedValue, column_of, remedy, validate
from lsr_prod.encoding.prepare import Work, open_encoder

ROWS = 1000
_DOCUMENTS = 3
_FILES = 5
_TEXT, _EXAMPLE = 300, 60  # characters that are shown
_ID = re.compile(r"(?i)(.*[^a-z])?(id|docid|docno|pid|uuid|key|url|sku|isbn)")
_TYPES = {bytes: "text", str: "string", bool: "bool", int: "int64", float: "float64", list: "list", dict: "object"}


@dataclass(slots=True)
class _Column:
    """Values of a column in the first rows."""

    types: dict[str, None] = field(default_factory=dict)
    values: set[int] = field(default_factory=set)  # hashes
    count: int = 0
    size: int = 0
    example: str = ""

    def add(self, value: Any) -> None:
        """Take a value that is not null into account."""
        self.types[value.kind if isinstance(value, TypedValue) else _TYPES[type(value)]] = None
        text = _shown(value)
        self.values.add(hash(text))
        self.example = self.example or _cut(text, _EXAMPLE)
        self.count += 1
        self.size += len(text)

    @property
    def is_text(self) -> bool:
        """True if all values are strings."""
        return bool(self.types) and self.types.keys() <= {"text", "string", "large_string"}


def preview_source(work: Work) -> dict[str, Any]:
    """Read the first rows of the files that a run would read, or of all if it has nothing to do."""
    source, options = work.source, work.table.options
    listed = work.plan.files.filter(pc.equal(work.plan.files["state"], READ))
    if not listed.num_rows and work.listed is not None:
        listed = work.listed
    files = [file for _, file in islice(iterate_files(listed), ROWS)]
    schema = _schema(source, files, options)
    prompt = open_encoder(work.encode, options)[2].document_prompt
    columns: dict[str, _Column] = {name: _Column() for name in schema.names}
    problems: Counter[tuple[str, str]] = Counter()
    documents: list[dict[str, str]] = []
    ids = set[str]()
    rows = 0
    for record, row in _first_rows(source, files, schema, options):
        rows += 1
        for name, value in record.items():
            if value is not None:
                columns.setdefault(name, _Column()).add(value)
        if isinstance(row, BadRow):
            problems[row.reason, column_of(row, source)] += 1
            continue
        problems["duplicate_id", source.column(source.id_field)] += row.doc_id in ids
        ids.add(row.doc_id)
        if len(documents) < _DOCUMENTS:
            documents.append({"id": _cut(row.doc_id, _EXAMPLE), "text": _cut(prompt + row.text, _TEXT)})
    for key in ("text_fields", "stored_fields"):
        for name in map(source.column, getattr(source, key) if key in source.model_fields_set else ()):
            if name not in columns and not has_column(schema, name):  # those of the defaults are optional
                problems["absent_column", name] = rows
    formats = Counter(
        dict(zip(*(column.to_pylist() for column in listed["format"].value_counts().flatten()), strict=True))
    )
    return {
        "formats": dict(formats.most_common()),
        "first_files": [file.location for file in files[:_FILES]],
        "rows_looked_at": rows,
        "columns": [_describe(name, column, schema, source) for name, column in columns.items()],
        "first_documents": documents,
        "problems": [
            {"reason": reason, "column": name, "rows": count, "setting": _setting(reason, source, columns, rows)}
            for (reason, name), count in problems.most_common()
            if count
        ],
    }


def _schema(source: SourceSettings, files: list[SourceFile], options: dict[str, str]) -> pa.Schema:
    """Return the columns of a table, or of the first typed file; empty if only the records have columns."""
    schema = source_schema(source, options)
    typed = next((file for file in files if file.size and file_format(file.format).footer is not None), None)
    if schema is None and typed is not None:
        schema = read_footer(typed, options, field="source.paths").schema
    return pa.schema([]) if schema is None else schema


def _first_rows(
    source: SourceSettings, files: list[SourceFile], schema: pa.Schema, options: dict[str, str]
) -> Iterator[tuple[dict[str, Any], Document | BadRow]]:
    """Yield the values of each row as they were read, and what it becomes."""
    request = read_request(source.model_copy(update={"on_damage": "skip"}))  # damage is shown, not refused
    # Lists and bytes of columns that are not used may be large.
    more = {each.name for each in schema if is_scalar(each.type) or pa.types.is_string(each.type)}
    request = replace(request, columns=request.columns | more)
    pieces = (
        Slice(file, 0, 0, file.size if file_format(file.format).footer is None else WHOLE, 0, file.size)
        for file in files
    )
    records = (record for piece in pieces for _, record in read_records(piece, request, options))
    for record in islice(records, ROWS):
        if isinstance(record, BadRow):
            yield {}, record
        elif record is not None:
            yield dict(record.values), validate(record.values, source, line=record.line)


def _describe(name: str, column: _Column, schema: pa.Schema, source: SourceSettings) -> dict[str, str]:
    fields = [each for each in source.fields if source.column(each) == name]
    uses = {"id": {source.id_field}, "text": {*source.text_fields}, "stored": {*source.stored_fields}}
    stored = next((each for each in fields if each in source.stored_fields), None)
    return {
        "column": name,
        "type": str(schema.field(name).type) if name in schema.names else ", ".join(column.types) or "null",
        "used_as": ", ".join(use for use, names in uses.items() if not names.isdisjoint(fields)),
        "stored_type": "" if stored is None else source.types.get(stored, "string"),
        "example": column.example,
    }


def _setting(reason: str, source: SourceSettings, columns: dict[str, _Column], rows: int) -> str:
    """Return the setting that solves a problem, with a value if one column alone fits best."""
    if reason == "missing_id" and source.column(source.id_field) not in columns:
        unique = [name for name, column in columns.items() if len(column.values) > 0.9 * rows]  # some rows may be bad
        if best := next((name for name in unique if _ID.fullmatch(name)), None):
            return f"source.id_field: {json.dumps(best)}"
    if reason == "empty_text" and columns.keys().isdisjoint(map(source.column, source.text_fields)):
        texts = [name for name, column in columns.items() if column.is_text and name != source.column(source.id_field)]
        if texts:
            return f"source.text_fields: {json.dumps([max(texts, key=lambda name: columns[name].size)])}"
    if reason == "absent_column":
        return "source.text_fields, source.stored_fields or source.columns"
    return remedy(reason, source) or ""


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, TypedValue):
        return value.shown
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_shown)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[:size]}…"
