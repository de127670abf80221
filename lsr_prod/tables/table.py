"""What a table is to the rest of lsr_prod: a snapshot that knows its files, and commits from itself or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lsr_prod.errors import TableConflictError
from lsr_prod.storage import Store
from lsr_prod.tables.part import Part

__all__ = ["LogEntry", "Table", "TableFile", "check_removes"]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that a snapshot names.

    Attributes:
        path: inside the table.
        size: bytes.
        rows: rows; None where another program wrote the file and did not say.
        partition: partition column -> value as text.
    """

    path: str
    size: int
    rows: int | None
    partition: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit in the log.

    Attributes:
        version: 0, 1, 2 …
        committed_at: seconds since 1970 by the clock of the store.
    """

    version: int
    committed_at: float


class Table(Protocol):
    """A snapshot of a table. It never changes: after a commit, open the table again."""

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
        """What was fixed when the table was made."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns; their values stand in the log and in the folders' names, not in the files."""

    @property
    def schema(self) -> pa.Schema:
        """Columns, partition columns included."""

    def files(self) -> list[TableFile]:
        """Every file of the snapshot, sorted by path."""

    def transaction_version(self, app: str) -> int | None:
        """What ``app`` committed last, or None if it never did."""

    def commit(
        self,
        adds: Sequence[tuple[Part, Mapping[str, str | None]]],
        removes: Sequence[str],
        *,
        app: str,
        version: int,
        epoch: int,
        data_change: bool = True,
    ) -> None:
        """Add and remove files in one step, from this snapshot.

        Args:
            adds: parts with their partition values; that they are whole was checked.
            removes: paths of files of this snapshot.
            app: who commits; a plan's digest.
            version: the number that ``app`` gives to this commit.
            epoch: attempt that commits; recorded for people.
            data_change: False where the same rows lie in other files afterwards.

        Raises:
            TableConflictError: ``app`` has committed since, or a removed file is gone, or the sink could not tell.
            StorageError: the store failed; the commit may have landed all the same. Load the table and look.
        """

    def log(self) -> list[LogEntry]:
        """The commits that the table has now, the oldest first."""

    def added_since(self, version: int) -> set[str]:
        """Paths that the commits after ``version`` added, up to this snapshot; also those removed again since.

        Raises:
            ArtifactError: a commit's record is gone.
        """


def check_removes(table: Table, removes: Sequence[str]) -> dict[str, TableFile]:
    """The files to remove, by path.

    Raises:
        TableConflictError: the snapshot does not have one of them.
    """
    if not removes:
        return {}
    files = {file.path: file for file in table.files()}
    missing = [path for path in removes if path not in files]
    if missing or len(set(removes)) < len(removes):
        raise TableConflictError(f"{table.store.uri} no longer has {missing[:1]}; load it and decide again")
    return {path: files[path] for path in removes}
