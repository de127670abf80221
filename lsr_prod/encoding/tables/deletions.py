"""Deletions of rows of committed parts: the deletion vectors of a wave, and the commits that give them to parts.

delta-rs reads deletion vectors, but has no action to write them, and accepts the removal of a part with a vector
without removing it. Nor can it change properties together with files. So ``commit_actions`` writes a commit that does
one of these: created only if absent, at exactly one version number, as delta-rs does for a commit that removes files.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.table import ProtocolVersions

from lsr_prod import errors, logs
from lsr_prod.encoding.tables.live_rows import TableFile
from lsr_prod.encoding.tables.part import Part
from lsr_prod.storage import Store, deletion_vector, delta_log
from lsr_prod.storage.remote import short_message

log = logs.get_log(__name__)

FEATURE = "deletionVectors"
"""Reader feature of a table with deletions."""
CHECKPOINT_EVERY = 100
"""Commits between two checkpoints, as in delta-rs."""
_ENABLED = "delta.enableDeletionVectors"
_NAMED_FEATURES = 7  # writer version of tables that name their features
# Features that a table has without naming them, by the first writer version that has them.
_WRITER_FEATURES = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}


@dataclass(frozen=True, slots=True)
class Deletion:
    """Rows of a committed part that a wave deletes."""

    path: str  # of the part
    before: str | None  # ``DeletionVector.unique_id`` of the rows that were deleted in the snapshot; None: no row
    vector: deletion_vector.DeletionVector  # these rows and those that the wave deletes
    rows: int  # number of rows that the wave deletes

    @property
    def rows_before(self) -> int:
        """Number of rows that were deleted in the snapshot."""
        return self.vector.rows - self.rows


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who commits."""

    app: str  # the committing application
    version: int  # number of the commit, given by ``app``
    epoch: int  # epoch of the committing attempt
    data_change: bool  # False if the commit only moves rows to other files


def write_deletions(table: Store, files: Iterable[TableFile], to_delete: pa.Table) -> tuple[Deletion, ...]:
    """Write the deletion vectors of parts, each with the rows that are deleted already and those of a cell."""
    numbers: dict[str, deletion_vector.Rows] = {}
    before: dict[str, str | None] = {}
    for file in files:
        rows = to_delete.filter(pc.equal(to_delete["path"], file.path))["row"].to_numpy().astype(np.uint32)
        if len(rows):
            old = [] if file.deleted is None else [deletion_vector.deleted_rows(table, file.deleted)]
            numbers[file.path] = _union([*old, rows])
            before[file.path] = None if file.deleted is None else file.deleted.unique_id
    vectors = deletion_vector.save_vectors(table, numbers)
    added = {entry["values"]: entry["counts"] for entry in pc.value_counts(to_delete["path"]).to_pylist()}
    return tuple(Deletion(path, before[path], vectors[path], added[path]) for path in sorted(vectors))


def merge_deletions(table: Store, deletions: Sequence[Deletion]) -> Deletion:
    """Return the deletion of all rows that the cells of a bucket delete from a part."""
    first = deletions[0]
    if len(deletions) == 1:
        return first
    rows = _union([deletion_vector.deleted_rows(table, each.vector) for each in deletions])
    added = sum(each.rows for each in deletions)
    if len(rows) != first.rows_before + added or {each.before for each in deletions} != {first.before}:
        raise errors.IncompleteWaveError(
            f"cells of one bucket delete {added} rows of {first.path}, but some of them are the same rows; nothing was "
            "committed, report this"
        )
    vector = deletion_vector.save_vectors(table, {first.path: rows})[first.path]
    deletion_vector.check_vectors(table, [vector])
    return Deletion(first.path, first.before, vector, added)


def commit_actions(
    store: Store,
    snapshot: DeltaTable,
    adds: Sequence[tuple[Part, Mapping[str, str | None]]],
    removes: Sequence[TableFile],
    deletions: Sequence[tuple[TableFile, deletion_vector.DeletionVector]],
    info: CommitInfo,
    properties: Mapping[str, str],
) -> None:
    """Write a commit that removes parts with deleted rows, deletes rows or changes properties; see ``Table.commit``."""
    now = int(time.time() * 1000)
    record = {"timestamp": now, "operation": "WRITE", "operationParameters": {}, "lsr_prod.epoch": str(info.epoch)}
    actions: list[dict[str, Any]] = [
        {"commitInfo": record},
        {"txn": {"appId": info.app, "version": info.version, "lastUpdated": now}},
    ]
    if deletions and snapshot.metadata().configuration.get(_ENABLED) != "true":
        # Only now: a table without deletions stays readable by every reader.
        actions.append({"protocol": _with_feature(snapshot.protocol())})
        properties = {**properties, _ENABLED: "true"}
    if properties:
        actions.append({"metaData": _with_properties(snapshot, properties)})
    actions += [
        {"remove": _remove(file, now, info.data_change)} for file in (*removes, *(file for file, _ in deletions))
    ]
    actions += [{"add": _add(file, vector, now)} for file, vector in deletions]
    actions += [{"add": _new(part, values, now, info.data_change)} for part, values in adds]
    data = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
    at = snapshot.version() + 1
    if not store.put_new(delta_log.commit_name(at), data):
        raise errors.TableConflictError(f"{store.uri}: commit {at} came first; load the table and decide again")
    if at % CHECKPOINT_EVERY == 0:
        _save_checkpoint(store, at)


def _union(numbers: Sequence[deletion_vector.Rows]) -> deletion_vector.Rows:
    return np.unique(np.concatenate(numbers)).astype(np.uint32)


def _with_feature(protocol: ProtocolVersions) -> dict[str, Any]:
    """Return the protocol of a table with deletion vectors and everything that the table required before."""
    version = protocol.min_writer_version
    reader, writer = {*(protocol.reader_features or ())}, {*(protocol.writer_features or ())}
    if version < _NAMED_FEATURES:
        writer |= {feature for first, some in _WRITER_FEATURES.items() if first <= version for feature in some}
        reader |= writer & {"columnMapping"}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": _NAMED_FEATURES,
        "readerFeatures": sorted({*reader, FEATURE}),
        "writerFeatures": sorted({*writer, FEATURE}),
    }


def _with_properties(snapshot: DeltaTable, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the ``metaData`` action that adds or changes properties of a table."""
    found = snapshot.metadata()
    return {
        "id": str(found.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": snapshot.schema().to_json(),
        "partitionColumns": list(found.partition_columns),
        "configuration": {**found.configuration, **properties},
        "createdTime": found.created_time,
    }


def _remove(file: TableFile, now: int, data_change: bool) -> dict[str, Any]:
    place = {"path": file.path, "partitionValues": dict(file.partition), "size": file.size}
    times = {"deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}
    # Without the vector the removal would name another logical file, and the part would stay in the table.
    return {**place, **times, **({"deletionVector": file.deleted.to_delta()} if file.deleted else {})}


def _add(file: TableFile, vector: deletion_vector.DeletionVector, now: int) -> dict[str, Any]:
    place = {"path": file.path, "partitionValues": dict(file.partition), "size": file.size}
    stats = json.dumps({"numRecords": file.rows, "tightBounds": False})
    return {**place, "modificationTime": now, "dataChange": True, "stats": stats, "deletionVector": vector.to_delta()}


def _new(part: Part, values: Mapping[str, str | None], now: int, data_change: bool) -> dict[str, Any]:
    place = {"path": part.path, "partitionValues": dict(values), "size": part.size}
    return {**place, "modificationTime": now, "dataChange": data_change, "stats": part.stats}


def _save_checkpoint(store: Store, version: int) -> None:
    """Write the checkpoint that delta-rs writes after commits of its own."""
    try:
        DeltaTable(store.location, version=version, storage_options=store.delta_options).create_checkpoint()
    except (DeltaError, OSError) as error:
        # The commit is valid without the checkpoint: opening the table reads more commits until the next checkpoint.
        log.warning("checkpoint not written", extra={"fields": {"version": version, "error": short_message(error)}})
