"""Protocol of a table: an immutable snapshot that lists its files and commits changes based on itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lsr_prod.errors import CommitError, TableConflictError
from lsr_prod.storage import Store
from lsr_prod.tables.deletion_vector import DeletionVector
from lsr_prod.tables.file_table import TableFile, files_with_paths, to_files
from lsr_prod.tables.part import Part


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit in the log.

    Attributes:
        version: 0, 1, 2, ...
        committed_at: seconds since 1970, by the clock of the store.
    """

    version: int
    committed_at: float


class Table(Protocol):
    """A snapshot of a table. It never changes; after a commit, open the table again."""

    @property
    def store(self) -> Store:
        """The table's folder."""

    @property
    def sink(self) -> str:
        """``delta`` or ``parquet``."""

    @property
    def version(self) -> int:
        """Number of the newest commit in this snapshot."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Properties of the table at this version."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns; their values are in the log and in the folder names, not in the files."""

    @property
    def schema(self) -> pa.Schema:
        """Columns, including the partition columns."""

    def file_table(self) -> pa.Table:
        """Return every file of the snapshot, sorted by path (columns: ``file_table.file_schema``)."""

    def files(self) -> list[TableFile]:
        """Return the rows of ``file_table`` as Python objects: about 0.5 KB per file."""

    def transaction_version(self, app: str) -> int | None:
        """Return the version of the last commit of ``app``; None if it has none."""

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
                removed, other rows of it were deleted, or the sink cannot exclude any of this; with ``properties`` any
                commit that came first is a conflict.
            CommitError: the snapshot has a file to add already.
            StorageError: the store failed. The commit may have succeeded; load the table to find out.
        """

    def log(self) -> list[LogEntry]:
        """Return the commits of the table, oldest first."""

    def added_since(self, version: int) -> set[str]:
        """Return the paths that commits after ``version`` added, up to this snapshot; also those removed since.

        The files of deletion vectors that these commits name are included.

        Raises:
            ArtifactError: the record of a commit is missing.
        """


def check_removes(table: Table, removes: Sequence[str]) -> list[TableFile]:
    """Return the files to remove or to delete rows of."""
    if not removes:
        return []
    files = to_files(files_with_paths(table.file_table(), removes))
    if len(files) < len(removes):
        missing = sorted({*removes} - {file.path for file in files})
        raise TableConflictError(f"{table.store.uri} no longer has {missing[:1]}; load the table and decide again")
    return files


def check_adds(table: Table, adds: Sequence[tuple[Part, Mapping[str, str | None]]]) -> None:
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
