"""A Delta table: an immutable snapshot that lists its files and commits changes based on itself, through delta-rs.

delta-rs does not reject a repeated app transaction by itself. To compare and swap, read the version of the transaction
and commit from the same handle: then delta-rs rejects the commit if another one of the same app id came first. delta-rs
also accepts the removal of a file that was already removed. So every removal is checked against the snapshot, and a
commit with removals is tried at exactly one version number.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from lsr_prod.encoding.tables.deletions import FEATURE, CommitInfo, commit_actions
from lsr_prod.encoding.tables.live_rows import (
    TableFile,
    file_schema,
    files_with_paths,
    partition_column,
    to_files,
    vector_column,
)
from lsr_prod.encoding.tables.part import Part
from lsr_prod.errors import ArtifactError, CommitError, StorageError, TableConflictError
from lsr_prod.storage import Store, delta_log, disk, in_threads, location, remote
from lsr_prod.storage.deletion_vector import VECTOR_TYPE, DeletionVector, file_of
from lsr_prod.storage.formats.table_format import TableProperties

# Published index versions name old table versions, so delta-rs must not delete the log of old versions.
_KEEP_LOG = {"delta.enableExpiredLogCleanup": "false"}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit in the log."""

    version: int  # 0, 1, 2,
    committed_at: float  # seconds since 1970, by the clock of the store


class Table:
    """A snapshot of a table. It never changes; after a commit, open the table again.

    Attributes:
        store: the table's folder.
        version: number of the newest commit in this snapshot.
    """

    def __init__(self, store: Store, handle: DeltaTable) -> None:
        self.store = store
        self._handle = handle
        self.version: int = handle.version()

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Properties of the table at this version."""
        return {key: str(value) for key, value in self._handle.metadata().configuration.items()}

    @cached_property
    def sparse_properties(self) -> TableProperties:
        """Properties of a sparse table.

        Raises:
            FormatVersionError: another program or release wrote the table.
        """
        return TableProperties.from_delta(dict(self.properties))

    @cached_property
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns; their values are in the log and in the folder names, not in the files."""
        return tuple(self._handle.metadata().partition_columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns, including the partition columns."""
        return pa.schema(self._handle.schema())

    @cached_property
    def _files(self) -> pa.Table:
        actions = pa.table(self._handle.get_add_actions(flatten=True))
        paths = actions["path"].cast(pa.large_string())
        deleted = pa.nulls(len(paths), VECTOR_TYPE)
        if FEATURE in (self._handle.protocol().reader_features or ()):
            deleted = self._vectors(paths)
        plain = [paths, actions["size_bytes"], actions["num_records"], deleted]
        values = [actions[partition_column(name)] for name in self.partition_by]
        schema = file_schema(self.partition_by)
        return pa.table([*plain, *values], names=schema.names).cast(schema).sort_by("path")

    def _vectors(self, paths: pa.ChunkedArray) -> pa.Array:
        found = delta_log.deletion_vectors(self.store, self.version)
        column = vector_column(paths, found)
        if len(column) - column.null_count != len(found):
            raise ArtifactError(f"the log of {self.store.uri} deletes rows of files that the table does not have")
        return column

    def file_table(self) -> pa.Table:
        """Return every file of the snapshot, sorted by path (columns: ``file_table.file_schema``)."""
        return self._files

    def files(self) -> list[TableFile]:
        """Return the rows of ``file_table`` as Python objects: about 0.5 KB per file."""
        return to_files(self._files)

    def transaction_version(self, app: str) -> int | None:
        """Return the version of the last commit of ``app``; None if it has none."""
        version = self._handle.transaction_version(app)
        return None if version is None else int(version)

    def commit(
        self,
        adds: Sequence[tuple[Part, Mapping[str, str | None]]],
        removes: Sequence[str],
        *,
        app: str,
        version: int,
        epoch: int,
        data_change: bool = True,
        deletions: Mapping[str, DeletionVector] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Add and remove files, and delete rows of other files, in one transaction based on this snapshot.

        Args:
            adds: verified parts with their partition values.
            removes: paths of files of this snapshot.
            app: the committing application, for example the digest of a plan.
            version: number of the commit, given by ``app``.
            epoch: epoch of the committing attempt; recorded for information.
            data_change: False if the commit only moves rows to other files.
            deletions: path of a file of this snapshot -> all of its deleted rows, also those that are deleted in this
                snapshot; a file is not in both ``removes`` and ``deletions``.
            properties: properties to add or to change; with any, no other commit may come between.

        Raises:
            TableConflictError: ``app`` has committed since the snapshot, a file to remove or to delete rows of was
                removed, or other rows of it were deleted; with ``removes``, ``deletions`` or ``properties`` any commit
                that came first is a conflict.
            CommitError: the snapshot has a file to add already.
            StorageError: the store failed. The commit may have succeeded; load the table to find out.
        """
        _check_adds(self, adds)
        changed = {file.path: file for file in _check_removes(self, [*removes, *(deletions or ())])}
        gone = [changed[path] for path in removes]
        info = CommitInfo(app, version, epoch, data_change)
        if deletions or properties or any(file.deleted for file in gone):
            vectors = [(changed[path], vector) for path, vector in (deletions or {}).items()]
            commit_actions(self.store, self._handle, adds, gone, vectors, info, properties or {})
            return
        self._write(adds, gone, info)

    def _write(
        self, adds: Sequence[tuple[Part, Mapping[str, str | None]]], removes: Sequence[TableFile], info: CommitInfo
    ) -> None:
        """Commit added and removed files through delta-rs."""
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, info.data_change, now, None, dict(file.partition)) for file in removes
        ]
        actions += [
            AddAction(part.path, part.size, dict(values), now, info.data_change, part.stats) for part, values in adds
        ]
        with_transaction = CommitProperties(
            app_transactions=[Transaction(info.app, info.version, None)],
            custom_metadata={"lsr_prod.epoch": str(info.epoch)},
            max_commit_retries=0 if removes else None,
        )
        try:
            self._handle.create_write_transaction(
                actions,
                mode="append",
                schema=self._handle.schema(),
                partition_by=list(self.partition_by),
                commit_properties=with_transaction,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except CommitFailedError as error:
            raise TableConflictError(
                f"{self.store.uri}: another commit came first ({remote.short_message(error)}); load the table "
                "and decide again"
            ) from error
        except (DeltaError, OSError) as error:
            failure = disk.disk_error(error, self.store.uri) or StorageError(
                f"{self.store.uri} cannot be committed to ({remote.short_message(error)}); run the job again"
            )
            raise failure from error

    def log(self) -> list[LogEntry]:
        """Return the commits of the table, oldest first."""
        found = [(entry.name.rpartition("/")[2], entry.modified) for entry in self.store.entries(delta_log.LOG_FOLDER)]
        return [LogEntry(int(name[:20]), modified) for name, modified in sorted(found) if delta_log.is_commit(name)]

    def added_since(self, version: int) -> set[str]:
        """Return the paths that commits after ``version`` added, up to this snapshot; also those removed since.

        The files of deletion vectors that these commits name are included.

        Raises:
            ArtifactError: the record of a commit is missing.
        """
        numbers = range(version + 1, self.version + 1)
        return {path for paths in in_threads(self._added_by, numbers) for path in paths}

    def _added_by(self, number: int) -> set[str]:
        adds = [action["add"] for action in delta_log.read_actions(self.store, number) if "add" in action]
        vectors = (DeletionVector.from_delta(add["deletionVector"]) for add in adds if add.get("deletionVector"))
        return {add["path"] for add in adds} | {path for vector in vectors if (path := file_of(vector))}


def open_table(store: Store, version: int | None = None) -> Table | None:
    """Open a snapshot of the table in a folder; None if there is no table.

    Args:
        store: the folder.
        version: version to open; None opens the newest.

    Raises:
        StorageError: the store failed, the log is damaged, or the table has no such version.
    """
    if (problem := location.table_problem(store.uri)) is not None:
        raise StorageError(f"{store.uri} cannot be opened as a table: {problem}")
    try:
        return Table(store, DeltaTable(store.location, version=version, storage_options=store.delta_options))
    except TableNotFoundError:
        return None
    except BaseException as error:
        if not isinstance(error, (DeltaError, OSError)) and not remote.is_remote_failure(error):
            raise
        raise StorageError(f"{store.uri} cannot be opened as a Delta table ({remote.short_message(error)})") from error


def load_table(store: Store, version: int | None = None) -> Table:
    """Open a snapshot of a table that exists; see ``open_table``.

    Raises:
        ArtifactError: there is no table.
    """
    table = open_table(store, version)
    if table is None:
        raise ArtifactError(f"{store.uri} is not a table; give a folder that lsr-prod encode wrote")
    return table


def create_table(store: Store, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]) -> Table:
    """Open the table of a folder; create it if there is none. Of two concurrent creators, one opens the other's table.

    If two processes create a table at once, delta-rs lets both succeed: the second overwrites the properties of the
    first, as version 1. So the table is created in a scratch folder, and its commit 0 is then written only if absent.

    Args:
        store: the folder.
        schema: columns, including the partition columns.
        partition_by: partition columns.
        properties: properties of a new table; a commit may change them.

    Raises:
        StorageError: the store failed.
    """
    found = open_table(store)
    if found is not None:
        return found
    with disk.scratch_folder() as scratch:
        DeltaTable.create(
            scratch,
            schema,
            partition_by=list(partition_by),
            configuration={**_KEEP_LOG, **properties},
            raise_if_key_not_exists=False,
        )
        first = (scratch / delta_log.commit_name(0)).read_bytes()
    store.put_new(delta_log.commit_name(0), first)
    return load_table(store)


def _check_removes(table: Table, removes: Sequence[str]) -> list[TableFile]:
    """Return the files to remove or to delete rows of."""
    if not removes:
        return []
    files = to_files(files_with_paths(table.file_table(), removes))
    if len(files) < len(removes):
        missing = sorted({*removes} - {file.path for file in files})
        raise TableConflictError(f"{table.store.uri} no longer has {missing[:1]}; load the table and decide again")
    return files


def _check_adds(table: Table, adds: Sequence[tuple[Part, Mapping[str, str | None]]]) -> None:
    """Refuse a file that the snapshot has already.

    Delta would keep the file once, or lose it if the same commit removes it; either way its rows would not be those
    that the commit counts.
    """
    paths = [part.path for part, _ in adds]
    again = files_with_paths(table.file_table(), paths)["path"].to_pylist() if paths else []
    again += [path for path, count in Counter(paths).items() if count > 1]
    if again:
        raise CommitError(
            f"{table.store.uri} has {again[0]} already, and a commit may not add it again; nothing was committed, "
            "report this"
        )
