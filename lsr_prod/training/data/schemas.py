"""Check before anything is written that files can hold the rows that the settings describe."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa

from lsr_prod.config import section, training
from lsr_prod.corpus import filelist, pinned_file, source_rows
from lsr_prod.corpus.formats import arrow, registry
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.storage.folders import digest_file
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data.training_rows import LISTS, pin_files, read_data

log = get_log(__name__)

_THREADS = 32  # files that are read at once: each waits for its store
_FIRST_ROWS = 100


def check_schemas(
    files: Sequence[pinned_file.SourceFile], data: section.TrainingDataSettings, options: dict[str, str]
) -> None:
    """Check the footer of every Parquet file and the first rows of every JSONL file.

    A JSONL file is rejected if all of its first rows lack a column or have another type in it; single rows are
    validated when they are read.
    """
    check_formats(files)
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(partial(_check_file, data=data, options=options), files):
            pass


def check_formats(files: Sequence[pinned_file.SourceFile]) -> None:
    """Refuse files of formats that have no training data."""
    for file in files:
        if not registry.file_format(file.format).training_data:
            raise ConfigError("data.paths", f"{file.location} is {file.format}", "give Parquet, JSONL or a Delta table")


def _check_file(file: pinned_file.SourceFile, data: section.TrainingDataSettings, options: dict[str, str]) -> None:
    if registry.file_format(file.format).footer is not None:
        _check_footer(file, data, options)
    else:
        _check_first_rows(file, data, options)


def _check_footer(file: pinned_file.SourceFile, data: section.TrainingDataSettings, options: dict[str, str]) -> None:
    schema = filelist.read_footer(file, options, field="data.paths").schema
    types = {name: pa.string() for name, _ in file.constants} | {field.name: field.type for field in schema}
    for field in data.fields:
        column = data.column(field)
        if column not in types:
            raise _lacks(file, field, column, types)
        if not _holds(field, types[column]):
            wanted = _wanted(field)
            problem = f"{file.location} has {types[column]} in column {column}, which has to be {wanted}"
            raise ConfigError("data.paths", problem, "rewrite the column, or leave the file out")


def _check_first_rows(
    file: pinned_file.SourceFile, data: section.TrainingDataSettings, options: dict[str, str]
) -> None:
    piece = pinned_file.Slice(file, 0, 0, file.size, 0, file.size)
    first = [record for _, record in islice(read_data(piece, data, options), _FIRST_ROWS)]
    records = [record.values for record in first if record is not None and not isinstance(record, source_rows.BadRow)]
    if not records:
        return
    for field in data.fields:
        column, kind = data.column(field), list if field in LISTS else str
        if not any(column in record for record in records):
            raise _lacks(file, field, column, records[0])
        if not any(record.get(column) is None or isinstance(record[column], kind) for record in records):
            raise ConfigError(
                "data.paths",
                f"{file.location} has {json.dumps(records[0][column])[:80]} in column {column}, which has to be "
                f"{_wanted(field)}",
                "name another column in data.columns, or leave the file out",
            )


def _lacks(file: pinned_file.SourceFile, field: str, column: str, present: Any) -> ConfigError:
    return ConfigError(
        "data.columns",
        f"{file.location} has no column {column}, which has to be the {field} of a row",
        f"name one of its columns: {', '.join(sorted(present))}",
    )


def _wanted(field: str) -> str:
    if field not in LISTS:
        return "text"
    return "a list of numbers" if field == "scores" else "a list of texts"


def _holds(field: str, kind: pa.DataType) -> bool:
    if field not in LISTS:
        return _is_text(kind)
    if not arrow.is_list(kind):
        return False
    if field == "scores":
        return bool(pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
    # A writer that has seen only empty lists gives their items no type.
    return _is_text(kind.value_type) or (field == "negatives" and pa.types.is_null(kind.value_type))


def _is_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_text(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return arrow.is_text(kind)


def pin_data(data: section.TrainingDataSettings, options: dict[str, str]) -> str:
    """Return the digest (hex) of the files of training data in order; local files are read, about a second per GiB."""
    files = pin_files(data, options)
    check_schemas(files, data, options)
    log.info("training data", extra={"fields": {"files": len(files), "bytes": sum(file.size for file in files)}})
    return digest_json([file.identity() for file in files])


def pin_validation(validation: training.ValidationSettings, options: dict[str, str] | None = None) -> str:
    """Return the digest (hex) of the collection that validates a stage."""
    files = (validation.corpus, validation.queries, validation.qrels)
    return digest_json([digest_file(path, options) for path in files])
