"""Types of stored fields: those of the settings, of the table, of a typed source, or of the first records."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from lsr_prod import errors, logs
from lsr_prod.cluster.workers import spread
from lsr_prod.config import SourceSettings
from lsr_prod.corpus import filelist, listing, read, source_rows
from lsr_prod.corpus.formats import arrow, interface
from lsr_prod.corpus.formats.registry import file_format
from lsr_prod.corpus.pinned_file import COMPRESSIONS, WHOLE, Slice, SourceFile
from lsr_prod.storage import in_threads
from lsr_prod.storage.formats.stored_values import AttributeType, kind_of, parse_value

log = logs.get_log(__name__)

SAMPLE = 1000  # records
_FOOTERS = 16  # files of which one may lack a column that others have
_SPREAD = 64  # files that are searched for a column at once, the first of them from the first to the last one
_CHECKS: Mapping[str, re.Pattern[str]] = {
    "bool": re.compile("(?i:true|false)"),
    "int64": re.compile(r"-?(0|[1-9][0-9]*)"),  # 007 and +7 are names
    "float64": re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*"),
}


def check_columns(source: SourceSettings, listed: pa.Table, options: dict[str, str]) -> None:
    """Refuse a column of the settings that no file has; warn of columns without a value in the first JSON records.

    A file may lack a column, and the columns of the defaults are optional.
    """
    keys = [key for key in ("text_fields", "stored_fields") if key in source.model_fields_set]
    missing: dict[str, str] = {name: key for key in keys for name in getattr(source, key)}
    places = dict.fromkeys([*spread(range(listed.num_rows), _SPREAD), *range(listed.num_rows)])  # a sample first
    files = (file for _, file in filelist.iterate_files(listed.take(pa.array(places, pa.int64()))) if file.size)
    names, seen, records = list[str](), list[SourceFile](), list[SourceFile]()
    while missing and not records and (some := list(islice(files, _SPREAD))):
        seen += some
        found = in_threads(lambda file: filelist.declared_columns(file, source, options), some)
        for file, columns in zip(some, found, strict=True):
            if columns is not None:
                names, missing = names or columns.names, _not_in(columns, missing, source)
            elif file.format != arrow.ARROW_STREAM.name or len(source.paths) > 1:  # else the folder declares them
                records.append(file)
    if missing and len(records) < len(seen) and (columns := listing.source_schema(source, options)) is not None:
        names, missing = columns.names, _not_in(columns, missing, source)
    if missing and records:
        values = _sample(source, [*missing], records, options)
        if absent := [source.column(name) for name, some in values.items() if not some]:
            fields = {"columns": ", ".join(absent), "records": SAMPLE, "first_file": records[0].location}
            log.warning("the first records have no value of some columns", extra={"fields": fields})
        return
    for name, key in missing.items() if seen else ():
        column, place = source.column(name), seen[0].location
        problem = f"no file of the source has a column {column}; {place} has {', '.join(sorted(names))}"
        of_path = f"write {column} into the files, because their paths are not read"
        remedy = of_path if f"/{column}=" in place else "use one of its columns, or leave it out"
        raise errors.ConfigError(f"source.{key}", problem, remedy)


def _not_in(columns: pa.Schema, fields: Mapping[str, str], source: SourceSettings) -> dict[str, str]:
    return {name: key for name, key in fields.items() if not filelist.has_column(columns, source.column(name))}


def field_types(
    source: SourceSettings, files: Iterable[SourceFile], options: dict[str, str], known: Mapping[str, str] | None
) -> dict[str, str]:
    """Return ``source.types`` of all stored fields that are no strings."""
    texts = {source.id_field, *source.text_fields}
    found: dict[str, str] = {name: kind for name, kind in source.types.items() if name not in texts}
    if known is not None:
        for name in source.stored_fields:
            was = known.get(name, "string")
            if source_rows.table_type(found.get(name, was)) != was:
                problem = f"the table has it as {was}, not {source_rows.table_type(found[name])}"
                raise errors.ConfigError(f"source.types.{name}", problem, "leave it out, or give a new encode.table")
            found.setdefault(name, was)
    elif left := [name for name in source.stored_fields if name not in texts and name not in found]:
        found |= _inferred(source, left, list(islice(files, _FOOTERS)), options)
    return {name: kind for name, kind in found.items() if kind != "string"}


def _inferred(
    source: SourceSettings, names: Sequence[str], files: Sequence[SourceFile], options: dict[str, str]
) -> dict[str, AttributeType]:
    schemas = _schemas(source, files, options)
    typed: dict[str, AttributeType] = {}
    for schema in schemas:
        for name in names:
            field = arrow.field_at(schema, source.column(name))
            if name not in typed and field is not None:
                kind = kind_of(field.type)
                if kind is None:
                    raise _not_storable(source, name, str(field.type))
                typed[name] = kind
        if len(typed) == len(names):
            return typed
    left = [name for name in names if name not in typed]
    values = _sample(source, left, [file for file in files if file_format(file.format).footer is None], options)
    return typed | {name: _kind(source, name, some) for name, some in values.items()}


def _schemas(source: SourceSettings, files: Sequence[SourceFile], options: dict[str, str]) -> Iterator[pa.Schema]:
    """Yield the schema of a table that is the source, else those of its first files that have one."""
    schema = listing.source_schema(source, options)
    if schema is not None:
        yield schema
        return
    for file in files:
        if file.size and file_format(file.format).footer is not None:
            yield filelist.read_footer(file, options, field="source.paths").schema


def _sample(
    source: SourceSettings, names: Sequence[str], files: Sequence[SourceFile], options: dict[str, str]
) -> dict[str, list[Any]]:
    """Return the values of some fields in the first records, without nulls."""
    values: dict[str, list[Any]] = {name: [] for name in names}
    request = read.read_request(source.model_copy(update={"on_damage": "skip"}))  # the job will say what is damaged
    pieces = (
        Slice(file, 0, 0, WHOLE if file.format.endswith(COMPRESSIONS) else file.size, 0, file.size) for file in files
    )
    records = (record for piece in pieces for _, record in read.read_records(piece, request, options))
    for record in islice(records, SAMPLE):
        if isinstance(record, interface.Record):
            for name, some in values.items():
                if (value := record.values.get(source.column(name))) is not None:
                    some.append(value)
    return values


def _kind(source: SourceSettings, name: str, values: Sequence[Any]) -> AttributeType:
    """Return the type of the values of a JSON field (Python values) or of a CSV column (bytes)."""
    kinds = {type(value) for value in values}
    if kinds == {bytes}:
        return _kind_of_texts([value.decode(errors="replace").strip() for value in values])
    if kinds == {bool}:
        return "bool"
    exact = all(-(1 << 63) <= value < 1 << 63 for value in values if type(value) is int)  # a float would round others
    if exact and kinds and kinds <= {int, float}:
        return "float64" if float in kinds else "int64"
    if list in kinds and kinds <= {list, str}:
        items = {type(item) for value in values if isinstance(value, list) for item in value}
        if items <= {str, type(None)}:
            return "strings"
    if kinds and kinds <= {list, dict}:
        raise _not_storable(source, name, "objects or lists")
    return "string"


def _kind_of_texts(values: Sequence[str]) -> AttributeType:
    values = [value for value in values if value]
    for kind, check in _CHECKS.items() if values else ():
        if all(check.fullmatch(value) and _fits(value, kind) for value in values):
            return kind
    return "string"


def _fits(value: str, kind: AttributeType) -> bool:
    try:
        parse_value(value, "int64" if kind == "float64" and _CHECKS["int64"].fullmatch(value) else kind)
    except ValueError:
        return False
    return True


def _not_storable(source: SourceSettings, name: str, what: str) -> errors.ConfigError:
    return errors.ConfigError(
        "source.stored_fields",
        f"column {source.column(name)} holds {what}, which no stored field can hold",
        "leave it out, or name a field inside it, for example with source.columns",
    )
