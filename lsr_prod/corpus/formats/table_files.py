"""Files of tables: their state in a listing, and columns that have other names or numbers (``SourceFile.columns``)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from lsr_prod.corpus.formats.arrow import field_at
from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.errors import ConfigError
from lsr_prod.storage import Entry

Columns = tuple[tuple[str, str | int], ...]
_NUMBER = b"PARQUET:field_id"


def at_location(file: SourceFile, entries: Mapping[str, Entry]) -> SourceFile:
    """Return a file of a table with the facts of its location, after a comparison with the listing of the folder."""
    entry = entries.get(file.name)
    if entry is None or entry.size != file.size:
        state = "was deleted" if entry is None else f"has {entry.size} bytes instead of {file.size}"
        raise ConfigError(
            "source.paths",
            f"{file.location}, a file of the table at this version, {state}",
            "read a version with all of its files, or restore the table",
        )
    if entry.etag is not None:
        return replace(file, etag=entry.etag)
    facts = Path(file.location).stat()
    return replace(file, mtime_ns=facts.st_mtime_ns, inode=facts.st_ino)


def names_in_file(schema: pa.Schema, columns: Columns) -> dict[str, str]:
    """Return the name or dotted path in a file of every column of a table that the file has."""
    return {name: path for name, path, _ in _found(schema, columns)}


def named_as_in_table(schema: pa.Schema, columns: Columns) -> pa.Schema:
    """Return the columns of a file with their names in the table."""
    return pa.schema([field.with_name(name) for name, _, field in _found(schema, columns)]) if columns else schema


def _found(schema: pa.Schema, columns: Columns) -> Iterator[tuple[str, str, pa.Field]]:
    numbered = dict(_numbered(schema))
    for name, inside in columns:
        # Files without numbers were written by another program, and added to the table with the names that it had.
        path = inside if isinstance(inside, str) else numbered.get(inside, "") if numbered else name
        if (field := field_at(schema, path)) is not None:
            yield name, path, field


def _numbered(fields: Iterable[pa.Field], above: str = "") -> Iterator[tuple[int, str]]:
    for field in fields:
        if _NUMBER in (field.metadata or {}):
            yield int(field.metadata[_NUMBER]), above + field.name
        if pa.types.is_struct(field.type):
            yield from _numbered(field.type, f"{above}{field.name}.")
