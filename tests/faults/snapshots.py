"""Files and live rows of a snapshot, read without the code under test: Delta by delta-rs, manifests by this module."""

import base64
import json
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from lsr_prod.storage import Store

__all__ = ["SnapshotFile", "deleted_rows", "delta_rows", "snapshot", "visible"]

_COMMIT = re.compile(r"_manifest/(\d{20})\.json$")
_CHECKPOINT = re.compile(r"_manifest/(\d{20})\.checkpoint\.parquet$")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_LARGEST_ARRAY = 4096  # values of a container


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file of a snapshot.

    Attributes:
        path: inside the table.
        size: bytes.
        rows: number of rows in the file, deleted rows included.
        deleted: deletion vector in the terms of the Delta protocol; only of manifests.
    """

    path: str
    size: int
    rows: int | None
    deleted: Mapping[str, Any] | None = None


def snapshot(store: Store, version: int | None = None) -> list[SnapshotFile] | None:
    """Return the files of a snapshot; None if its log contradicts itself."""
    names = store.names("_manifest")
    commits = {int(match[1]): name for name in names if (match := _COMMIT.search(name))}
    if commits:
        newest = max(commits) if version is None else version
        saved = {int(match[1]): name for name in names if (match := _CHECKPOINT.search(name))}
        base = max((number for number in saved if number <= newest), default=0)
        files = _checkpoint(store, saved[base]) if base else {}
        for number in range(base + 1, newest + 1):
            commit = json.loads(store.get(commits[number]) or b"")
            deletions = commit.get("deletions", {})
            if not files.keys() >= {*commit["removes"], *deletions}:
                return None
            files |= {path: replace(files[path], deleted=vector) for path, vector in deletions.items()}
            for path in commit["removes"]:
                del files[path]
            files |= {add["path"]: SnapshotFile(add["path"], add["size"], add["rows"]) for add in commit["adds"]}
        return list(files.values())
    table = _delta(store, version)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist() if table else []
    return [SnapshotFile(action["path"], action["size_bytes"], action["num_records"]) for action in actions]


def visible(store: Store) -> set[str]:
    """Return the paths of the newest snapshot."""
    return {file.path for file in snapshot(store) or ()}


def delta_rows(store: Store, columns: Sequence[str], version: int | None = None) -> list[dict[str, Any]] | None:
    """Return the rows that delta-rs reads from a Delta table with deletions; None: the table is none.

    Raises:
        Exception: of delta-rs, if a file or a deletion vector cannot be read.
    """
    table = None if any(map(_COMMIT.search, store.names("_manifest"))) else _delta(store, version)
    if table is None or "deletionVectors" not in (table.protocol().reader_features or ()):
        return None
    names = ", ".join(columns)
    found = QueryBuilder().register("t", table).execute(f"select {names} from t")
    return pa.table(found.read_all()).to_pylist()


def deleted_rows(store: Store, vector: Mapping[str, Any]) -> set[int]:
    """Return the deleted rows of a part of a manifest.

    Raises:
        ValueError: the vector is missing or damaged.
    """
    kind, place, size = vector["storageType"], vector["pathOrInlineDv"], vector["sizeInBytes"]
    if kind == "i":
        data = _base85(place)[:size]
    else:
        name = f"deletion_vector_{uuid.UUID(bytes=_base85(place[-20:]))}.bin"
        start = vector["offset"] + 4
        content = store.get(f"{place[:-20]}/{name}" if place[:-20] else name) or b""
        data = content[start : start + size]
    rows = _rows(data)
    if len(rows) != vector["cardinality"]:
        raise ValueError(f"a deletion vector has {len(rows)} rows instead of {vector['cardinality']}")
    return rows


def _rows(data: bytes) -> set[int]:
    """Return the values of a ``RoaringBitmapArray`` with one bitmap without runs."""
    try:
        bitmap = memoryview(data)[16:]
        cookie, count = struct.unpack_from("<II", bitmap)
        if cookie != 12346:
            raise ValueError(f"a deletion vector has cookie {cookie}")
        rows = set()
        for number in range(count):
            key, last = struct.unpack_from("<HH", bitmap, 8 + 4 * number)
            (at,) = struct.unpack_from("<I", bitmap, 8 + 4 * count + 4 * number)
            if last < _LARGEST_ARRAY:
                values = struct.unpack_from(f"<{last + 1}H", bitmap, at)
            else:
                bits = int.from_bytes(bitmap[at : at + 8192], "little")
                values = tuple(value for value in range(1 << 16) if bits >> value & 1)
            rows |= {(key << 16) + value for value in values}
    except struct.error as error:
        raise ValueError(f"a deletion vector is damaged ({error})") from error
    return rows


def _base85(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _RFC1924)))


def _delta(store: Store, version: int | None) -> DeltaTable | None:
    if not Path(store.uri).exists() and "://" not in store.uri:
        return None
    try:
        return DeltaTable(store.location, version=version, storage_options=store.delta_options)
    except TableNotFoundError:
        return None


def _checkpoint(store: Store, name: str) -> dict[str, SnapshotFile]:
    rows = pq.read_table(pa.BufferReader(store.get(name) or b"")).to_pylist()
    return {
        row["path"]: SnapshotFile(row["path"], row["size"], row["rows"], _vector(row.get("deleted"))) for row in rows
    }


def _vector(saved: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the deletion vector of a checkpoint with the names that commits use."""
    if saved is None:
        return None
    names = {"storageType": "storage", "pathOrInlineDv": "data", "offset": "offset", "sizeInBytes": "size"}
    return {**{name: saved[ours] for name, ours in names.items()}, "cardinality": saved["rows"]}
