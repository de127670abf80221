"""Deletions in a Delta table: commits that give parts a deletion vector, and the vectors of a snapshot.

delta-rs reads deletion vectors, but has no action to write them, does not list them, and accepts the removal of a part
with a vector without removing it. Nor can it change properties together with files. So a commit that does one of these
is written here: created only if absent, at exactly one version number, as delta-rs does for a commit that removes
files.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.table import ProtocolVersions

from lsr_prod.errors import ArtifactError, TableConflictError
from lsr_prod.logs import get_log
from lsr_prod.storage import Store
from lsr_prod.storage.remote import short_message
from lsr_prod.storage.threads import in_threads
from lsr_prod.tables.deletion_vector import DeletionVector
from lsr_prod.tables.live_rows import TableFile
from lsr_prod.tables.part import Part

log = get_log(__name__)

LOG_FOLDER = "_delta_log"
FEATURE = "deletionVectors"
"""Reader feature of a table with deletions."""
CHECKPOINT_EVERY = 100
"""Commits between two checkpoints, as in delta-rs."""
_VECTOR_COLUMN = "add.deletionVector"
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


def commit_name(version: int) -> str:
    """Return the path of the commit of a version inside the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def is_commit(name: str) -> bool:
    """Return whether a file name of the log folder is that of a commit."""
    return len(name) == 25 and name[:20].isdigit() and name.endswith(".json")


def read_actions(store: Store, version: int) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    name = commit_name(version)
    data = store.get(name)
    if data is None:
        raise ArtifactError(f"{store.uri} has lost the log of version {version}; restore {name}")
    try:
        return [json.loads(line) for line in data.splitlines() if line]
    except ValueError as error:
        raise ArtifactError(f"{store.uri}/{name} is damaged ({error}); restore it") from error


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who commits."""

    app: str  # the committing application
    version: int  # number of the commit, given by ``app``
    epoch: int  # epoch of the committing attempt
    data_change: bool  # False if the commit only moves rows to other files


def deletion_vectors(store: Store, version: int) -> dict[str, DeletionVector]:
    """Return the deletion vectors of a snapshot, by path of their part.

    Reads two columns of the newest checkpoint and the commits after it.
    """
    names = [entry.name.rpartition("/")[2] for entry in store.entries(LOG_FOLDER)]
    saved = [int(name[:20]) for name in names if name.endswith(".checkpoint.parquet") and name[:20].isdigit()]
    start = max((number for number in saved if number <= version), default=-1)
    found: dict[str, DeletionVector | None] = dict(_of_checkpoint(store, start)) if start >= 0 else {}
    for changed in in_threads(partial(_changed_vectors, store), range(start + 1, version + 1)):
        found |= changed
    return {path: vector for path, vector in found.items() if vector}


def commit_actions(
    store: Store,
    snapshot: DeltaTable,
    adds: Sequence[tuple[Part, Mapping[str, str | None]]],
    removes: Sequence[TableFile],
    deletions: Sequence[tuple[TableFile, DeletionVector]],
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
    if not store.put_new(commit_name(at), data):
        raise TableConflictError(f"{store.uri}: commit {at} came first; load the table and decide again")
    if at % CHECKPOINT_EVERY == 0:
        _save_checkpoint(store, at)


def _save_checkpoint(store: Store, version: int) -> None:
    """Write the checkpoint that delta-rs writes after commits of its own."""
    try:
        DeltaTable(store.location, version=version, storage_options=store.delta_options).create_checkpoint()
    except (DeltaError, OSError) as error:
        # The commit is valid without the checkpoint: opening the table reads more commits until the next checkpoint.
        fields = {"version": version, "error": short_message(error)}
        log.warning("checkpoint not written", extra={"fields": fields})


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


def _add(file: TableFile, vector: DeletionVector, now: int) -> dict[str, Any]:
    place = {"path": file.path, "partitionValues": dict(file.partition), "size": file.size}
    stats = json.dumps({"numRecords": file.rows, "tightBounds": False})
    return {**place, "modificationTime": now, "dataChange": True, "stats": stats, "deletionVector": vector.to_delta()}


def _new(part: Part, values: Mapping[str, str | None], now: int, data_change: bool) -> dict[str, Any]:
    place = {"path": part.path, "partitionValues": dict(values), "size": part.size}
    return {**place, "modificationTime": now, "dataChange": data_change, "stats": part.stats}


def _changed_vectors(store: Store, number: int) -> dict[str, DeletionVector | None]:
    """Return the deletion vectors that a commit changes, by path of their part; None: the part has none any more."""
    actions = read_actions(store, number)
    changed: dict[str, DeletionVector | None] = {one["remove"]["path"]: None for one in actions if "remove" in one}
    for add in (one["add"] for one in actions if "add" in one):
        vector = add.get("deletionVector")
        changed[add["path"]] = DeletionVector.from_delta(vector) if vector else None
    return changed


def _of_checkpoint(store: Store, number: int) -> Iterator[tuple[str, DeletionVector]]:
    name = f"{LOG_FOLDER}/{number:020d}.checkpoint.parquet"
    try:
        with store.open_reader(name) as data, pq.ParquetFile(data) as file:
            if not any(path.startswith(_VECTOR_COLUMN + ".") for path in _leaves(file)):
                return
            adds = file.read(["add.path", _VECTOR_COLUMN])["add"]
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{store.uri}/{name} is damaged ({error}); delete it") from error
    with_vector = adds.filter(pc.struct_field(adds, "deletionVector").is_valid())
    for add in with_vector.to_pylist():
        yield add["path"], DeletionVector.from_delta(add["deletionVector"])


def _leaves(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]
