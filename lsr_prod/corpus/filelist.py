"""The files of a corpus as an Arrow table: a million files in a few hundred MB."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lsr_prod.corpus.pinned_file import SourceFile
from lsr_prod.storage.deletion_vector import VECTOR_TYPE, DeletionVector
from lsr_prod.storage.formats.digest import canonical_json

READ, KEPT, REMOVED = 0, 1, 2
"""State of a file in a plan: read it; keep the rows of an earlier plan; delete its rows."""

_SCHEMA = pa.schema(
    [
        ("state", pa.int8()),
        ("identity", pa.binary(32)),  # sha256 of ``SourceFile.identity``; its first 8 bytes are ``SourceFile.key``
        ("uri", pa.string()),
        ("name", pa.string()),
        ("format", pa.string()),
        ("size", pa.int64()),
        ("tag", pa.string()),
        ("constants", pa.string()),
        ("columns", pa.string()),
        ("deleted", VECTOR_TYPE),
        ("etag", pa.string()),
        ("mtime_ns", pa.int64()),
        ("inode", pa.uint64()),
    ]
)
_OF_TABLES = ("columns", "deleted")  # absent in plans of earlier releases
_FACTS = {"etag": "", "mtime_ns": 0, "inode": 0}  # of a location; a reader compares the content if they are unknown
_BATCH = 8192


def list_files(files: Iterable[SourceFile]) -> pa.Table:
    """Return the files as a table, in order, with the state ``READ``."""
    left = iter(files)
    return pa.Table.from_batches(map(_batch, iter(lambda: list(islice(left, _BATCH)), [])), _SCHEMA)


def _batch(files: list[SourceFile]) -> pa.RecordBatch:
    given = {
        "state": [READ] * len(files),
        "identity": [hashlib.sha256(canonical_json(file.identity())).digest() for file in files],
        "constants": [json.dumps(file.constants) if file.constants else None for file in files],
        "columns": [json.dumps(file.columns) if file.columns else None for file in files],
        "deleted": [asdict(file.deleted) if file.deleted else None for file in files],
    }
    columns = [given.get(name) or [getattr(file, name) for file in files] for name in _SCHEMA.names]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def file_of(row: Mapping[str, Any]) -> SourceFile:
    """Return the file of a row of the table."""
    constants, columns = (tuple(map(tuple, json.loads(row[key] or "[]"))) for key in ("constants", "columns"))
    deleted = DeletionVector(**row["deleted"]) if row["deleted"] else None
    facts = {name: row[name] for name in _FACTS}
    place = (row["uri"], row["name"], row["format"], row["size"], row["tag"])
    return SourceFile(*place, constants, columns, deleted, **facts)


def iterate_files(files: pa.Table) -> Iterator[tuple[int, SourceFile]]:
    """Yield (ordinal, file) of every file that is read, in order; one batch is in memory at a time."""
    first = 0
    for batch in files.to_batches(max_chunksize=_BATCH):
        rows = pc.indices_nonzero(pc.equal(batch["state"], READ))
        found = batch.take(rows).to_pylist()
        yield from ((first + ordinal, file_of(row)) for ordinal, row in zip(rows.to_pylist(), found, strict=True))
        first += batch.num_rows


def mark(files: pa.Table, states: npt.NDArray[np.int8]) -> pa.Table:
    """Return the files with new states."""
    return files.set_column(0, _SCHEMA.field("state"), pa.array(states, pa.int8()))


def relocate(files: pa.Table, current: pa.Table) -> pa.Table:
    """Return the files with the locations of the same files in another list."""
    rest = files.slice(current.num_rows)
    for name in ("uri", "name", *_FACTS):
        field = _SCHEMA.field(name)
        column = pa.chunked_array([*current[name].chunks, *rest[name].chunks], field.type)
        files = files.set_column(_SCHEMA.get_field_index(name), field, column)
    return files


def without_location_facts(files: pa.Table) -> pa.Table:
    """Return the files as they are stored: what holds for one run at one location is not worth keeping."""
    return files.drop_columns([*_FACTS])


def with_location_facts(files: pa.Table) -> pa.Table:
    """Return stored files with unknown facts of their locations."""
    absent = dict.fromkeys(name for name in _OF_TABLES if name not in files.column_names)
    for name, unknown in (absent | _FACTS).items():
        field = _SCHEMA.field(name)
        files = files.append_column(field, pa.array([unknown] * files.num_rows, field.type))
    return files


def file_keys(files: pa.Table) -> npt.NDArray[np.int64]:
    """Return ``SourceFile.key`` of every file, int64 [files]."""
    return np.ascontiguousarray(_identities(files)[:, :8]).view(">i8").ravel().astype(np.int64)


def files_digest(files: pa.Table) -> str:
    """Return the sha256 (hex) over state and identity of every file, in order; folders do not matter."""
    states = files["state"].to_numpy().astype(np.uint8)
    return hashlib.sha256(np.column_stack([states, _identities(files)]).tobytes()).hexdigest()


def _identities(files: pa.Table) -> npt.NDArray[np.uint8]:
    """Return the identities, uint8 [files, 32]."""
    chunks = [np.frombuffer(_values(chunk), np.uint8) for chunk in files["identity"].chunks]
    return np.concatenate([np.empty(0, np.uint8), *chunks]).reshape(-1, 32)


def _values(chunk: pa.Array) -> memoryview:
    return memoryview(chunk.buffers()[1])[32 * chunk.offset : 32 * (chunk.offset + len(chunk))]
